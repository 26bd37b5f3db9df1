//! The key tables: how every key of every section is treated.
//!
//! Owns: the type of a table and the dispatch of keys. The rows are next to the code that reads them.
//! Invariant: `docs/compose.md` is generated from the same rows, so it cannot differ from what the reader does.

use std::fmt::Display;

use crate::{
    diagnostic::Diagnostics,
    suggest,
    yaml::{Key, Mapping, Node},
};

/// How one key is treated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule<F> {
    /// The key.
    pub(crate) key: &'static str,
    /// Whether it is read, ignored or refused.
    pub(crate) treatment: Treatment<F>,
    /// Its meaning, or what to write instead.
    pub(crate) explanation: &'static str,
    /// The first version with this treatment.
    pub(crate) since: &'static str,
}

/// Whether a key is read, ignored or refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Treatment<F> {
    /// Read by this function.
    Honoured(F),
    /// Accepted silently; it has no effect.
    Accepted,
    /// Ignored with a warning, because its author may rely on it.
    Warned,
    /// An error.
    Refused,
}

impl<F> Rule<F> {
    /// A key that is read.
    pub(crate) const fn honoured(key: &'static str, read: F, explanation: &'static str) -> Self {
        Self { key, treatment: Treatment::Honoured(read), explanation, since: "0.1" }
    }

    /// A key that is accepted and has no effect.
    pub(crate) const fn accepted(key: &'static str, explanation: &'static str) -> Self {
        Self { key, treatment: Treatment::Accepted, explanation, since: "0.1" }
    }

    /// A key that has no effect on a cluster.
    pub(crate) const fn warned(key: &'static str, explanation: &'static str) -> Self {
        Self { key, treatment: Treatment::Warned, explanation, since: "0.1" }
    }

    /// A key that is not supported.
    pub(crate) const fn refused(key: &'static str, explanation: &'static str) -> Self {
        Self { key, treatment: Treatment::Refused, explanation, since: "0.1" }
    }
}

/// A row of `docs/compose.md`: key, treatment, explanation, version.
pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str);

/// The rows of a table for `docs/compose.md`.
pub(crate) fn rows<F>(table: &[Rule<F>]) -> Vec<Row> {
    table.iter().map(|rule| (rule.key, rule.treatment.as_str(), rule.explanation, rule.since)).collect()
}

impl<F> Treatment<F> {
    /// The name in `docs/compose.md`.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Honoured(_) => "honoured",
            Self::Accepted => "accepted",
            Self::Warned => "ignored with a warning",
            Self::Refused => "refused",
        }
    }
}

/// Looks up every key of a mapping: returns the honoured ones with their readers, and reports the others.
pub(crate) fn dispatch<'n, F: Copy>(
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
                    problems
                        .warn(&key.location, format!("`{}` in {what} has no effect: {}", key.name, rule.explanation));
                }
                Treatment::Refused => {
                    let message = format!("`{}` in {what} is not supported", key.name);
                    problems.error(&key.location, message).hint(rule.explanation);
                }
            },
            None if key.name.starts_with("x-") => {}
            None => unknown(table, key, &what, problems),
        }
    }
    read
}

fn unknown<F>(table: &[Rule<F>], key: &Key, what: impl Display, problems: &mut Diagnostics) {
    // The search for a suggestion is costly, and a full list takes no more problems.
    if problems.is_full() {
        return;
    }
    let honoured: Vec<&str> = table
        .iter()
        .filter(|rule| matches!(rule.treatment, Treatment::Honoured(_)) && !rule.key.starts_with("x-"))
        .map(|rule| rule.key)
        .collect();
    // Prefer honoured keys as suggestions over refused ones.
    let known = if suggest::nearest(&key.name, honoured.iter().copied()).is_some() || honoured.len() <= 12 {
        honoured
    } else {
        table.iter().map(|rule| rule.key).collect()
    };
    problems.unknown_key(key, what, &known);
}
