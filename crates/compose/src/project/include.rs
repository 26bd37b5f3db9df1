//! `include`: other Compose files, each with its own directory and variables.
//!
//! Invariant: an included definition never silently replaces another; an equal one is no conflict.

use std::{collections::HashMap, sync::Arc};

use super::Loader;
use crate::{
    diagnostic::Location,
    interpolate::Variables,
    merge, paths,
    reader::Extensions,
    yaml::{Node, Value},
};

/// Deepest nesting of includes.
const MAX_INCLUDES: usize = 16;

/// One entry of `include`.
struct Entry {
    paths: Vec<String>,
    project_directory: Option<String>,
    env_files: Option<Vec<String>>,
    location: Location,
}

impl Loader<'_> {
    pub(super) fn include(
        &mut self,
        tree: &mut Node,
        path: &str,
        variables: &mut Variables,
        including: &mut Vec<String>,
    ) {
        let Some((_, list)) = tree.as_mapping_mut().and_then(|root| root.remove("include")) else { return };
        if list.is_null() {
            return;
        }
        let Some(items) = self.problems.sequence(&list, "`include`") else { return };
        including.push(path.to_owned());
        for item in items {
            if let Some(entry) = self.include_entry(item)
                && let Some(included) = self.included(&entry, path, variables, including)
            {
                self.import(tree, included);
            }
        }
        including.pop();
    }

    fn include_entry(&mut self, item: &Node) -> Option<Entry> {
        let location = item.location.clone();
        if let Some(path) = item.as_text() {
            return Some(Entry { paths: vec![path.to_owned()], project_directory: None, env_files: None, location });
        }
        let what = "an entry of `include`";
        let mapping = self.problems.mapping(item, what)?;
        self.problems.known_keys(mapping, what, &["path", "project_directory", "env_file"], Extensions::Allowed);
        let path = self.problems.required(item, "path", what)?;
        let paths = self.problems.text_or_texts(path, "`path` of `include`");
        let directory = mapping.get("project_directory").and_then(|node| self.problems.text(node, what));
        let env_files =
            mapping.get("env_file").map(|node| self.problems.text_or_texts(node, "`env_file` of `include`"));
        Some(Entry { paths, project_directory: directory.map(str::to_owned), env_files, location })
    }

    fn included(
        &mut self,
        entry: &Entry,
        from: &str,
        variables: &mut Variables,
        including: &mut Vec<String>,
    ) -> Option<Node> {
        let here = paths::parent(from).to_owned();
        let files: Vec<String> = entry.paths.iter().map(|path| paths::join(&here, path)).collect();
        let first = files.first()?;
        if including.contains(first) || including.len() >= MAX_INCLUDES {
            self.problems.error(&entry.location, format!("`{first}` is included by what it includes"));
            return None;
        }
        let own = match &entry.project_directory {
            Some(directory) => paths::join(&here, directory),
            None => paths::join(".", paths::parent(first)),
        };
        let mut inner = self.included_variables(entry, &here, &own, variables);
        let mut merged: Option<Node> = None;
        for file in &files {
            let node = self.file(file, &entry.location, &mut inner, including)?;
            merged = Some(match merged {
                Some(base) => merge::merge(base, node, &mut self.problems),
                None => node,
            });
        }
        let mut merged = merged?;
        merge::apply_tags(&mut merged);
        let directory = paths::join(&self.working_directory, &own);
        if directory != self.directory {
            super::relocate::file(&mut merged, &directory);
        }
        Some(merged)
    }

    /// The including file's variables win over those of the included one.
    fn included_variables(&mut self, entry: &Entry, here: &str, own: &str, outer: &Variables) -> Variables {
        let default = paths::join(own, ".env");
        let files: Vec<String> = match &entry.env_files {
            Some(files) => files.iter().map(|file| paths::join(here, file)).collect(),
            None if self.exists(&default) => vec![default],
            None => Vec::new(),
        };
        let mut values = std::collections::BTreeMap::new();
        for file in files {
            values.extend(self.variables(&file, &entry.location, outer.values()));
        }
        values.extend(outer.values().clone());
        Variables::new(values)
    }

    /// Adds the sections of an included file.
    fn import(&mut self, tree: &mut Node, included: Node) {
        let location = included.location.clone();
        let (Some(root), Value::Mapping(included)) = (tree.as_mapping_mut(), included.value) else { return };
        for (section, node) in included.entries {
            if !matches!(&*section.name, "services" | "volumes" | "networks" | "secrets" | "configs") {
                continue;
            }
            let Value::Mapping(entries) = node.value else { continue };
            if root.get(&section.name).is_none_or(Node::is_null) {
                root.set(section.clone(), Node::mapping_at(&location));
            }
            let Some(target) = root.get_mut(&section.name).and_then(Node::as_mapping_mut) else { continue };
            let known: HashMap<Arc<str>, usize> =
                target.entries.iter().enumerate().map(|(at, (key, _))| (key.name.clone(), at)).collect();
            for (key, node) in entries.entries {
                match known.get(&key.name).map(|at| &target.entries[*at]) {
                    None => target.entries.push((key, node)),
                    Some((_, known)) if same(known, &node) => {}
                    Some((first, _)) => {
                        let (message, hint) = (
                            format!("`{}` of `{}` is included twice with different contents", key.name, section.name),
                            format!("the other is at {}; rename one, or lay a file over both with `-f`", key.location),
                        );
                        self.problems.error(&first.location, message).hint(hint);
                    }
                }
            }
        }
    }
}

/// Whether two trees are equal apart from locations.
fn same(a: &Node, b: &Node) -> bool {
    match (&a.value, &b.value) {
        (Value::Scalar(a), Value::Scalar(b)) => a.text == b.text,
        (Value::Sequence(a), Value::Sequence(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Mapping(a), Value::Mapping(b)) => {
            a.entries.len() == b.entries.len()
                && a.iter().all(|(key, node)| b.get(&key.name).is_some_and(|other| same(node, other)))
        }
        (Value::Scalar(_) | Value::Sequence(_) | Value::Mapping(_), _) => false,
    }
}
