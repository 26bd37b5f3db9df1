//! A scenario as a YAML tree that can be reduced and printed.
//!
//! Owns: the text of the tree, and the removal of parts.
//! Must not touch: the meaning of keys; the scenario parser validates the text.
//! Invariant: the same tree prints the same text, and each item of a list begins on a line of its own.

use std::fmt::Display;

/// Longest line before something is broken into several.
const WIDTH: usize = 110;

/// A YAML value of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// A text or number.
    Scalar(String),
    /// A sequence.
    List(Vec<Tree>),
    /// A mapping, in the order of insertion.
    Map(Vec<(String, Tree)>),
    /// An embedded Compose manifest, printed as a block scalar.
    Manifest(Box<Tree>),
}

pub(super) fn scalar(text: impl Display) -> Tree {
    Tree::Scalar(format!("{text}"))
}

pub(super) fn map<const N: usize>(entries: [(&str, Tree); N]) -> Tree {
    Tree::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A list of scalars.
pub(super) fn scalars<'t>(texts: impl IntoIterator<Item = &'t str>) -> Tree {
    Tree::List(texts.into_iter().map(scalar).collect())
}

impl Tree {
    /// Sets a key of a mapping.
    pub(super) fn set(&mut self, key: &str, value: Self) {
        if let Self::Map(entries) = self {
            entries.retain(|(known, _)| known != key);
            entries.push((key.to_owned(), value));
        }
    }

    /// The value of a key of a mapping.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Number of children.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Scalar(_) => 0,
            Self::List(items) => items.len(),
            Self::Map(entries) => entries.len(),
            Self::Manifest(inner) => inner.len(),
        }
    }

    pub(super) fn child(&self, at: usize) -> Option<&Self> {
        match self {
            Self::Scalar(_) => None,
            Self::List(items) => items.get(at),
            Self::Map(entries) => entries.get(at).map(|(_, value)| value),
            Self::Manifest(inner) => inner.child(at),
        }
    }

    /// A copy without the children `from..to` of the subtree at `path`.
    pub(super) fn without(&self, path: &[usize], from: usize, to: usize) -> Self {
        let mut copy = self.clone();
        let mut here = &mut copy;
        for at in path {
            here = match here {
                Self::Manifest(inner) => inner.as_mut(),
                other => other,
            };
            here = match here {
                Self::List(items) => &mut items[*at],
                Self::Map(entries) => &mut entries[*at].1,
                Self::Scalar(_) | Self::Manifest(_) => return copy,
            };
        }
        if let Self::Manifest(inner) = here {
            here = inner;
        }
        match here {
            Self::List(items) => drop(items.drain(from..to)),
            Self::Map(entries) => drop(entries.drain(from..to)),
            Self::Scalar(_) | Self::Manifest(_) => {}
        }
        copy
    }

    /// The text of a scenario file.
    pub fn print(&self) -> String {
        let mut text = String::new();
        self.block(0, &mut text);
        text
    }

    fn block(&self, indent: usize, text: &mut String) {
        let margin = " ".repeat(indent);
        match self {
            Self::Scalar(_) | Self::Manifest(_) => {}
            Self::List(items) => {
                for item in items {
                    let flow = item.flow();
                    match flow {
                        Some(flow) if indent + flow.len() <= WIDTH => line(text, &margin, "- ", &flow),
                        Some(_) | None => {
                            let mut inner = String::new();
                            item.block(indent + 2, &mut inner);
                            text.push_str(&margin);
                            text.push_str("- ");
                            text.push_str(inner.trim_start());
                        }
                    }
                }
            }
            Self::Map(entries) => {
                for (key, value) in entries {
                    value.entry(&quoted(key), indent, text);
                }
            }
        }
    }

    fn entry(&self, key: &str, indent: usize, text: &mut String) {
        let margin = " ".repeat(indent);
        if let Self::Manifest(inner) = self {
            line(text, &margin, key, ": |");
            inner.block(indent + 2, text);
            return;
        }
        let listed = indent == 0 && matches!(self, Self::List(_));
        match self.flow().filter(|_| !listed) {
            Some(flow) if indent + key.len() + flow.len() <= WIDTH => line(text, &margin, key, &format!(": {flow}")),
            Some(flow) if matches!(self, Self::Scalar(_)) => line(text, &margin, key, &format!(": {flow}")),
            Some(_) | None => {
                line(text, &margin, key, ":");
                self.block(indent + 2, text);
            }
        }
    }

    /// The value in flow style on one line; `None` if it contains a manifest.
    fn flow(&self) -> Option<String> {
        match self {
            Self::Scalar(text) => Some(quoted(text)),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::flow).collect::<Option<_>>()?;
                Some(if items.is_empty() { "[]".to_owned() } else { format!("[ {} ]", items.join(", ")) })
            }
            Self::Map(entries) => {
                let entry = |(key, value): &(String, Self)| Some(format!("{}: {}", quoted(key), value.flow()?));
                let entries: Vec<String> = entries.iter().map(entry).collect::<Option<_>>()?;
                Some(if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) })
            }
            Self::Manifest(_) => None,
        }
    }
}

fn line(text: &mut String, margin: &str, first: &str, second: &str) {
    for part in [margin, first, second, "\n"] {
        text.push_str(part);
    }
}

/// The text in quotes, if YAML needs them.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Tree {
        let manifest = map([("services", map([("web", map([("image", scalar("web:1"))]))]))]);
        map([
            ("nodes", Tree::List(vec![map([("name", scalar("a")), ("cpu", scalar(1)), ("memory", scalar("1GiB"))])])),
            ("deployments", map([("shop", Tree::Manifest(Box::new(manifest)))])),
            ("timeline", Tree::List(vec![map([("at", scalar("5s")), ("node", scalar("a")), ("do", scalar("fail"))])])),
        ])
    }

    #[test]
    fn it_prints_a_scenario_file_that_parses() {
        let text = sample().print();
        assert!(crate::Scenario::parse("s.yaml", &text).is_ok(), "{text}");
        insta::assert_snapshot!(text, @r#"
        nodes:
          - { name: a, cpu: 1, memory: 1GiB }
        deployments:
          shop: |
            services: { web: { image: "web:1" } }
        timeline:
          - { at: 5s, node: a, do: fail }
        "#);
    }

    #[test]
    fn any_part_can_be_removed_also_from_a_manifest() {
        let cut = sample().without(&[1, 0, 0], 0, 1);
        assert!(cut.print().contains("services: {}"), "{}", cut.print());
        assert_eq!(sample().without(&[], 2, 3).get("timeline"), None);
    }
}
