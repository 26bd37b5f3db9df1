//! `$VAR` and all forms of `${VAR…}`.
//!
//! Owns: the grammar, and the limit on the resulting text.
//! Must not touch: the source of values; a [`Variables`] is passed in.
//! Invariant: values are interpolated whatever their style, keys never; a missing variable is empty with a warning.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    diagnostic::{Diagnostics, Location},
    reader::shorten,
    yaml::{MAX_TEXT, Node, Scalar, Style, Value},
};

/// Deepest nesting of `${a:-${b:-…}}`, more than any real file needs.
const MAX_NESTING: usize = 16;

/// Values of variables, and the names that were missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    values: BTreeMap<String, String>,
    /// Missing names; each is warned about once.
    missing: BTreeSet<String>,
    /// Bytes produced so far.
    made: usize,
}

/// Why a text cannot be interpolated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterpolateError {
    /// A `$` without a variable name.
    #[error("`{text}` has a `$` that names no variable")]
    Lone { text: String },
    /// A `${` that is malformed.
    #[error(
        "`{text}` is not a variable; the forms are `${{V}}`, `${{V:-default}}`, `${{V:?message}}` and `${{V:+other}}`"
    )]
    Malformed { text: String },
    /// `${V:?message}` and the variable is missing.
    #[error("the variable `{name}` is required: {message}")]
    Required { name: String, message: String },
    /// More text than a manifest can hold.
    #[error("variables make the file larger than {MAX_TEXT} bytes")]
    TooLarge,
}

impl InterpolateError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Lone { .. } | Self::Malformed { .. } => Some("write `$$` for a dollar sign"),
            Self::Required { .. } => Some("set it in the environment or in `.env`"),
            Self::TooLarge => None,
        }
    }
}

impl Variables {
    pub(crate) fn new(values: BTreeMap<String, String>) -> Self {
        Self { values, ..Self::default() }
    }

    pub(crate) fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// Replaces every variable below a node.
    pub(crate) fn apply(&mut self, node: &mut Node, problems: &mut Diagnostics) {
        match &mut node.value {
            Value::Scalar(scalar) => self.scalar(scalar, &node.location, problems),
            Value::Sequence(items) => items.iter_mut().for_each(|item| self.apply(item, problems)),
            Value::Mapping(mapping) => {
                mapping.entries.iter_mut().for_each(|(_, value)| self.apply(value, problems));
            }
        }
    }

    fn scalar(&mut self, scalar: &mut Scalar, location: &Location, problems: &mut Diagnostics) {
        if !scalar.text.contains('$') {
            return;
        }
        let mut missing = Vec::new();
        match self.text(&scalar.text, &mut missing) {
            Ok(text) => {
                scalar.text = text.into();
                // An empty variable gives an empty text, not a null; only a value that is empty in the file is null.
                if scalar.is_null() {
                    scalar.style = Style::Quoted;
                }
            }
            Err(error) => {
                let problem = problems.error(location, error.to_string());
                if let Some(hint) = error.hint() {
                    problem.hint(hint);
                }
            }
        }
        for name in missing {
            if self.missing.insert(name.clone()) {
                problems
                    .warn(location, format!("the variable `{name}` is not set; it is taken as empty"))
                    .hint(format!("set it, or write `${{{name}:-}}` if empty is meant"));
            }
        }
    }

    /// The text with its variables replaced; names that were not set are added to `missing`.
    pub(crate) fn text(&mut self, text: &str, missing: &mut Vec<String>) -> Result<String, InterpolateError> {
        let mut expansion = Expansion { variables: &self.values, missing, out: String::new(), made: self.made };
        expansion.run(text, 0)?;
        let (out, made) = (expansion.out, expansion.made);
        self.made = made;
        Ok(out)
    }
}

struct Expansion<'v> {
    variables: &'v BTreeMap<String, String>,
    missing: &'v mut Vec<String>,
    out: String,
    made: usize,
}

