//! A spec flattened to a table of `field: value`.
//!
//! Owns: the text of values, which differs whenever the values differ, and the comparison of two tables.
//! Must not touch: which fields there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug, Display},
    time::Duration,
};

use longshore_model::{Effect, FieldChange, units};

/// Values by field. A field without a value has no entry.
pub(super) struct FieldTable {
    fields: BTreeMap<String, (String, Effect)>,
    effect: Effect,
    prefix: String,
}

impl FieldTable {
    /// An empty table whose entries take effect in place.
    pub(super) fn in_place() -> Self {
        Self { fields: BTreeMap::new(), effect: Effect::InPlace, prefix: String::new() }
    }

    /// Adds entries with another effect.
    pub(super) fn with_effect(&mut self, effect: Effect, add: impl FnOnce(&mut Self)) -> &mut Self {
        let before = std::mem::replace(&mut self.effect, effect);
        add(self);
        self.effect = before;
        self
    }

    /// Adds entries below a key.
    pub(super) fn under(&mut self, key: &str, add: impl FnOnce(&mut Self)) -> &mut Self {
        let length = self.prefix.len();
        self.prefix.push_str(key);
        self.prefix.push('.');
        add(self);
        self.prefix.truncate(length);
        self
    }

    pub(super) fn put(&mut self, key: &str, value: impl Display) -> &mut Self {
        self.fields.insert(format!("{}{key}", self.prefix), (value.to_string(), self.effect));
        self
    }

    /// Adds an entry if there is a value.
    pub(super) fn put_some(&mut self, key: &str, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    /// Adds an entry if the value is not the default.
    pub(super) fn put_unless<T: Copy + PartialEq + Display>(&mut self, default: T, key: &str, value: T) -> &mut Self {
        if value == default { self } else { self.put(key, value) }
    }

    /// Adds one entry per entry of a map.
    pub(super) fn put_map<V: Display>(&mut self, key: &str, map: &BTreeMap<String, V>) -> &mut Self {
        self.under(key, |table| {
            for (key, value) in map {
                table.put(key, value);
            }
        })
    }

    /// Adds one entry with all items in order, quoted to keep them apart; no entry if there are none.
    pub(super) fn put_list<T: Display>(&mut self, key: &str, items: impl IntoIterator<Item = T>) -> &mut Self {
        let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
        if items.is_empty() { self } else { self.put(key, quoted(&items)) }
    }
}

/// `["a", "b"]`.
pub(super) fn quoted(items: &[String]) -> String {
    format!("{items:?}")
}

/// The manifest name of an enum variant: `OnFailure` becomes `on_failure`.
pub(super) fn snake_case(value: impl Debug) -> String {
    let mut out = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// The same with hyphens: `on-failure`.
pub(super) fn kebab_case(value: impl Debug) -> String {
    snake_case(value).replace('_', "-")
}

/// Displays a duration, such as `1.5s`.
pub(super) struct DurationText(pub(super) Duration);

impl Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// An amount of memory with a binary unit.
pub(super) fn bytes(amount: Option<u64>) -> Option<String> {
    amount.map(units::bytes)
}

/// Cores as a decimal such as `0.25`, from thousandths.
pub(super) fn cores(millis: Option<u64>) -> Option<String> {
    millis.map(|millis| {
        let text = format!("{}.{:03}", millis / units::MILLIS_PER_CORE, millis % units::MILLIS_PER_CORE);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    })
}

/// The fields whose values differ between two tables.
pub(super) fn changed_fields(old: &FieldTable, new: &FieldTable) -> Vec<FieldChange> {
    let fields: BTreeSet<&String> = old.fields.keys().chain(new.fields.keys()).collect();
    let changes = fields.into_iter().filter_map(|field| {
        let (was, is) = (old.fields.get(field), new.fields.get(field));
        let effect = was.or(is).map(|(_, effect)| *effect)?;
        let value = |field: Option<&(String, Effect)>| field.map(|(value, _)| value.clone());
        let (old, new) = (value(was), value(is));
        (old != new).then(|| FieldChange { field: field.clone(), old, new, effect })
    });
    changes.collect()
}
