//! Merging of Compose files, as the Compose specification defines it.
//!
//! Owns: which keys are replaced, merged or appended; `!reset` and `!override`.
//! Must not touch: meaning. Short forms are only converted so that both sides have the same shape.
//! Invariant: the later value wins, key by key, and keeps its location for diagnostics.

use std::{collections::HashMap, sync::Arc};

use crate::{
    diagnostic::Diagnostics,
    yaml::{Key, Mapping, Node, Value},
};

/// How two values of one key are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Mappings key by key, lists appended, texts replaced.
    Plain,
    /// Replaced by the later value.
    Replace,
    /// Keys with texts, as a mapping or as a list of `key=value`.
    Pairs,
    /// Names, as a list or as a mapping.
    Names,
    /// Lists, or a single text as a list of one.
    List,
    /// Lists whose entries are identified by their mount target.
    ByTarget,
    /// Merged only if the driver is the same.
    Logging,
    /// A text is the build context.
    Build,
    /// A number replaces, a mapping is merged.
    Ulimit,
}

fn rule(path: &[&str]) -> Rule {
    match path {
        ["services", _, key] => match *key {
            "command" | "entrypoint" => Rule::Replace,
            "environment" | "labels" | "annotations" | "sysctls" => Rule::Pairs,
            "depends_on" | "networks" => Rule::Names,
            "env_file" | "label_file" | "dns" | "dns_search" | "tmpfs" | "extra_hosts" => Rule::List,
            "volumes" | "secrets" | "configs" => Rule::ByTarget,
            "logging" => Rule::Logging,
            "build" => Rule::Build,
            _ => Rule::Plain,
        },
        ["services", _, "healthcheck", "test"] => Rule::Replace,
        ["services", _, "ulimits", _] => Rule::Ulimit,
        ["services", _, "build" | "deploy", "labels" | "args"] | ["networks" | "volumes", _, "labels"] => Rule::Pairs,
        _ => Rule::Plain,
    }
}

/// Merges `over` onto `base`.
pub(crate) fn merge(base: Node, over: Node, problems: &mut Diagnostics) -> Node {
    join(base, over, &mut Vec::new(), problems)
}

/// Merges one service onto another.
pub(crate) fn merge_service(base: Node, over: Node, problems: &mut Diagnostics) -> Node {
    join(base, over, &mut vec!["services".into(), "".into()], problems)
}

/// Applies tags where there is no base: removes keys with `!reset`, ignores `!override`.
pub(crate) fn apply_tags(node: &mut Node) {
    node.tag = None;
    match &mut node.value {
        Value::Scalar(_) => {}
        Value::Sequence(items) => {
            items.retain(|item| !is_tagged(item, "!reset"));
            items.iter_mut().for_each(apply_tags);
        }
        Value::Mapping(mapping) => {
            mapping.entries.retain(|(_, value)| !is_tagged(value, "!reset"));
            mapping.entries.iter_mut().for_each(|(_, value)| apply_tags(value));
        }
    }
}

fn is_tagged(node: &Node, tag: &str) -> bool {
    node.tag.as_deref() == Some(tag)
}

fn join(base: Node, mut over: Node, path: &mut Vec<Arc<str>>, problems: &mut Diagnostics) -> Node {
    if is_tagged(&over, "!override") {
        apply_tags(&mut over);
        return over;
    }
    if over.is_null() {
        return base;
    }
    if base.is_null() {
        apply_tags(&mut over);
        return over;
    }
    let names: Vec<&str> = path.iter().map(|name| &**name).collect();
    match rule(&names) {
        Rule::Logging if driver_differs(&base, &over) => with_tags_applied(over),
        Rule::Ulimit if over.as_mapping().is_none() || base.as_mapping().is_none() => with_tags_applied(over),
        Rule::Plain | Rule::Logging | Rule::Ulimit => join_plain(base, over, path, problems),
        Rule::Replace => with_tags_applied(over),
        Rule::Pairs => join_plain(pairs(base), pairs(over), path, problems),
        Rule::Names => join_plain(names_of(base), names_of(over), path, problems),
        Rule::List => join_plain(list(base), list(over), path, problems),
        Rule::ByTarget => by_target(join_plain(base, over, path, problems)),
        Rule::Build => join_plain(build(base), build(over), path, problems),
    }
}

fn with_tags_applied(mut node: Node) -> Node {
    apply_tags(&mut node);
    node
}

fn join_plain(base: Node, over: Node, path: &mut Vec<Arc<str>>, problems: &mut Diagnostics) -> Node {
    let location = over.location.clone();
    let value = match (base.value, over.value) {
        (Value::Mapping(base), Value::Mapping(over)) => Value::Mapping(join_mappings(base, over, path, problems)),
        (Value::Sequence(mut base), Value::Sequence(over)) => {
            base.extend(over.into_iter().map(with_tags_applied));
            Value::Sequence(base)
        }
        (Value::Scalar(_), over) => over,
        (base @ (Value::Mapping(_) | Value::Sequence(_)), over) => {
            let name = path.last().map_or("the file", |name| &**name);
            let (was, is) = (
                Node { location: location.clone(), tag: None, value: base },
                Node { location, tag: None, value: over },
            );
            problems
                .error(&is.location, format!("`{name}` is {} here and {} in an earlier file", is.shape(), was.shape()))
                .hint("write it the same way, or mark it `!override`");
            return was;
        }
    };
    Node { location, tag: None, value }
}

