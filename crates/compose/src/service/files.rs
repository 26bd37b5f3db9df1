//! `secrets` and `configs` of a service: mounted files, and secrets that must exist before placement.

use std::collections::BTreeMap;

use longshore_model::container::{FileKind, FileMount};

use super::ServiceReader;
use crate::{
    declarations::{Content, FileDeclaration},
    keys::{self, Rule},
    suggest,
    yaml::{Key, Node, Style, Value},
};

#[derive(Default)]
pub(crate) struct FileReader {
    source: Option<String>,
    target: Option<String>,
    uid: Option<String>,
    gid: Option<String>,
    mode: Option<u32>,
}

type FileRead = fn(&mut FileReader, &mut ServiceReader<'_>, &Key, &Node);

/// Keys of a service's secret or config.
pub(crate) static FILE_MOUNT_KEYS: &[Rule<FileRead>] = &[
    Rule::honoured("gid", |r, s, k, n| r.gid = s.text(k, n), "group of the file"),
    Rule::honoured("mode", |r, s, k, n| r.mode = s.permissions(k, n), "permission bits, `0440` or `\"0440\"`"),
    Rule::honoured("source", |r, s, k, n| r.source = s.text(k, n), "key in the top-level section"),
    Rule::honoured("target", |r, s, k, n| r.target = s.text(k, n), "where it appears"),
    Rule::honoured("uid", |r, s, k, n| r.uid = s.text(k, n), "owner of the file"),
];

impl ServiceReader<'_> {
    pub(super) fn secrets(&mut self, key: &Key, node: &Node) {
        self.files(FileKind::Secret, key, node);
    }

    pub(super) fn configs(&mut self, key: &Key, node: &Node) {
        self.files(FileKind::Config, key, node);
    }

    fn files(&mut self, kind: FileKind, key: &Key, node: &Node) {
        let what = self.of(key);
        if node.is_null() {
            return;
        }
        let Some(items) = self.problems.sequence(node, &what) else { return };
        for item in items {
            self.file(kind, item, &what);
        }
        self.spec.container.files.sort();
    }

    fn file(&mut self, kind: FileKind, item: &Node, what: &str) {
        let mut reader = FileReader::default();
        if let Some(name) = item.as_text() {
            reader.source = Some(name.to_owned());
        } else {
            let Some(mapping) = self.problems.mapping(item, format_args!("an entry of {what}")) else { return };
            for (read, key, node) in keys::dispatch(FILE_MOUNT_KEYS, mapping, what, self.problems) {
                read(&mut reader, self, key, node);
            }
        }
        let Some(source) = reader.source else {
            self.problems.error(&item.location, format!("an entry of {what} needs the key `source`"));
            return;
        };
        let declarations = self.declarations;
        let declared = match kind {
            FileKind::Secret => &declarations.secrets,
            FileKind::Config => &declarations.configs,
        };
        let Some(declaration) = declared.get(&source) else {
            self.undeclared(kind, &source, declared, item);
            return;
        };
        if declaration.content == Content::Cluster {
            self.spec.secrets_required.insert(declaration.name.clone());
        }
        let target = match (kind, reader.target) {
            (FileKind::Secret, None) => format!("/run/secrets/{source}"),
            (FileKind::Secret, Some(target)) if !target.starts_with('/') => format!("/run/secrets/{target}"),
            (FileKind::Config, None) => format!("/{source}"),
            (FileKind::Config, Some(target)) if !target.starts_with('/') => format!("/{target}"),
            (FileKind::Secret | FileKind::Config, Some(target)) => target,
        };
        let mount = FileMount {
            target,
            name: declaration.name.clone(),
            kind,
            uid: reader.uid,
            gid: reader.gid,
            mode: reader.mode,
        };
        self.spec.container.files.push(mount);
    }

    fn undeclared(&mut self, kind: FileKind, source: &str, declared: &BTreeMap<String, FileDeclaration>, item: &Node) {
        let (word, section) = match kind {
            FileKind::Secret => ("secret", "secrets"),
            FileKind::Config => ("config", "configs"),
        };
        let message = format!("{} names the {word} `{source}`, which is not declared", self.what);
        let problem = self.problems.error(&item.location, message);
        match suggest::nearest(source, declared.keys().map(String::as_str)) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem
                .hint(format!("add it to the top-level `{section}`, for instance `{source}: {{external: true}}`")),
        }
    }

    /// Permission bits: octal in quotes or after a `0`, else YAML's decimal number.
    fn permissions(&mut self, key: &Key, node: &Node) -> Option<u32> {
        let text = self.text(key, node)?;
        let number =
            matches!(&node.value, Value::Scalar(scalar) if scalar.style == Style::Plain) && !text.starts_with('0');
        let digits = text.strip_prefix("0o").unwrap_or(&text);
        let bits = u32::from_str_radix(digits, if number { 10 } else { 8 }).ok().filter(|bits| *bits <= 0o7777);
        if bits.is_none() {
            let message = format!("{} must be permission bits such as `0440`, not `{text}`", self.of(key));
            self.problems.error(&node.location, message);
        }
        bits
    }
}
