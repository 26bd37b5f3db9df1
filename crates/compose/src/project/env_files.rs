//! `env_file` and `label_file`, merged into `environment` and `labels`.
//!
//! Invariant: the manifest's own values win over files, later files over earlier ones.

use std::collections::{BTreeMap, HashMap};

use super::Loader;
use crate::{
    diagnostic::Location,
    dotenv::{self, Format},
    merge,
    reader::Extensions,
    yaml::{Key, MAX_TEXT, Mapping, Node, Value},
};

/// One file to merge.
struct Entry {
    path: String,
    required: bool,
    format: Format,
    location: Location,
}

/// Parsed files, cached because thousands of services may name the same one.
type Cache = HashMap<(String, bool), Vec<(String, String)>>;

impl Loader<'_> {
    /// Merges the files of every service of the tree.
    pub(crate) fn fold_env_files(&mut self, root: &mut Node, known: &BTreeMap<String, String>) {
        let services = root.as_mapping_mut().and_then(|root| root.get_mut("services")).and_then(Node::as_mapping_mut);
        let Some(services) = services else { return };
        let mut cache = Cache::new();
        let mut made = 0_usize;
        for (key, service) in &mut services.entries {
            let Some(mapping) = service.as_mapping_mut() else { continue };
            for (files, target) in [("env_file", "environment"), ("label_file", "labels")] {
                let Some(node) = mapping.get(files).cloned() else { continue };
                let what = format!("`{files}` of service `{}`", key.name);
                let mut folded = Mapping::default();
                for entry in self.entries(&node, &what) {
                    for (name, value) in self.pairs_of(&entry, known, &mut cache) {
                        made += name.len() + value.len();
                        let key = Key { name: name.as_str().into(), location: entry.location.clone() };
                        folded.entries.push((key, Node::text_at(&entry.location, &value)));
                    }
                    if made > MAX_TEXT {
                        self.problems.error(&entry.location, format!("{what} makes the deployment too large"));
                        return;
                    }
                }
                fold(mapping, target, folded, &node.location);
            }
        }
    }

    fn entries(&mut self, node: &Node, what: &str) -> Vec<Entry> {
        if node.is_null() {
            return Vec::new();
        }
        let items = node.as_sequence().unwrap_or(std::slice::from_ref(node));
        items.iter().filter_map(|item| self.entry(item, what)).collect()
    }

    fn entry(&mut self, item: &Node, what: &str) -> Option<Entry> {
        let location = item.location.clone();
        if let Some(path) = item.as_text() {
            return Some(Entry { path: path.to_owned(), required: true, format: Format::Dotenv, location });
        }
        let mapping = self.problems.mapping(item, format_args!("an entry of {what}"))?;
        self.problems.known_keys(mapping, what, &["path", "required", "format"], Extensions::Allowed);
        let path = self.problems.required(item, "path", format_args!("an entry of {what}"))?;
        let path = self.problems.text(path, what)?.to_owned();
        let required = mapping.get("required").and_then(|node| self.problems.boolean(node, what)) != Some(false);
        let format = match mapping.get("format") {
            Some(node) => self.problems.choice(
                node,
                format_args!("`format` of {what}"),
                &[("raw", Format::Raw), ("dotenv", Format::Dotenv)],
            )?,
            None => Format::Dotenv,
        };
        Some(Entry { path, required, format, location })
    }

    fn pairs_of(
        &mut self,
        entry: &Entry,
        known: &BTreeMap<String, String>,
        cache: &mut Cache,
    ) -> Vec<(String, String)> {
        let path = self.named(&entry.path);
        let id = (path, entry.format == Format::Raw);
        if let Some(pairs) = cache.get(&id) {
            return pairs.clone();
        }
        let missing_is_fine = !entry.required && !self.exists(&id.0);
        let text = if missing_is_fine { None } else { self.text(&id.0, &entry.location) };
        let pairs = match text {
            Some(text) => dotenv::parse(&id.0, &text, entry.format, known, &mut self.problems),
            None => Vec::new(),
        };
        cache.insert(id, pairs.clone());
        pairs
    }
}

/// Merges the manifest's values onto those of the files.
fn fold(service: &mut Mapping, target: &str, folded: Mapping, location: &Location) {
    let mut all = Mapping::default();
    let mut at: HashMap<std::sync::Arc<str>, usize> = HashMap::new();
    let own = service.get(target).cloned().map(merge::pairs);
    let own = own.and_then(|node| match node.value {
        Value::Mapping(mapping) => Some(mapping.entries),
        Value::Scalar(_) | Value::Sequence(_) => None,
    });
    for (key, node) in folded.entries.into_iter().chain(own.into_iter().flatten()) {
        if let Some(&found) = at.get(&key.name) {
            all.entries[found] = (key, node);
        } else {
            at.insert(key.name.clone(), all.entries.len());
            all.entries.push((key, node));
        }
    }
    let node = Node { location: location.clone(), tag: None, value: Value::Mapping(all) };
    service.set(Key { name: target.into(), location: location.clone() }, node);
}
