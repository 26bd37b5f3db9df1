//! `extends`: a service based on another one.
//!
//! Invariant: every service is resolved once; chains are bounded, cycles refused, and copies counted.

use std::collections::HashMap;

use super::Loader;
use crate::{
    diagnostic::Location,
    interpolate::Variables,
    merge, paths,
    reader::Extensions,
    suggest,
    yaml::{Key, MAX_NODES, Node, Value},
};

/// Longest chain; each link is a recursive call.
const MAX_CHAIN: usize = 32;

/// Services resolved so far, by file and name.
#[derive(Default)]
pub(super) struct Cache {
    done: HashMap<(String, String), Option<Node>>,
    chain: Vec<(String, String)>,
    nodes: usize,
    /// Index of each service in its file, so that thousands can extend each other in linear time.
    positions: HashMap<String, HashMap<std::sync::Arc<str>, usize>>,
}

/// The service that an `extends` refers to.
struct ExtendsTarget {
    file: Option<(String, Location)>,
    service: String,
    location: Location,
}

impl Loader<'_> {
    /// Resolves every `extends` of a file.
    pub(super) fn extend(&mut self, tree: &mut Node, path: &str, variables: &mut Variables) {
        let Some(services) = tree.get("services").and_then(Node::as_mapping) else { return };
        let extending: Vec<Key> = services
            .iter()
            .filter(|(_, service)| service.get("extends").is_some())
            .map(|(key, _)| key.clone())
            .collect();
        let resolved: Vec<(Key, Node)> = extending
            .into_iter()
            .filter_map(|key| Some((key.clone(), self.service(tree, path, &key.name, &key.location, variables)?)))
            .collect();
        let services = tree.as_mapping_mut().and_then(|root| root.get_mut("services")).and_then(Node::as_mapping_mut);
        let Some(services) = services else { return };
        let mut resolved: HashMap<_, _> = resolved.into_iter().map(|(key, node)| (key.name, node)).collect();
        for (key, node) in &mut services.entries {
            if let Some(better) = resolved.remove(&key.name) {
                *node = better;
            }
        }
    }

    /// A service of a file merged onto the one it extends.
    fn service(
        &mut self,
        tree: &Node,
        path: &str,
        name: &str,
        location: &Location,
        variables: &mut Variables,
    ) -> Option<Node> {
        let id = (path.to_owned(), name.to_owned());
        if let Some(known) = self.extended.done.get(&id) {
            return known.clone();
        }
        if self.extended.nodes > MAX_NODES {
            // Already reported; continuing would copy every service.
            return None;
        }
        let service = self.find(tree, path, name, location)?.clone();
        if self.extended.chain.contains(&id) || self.extended.chain.len() >= MAX_CHAIN {
            self.report_cycle(&id, location);
            return None;
        }
        self.extended.chain.push(id.clone());
        let resolved = self.extended_service(tree, path, service, variables);
        self.extended.chain.pop();
        if let Some(node) = &resolved {
            self.extended.nodes += size(node);
            if self.extended.nodes > MAX_NODES {
                self.problems.error(location, format!("`extends` makes more than {MAX_NODES} values of the file"));
                return None;
            }
        }
        self.extended.done.insert(id, resolved.clone());
        resolved
    }

    fn extended_service(
        &mut self,
        tree: &Node,
        path: &str,
        mut service: Node,
        variables: &mut Variables,
    ) -> Option<Node> {
        let Some((_, extends)) = service.as_mapping_mut().and_then(|mapping| mapping.remove("extends")) else {
            return Some(service);
        };
        let target = self.extends_target(&extends)?;
        let base = match target.file {
            None => self.service(tree, path, &target.service, &target.location, variables)?,
            Some((file, location)) => {
                let file = paths::join(paths::parent(path), &file);
                let other = self.tree(&file, &location, variables)?;
                let mut base = self.service(&other, &file, &target.service, &target.location, variables)?;
                let directory = self.directory_of(&file);
                if directory != self.directory {
                    super::relocate::service(&mut base, &directory);
                }
                base
            }
        };
        Some(merge::merge_service(base, service, &mut self.problems))
    }

    fn extends_target(&mut self, extends: &Node) -> Option<ExtendsTarget> {
        if let Some(service) = extends.as_text() {
            return Some(ExtendsTarget { file: None, service: service.to_owned(), location: extends.location.clone() });
        }
        let mapping = self.problems.mapping(extends, "`extends`")?;
        self.problems.known_keys(mapping, "`extends`", &["file", "service"], Extensions::Allowed);
        let service = self.problems.required(extends, "service", "`extends`")?;
        let name = self.problems.text(service, "`extends.service`")?.to_owned();
        let file = match mapping.get("file").filter(|node| !node.is_null()) {
            Some(node) => Some((self.problems.text(node, "`extends.file`")?.to_owned(), node.location.clone())),
            None => None,
        };
        Some(ExtendsTarget { file, service: name, location: service.location.clone() })
    }

    fn find<'n>(&mut self, tree: &'n Node, path: &str, name: &str, location: &Location) -> Option<&'n Node> {
        let services = tree.get("services").and_then(Node::as_mapping);
        let positions = self.extended.positions.entry(path.to_owned()).or_insert_with(|| {
            let keys = services.into_iter().flat_map(|services| services.iter());
            keys.enumerate().map(|(at, (key, _))| (key.name.clone(), at)).collect()
        });
        let at = positions.get(name).copied();
        let found = services.zip(at).and_then(|(services, at)| services.entries.get(at)).map(|(_, node)| node);
        if found.is_none() {
            let problem =
                self.problems.error(location, format!("`extends` names the service `{name}`, not in `{path}`"));
            let names = services.into_iter().flat_map(|services| services.iter().map(|(key, _)| &*key.name));
            if let Some(near) = suggest::nearest(name, names) {
                problem.hint(format!("did you mean `{near}`?"));
            }
        }
        found
    }

    fn report_cycle(&mut self, id: &(String, String), location: &Location) {
        let chain = &self.extended.chain;
        let message = match chain.iter().position(|seen| seen == id) {
            Some(from) => {
                let mut names: Vec<&str> = chain[from..].iter().map(|(_, name)| name.as_str()).collect();
                names.push(&id.1);
                format!("services extend each other: {}", names.join(" → "))
            }
            None => format!("a chain of `extends` is longer than {MAX_CHAIN}"),
        };
        self.problems.error(location, message);
    }
}

/// Number of nodes in a tree, the root included.
pub(super) fn size(node: &Node) -> usize {
    match &node.value {
        Value::Scalar(_) => 1,
        Value::Sequence(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Mapping(mapping) => 1 + mapping.iter().map(|(_, node)| size(node)).sum::<usize>(),
    }
}
