//! The rules of the house that neither the compiler nor clippy can hold.
//!
//! Owns: the list of checks and the shape of a complaint.
//! Invariant: a check reads the tree and nothing else, so the same tree always gives the same complaints.

mod arrows;
mod codes;
mod coverage;
mod links;
mod modules;
mod versions;
mod words;

use std::fmt;

use crate::tree::Tree;

/// Something to put right, where it is.
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

/// Every complaint about the tree, sorted by place.
pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    const CHECKS: &[fn(&Tree) -> Vec<Finding>] =
        &[modules::check, versions::check, arrows::check, codes::check, words::check, links::check, coverage::check];
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
    fn a_complaint_can_be_clicked() {
        assert_eq!(Finding::new("a/b.rs", 7, "too long").to_string(), "a/b.rs:7: too long");
    }

    #[test]
    fn an_empty_tree_has_nothing_but_missing_pages_to_complain_about() {
        assert!(findings(&Tree::of(&[])).iter().all(|finding| finding.path.starts_with("docs/errors/")));
    }
}