impl Expansion<'_> {
    fn push(&mut self, text: &str) -> Result<(), InterpolateError> {
        self.made = self.made.saturating_add(text.len());
        if self.made > MAX_TEXT {
            return Err(InterpolateError::TooLarge);
        }
        self.out.push_str(text);
        Ok(())
    }

    fn run(&mut self, text: &str, depth: usize) -> Result<(), InterpolateError> {
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            self.push(&rest[..at])?;
            let after = &rest[at + 1..];
            rest = if let Some(escaped) = after.strip_prefix('$') {
                self.push("$")?;
                escaped
            } else if let Some(braced) = after.strip_prefix('{') {
                let end = closing(braced).ok_or_else(|| InterpolateError::Malformed { text: shorten(&rest[at..]) })?;
                self.braced(&braced[..end], depth)?;
                &braced[end + 1..]
            } else {
                let name = name_of(after);
                if name.is_empty() {
                    return Err(InterpolateError::Lone { text: shorten(text) });
                }
                self.plain(name)?;
                &after[name.len()..]
            };
        }
        self.push(rest)
    }

    fn plain(&mut self, name: &str) -> Result<(), InterpolateError> {
        let Some(value) = self.variables.get(name) else {
            if self.missing.last().is_none_or(|last| last != name) {
                self.missing.push(name.to_owned());
            }
            return Ok(());
        };
        self.push(value)
    }

    /// The expression between `${` and `}`.
    fn braced(&mut self, inside: &str, depth: usize) -> Result<(), InterpolateError> {
        let malformed = || InterpolateError::Malformed { text: shorten(&format!("${{{inside}}}")) };
        let name = name_of(inside);
        if name.is_empty() || depth >= MAX_NESTING {
            return Err(malformed());
        }
        let value = self.variables.get(name);
        let after = &inside[name.len()..];
        // With a colon an empty value is treated as missing.
        let (after, value) = match after.strip_prefix(':') {
            Some(after) => (after, value.filter(|value| !value.is_empty())),
            None => (after, value),
        };
        let mut chars = after.chars();
        match (chars.next(), value) {
            (None, _) if inside.len() == name.len() => self.plain(name),
            (Some('-' | '?'), Some(value)) => self.push(value),
            (Some('-'), None) | (Some('+'), Some(_)) => self.run(chars.as_str(), depth + 1),
            (Some('+'), None) => Ok(()),
            (Some('?'), None) => Err(self.required(name, chars.as_str(), depth)),
            (Some(_) | None, _) => Err(malformed()),
        }
    }

    fn required(&mut self, name: &str, message: &str, depth: usize) -> InterpolateError {
        let mut inner =
            Expansion { variables: self.variables, missing: self.missing, out: String::new(), made: self.made };
        let message = match inner.run(message, depth + 1) {
            Ok(()) if inner.out.is_empty() => "it has no value".to_owned(),
            Ok(()) => shorten(&inner.out),
            Err(error) => return error,
        };
        InterpolateError::Required { name: name.to_owned(), message }
    }
}

/// Position of the brace that closes the one opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'$' if bytes.get(at + 1) == Some(&b'$') => at += 1,
            b'$' if bytes.get(at + 1) == Some(&b'{') => {
                depth += 1;
                at += 1;
            }
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The variable name at the start of a text; empty if there is none.
fn name_of(text: &str) -> &str {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return "";
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, String> {
        let values = [("A", "a"), ("E", ""), ("B_2", "b")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        Variables::new(values).text(text, &mut Vec::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_form_of_the_specification_is_supported() {
        for (text, expected) in [
            ("$A", "a"),
            ("${A}", "a"),
            ("$A$B_2-$A.", "ab-a."),
            ("x${A}y", "xay"),
            ("$$A $${A} $$$$", "$A ${A} $$"),
            ("${A:-d}", "a"),
            ("${E:-d}", "d"),
            ("${E-d}", ""),
            ("${U-d}", "d"),
            ("${U:-}", ""),
            ("${U}", ""),
            ("${A:+x}${E:+x}${E+y}${U+z}", "xy"),
            ("${A:?m}${E?m}", "a"),
            ("${U:-${A}}", "a"),
            ("${U:-${V:-${W-deep}}}", "deep"),
            ("${U:-a:b-c?d}", "a:b-c?d"),
            ("${A:+${B_2}}", "b"),
            ("${U:-$$x}", "$x"),
            ("no variable", "no variable"),
        ] {
            assert_eq!(expand(text), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn malformed_expressions_are_refused() {
        for text in ["$", "$1", "a $ b", "${", "${}", "${A", "${1}", "${A!}", "${A:}", "${A:x}", "${A b}", "${-x}"] {
            assert!(expand(text).is_err(), "{text}: {:?}", expand(text));
        }
        assert_eq!(expand("${U:?set me}"), Err("the variable `U` is required: set me".to_owned()));
        assert_eq!(expand("${E:?}"), Err("the variable `E` is required: it has no value".to_owned()));
        assert_eq!(expand("${U?need $A}"), Err("the variable `U` is required: need a".to_owned()));
    }

    #[test]
    fn excessive_output_is_refused() {
        let values = [("BIG".to_owned(), "x".repeat(1 << 20))].into_iter().collect();
        let text = "$BIG".repeat(100);
        assert_eq!(Variables::new(values).text(&text, &mut Vec::new()), Err(InterpolateError::TooLarge));
        let deep = "${U:-".repeat(100_000) + &"}".repeat(100_000);
        assert!(expand(&deep).is_err());
    }
}
