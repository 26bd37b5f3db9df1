//! `volumes` and `tmpfs` of a service, in short and long syntax.
//!
//! Invariant: both syntaxes give the same mount; options that are the engine's defaults are left out.

use std::collections::BTreeMap;

use longshore_model::service::{Access, Mount, MountSource};

use super::ServiceReader;
use crate::{
    diagnostic::Location,
    keys::{self, Rule},
    reader::{Extensions, shorten},
    suggest,
    yaml::{Key, Node},
};

/// Most mounts of a service in one list.
const MAX_MOUNTS: usize = 1000;

const TMPFS_OPTIONS: &[&str] = &["size", "mode", "uid", "gid", "exec", "noexec", "suid", "nosuid", "dev", "nodev"];

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Volume,
    Bind,
    Tmpfs,
}

#[derive(Default)]
pub(crate) struct Entry {
    kind: Kind,
    source: Option<String>,
    target: Option<String>,
    access: Access,
    options: BTreeMap<String, String>,
}

type MountRead = fn(&mut Entry, &mut ServiceReader<'_>, &Key, &Node);

/// Keys of a mount in long syntax.
pub(crate) static MOUNT_KEYS: &[Rule<MountRead>] = &[
    Rule::honoured(
        "bind",
        |e, s, k, n| s.mount_options(e, k, n, &["propagation", "create_host_path", "selinux", "recursive"]),
        "`propagation`, `create_host_path`, `selinux`, `recursive`",
    ),
    Rule::accepted("consistency", "said for other engines"),
    Rule::honoured(
        "read_only",
        |e, s, k, n| e.access = s.access(k, n),
        "the replica may not write; the volume still has one holder",
    ),
    Rule::honoured(
        "source",
        |e, s, k, n| e.source = s.text(k, n),
        "volume key or path; relative paths start at the file",
    ),
    Rule::honoured("target", |e, s, k, n| e.target = s.text(k, n), "where it appears"),
    Rule::honoured(
        "tmpfs",
        |e, s, k, n| {
            s.mount_options(e, k, n, TMPFS_OPTIONS);
        },
        "`size`, `mode`",
    ),
    Rule::honoured("type", |e, s, k, n| ServiceReader::mount_type(e, s, k, n), "`volume`, `bind` or `tmpfs`"),
    Rule::honoured(
        "volume",
        |e, s, k, n| s.mount_options(e, k, n, &["nocopy", "subpath", "labels"]),
        "`nocopy`, `subpath`",
    ),
    Rule::refused("image", "copy the files into the service's own image"),
];

impl ServiceReader<'_> {
    pub(super) fn volumes(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        if node.is_null() {
            return;
        }
        let Some(items) = self.problems.short_sequence(node, &what, MAX_MOUNTS) else { return };
        for item in items {
            let entry = match item.as_text() {
                Some(text) => self.short_mount(text, item),
                None => self.long_mount(item, &what),
            };
            if let Some(entry) = entry {
                self.mount(entry, &item.location);
            }
        }
    }

    pub(super) fn tmpfs(&mut self, key: &Key, node: &Node) {
        let texts = self.texts(key, node);
        if texts.len() > MAX_MOUNTS {
            self.problems.error(&node.location, format!("{} has more than {MAX_MOUNTS} entries", self.of(key)));
            return;
        }
        for text in texts {
            let (target, words) = text.split_once(':').unwrap_or((&text, ""));
            let mut entry = Entry { kind: Kind::Tmpfs, target: Some(target.to_owned()), ..Entry::default() };
            for word in words.split(',').filter(|word| !word.is_empty()) {
                match word.split_once('=') {
                    Some(("size", size)) => match crate::units::parse_bytes(size) {
                        Ok(bytes) => drop(entry.options.insert("size".to_owned(), bytes.to_string())),
                        Err(error) => drop(self.problems.error(&node.location, error.to_string())),
                    },
                    Some((name, value)) => drop(entry.options.insert(name.to_owned(), value.to_owned())),
                    None if word == "ro" => entry.access = Access::ReadOnly,
                    None if word == "rw" => {}
                    None => drop(entry.options.insert(word.to_owned(), "true".to_owned())),
                }
            }
            self.mount(entry, &node.location);
        }
    }

    /// `[source:]target[:mode]`.
    fn short_mount(&mut self, text: &str, item: &Node) -> Option<Entry> {
        let parts = split_short(text);
        let mut entry = Entry::default();
        match parts.as_slice() {
            [target] => entry.target = Some((*target).to_owned()),
            [source, target] | [source, target, _] => {
                entry.source = Some((*source).to_owned());
                entry.target = Some((*target).to_owned());
                if is_path(source) {
                    entry.kind = Kind::Bind;
                }
            }
            _ => {
                let message =
                    format!("`{}` in {} must be `source:target` or `source:target:ro`", shorten(text), self.what);
                self.problems.error(&item.location, message);
                return None;
            }
        }
        for word in parts.get(2).unwrap_or(&"").split(',').filter(|word| !word.is_empty()) {
            self.mount_word(&mut entry, word, item);
        }
        Some(entry)
    }

    fn mount_word(&mut self, entry: &mut Entry, word: &str, item: &Node) {
        let mut set = |name: &str, value: &str| drop(entry.options.insert(name.to_owned(), value.to_owned()));
        match word {
            "rw" | "cached" | "delegated" | "consistent" => {}
            "ro" => entry.access = Access::ReadOnly,
            "z" | "Z" => set("selinux", word),
            "nocopy" => set("nocopy", "true"),
            "shared" | "rshared" | "slave" | "rslave" | "private" | "rprivate" => set("propagation", word),
            other => {
                let message = format!("`{}` is not a mount option of {}", shorten(other), self.what);
                self.problems
                    .error(&item.location, message)
                    .hint("known are `ro`, `rw`, `z`, `Z`, `nocopy` and the propagations");
            }
        }
    }

    fn long_mount(&mut self, item: &Node, what: &str) -> Option<Entry> {
        let mapping = self.problems.mapping(item, format_args!("an entry of {what}"))?;
        let mut entry = Entry::default();
        if mapping.get("type").is_none() {
            self.problems.error(&item.location, format!("an entry of {what} needs the key `type`"));
        }
        for (read, key, node) in keys::dispatch(MOUNT_KEYS, mapping, format_args!("an entry of {what}"), self.problems)
        {
            read(&mut entry, self, key, node);
        }
        Some(entry)
    }

    fn mount_type(entry: &mut Entry, reader: &mut Self, key: &Key, node: &Node) {
        let words = [("volume", Kind::Volume), ("bind", Kind::Bind), ("tmpfs", Kind::Tmpfs)];
        let Some(word) = node.as_text() else { return drop(reader.text(key, node)) };
        if matches!(word, "npipe" | "cluster" | "image") {
            let message = format!("a mount of the type `{word}` is not supported ({})", reader.what);
            reader.problems.error(&node.location, message).hint("use `volume`, `bind` or `tmpfs`");
            return;
        }
        let what = format!("`type` of a mount of {}", reader.what);
        entry.kind = reader.problems.choice(node, what, &words).unwrap_or_default();
    }

    fn access(&mut self, key: &Key, node: &Node) -> Access {
        let what = self.of(key);
        if self.problems.boolean(node, what) == Some(true) { Access::ReadOnly } else { Access::ReadWrite }
    }

    fn mount_options(&mut self, entry: &mut Entry, key: &Key, node: &Node, known: &[&str]) {
        let what = format!("`{}` of a mount of {}", key.name, self.what);
        if node.is_null() {
            return;
        }
        let Some(mapping) = self.problems.mapping(node, &what) else { return };
        self.problems.known_keys(mapping, &what, known, Extensions::Allowed);
        for (name, node) in mapping.iter().filter(|(name, _)| !name.name.starts_with("x-") && &*name.name != "labels") {
            let value = match &*name.name {
                "size" => self.problems.bytes(node, &what).map(|bytes| bytes.to_string()),
                "nocopy" | "create_host_path" => self.problems.boolean(node, &what).map(|word| word.to_string()),
                _ => self.problems.text(node, &what).map(str::to_owned),
            };
            if let Some(value) = value.filter(|value| !is_default(&name.name, value)) {
                entry.options.insert(name.name.to_string(), value);
            }
        }
    }

    fn mount(&mut self, entry: Entry, location: &Location) {
        let target = entry.target.unwrap_or_default();
        if !target.starts_with('/') && !is_windows(&target) {
            let message =
                format!("`{}` of {} must be an absolute path inside the container", shorten(&target), self.what);
            self.problems.error(location, message).hint("write `source:/path/inside`");
            return;
        }
        let target = if target.len() > 1 { target.trim_end_matches('/').to_owned() } else { target };
        if !self.raw.targets.insert(target.clone()) {
            let message = format!("{} mounts two things at `{target}`", self.what);
            self.problems.error(location, message).hint("keep one of them");
            return;
        }
        let source = match (entry.kind, entry.source) {
            (Kind::Tmpfs, _) => Some(MountSource::Tmpfs),
            (Kind::Bind, Some(path)) => Some(MountSource::Bind(self.host_path(&path))),
            (Kind::Bind, None) => {
                self.problems.error(location, format!("a bind mount of {} needs the key `source`", self.what));
                None
            }
            (Kind::Volume, None) => Some(MountSource::Anonymous),
            (Kind::Volume, Some(name)) => self.named_volume(&name, location),
        };
        if let Some(source) = source {
            self.spec.mounts.push(Mount { source, target, access: entry.access, options: entry.options });
        }
    }

    fn named_volume(&mut self, name: &str, location: &Location) -> Option<MountSource> {
        let declarations = self.declarations;
        let Some(declared) = declarations.volumes.get(name) else {
            let message = format!("{} mounts the volume `{}`, which is not declared", self.what, shorten(name));
            let problem = self.problems.error(location, message);
            match suggest::nearest(name, declarations.volumes.keys().map(String::as_str)) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem.hint(format!("add it to the top-level `volumes`, or write `./{name}` for a path")),
            }
            return None;
        };
        let driver = declared.spec.driver.clone().filter(|driver| driver != "local");
        Some(MountSource::Volume { key: declared.key.clone(), sharing: declared.sharing, driver })
    }

    fn host_path(&self, path: &str) -> String {
        let home = self.declarations.environment.get("HOME");
        match (path.strip_prefix('~'), home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
            (Some(_) | None, _) if is_windows(path) || path.starts_with('~') => path.to_owned(),
            (Some(_) | None, _) => self.declarations.absolute(path),
        }
    }
}

/// Removes options that are the engine's defaults, so that both syntaxes give the same mount.
fn is_default(option: &str, value: &str) -> bool {
    matches!((option, value), ("nocopy", "false") | ("create_host_path", "true"))
}

fn is_path(source: &str) -> bool {
    source.starts_with(['.', '/', '~']) || is_windows(source)
}

/// Whether a path starts with `C:\`. `C:/` is taken as a volume of one letter, which is more likely on a Linux cluster.
fn is_windows(path: &str) -> bool {
    let mut chars = path.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic()) && chars.next() == Some(':') && chars.next() == Some('\\')
}

/// Splits at colons, except the one after a drive letter.
fn split_short(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let from = if is_windows(rest) { 2 } else { 0 };
        let Some(at) = rest[from..].find(':') else {
            parts.push(rest);
            return parts;
        };
        parts.push(&rest[..from + at]);
        rest = &rest[from + at + 1..];
    }
}