fn join_mappings(mut base: Mapping, over: Mapping, path: &mut Vec<Arc<str>>, problems: &mut Diagnostics) -> Mapping {
    // Positions are looked up by name, so that files of thousands of services are merged in linear time.
    let mut at: HashMap<Arc<str>, usize> =
        base.entries.iter().enumerate().map(|(at, (key, _))| (key.name.clone(), at)).collect();
    let mut gone = false;
    for (key, value) in over.entries {
        match at.get(&key.name) {
            Some(&found) if is_tagged(&value, "!reset") => {
                base.entries[found].1 = reset_mark(&value);
                gone = true;
            }
            Some(&found) => {
                let (_, old) = std::mem::replace(&mut base.entries[found], (key.clone(), reset_mark(&value)));
                path.push(key.name.clone());
                base.entries[found].1 = join(old, value, path, problems);
                path.pop();
            }
            None if is_tagged(&value, "!reset") => {}
            None => {
                at.insert(key.name.clone(), base.entries.len());
                base.entries.push((key, with_tags_applied(value)));
            }
        }
    }
    if gone {
        base.entries.retain(|(_, value)| !is_tagged(value, "!reset"));
    }
    base
}

/// A placeholder that is removed or overwritten before the merge returns.
fn reset_mark(like: &Node) -> Node {
    let mut mark = Node::text_at(&like.location, "");
    mark.tag = Some("!reset".into());
    mark
}

/// `[A=1, B]` as `{A: 1, B: }`.
pub(crate) fn pairs(node: Node) -> Node {
    keyed(node, |item, text| match text.split_once('=') {
        Some((name, value)) => (name.into(), Node::text_at(&item.location, value)),
        None => (text.into(), null_at(item)),
    })
}

/// `[a, b]` as `{a: , b: }`.
fn names_of(node: Node) -> Node {
    keyed(node, |item, text| (text.into(), null_at(item)))
}

/// A list of texts as a mapping; the last of equal keys wins.
fn keyed(node: Node, split: impl Fn(&Node, &str) -> (Arc<str>, Node)) -> Node {
    let Value::Sequence(items) = node.value else { return node };
    let mut entries: Vec<(Key, Node)> = Vec::with_capacity(items.len());
    let mut at: HashMap<Arc<str>, usize> = HashMap::new();
    for item in items {
        let Some(text) = item.as_text() else { continue };
        let (name, value) = split(&item, text);
        let entry = (Key { name: name.clone(), location: item.location.clone() }, value);
        let next = entries.len();
        let found = *at.entry(name).or_insert(next);
        if found < next {
            entries[found] = entry;
        } else {
            entries.push(entry);
        }
    }
    Node { location: node.location, tag: None, value: Value::Mapping(Mapping { entries }) }
}

/// `a` as `[a]`, and `{a: b}` as `[a=b]`.
fn list(node: Node) -> Node {
    let location = node.location.clone();
    let items = match node.value {
        Value::Sequence(items) => items,
        Value::Scalar(_) => vec![Node { tag: None, ..node }],
        Value::Mapping(mapping) => mapping
            .entries
            .iter()
            .filter_map(|(key, value)| {
                Some(Node::text_at(&key.location, &format!("{}={}", key.name, value.as_text()?)))
            })
            .collect(),
    };
    Node { location, tag: None, value: Value::Sequence(items) }
}

fn null_at(item: &Node) -> Node {
    let value = Value::Scalar(crate::yaml::Scalar { text: "".into(), style: crate::yaml::Style::Plain });
    Node { location: item.location.clone(), tag: None, value }
}

/// A later entry replaces an earlier one with the same target.
fn by_target(node: Node) -> Node {
    let Value::Sequence(items) = node.value else { return node };
    let mut kept: Vec<Node> = Vec::with_capacity(items.len());
    let mut at = HashMap::new();
    for item in items {
        let known = target(&item).and_then(|target| {
            let next = kept.len();
            let found = *at.entry(target).or_insert(next);
            (found < next).then_some(found)
        });
        if let Some(found) = known {
            kept[found] = item;
        } else {
            kept.push(item);
        }
    }
    Node { value: Value::Sequence(kept), ..node }
}

fn target(item: &Node) -> Option<String> {
    match item.as_text() {
        Some(text) => text.split(':').nth(1).or(Some(text)).map(str::to_owned),
        None => item.get("target").or_else(|| item.get("source"))?.as_text().map(str::to_owned),
    }
}

fn driver_differs(base: &Node, over: &Node) -> bool {
    let driver = |node: &Node| node.get("driver").and_then(Node::as_text).map(str::to_owned);
    driver(over).is_some_and(|over| driver(base).is_some_and(|base| base != over))
}

fn build(node: Node) -> Node {
    if node.as_text().is_none() {
        return node;
    }
    let mut mapping = Mapping::default();
    mapping.set(Key { name: "context".into(), location: node.location.clone() }, node.clone());
    Node { location: node.location, tag: None, value: Value::Mapping(mapping) }
}

#[cfg(test)]
mod tests;
