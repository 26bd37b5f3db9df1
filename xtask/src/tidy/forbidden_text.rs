//! Text that must not be in the tree: open tasks without an issue, ignored tests, paths of one machine, package hosts.
//!
//! Owns: the forbidden text. It is split in two halves here, so that this file does not match itself.

use super::{Finding, numbered};
use crate::tree::{Tree, has_extension};

const OPEN_TASKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];
const IGNORED: &str = concat!("#[ig", "nore");
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
const PACKAGE_HOSTS: &[&str] = &[
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("registry.", "npmjs.org"),
    concat!("pypi", ".org"),
    concat!("deb.", "debian.org"),
    concat!("proxy.", "golang.org"),
    concat!("arti", "factory"),
];

/// The only source the lock file may name; a mirror would tie every clone to it.
const LOCK_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        for (number, line) in numbered(text) {
            let complaint = if path == "Cargo.lock" { lock_line(line) } else { line_of(path, line) };
            findings.extend(complaint.map(|message| Finding::new(path, number, message)));
        }
    }
    findings
}

fn lock_line(line: &str) -> Option<String> {
    let foreign = line.starts_with("source = ") && line != LOCK_SOURCE;
    foreign.then(|| "a package from another source than the public index".to_owned())
}

fn line_of(path: &str, line: &str) -> Option<String> {
    if let Some(word) = OPEN_TASKS.iter().find(|word| is_open_task(line, word)) {
        return Some(format!("`{word}` without an issue number: write `{word}(#123)` or do it now"));
    }
    if has_extension(path, "rs") && line.contains(IGNORED) {
        return Some("an ignored test proves nothing: run it or delete it".to_owned());
    }
    if let Some(machine) = MACHINE_PATHS.iter().find(|machine| begins_a_path(line, machine)) {
        return Some(format!("`{machine}…` is a path of one machine"));
    }
    let host = PACKAGE_HOSTS.iter().find(|host| line.contains(**host))?;
    Some(format!("`{host}` names a package host: leave it to the reader's own settings"))
}

/// Whether the word stands alone and no `(#123)` follows it.
fn is_open_task(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + word.len()..];
        let alone = !before.is_some_and(is_word) && !after.chars().next().is_some_and(is_word);
        let number = after.strip_prefix("(#").and_then(|rest| rest.split_once(')')).map(|(number, _)| number);
        alone && !number.is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
    })
}

/// Whether an absolute path begins with `start`, rather than contains it.
fn begins_a_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| is_word(c) || matches!(c, '.' | '-' | '~' | '/' | '}' | '*'))
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    fn complaints(path: &str, line: &str) -> usize {
        check(&Tree::of(&[(path, line)])).len()
    }

    #[test]
    fn an_open_task_needs_an_issue() {
        let [todo, fixme] = [OPEN_TASKS[0], OPEN_TASKS[1]];
        assert_eq!(complaints("a.rs", &format!("// {todo}: later")), 1);
        assert_eq!(complaints("Makefile", &format!("# {fixme}(me) later")), 1);
        assert_eq!(complaints("a.rs", &format!("// {todo}(#12): later")), 0);
        assert_eq!(complaints("a.rs", &format!("const {todo}S: u8 = 1;")), 0);
    }

    #[test]
    fn a_test_that_does_not_run_is_found() {
        assert_eq!(complaints("a.rs", &format!("    {IGNORED}]")), 1);
        assert_eq!(complaints("a.md", &format!("no `{IGNORED}]`")), 0);
    }

    #[test]
    fn a_path_of_one_machine_is_found_with_its_line() {
        let tree = Tree::of(&[("a.md", &format!("fine\ncd {}x\n", MACHINE_PATHS[0]))]);
        assert!(printed(&check(&tree))[0].starts_with("a.md:2: "));
        assert_eq!(complaints("a.md", &format!("src{}x", MACHINE_PATHS[0])), 0);
    }

    #[test]
    fn a_package_host_is_found() {
        assert_eq!(complaints("a.toml", &format!("https://{}/x", PACKAGE_HOSTS[0])), 1);
    }

    #[test]
    fn the_lock_file_names_the_public_index_only() {
        assert_eq!(complaints("Cargo.lock", LOCK_SOURCE), 0);
        assert_eq!(complaints("Cargo.lock", "source = \"registry+https://mirror.example/index\""), 1);
    }
}
