//! A spec laid out as lines of `field: value`.
//!
//! Owns: how values are printed so that two that differ print differently, and the comparison of two sheets.
//! Must not touch: which fields there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug, Display},
    time::Duration,
};

use longshore_model::{Effect, FieldChange, units};

/// Lines by field. What is not there says nothing and has no line.
pub(super) struct Sheet {
    lines: BTreeMap<String, (String, Effect)>,
    effect: Effect,
    prefix: String,
}

impl Sheet {
    /// An empty sheet whose lines change nothing that runs.
    pub(super) fn in_place() -> Self {
        Self { lines: BTreeMap::new(), effect: Effect::InPlace, prefix: String::new() }
    }

    /// Adds lines that cost something else.
    pub(super) fn with(&mut self, effect: Effect, add: impl FnOnce(&mut Self)) -> &mut Self {
        let before = std::mem::replace(&mut self.effect, effect);
        add(self);
        self.effect = before;
        self
    }

    /// Adds lines below a key.
    pub(super) fn under(&mut self, key: &str, add: impl FnOnce(&mut Self)) -> &mut Self {
        let length = self.prefix.len();
        self.prefix.push_str(key);
        self.prefix.push('.');
        add(self);
        self.prefix.truncate(length);
        self
    }

    pub(super) fn put(&mut self, key: &str, value: impl Display) -> &mut Self {
        self.lines.insert(format!("{}{key}", self.prefix), (value.to_string(), self.effect));
        self
    }

    /// A line where there is a value.
    pub(super) fn maybe(&mut self, key: &str, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    /// A line where the answer is not the usual one.
    pub(super) fn unless<T: Copy + PartialEq + Display>(&mut self, usual: T, key: &str, value: T) -> &mut Self {
        if value == usual { self } else { self.put(key, value) }
    }

    /// One line for each entry of a map.
    pub(super) fn each<V: Display>(&mut self, key: &str, map: &BTreeMap<String, V>) -> &mut Self {
        self.under(key, |sheet| {
            for (key, value) in map {
                sheet.put(key, value);
            }
        })
    }

    /// One line with all items in their order, quoted, so that none runs into the next; no line where there are none.
    pub(super) fn list<T: Display>(&mut self, key: &str, items: impl IntoIterator<Item = T>) -> &mut Self {
        let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
        if items.is_empty() { self } else { self.put(key, quoted(&items)) }
    }
}

/// `["a", "b"]`.
pub(super) fn quoted(items: &[String]) -> String {
    format!("{items:?}")
}

/// The word of a closed set as manifests write it: `OnFailure` is `on_failure`.
pub(super) fn word(value: impl Debug) -> String {
    let mut out = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// The same where manifests write it `on-failure`.
pub(super) fn hyphenated(value: impl Debug) -> String {
    word(value).replace('_', "-")
}

/// A length of time.
pub(super) struct Lasting(pub(super) Duration);

impl Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// An amount of memory.
pub(super) fn bytes(amount: Option<u64>) -> Option<String> {
    amount.map(units::bytes)
}

/// `0.25`, from thousandths.
pub(super) fn cores(millis: Option<u64>) -> Option<String> {
    millis.map(|millis| {
        let text = format!("{}.{:03}", millis / units::MILLIS_PER_CORE, millis % units::MILLIS_PER_CORE);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    })
}

/// The lines of two sheets that differ, by field.
pub(super) fn compared(old: &Sheet, new: &Sheet) -> Vec<FieldChange> {
    let fields: BTreeSet<&String> = old.lines.keys().chain(new.lines.keys()).collect();
    let changes = fields.into_iter().filter_map(|field| {
        let (was, is) = (old.lines.get(field), new.lines.get(field));
        let effect = was.or(is).map(|(_, effect)| *effect)?;
        let value = |line: Option<&(String, Effect)>| line.map(|(value, _)| value.clone());
        let (old, new) = (value(was), value(is));
        (old != new).then(|| FieldChange { field: field.clone(), old, new, effect })
    });
    changes.collect()
}
