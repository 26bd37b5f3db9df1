//! YAML as a tree whose nodes have source locations.
//!
//! Owns: the tree, and the limits that keep hostile files cheap.
//! Must not touch: meaning. Scalars keep their text, so that `8080:80`, `1.10` and `yes` reach the reader unchanged.
//! Invariant: a tree is at most [`MAX_DEPTH`] deep and [`MAX_NODES`] large, so recursion over it is safe.

use std::sync::Arc;

use crate::diagnostic::{Diagnostics, Location};

mod build;
pub mod emit;

/// Largest text accepted, in bytes. A thousand services take a third of a mebibyte, and a text of this size is resolved
/// within a second.
pub const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting, aliases expanded. Compose needs about ten levels.
pub const MAX_DEPTH: usize = 64;
/// Most nodes, aliases expanded; protects from alias bombs.
pub const MAX_NODES: usize = 200_000;
/// Most text, aliases expanded, for the same reason.
pub const MAX_TEXT: usize = 4 << 20;

/// A value and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Location in the file.
    pub location: Location,
    /// A tag of Compose, such as `!reset`.
    pub tag: Option<Arc<str>>,
    /// The value.
    pub value: Value,
}

/// A scalar, sequence or mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Scalar(Scalar),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys with values, in the order written.
    Mapping(Mapping),
}

/// A text and its style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The text, escapes resolved.
    pub text: Arc<str>,
    /// Its style.
    pub style: Style,
}

/// Style of a text. Only a plain one can be a number, a boolean or null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Bare.
    Plain,
    /// In quotation marks.
    Quoted,
    /// A literal block (`|`), in which every location is exact.
    Literal,
    /// As a folded block (`>`).
    Folded,
}

/// Keys with values, in the order written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Each key once.
    pub entries: Vec<(Key, Node)>,
}

/// A key and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The text.
    pub name: Arc<str>,
    /// Location in the file.
    pub location: Location,
}

impl Mapping {
    /// The value of a key.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entry(name).map(|(_, node)| node)
    }

    /// The key and its value.
    pub fn entry(&self, name: &str) -> Option<(&Key, &Node)> {
        self.entries.iter().find(|(key, _)| &*key.name == name).map(|(key, node)| (key, node))
    }

    /// The value of a key, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.entries.iter_mut().find(|(key, _)| &*key.name == name).map(|(_, node)| node)
    }

    /// Removes a key.
    pub fn remove(&mut self, name: &str) -> Option<(Key, Node)> {
        let at = self.entries.iter().position(|(key, _)| &*key.name == name)?;
        Some(self.entries.remove(at))
    }

    /// Sets a key, in its old position if it was there.
    pub fn set(&mut self, key: Key, node: Node) {
        match self.entries.iter_mut().find(|(old, _)| old.name == key.name) {
            Some(entry) => *entry = (key, node),
            None => self.entries.push((key, node)),
        }
    }

    /// Keys and values, in the order written.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Node)> {
        self.entries.iter().map(|(key, node)| (key, node))
    }
}

impl Node {
    /// A text with the location of another node.
    pub fn text_at(location: &Location, text: &str) -> Self {
        let value = Value::Scalar(Scalar { text: text.into(), style: Style::Quoted });
        Self { location: location.clone(), tag: None, value }
    }

    /// An empty mapping with the location of another node.
    pub fn mapping_at(location: &Location) -> Self {
        Self { location: location.clone(), tag: None, value: Value::Mapping(Mapping::default()) }
    }

    /// Whether it is null: empty, `~` or `null`.
    pub fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => scalar.is_null(),
            Value::Sequence(_) | Value::Mapping(_) => false,
        }
    }

    /// The mapping, if it is one.
    pub fn as_mapping(&self) -> Option<&Mapping> {
        match &self.value {
            Value::Mapping(mapping) => Some(mapping),
            Value::Scalar(_) | Value::Sequence(_) => None,
        }
    }

    /// The mapping, if it is one, to change it.
    pub fn as_mapping_mut(&mut self) -> Option<&mut Mapping> {
        match &mut self.value {
            Value::Mapping(mapping) => Some(mapping),
            Value::Scalar(_) | Value::Sequence(_) => None,
        }
    }

    /// The list, if it is one.
    pub fn as_sequence(&self) -> Option<&[Self]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            Value::Scalar(_) | Value::Mapping(_) => None,
        }
    }

    /// The text, if it is a scalar and not null.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) if !scalar.is_null() => Some(&scalar.text),
            Value::Scalar(_) | Value::Sequence(_) | Value::Mapping(_) => None,
        }
    }

    /// The value of a key, if it is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_mapping()?.get(key)
    }

    /// Its shape for error messages.
    pub fn shape(&self) -> &'static str {
        match &self.value {
            Value::Scalar(scalar) if scalar.is_null() => "nothing",
            Value::Scalar(_) => "a text",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }
}

impl Scalar {
    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        self.style == Style::Plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }

    /// Number of characters around the text in the file, if it is on one line.
    fn marks_around(&self, written: u32) -> Option<usize> {
        if self.text.contains('\n') {
            return None;
        }
        usize::try_from(written).ok()?.checked_sub(self.text.chars().count())
    }
}

/// The file and offset of a text.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The file's name.
    pub file: Arc<str>,
    offset: Offset,
}

#[derive(Clone, Debug)]
enum Offset {
    /// The file contains the text verbatim, at this offset.
    Exact { lines: u32, columns: u32 },
    /// The text is escaped or folded in the file; every location in it is that of the node.
    Unknown(Location),
}

impl Origin {
    /// A text that is a whole file.
    pub fn file(file: &str) -> Self {
        Self { file: file.into(), offset: Offset::Exact { lines: 0, columns: 0 } }
    }

    /// A text inside a node of another file: exact where it is verbatim there, else the location of the node.
    pub fn inside(node: &Node) -> Self {
        let Location { file, line, column, length } = &node.location;
        let exact = |column: u32| Offset::Exact { lines: line.saturating_sub(1), columns: column };
        let unknown = || Offset::Unknown(node.location.clone());
        let offset = match &node.value {
            // The parser locates a block at its first line of content, a quoted text at its opening quote.
            Value::Scalar(Scalar { style: Style::Literal, .. }) => exact(column.saturating_sub(1)),
            Value::Scalar(scalar) => match scalar.marks_around(*length) {
                Some(0) => exact(column.saturating_sub(1)),
                Some(2) => exact(*column),
                Some(_) | None => unknown(),
            },
            Value::Sequence(_) | Value::Mapping(_) => unknown(),
        };
        Self { file: file.clone(), offset }
    }

    /// Lines counted from 1, columns from 0, as the parser counts them in the text alone.
    fn location(&self, line: u32, column: u32, length: u32) -> Location {
        match &self.offset {
            Offset::Exact { lines, columns } => Location {
                file: self.file.clone(),
                line: line.saturating_add(*lines),
                column: column.saturating_add(1).saturating_add(*columns),
                length,
            },
            Offset::Unknown(location) => location.clone(),
        }
    }
}

/// Parses one YAML document; an empty one is null.
pub fn parse(file: &str, text: &str) -> Result<Node, Diagnostics> {
    parse_at(&Origin::file(file), text)
}

/// Parses one YAML document that is part of a file.
pub fn parse_at(origin: &Origin, text: &str) -> Result<Node, Diagnostics> {
    build::build(origin, text)
}

#[cfg(test)]
mod tests;
