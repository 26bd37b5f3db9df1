//! YAML as a tree that remembers where everything was written.
//!
//! Owns: the tree, and the limits that keep a hostile file from costing more than a moment.
//! Must not touch: meaning. Scalars keep their text, so that `8080:80`, `1.10` and `yes` reach the reader unharmed.
//! Invariant: a tree is at most [`MAX_DEPTH`] deep and [`MAX_NODES`] large, so recursion over it is safe.

use std::sync::Arc;

use crate::diagnostic::{Diagnostics, Place};

mod build;
pub mod emit;

/// Largest text accepted, in bytes. A thousand services take a third of a mebibyte, and whatever is made of this much is
/// made within a second.
pub const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting, aliases expanded. Compose needs about ten levels.
pub const MAX_DEPTH: usize = 64;
/// Most nodes, aliases expanded: what keeps a bomb of aliases from filling memory.
pub const MAX_NODES: usize = 200_000;
/// Most text, aliases expanded, for the same reason.
pub const MAX_TEXT: usize = 4 << 20;

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

    /// How many characters the file has around the text, if it stands on one line of it.
    fn marks_around(&self, written: u32) -> Option<usize> {
        if self.text.contains('\n') {
            return None;
        }
        usize::try_from(written).ok()?.checked_sub(self.text.chars().count())
    }
}

/// Where a text stands in the file that holds it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The file's name.
    pub file: Arc<str>,
    spot: Spot,
}

#[derive(Clone, Debug)]
enum Spot {
    /// The file has the text letter by letter, so many lines down and so many characters in.
    Shifted { lines: u32, columns: u32 },
    /// It was written in another way, with escapes or folded; one place stands for all of it.
    Somewhere(Place),
}

impl Origin {
    /// A text that is a whole file.
    pub fn file(file: &str) -> Self {
        Self { file: file.into(), spot: Spot::Shifted { lines: 0, columns: 0 } }
    }

    /// A text inside a node of another file: exact where it is written letter by letter, else the place of the node.
    pub fn inside(node: &Node) -> Self {
        let Place { file, line, column, length } = &node.place;
        let shifted = |column: u32| Spot::Shifted { lines: line.saturating_sub(1), columns: column };
        let somewhere = || Spot::Somewhere(node.place.clone());
        let spot = match &node.value {
            // The parser places a block at its first line of content, a text in quotation marks at the first of them.
            Value::Scalar(Scalar { style: Style::Literal, .. }) => shifted(column.saturating_sub(1)),
            Value::Scalar(scalar) => match scalar.marks_around(*length) {
                Some(0) => shifted(column.saturating_sub(1)),
                Some(2) => shifted(*column),
                Some(_) | None => somewhere(),
            },
            Value::Sequence(_) | Value::Mapping(_) => somewhere(),
        };
        Self { file: file.clone(), spot }
    }

    /// Lines counted from 1, columns from 0, as the parser counts them in the text alone.
    fn place(&self, line: u32, column: u32, length: u32) -> Place {
        match &self.spot {
            Spot::Shifted { lines, columns } => Place {
                file: self.file.clone(),
                line: line.saturating_add(*lines),
                column: column.saturating_add(1).saturating_add(*columns),
                length,
            },
            Spot::Somewhere(place) => place.clone(),
        }
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
