//! Loads the requested files into one merged tree.
//!
//! Owns: the order of steps: variables; per file interpolation, `extends` and `include`; merging of files; profiles; env
//! files.
//! Must not touch: meaning; [`crate::deployment`] decodes the tree.
//! Invariant: the number of files opened and the size of the tree are bounded, whatever files refer to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    diagnostic::{Diagnostics, Location, Sources},
    dotenv::{self, Format},
    files::{Files, ReadError},
    interpolate::Variables,
    merge, paths,
    yaml::{self, Node},
};

mod env_files;
mod extends;
mod include;
mod relocate;

/// Most files of one deployment; bounds chains of `include` and `extends`.
const MAX_FILES: usize = 256;

/// Reads files and collects problems.
pub(crate) struct Loader<'f> {
    files: &'f dyn Files,
    /// Texts of the files, for excerpts.
    pub(crate) sources: Sources,
    /// Problems so far.
    pub(crate) problems: Diagnostics,
    /// The caller's working directory; file names are relative to it.
    pub(crate) working_directory: String,
    /// The base of relative paths in the manifest.
    pub(crate) directory: String,
    opened: usize,
    bytes: usize,
    nodes: usize,
    trees: HashMap<String, Option<Node>>,
    extended: extends::Cache,
}

impl<'f> Loader<'f> {
    pub(crate) fn new(files: &'f dyn Files, working_directory: &str, directory: String) -> Self {
        Self {
            files,
            working_directory: working_directory.to_owned(),
            sources: Sources::default(),
            problems: Diagnostics::new(),
            directory,
            opened: 0,
            bytes: 0,
            nodes: 0,
            trees: HashMap::new(),
            extended: extends::Cache::default(),
        }
    }

    /// The text of a file; a failure is reported at `location`.
    pub(crate) fn text(&mut self, path: &str, location: &Location) -> Option<String> {
        self.opened += 1;
        if self.opened > MAX_FILES {
            self.problems.error(location, format!("more than {MAX_FILES} files are read for one deployment"));
            return None;
        }
        match self.files.read(&paths::join(&self.working_directory, path)) {
            Ok(text) if self.bytes + text.len() > yaml::MAX_BYTES => {
                let message = format!("the files of one deployment have more than {} bytes", yaml::MAX_BYTES);
                self.problems.error(location, message);
                None
            }
            Ok(text) => {
                self.bytes += text.len();
                self.sources.insert(path, &text);
                Some(text)
            }
            Err(error) => {
                let location = match error {
                    ReadError::NotText { line, column } => &Location { file: path.into(), line, column, length: 0 },
                    ReadError::Missing | ReadError::Directory | ReadError::Large | ReadError::System(_) => location,
                };
                self.problems.error(location, format!("the file `{path}` {error}")).hint(error.hint());
                None
            }
        }
    }

    /// Whether a file exists, readable or not. It is read to find out, because [`Files`] has no other method.
    pub(crate) fn exists(&self, path: &str) -> bool {
        match self.files.read(&paths::join(&self.working_directory, path)) {
            // A directory named `.env` is usually a Python environment; Compose ignores it, too.
            Err(ReadError::Missing | ReadError::Directory) => false,
            Ok(_) | Err(ReadError::Large | ReadError::NotText { .. } | ReadError::System(_)) => true,
        }
    }

    /// The tree of a file with variables replaced.
    fn tree(&mut self, path: &str, location: &Location, variables: &mut Variables) -> Option<Node> {
        if let Some(known) = self.trees.get(path) {
            return known.clone();
        }
        let tree = self.fresh_tree(path, location, variables);
        self.trees.insert(path.to_owned(), tree.clone());
        tree
    }

    fn fresh_tree(&mut self, path: &str, location: &Location, variables: &mut Variables) -> Option<Node> {
        if self.nodes > yaml::MAX_NODES {
            return None;
        }
        let text = self.text(path, location)?;
        match yaml::parse(path, &text) {
            Ok(mut node) => {
                self.nodes += extends::size(&node);
                if self.nodes > yaml::MAX_NODES {
                    let message = format!("the files of one deployment have more than {} values", yaml::MAX_NODES);
                    self.problems.error(location, message);
                    return None;
                }
                variables.apply(&mut node, &mut self.problems);
                Some(node)
            }
            Err(problems) => {
                // The size read before the error is unknown, and many files may be made to fail late.
                self.nodes += yaml::MAX_NODES / 8;
                self.problems.append(problems);
                None
            }
        }
    }

