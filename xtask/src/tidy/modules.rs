//! Rust files: a header, a parent that declares them, a limited length.
//!
//! Owns: these rules for every source file.

use std::path::Path;

use super::{Finding, numbered};
use crate::tree::Tree;

/// The style asks to split a file from 500 lines on; this hard limit leaves some room above that.
const MAX_LINES: usize = 700;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        findings.extend(length(path, text));
        findings.extend(folder_file(path));
        if is_source(path) {
            findings.extend(header(path, text));
            findings.extend(orphan(tree, path));
        }
    }
    findings
}

/// `crates/<crate>/src/…` and `xtask/src/…`.
fn is_source(path: &str) -> bool {
    path.starts_with("xtask/src/") || path.starts_with("crates/") && path.split('/').nth(2) == Some("src")
}

fn length(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    (lines > MAX_LINES).then(|| {
        Finding::new(path, MAX_LINES, format!("{lines} lines, at most {MAX_LINES}: move the second concept out"))
    })
}

fn folder_file(path: &str) -> Option<Finding> {
    (Path::new(path).file_name()? == "mod.rs").then(|| Finding::new(path, 1, "name it after its folder, beside it"))
}

fn header(path: &str, text: &str) -> Option<Finding> {
    let opens = numbered(text).next().is_some_and(|(_, line)| line.starts_with("//!"));
    (!opens).then(|| Finding::new(path, 1, "open with `//!`: what the module owns, must not touch and keeps true"))
}

/// A file that no `mod` line declares is never compiled.
fn orphan(tree: &Tree, path: &str) -> Option<Finding> {
    let (folder, file) = path.rsplit_once('/')?;
    let name = file.strip_suffix(".rs")?;
    let is_root = folder.ends_with("/src") && matches!(name, "lib" | "main");
    if is_root || folder.ends_with("/src/bin") || name == "mod" {
        return None;
    }
    let parents = if folder.ends_with("/src") {
        vec![format!("{folder}/lib.rs"), format!("{folder}/main.rs")]
    } else {
        vec![format!("{folder}.rs")]
    };
    let wanted = format!("mod {name};");
    let named = parents.iter().filter_map(|parent| tree.text(parent)).any(|text| {
        text.lines().any(|line| line.trim_end().strip_suffix(&wanted).is_some_and(|before| !before.ends_with('/')))
    });
    (!named).then(|| Finding::new(path, 1, format!("dead file: `{wanted}` is nowhere in {}", parents.join(" or "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn a_tidy_crate_passes() {
        let tree = Tree::of(&[
            ("crates/model/src/lib.rs", "//! Nouns.\npub mod node;\n"),
            ("crates/model/src/node.rs", "//! A node.\nmod tests;\n"),
            ("crates/model/src/node/tests.rs", "//! Tests.\n"),
            ("crates/model/tests/story.rs", "fn x() {}\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_missing_header_is_found() {
        let tree = Tree::of(&[("crates/model/src/lib.rs", "pub struct A;\n")]);
        assert!(printed(&check(&tree))[0].starts_with("crates/model/src/lib.rs:1: open with `//!`"));
    }

    #[test]
    fn a_file_no_module_names_is_dead() {
        let tree =
            Tree::of(&[("crates/a/src/lib.rs", "//! A.\n// mod gone;x\n"), ("crates/a/src/gone.rs", "//! Gone.\n")]);
        assert!(printed(&check(&tree))[0].starts_with("crates/a/src/gone.rs:1: dead file"));
    }

    #[test]
    fn a_folder_has_its_file_beside_it() {
        let tree = Tree::of(&[("crates/a/src/lib.rs", "//! A.\n"), ("crates/a/src/b/mod.rs", "//! B.\n")]);
        assert_eq!(printed(&check(&tree)), ["crates/a/src/b/mod.rs:1: name it after its folder, beside it"]);
    }

    #[test]
    fn a_file_past_the_limit_is_found() {
        let long = "//! Long.\n".repeat(MAX_LINES + 1);
        let tree = Tree::of(&[("crates/a/src/lib.rs", &long)]);
        assert!(printed(&check(&tree))[0].starts_with("crates/a/src/lib.rs:700: 701 lines"));
    }
}
