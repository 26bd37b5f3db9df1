//! Lints of the repository that neither the compiler nor clippy has.
//!
//! Owns: the list of checks and the format of a finding.
//! Invariant: a check reads the tree and nothing else, so the same tree always gives the same findings.

mod codes;
mod coverage;
mod crate_dependencies;
mod forbidden_text;
mod links;
mod modules;
mod versions;
mod vocabulary;

use std::fmt;

use crate::tree::Tree;

/// A violation of a check, and its place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Returns all findings, sorted by place.
pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    const CHECKS: &[fn(&Tree) -> Vec<Finding>] = &[
        modules::check,
        versions::check,
        crate_dependencies::check,
        codes::check,
        forbidden_text::check,
        links::check,
        coverage::check,
        vocabulary::check,
    ];
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(tree)).collect();
    findings.sort();
    findings
}

/// The lines of a text, numbered as an editor numbers them.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// The text between backticks in a line.
fn backticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[cfg(test)]
fn printed(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_prints_path_line_and_message() {
        assert_eq!(Finding::new("a/b.rs", 7, "too long").to_string(), "a/b.rs:7: too long");
    }

    #[test]
    fn an_empty_tree_has_no_findings_but_missing_pages() {
        assert!(findings(&Tree::of(&[])).iter().all(|finding| finding.path.starts_with("docs/errors/")));
    }
}