    /// One file with its `extends` and `include` resolved.
    pub(crate) fn file(
        &mut self,
        path: &str,
        location: &Location,
        variables: &mut Variables,
        including: &mut Vec<String>,
    ) -> Option<Node> {
        let tree = self.tree(path, location, variables)?;
        self.resolve(tree, path, variables, including)
    }

    /// A tree with its `extends` and `include` resolved.
    pub(crate) fn resolve(
        &mut self,
        mut tree: Node,
        path: &str,
        variables: &mut Variables,
        including: &mut Vec<String>,
    ) -> Option<Node> {
        if tree.is_null() {
            self.problems.error(&Location::start_of(path), "the file is empty");
            return None;
        }
        self.problems.mapping(&tree, "a Compose file")?;
        self.extend(&mut tree, path, variables);
        self.include(&mut tree, path, variables, including);
        Some(tree)
    }

    /// The top-level `name` of a file, and its location.
    pub(crate) fn name_in(&mut self, path: &str, variables: &mut Variables) -> Option<(String, Location)> {
        // Not cached: variables may depend on the name, so the tree is built again later.
        let text = self.files.read(&paths::join(&self.working_directory, path)).ok()?;
        // A byte-order mark may stand before the first key.
        let flow = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}').starts_with('{');
        let is_name = |line: &str| line.trim_start_matches(['\u{feff}', '"', '\'']).starts_with("name");
        if !flow && !text.lines().any(is_name) {
            return None;
        }
        let mut name = yaml::parse(path, &text).ok()?.get("name").filter(|node| !node.is_null())?.clone();
        variables.apply(&mut name, &mut self.problems);
        Some((name.as_text()?.to_owned(), name.location))
    }

    /// Several files, each merged onto those before it.
    pub(crate) fn all(&mut self, files: &[String], variables: &mut Variables) -> Option<Node> {
        let mut merged: Option<Node> = None;
        for path in files {
            let node = self.file(path, &Location::start_of(path), variables, &mut Vec::new());
            merged = match (merged, node) {
                (Some(base), Some(over)) => Some(merge::merge(base, over, &mut self.problems)),
                (None, Some(mut first)) => {
                    merge::apply_tags(&mut first);
                    Some(first)
                }
                (base, None) => base,
            };
        }
        merged
    }

    /// A path of the manifest, relative to the working directory.
    fn named(&self, path: &str) -> String {
        let absolute = paths::join(&self.directory, path);
        let short = absolute.strip_prefix(&self.working_directory).and_then(|rest| rest.strip_prefix('/'));
        short.map_or(absolute.clone(), str::to_owned)
    }

    /// The absolute directory of a file name relative to the working directory.
    fn directory_of(&self, file: &str) -> String {
        paths::join(&self.working_directory, paths::parent(file))
    }

    /// The variables of an env file; later ones win.
    pub(crate) fn variables(
        &mut self,
        path: &str,
        location: &Location,
        known: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let Some(text) = self.text(path, location) else { return BTreeMap::new() };
        dotenv::parse(path, &text, Format::Dotenv, known, &mut self.problems).into_iter().collect()
    }
}

/// Removes services whose profiles are not active, and returns their names.
pub(crate) fn choose_profiles(
    root: &mut Node,
    active: &BTreeSet<String>,
    problems: &mut Diagnostics,
) -> BTreeSet<String> {
    let mut inactive = BTreeSet::new();
    let services = root.as_mapping_mut().and_then(|root| root.get_mut("services")).and_then(Node::as_mapping_mut);
    let Some(services) = services else { return inactive };
    services.entries.retain(|(key, service)| {
        let Some(profiles) = service.get("profiles").filter(|node| !node.is_null()) else { return true };
        let profiles = problems.texts(profiles, format_args!("`profiles` of service `{}`", key.name));
        let wanted = profiles.is_empty() || profiles.iter().any(|name| active.contains(name)) || active.contains("*");
        if !wanted {
            inactive.insert(key.name.to_string());
        }
        wanted
    });
    inactive
}
