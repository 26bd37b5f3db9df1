//! Typed reading of the tree: each method returns the value, or adds a problem and returns `None`.
//!
//! Owns: the wording of type errors, equal for manifests, overlays and scenarios.
//! Must not touch: what the value is for. Callers pass `what`, the name of the value in messages.
//! Invariant: `None` is returned only after a problem was added, except where a null means "not given".

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use longshore_model::service::MAX_REPLICAS;

use crate::{
    diagnostic::{Diagnostic, Diagnostics, one_of},
    suggest, units,
    units::UnitError,
    yaml::{Key, Mapping, Node, Value},
};

/// Whether keys that begin with `x-` are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extensions {
    /// They are extensions of the user.
    Allowed,
    /// The schema is closed.
    Refused,
}

impl Diagnostics {
    /// A mapping.
    pub fn mapping<'n>(&mut self, node: &'n Node, what: impl Display) -> Option<&'n Mapping> {
        if node.as_mapping().is_none() {
            self.wrong_shape(node, what, "a mapping of keys to values");
        }
        node.as_mapping()
    }

    /// A list.
    pub fn sequence<'n>(&mut self, node: &'n Node, what: impl Display) -> Option<&'n [Node]> {
        if node.as_sequence().is_none() {
            let problem = self.misshapen(node, what, "a list");
            if let Some(text) = node.as_text().filter(|text| text.len() <= 60) {
                problem.hint(format!("write `[\"{}\"]`", shorten(text)));
            }
        }
        node.as_sequence()
    }

    /// A list of at most `most` entries, for entries that are costly to check.
    pub fn short_sequence<'n>(&mut self, node: &'n Node, what: impl Display, most: usize) -> Option<&'n [Node]> {
        let items = self.sequence(node, &what)?;
        let Some(first_too_many) = items.get(most) else { return Some(items) };
        self.error(&first_too_many.location, format!("{what} has more than {most} entries"));
        None
    }

    /// A text, unchanged: `1.10` stays `1.10`.
    pub fn text<'n>(&mut self, node: &'n Node, what: impl Display) -> Option<&'n str> {
        if node.as_text().is_none() {
            self.wrong_shape(node, what, "a text");
        }
        node.as_text()
    }

    /// A whole number that is not negative.
    pub fn unsigned(&mut self, node: &Node, what: impl Display) -> Option<u64> {
        self.parsed(node, what, "a whole number, zero or more", |text| whole_number(text)?.try_into().ok())
    }

    /// A whole number that fits 32 bits.
    pub fn count(&mut self, node: &Node, what: impl Display) -> Option<u32> {
        self.parsed(node, what, "a whole number, zero or more", |text| whole_number(text)?.try_into().ok())
    }

    /// A number of replicas.
    pub fn replicas(&mut self, node: &Node, what: impl Display) -> Option<u32> {
        let what = what.to_string();
        let count = self.count(node, &what)?;
        if count > MAX_REPLICAS {
            self.error(&node.location, format!("{what} is {count}, at most {MAX_REPLICAS} are allowed"))
                .hint("split the service, or check the number");
            return None;
        }
        Some(count)
    }

    /// A whole number.
    pub fn signed(&mut self, node: &Node, what: impl Display) -> Option<i64> {
        self.parsed(node, what, "a whole number", |text| whole_number(text)?.try_into().ok())
    }

    /// `true` or `false`, or YAML 1.1's words for them.
    pub fn boolean(&mut self, node: &Node, what: impl Display) -> Option<bool> {
        self.parsed(node, what, "`true` or `false`", |text| match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Some(true),
            "false" | "no" | "off" | "n" => Some(false),
            _ => None,
        })
    }

    /// A number from 0 to 1 or more, in millionths.
    pub fn millionths(&mut self, node: &Node, what: impl Display) -> Option<u64> {
        self.parsed(node, what, "a number such as `0.5`", units::parse_millionths)
    }

    /// An amount of memory or disk.
    pub fn bytes(&mut self, node: &Node, what: impl Display) -> Option<u64> {
        self.unit(node, what, units::parse_bytes)
    }

    /// A number of cores, in thousandths.
    pub fn cpus(&mut self, node: &Node, what: impl Display) -> Option<u64> {
        self.unit(node, what, units::parse_cpus)
    }

    /// A duration.
    pub fn duration(&mut self, node: &Node, what: impl Display) -> Option<Duration> {
        self.unit(node, what, units::parse_duration)
    }

    /// One of a fixed set of words.
    pub fn choice<T: Copy>(&mut self, node: &Node, what: impl Display, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(node, &what)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known = || words.iter().map(|(word, _)| *word);
            let message = format!("{what} must be {}, not `{}`", one_of(known()), shorten(text));
            let problem = self.error(&node.location, message);
            if let Some(near) = suggest::nearest(text, known()) {
                problem.hint(format!("did you mean `{near}`?"));
            }
        }
        found.map(|(_, value)| *value)
    }

    /// A list of texts.
    pub fn texts(&mut self, node: &Node, what: impl Display) -> Vec<String> {
        let Some(items) = self.sequence(node, &what) else { return Vec::new() };
        items.iter().filter_map(|item| self.text(item, format_args!("an entry of {what}")).map(str::to_owned)).collect()
    }

    /// A text, or a list of texts.
    pub fn text_or_texts(&mut self, node: &Node, what: impl Display) -> Vec<String> {
        match node.as_text() {
            Some(text) => vec![text.to_owned()],
            None => self.texts(node, what),
        }
    }

    /// Keys with texts: a mapping, or a list of `key=value`. A key without a value has none.
    pub fn pairs(&mut self, node: &Node, what: impl Display) -> BTreeMap<String, Option<String>> {
        match &node.value {
            Value::Mapping(mapping) => mapping
                .iter()
                .filter_map(|(key, value)| {
                    let text = if value.is_null() {
                        None
                    } else {
                        Some(self.text(value, format_args!("`{}` in {what}", key.name))?.to_owned())
                    };
                    Some((key.name.to_string(), text))
                })
                .collect(),
            Value::Sequence(items) => items
                .iter()
                .filter_map(|item| {
                    let text = self.pair(item, &what)?;
                    Some(match text.split_once('=') {
                        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                        None => (text.to_owned(), None),
                    })
                })
                .collect(),
            Value::Scalar(scalar) if scalar.is_null() => BTreeMap::new(),
            Value::Scalar(_) => {
                self.wrong_shape(node, what, "a mapping, or a list of `key=value`");
                BTreeMap::new()
            }
        }
    }

    /// `key=value` as an entry of a list.
    fn pair<'n>(&mut self, item: &'n Node, what: impl Display) -> Option<&'n str> {
        if item.as_mapping().is_some() {
            self.misshapen(item, format_args!("an entry of {what}"), "a text")
                .hint("write `key=value`, or leave out the dashes");
            return None;
        }
        self.text(item, format_args!("an entry of {what}"))
    }

    /// Refuses every unknown key, each with a suggestion.
    pub fn known_keys(&mut self, mapping: &Mapping, what: impl Display, known: &[&str], extensions: Extensions) {
        for (key, _) in mapping.iter() {
            let extension = extensions == Extensions::Allowed && key.name.starts_with("x-");
            if !extension && !known.contains(&&*key.name) {
                self.unknown_key(key, &what, known);
            }
        }
    }

    /// Refuses one unknown key.
    pub fn unknown_key(&mut self, key: &Key, what: impl Display, known: &[&str]) {
        if self.is_full() {
            return;
        }
        let problem = self.error(&key.location, format!("unknown key `{}` in {what}", shorten(&key.name)));
        match suggest::nearest(&key.name, known.iter().copied()) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None if known.len() <= 12 => problem.hint(format!("known are {}", one_of(known.iter().copied()))),
            None => problem.hint("remove it, or rename it to begin with `x-` if it is for another tool"),
        }
    }

    /// The value of a required key.
    pub fn required<'n>(&mut self, node: &'n Node, key: &str, what: impl Display) -> Option<&'n Node> {
        let found = node.get(key).filter(|value| !value.is_null());
        if found.is_none() {
            self.error(&node.location, format!("{what} needs the key `{key}`"));
        }
        found
    }

    /// Reports that a node has another shape than `wanted`.
    pub fn wrong_shape(&mut self, node: &Node, what: impl Display, wanted: &str) {
        self.misshapen(node, what, wanted);
    }

    /// The same; a hint can be set on the result.
    fn misshapen(&mut self, node: &Node, what: impl Display, wanted: &str) -> &mut Diagnostic {
        self.error(&node.location, format!("{what} must be {wanted}, not {}", node.shape()))
    }

    fn parsed<T>(
        &mut self,
        node: &Node,
        what: impl Display,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let Some(text) = node.as_text() else {
            self.wrong_shape(node, what, wanted);
            return None;
        };
        let found = parse(text.trim());
        if found.is_none() {
            self.error(&node.location, format!("{what} must be {wanted}, not `{}`", shorten(text)));
        }
        found
    }

    fn unit<T>(&mut self, node: &Node, what: impl Display, parse: impl Fn(&str) -> Result<T, UnitError>) -> Option<T> {
        let text = self.text(node, &what)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(_) if text.len() > 64 => {
                self.error(&node.location, format!("{what} is not an amount"));
                None
            }
            Err(error) => {
                self.error(&node.location, format!("{what}: {error}"));
                None
            }
        }
    }
}

/// A text shortened for messages, without control characters.
pub fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

/// Parses a decimal number, or `0o` or `0x` of YAML 1.2.
fn whole_number(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match (digits.strip_prefix("0x"), digits.strip_prefix("0o")) {
        (Some(hex), _) => (16, hex),
        (None, Some(octal)) => (8, octal),
        (None, None) => (10, digits),
    };
    if digits.is_empty() || digits.len() > 30 || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    i128::from_str_radix(digits, radix).ok().map(|number| sign * number)
}
