//! Dependency versions are declared once, in the root manifest.
//!
//! Owns: the rule that every crate takes every dependency, also of tests, from the workspace table.

use super::{Finding, numbered};
use crate::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.files().filter(|(path, _)| {
        path.ends_with("/Cargo.toml") && (path.starts_with("crates/") || path.starts_with("xtask/"))
    });
    manifests.flat_map(|(path, text)| own_versions(path, text)).collect()
}

fn own_versions(path: &str, manifest: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut inside = false;
    for (number, line) in numbered(manifest) {
        if let Some(section) = line.trim().strip_prefix('[') {
            inside = section.trim_end_matches(']').ends_with("dependencies");
        } else if inside && line.contains('=') && !line.trim_start().starts_with('#') && !line.contains("workspace") {
            let name = line.split('=').next().unwrap_or_default().trim();
            let message =
                format!("`{name}` has a version of its own: declare it in the root manifest, `workspace = true` here");
            findings.push(Finding::new(path, number, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_outside_the_root_manifest_is_found_and_one_inside_is_not() {
        let crate_manifest = "[package]\nname = \"a\"\n[dependencies]\nserde = { workspace = true }\nclap.workspace = true\n\
                              [dev-dependencies]\ninsta = \"1\"\n";
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"\n"),
            ("crates/a/Cargo.toml", crate_manifest),
        ]);
        let lines: Vec<usize> = check(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [7]);
    }
}
