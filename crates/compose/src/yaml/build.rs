//! From parser events to the tree.
//!
//! Owns: anchors, aliases, merge keys, duplicate keys, and the limits such as [`super::MAX_NODES`].
//! Must not touch: the call stack. Open collections are on a list, so deep input never causes deep recursion.
//! Invariant: the size of an alias counts against the limits before it is copied.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{Key, MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_TEXT, Mapping, Node, Origin, Scalar, Style, Value};
use crate::diagnostic::{Diagnostics, Location};

/// Size of a finished node.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    text: usize,
    depth: usize,
}

impl Size {
    /// Adds a child one level below.
    fn add_child(&mut self, child: Self) {
        self.add_merged(Self { depth: child.depth + 1, ..child });
    }

    /// Adds a mapping whose entries are merged into this one, at the same level.
    fn add_merged(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.text += other.text;
        self.depth = self.depth.max(other.depth);
    }
}

enum Shape {
    Sequence(Vec<Node>),
    Mapping(OpenMapping),
}

#[derive(Default)]
struct OpenMapping {
    entries: Vec<(Key, Node)>,
    names: HashSet<Arc<str>>,
    merges: Vec<Node>,
    key: Option<Key>,
}

struct Open {
    location: Location,
    tag: Option<Arc<str>>,
    anchor: usize,
    size: Size,
    shape: Shape,
}

struct Builder<'o> {
    origin: &'o Origin,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, Size)>,
    total: Size,
    root: Option<Node>,
    documents: usize,
    problems: Diagnostics,
}

/// Reading cannot continue; the problem is already recorded.
struct Stop;

pub(super) fn build(origin: &Origin, text: &str) -> Result<Node, Diagnostics> {
    let mut builder = Builder {
        origin,
        open: Vec::new(),
        anchors: HashMap::new(),
        total: Size::default(),
        root: None,
        documents: 0,
        problems: Diagnostics::new(),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes; at most {MAX_BYTES} are read", text.len());
        builder.problems.error(&builder.start(), message);
        return Err(builder.problems);
    }
    if builder.run(text).is_err() || builder.problems.has_errors() {
        return Err(builder.problems);
    }
    let start = builder.start();
    Ok(builder.root.unwrap_or_else(|| null_at(start)))
}

fn null_at(location: Location) -> Node {
    Node { location, tag: None, value: Value::Scalar(Scalar { text: "".into(), style: Style::Plain }) }
}

fn too_deep() -> String {
    format!("nested more than {MAX_DEPTH} levels deep")
}

/// The message for a parser error, reworded where that helps, and a hint where there is one.
fn unreadable(complaint: &str) -> (String, Option<&'static str>) {
    if complaint.contains("recursion limit") {
        return (too_deep(), Some("no key is nested so deep: look for brackets that are never closed"));
    }
    let hint = complaint.starts_with("tabs disallowed").then_some("indent with spaces");
    (format!("not readable as YAML: {complaint}"), hint)
}

