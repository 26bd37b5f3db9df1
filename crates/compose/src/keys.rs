//! The key table: what becomes of every key of every section, in one place.
//!
//! Owns: the shape of the table and what happens when a key is met. The rows stand beside the code that reads them.
//! Invariant: `docs/compose.md` is printed from the same rows, so the page cannot promise what the reader does not do.

use std::fmt::Display;

use crate::{
    diagnostic::Diagnostics,
    suggest,
    yaml::{Key, Mapping, Node},
};

/// What becomes of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule<F> {
    /// The key.
    pub(crate) key: &'static str,
    /// What we do with it.
    pub(crate) treatment: Treatment<F>,
    /// What that means, or what to do instead.
    pub(crate) says: &'static str,
    /// The version that first did so.
    pub(crate) since: &'static str,
}

/// What we do with a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Treatment<F> {
    /// Read, by that function.
    Honoured(F),
    /// Accepted without a word: its absence would change nothing either.
    Accepted,
    /// Accepted with a warning, since somebody may count on it.
    Warned,
    /// An error.
    Refused,
}

impl<F> Rule<F> {
    /// A key that is read.
    pub(crate) const fn honoured(key: &'static str, read: F, says: &'static str) -> Self {
        Self { key, treatment: Treatment::Honoured(read), says, since: "0.1" }
    }

    /// A key that may stand there and changes nothing.
    pub(crate) const fn accepted(key: &'static str, says: &'static str) -> Self {
        Self { key, treatment: Treatment::Accepted, says, since: "0.1" }
    }

    /// A key that cannot matter on a cluster.
    pub(crate) const fn warned(key: &'static str, says: &'static str) -> Self {
        Self { key, treatment: Treatment::Warned, says, since: "0.1" }
    }

    /// A key we do not support.
    pub(crate) const fn refused(key: &'static str, says: &'static str) -> Self {
        Self { key, treatment: Treatment::Refused, says, since: "0.1" }
    }
}

/// A row for the page: key, treatment, meaning, version.
pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str);

/// The rows of a table as the page prints them.
pub(crate) fn rows<F>(table: &[Rule<F>]) -> Vec<Row> {
    table.iter().map(|rule| (rule.key, rule.treatment.as_str(), rule.says, rule.since)).collect()
}

impl<F> Treatment<F> {
    /// The word on the page.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Honoured(_) => "honoured",
            Self::Accepted => "accepted",
            Self::Warned => "ignored with a warning",
            Self::Refused => "refused",
        }
    }
}

/// Meets every key of a mapping: the honoured ones come back with their readers, the others are dealt with here.
pub(crate) fn meet<'n, F: Copy>(
    table: &'static [Rule<F>],
    mapping: &'n Mapping,
    what: impl Display,
    problems: &mut Diagnostics,
) -> Vec<(F, &'n Key, &'n Node)> {
    let mut read = Vec::with_capacity(mapping.entries.len());
    for (key, node) in mapping.iter() {
        match table.iter().find(|rule| rule.key == &*key.name) {
            Some(rule) => match rule.treatment {
                Treatment::Honoured(reader) => read.push((reader, key, node)),
                Treatment::Accepted => {}
                Treatment::Warned => {
                    problems.warn(&key.place, format!("`{}` in {what} has no effect: {}", key.name, rule.says));
                }
                Treatment::Refused => {
                    let message = format!("`{}` in {what} is not supported", key.name);
                    problems.error(&key.place, message).hint(rule.says);
                }
            },
            None if key.name.starts_with("x-") => {}
            None => unknown(table, key, &what, problems),
        }
    }
    read
}

fn unknown<F>(table: &[Rule<F>], key: &Key, what: impl Display, problems: &mut Diagnostics) {
    // Looking for what was meant costs more than the complaint; a full list takes neither.
    if problems.is_full() {
        return;
    }
    let honoured: Vec<&str> = table
        .iter()
        .filter(|rule| matches!(rule.treatment, Treatment::Honoured(_)) && !rule.key.starts_with("x-"))
        .map(|rule| rule.key)
        .collect();
    // A known but refused key is a worse suggestion than none.
    let known = if suggest::nearest(&key.name, honoured.iter().copied()).is_some() || honoured.len() <= 12 {
        honoured
    } else {
        table.iter().map(|rule| rule.key).collect()
    };
    problems.unknown_key(key, what, &known);
}
