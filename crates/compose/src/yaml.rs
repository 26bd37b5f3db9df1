//! YAML as a tree that remembers where everything was written.
//!
//! Owns: the tree, and the limits that keep a hostile file from costing more than a moment.
//! Must not touch: meaning. Scalars keep their text, so that `8080:80`, `1.10` and `yes` reach the reader unharmed.
//! Invariant: a tree is at most [`MAX_DEPTH`] deep and [`MAX_NODES`] large, so recursion over it is safe.

use std::sync::Arc;

use crate::diagnostic::{Diagnostics, Place};

mod build;
pub mod emit;

/// Largest text accepted, in bytes. A thousand services take a tenth of a mebibyte.
pub const MAX_BYTES: usize = 8 << 20;
/// Deepest nesting, aliases expanded. Compose needs about ten levels.
pub const MAX_DEPTH: usize = 64;
/// Most nodes, aliases expanded: what keeps a bomb of aliases from filling memory.
pub const MAX_NODES: usize = 500_000;
/// Most text, aliases expanded, for the same reason.
pub const MAX_TEXT: usize = 32 << 20;

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where.
    pub place: Place,
    /// A tag of the file's own, such as `!reset`.
    pub tag: Option<Arc<str>>,
    /// What.
    pub value: Value,
}

/// One of YAML's three shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Scalar(Scalar),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys with values, in the order written.
    Mapping(Mapping),
}

/// A text and how it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The text, escapes resolved.
    pub text: Arc<str>,
    /// How it was written.
    pub style: Style,
}

/// How a text was written. Only a plain one can mean a number, a truth value or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Bare.
    Plain,
    /// In quotation marks.
    Quoted,
    /// As a block kept line by line (`|`), so that places inside it can be told.
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

/// A key and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The text.
    pub name: Arc<str>,
    /// Where.
    pub place: Place,
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

    /// Takes a key out.
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
    /// A text that stands where another node stood.
    pub fn text_at(place: &Place, text: &str) -> Self {
        let value = Value::Scalar(Scalar { text: text.into(), style: Style::Quoted });
        Self { place: place.clone(), tag: None, value }
    }

    /// An empty mapping that stands where another node stood.
    pub fn mapping_at(place: &Place) -> Self {
        Self { place: place.clone(), tag: None, value: Value::Mapping(Mapping::default()) }
    }

    /// Whether it says nothing: empty, `~` or `null`.
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

    /// The text, if it is one and says something.
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

    /// What it is, in a person's words.
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
    /// Whether it says nothing.
    pub fn is_null(&self) -> bool {
        self.style == Style::Plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

/// Where a text begins in the file that holds it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The file's name.
    pub file: Arc<str>,
    /// Lines of the file before the text.
    pub lines_before: u32,
    /// Characters before the text on each of its lines.
    pub indent: u32,
}

impl Origin {
    /// A text that is a whole file.
    pub fn file(file: &str) -> Self {
        Self { file: file.into(), lines_before: 0, indent: 0 }
    }

    /// A text inside a node of another file: exact for a `|` block, else the place of the node.
    pub fn inside(node: &Node) -> Self {
        // The parser places a block at its first line of content, so the same rule serves both.
        let lines_before = node.place.line.saturating_sub(1);
        let indent = node.place.column.saturating_sub(1);
        Self { file: node.place.file.clone(), lines_before, indent }
    }
}

/// Reads one YAML document; an empty one is a null.
pub fn parse(file: &str, text: &str) -> Result<Node, Diagnostics> {
    parse_at(&Origin::file(file), text)
}

/// Reads one YAML document that is part of a file.
pub fn parse_at(origin: &Origin, text: &str) -> Result<Node, Diagnostics> {
    build::build(origin, text)
}

#[cfg(test)]
mod tests;