impl Builder<'_> {
    fn run(&mut self, text: &str) -> Result<(), Stop> {
        let mut options = granit_parser::options! { flow_nesting_limit: MAX_DEPTH, block_nesting_limit: MAX_DEPTH };
        options.set_emit_comments(false);
        for next in Parser::new_from_str_with_options(text, options) {
            match next {
                Ok((event, span)) => self.event(event, span)?,
                Err(error) => {
                    let marker = *error.marker();
                    let location = self.location_of(marker.line(), marker.col(), 0);
                    let (message, hint) = unreadable(&error.info());
                    let problem = self.problems.error(&location, message);
                    if let Some(hint) = hint {
                        problem.hint(hint);
                    }
                    return Err(Stop);
                }
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        match event {
            Event::DocumentStart(..) => self.document(span),
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), span),
            Event::SequenceStart(_, anchor, tag) => {
                self.start_of(Shape::Sequence(Vec::new()), anchor, tag.as_deref(), span)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.start_of(Shape::Mapping(OpenMapping::default()), anchor, tag.as_deref(), span)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, span),
            // The parser's enum is non-exhaustive; stream marks, comments and later additions carry no data.
            _ => Ok(()),
        }
    }

    fn document(&mut self, span: Span) -> Result<(), Stop> {
        self.documents += 1;
        if self.documents == 1 {
            return Ok(());
        }
        let location = self.location(span);
        self.problems
            .error(&location, "a file holds one YAML document; this is a second one")
            .hint("put it into a file of its own and name both with `-f`");
        Err(Stop)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        span: Span,
    ) -> Result<(), Stop> {
        let location = self.location(span);
        let (tag, tag_effect) = self.tag(tag, &location);
        let style = match style {
            ScalarStyle::Plain if tag_effect == TagEffect::Text => Style::Quoted,
            ScalarStyle::Plain => Style::Plain,
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => Style::Quoted,
            ScalarStyle::Literal => Style::Literal,
            ScalarStyle::Folded => Style::Folded,
        };
        let value = Value::Scalar(Scalar { text: text.into(), style });
        let size = Size { nodes: 1, text: text.len(), depth: 0 };
        self.charge(size, &location)?;
        self.finish(Node { location, tag, value }, anchor, size)
    }

    fn start_of(&mut self, shape: Shape, anchor: usize, tag: Option<&Tag>, span: Span) -> Result<(), Stop> {
        let location = self.location(span);
        let (tag, _) = self.tag(tag, &location);
        let size = Size { nodes: 1, text: 0, depth: 0 };
        self.charge(size, &location)?;
        self.open.push(Open { location, tag, anchor, size, shape });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stop> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.shape {
            Shape::Sequence(items) => Value::Sequence(items),
            Shape::Mapping(mapping) => Value::Mapping(mapping.close()),
        };
        self.finish(Node { location: open.location, tag: open.tag, value }, open.anchor, open.size)
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), Stop> {
        let location = self.location(span);
        let Some((node, size)) = self.anchors.get(&anchor) else {
            self.problems.error(&location, "an alias inside its own anchor would never end");
            return Err(Stop);
        };
        let (node, size) = (node.clone(), *size);
        self.charge(size, &location)?;
        self.finish(node, 0, size)
    }

    /// Refuses a node that would make the tree too large or too deep.
    fn charge(&mut self, size: Size, location: &Location) -> Result<(), Stop> {
        self.total.nodes = self.total.nodes.saturating_add(size.nodes);
        self.total.text = self.total.text.saturating_add(size.text);
        let message = if self.open.len() + size.depth >= MAX_DEPTH {
            too_deep()
        } else if self.total.nodes > MAX_NODES {
            format!("the file expands to more than {MAX_NODES} values")
        } else if self.total.text > MAX_TEXT {
            format!("the file expands to more than {MAX_TEXT} bytes of text")
        } else {
            return Ok(());
        };
        self.problems.error(location, message).hint("check the brackets and the aliases (`*name`) that lead here");
        Err(Stop)
    }

    /// Adds a finished node to the open collection, or makes it the root.
    fn finish(&mut self, node: Node, anchor: usize, size: Size) -> Result<(), Stop> {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        let merging = matches!(&open.shape, Shape::Mapping(mapping) if mapping.is_merging());
        if merging {
            open.size.add_merged(size);
        } else {
            open.size.add_child(size);
        }
        match &mut open.shape {
            Shape::Sequence(items) => items.push(node),
            Shape::Mapping(mapping) => return mapping.take(node, &mut self.problems),
        }
        Ok(())
    }

    /// Compose's tags are kept; standard YAML tags are applied or refused.
    fn tag(&mut self, tag: Option<&Tag>, location: &Location) -> (Option<Arc<str>>, TagEffect) {
        let Some(tag) = tag else { return (None, TagEffect::Nothing) };
        match tag.core_suffix() {
            Some("str") => return (None, TagEffect::Text),
            Some("int" | "float" | "bool" | "null" | "map" | "seq") => return (None, TagEffect::Nothing),
            Some(_) | None => {}
        }
        let written = tag.original();
        match written.as_str() {
            "!" => (None, TagEffect::Text),
            "!reset" | "!override" => (Some(written.as_str().into()), TagEffect::Nothing),
            other => {
                self.problems
                    .error(location, format!("the tag `{other}` is not known"))
                    .hint("`!reset` and `!override` are the tags Compose knows");
                (None, TagEffect::Nothing)
            }
        }
    }

    fn start(&self) -> Location {
        self.location_of(1, 0, 0)
    }

    fn location(&self, span: Span) -> Location {
        let length = if span.start.line() == span.end.line() { span.len() } else { 1 };
        self.location_of(span.start.line(), span.start.col(), length)
    }

    fn location_of(&self, line: usize, column: usize, length: usize) -> Location {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.origin.location(small(line), small(column), small(length))
    }
}

/// What a standard YAML tag changes about a plain scalar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TagEffect {
    Nothing,
    Text,
}

impl OpenMapping {
    fn is_merging(&self) -> bool {
        self.key.as_ref().is_some_and(|key| &*key.name == "<<")
    }

    /// Takes the next key or value of the mapping, in turn.
    fn take(&mut self, node: Node, problems: &mut Diagnostics) -> Result<(), Stop> {
        match self.key.take() {
            None => {
                let Value::Scalar(scalar) = node.value else {
                    problems.error(&node.location, format!("a key must be a text, not {}", node.shape()));
                    return Err(Stop);
                };
                self.key = Some(Key { name: scalar.text, location: node.location });
            }
            Some(key) if &*key.name == "<<" => self.merge(node, problems),
            Some(key) => {
                if self.names.insert(key.name.clone()) {
                    self.entries.push((key, node));
                } else {
                    duplicate(&self.entries, &key, problems);
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, node: Node, problems: &mut Diagnostics) {
        let location = node.location.clone();
        let parts = match node.value {
            Value::Sequence(items) => items,
            Value::Scalar(scalar) if scalar.is_null() => Vec::new(),
            Value::Scalar(_) | Value::Mapping(_) => vec![node],
        };
        if parts.iter().all(|part| part.as_mapping().is_some()) {
            self.merges.extend(parts);
        } else {
            problems.error(&location, "`<<` takes a mapping or a list of mappings");
        }
    }

    /// Explicit keys win over merged ones, and earlier merges over later ones.
    fn close(mut self) -> Mapping {
        for part in std::mem::take(&mut self.merges) {
            let Value::Mapping(mapping) = part.value else { continue };
            for (key, node) in mapping.entries {
                if self.names.insert(key.name.clone()) {
                    self.entries.push((key, node));
                }
            }
        }
        Mapping { entries: self.entries }
    }
}

fn duplicate(entries: &[(Key, Node)], key: &Key, problems: &mut Diagnostics) {
    if problems.is_full() {
        return;
    }
    let found = problems.error(&key.location, format!("the key `{}` is given twice", key.name));
    if let Some((first, _)) = entries.iter().find(|(first, _)| first.name == key.name) {
        found.hint(format!("it was first given on line {}; keep one of them", first.location.line));
    }
}
