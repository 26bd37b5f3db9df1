//! Every error code has a page, and every page has a code.
//!
//! Owns: the comparison of `docs/errors/` with the model's lists of codes and the codes in the store's sources.

use std::collections::BTreeSet;

use longshore_model::{ApiErrorCode, NodeConditionCode, Reason, RuntimeCode, SkipReason, rollout::StepFailure};

use super::Finding;
use crate::tree::Tree;

const FOLDER: &str = "docs/errors";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    pages(tree, &known().union(&codes_of_store(tree)).copied().collect())
}

/// The codes that the functions called `code` in the store's sources return. Read from the text, so that no list has to be
/// kept in step.
fn codes_of_store(tree: &Tree) -> BTreeSet<&str> {
    let sources = tree.rust().filter(|(path, _)| path.starts_with("crates/store/src/"));
    sources.flat_map(|(_, text)| text.split("pub const fn code(").skip(1)).flat_map(returned).collect()
}

/// The string literals that the arms of a function's one `match` return.
pub(super) fn returned(function: &str) -> impl Iterator<Item = &str> {
    let body = function.split("\n    }\n").next().unwrap_or(function);
    body.lines().filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\","))
}

/// Every code of the model.
pub(super) fn known() -> BTreeSet<&'static str> {
    let reasons = Reason::ALL.iter().map(|reason| reason.code());
    let codes = RuntimeCode::ALL.iter().map(|code| code.code());
    let steps = StepFailure::ALL.iter().map(|failure| failure.code());
    let requests = ApiErrorCode::ALL.iter().map(|request| request.code());
    let skips = SkipReason::ALL.iter().map(|skip| skip.code());
    let conditions = NodeConditionCode::ALL.iter().map(|condition| condition.code());
    reasons.chain(conditions).chain(codes).chain(skips).chain(steps).chain(requests).collect()
}

fn pages(tree: &Tree, codes: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let index = format!("{FOLDER}/README.md");
    for code in codes {
        let page = format!("{FOLDER}/{code}.md");
        match tree.text(&page) {
            None => findings.push(Finding::new(&page, 1, format!("missing: code `{code}` needs a page"))),
            Some(text) if !text.starts_with(&format!("# `{code}`\n")) => {
                findings.push(Finding::new(&page, 1, format!("open with the heading # `{code}`")));
            }
            Some(_) => {}
        }
        let listed = tree.text(&index).is_some_and(|text| text.contains(&format!("]({code}.md)")));
        if !listed {
            findings.push(Finding::new(&index, 1, format!("missing: a line that links `{code}.md`")));
        }
    }
    let strays = tree.markdown().filter_map(|(path, _)| {
        let code = path.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".md")?;
        let stray = code != "README" && !codes.contains(code);
        stray.then(|| Finding::new(path, 1, format!("`{code}` is not an error code")))
    });
    findings.extend(strays);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn a_code_with_its_page_and_its_line_passes() {
        let tree =
            Tree::of(&[("docs/errors/exited.md", "# `exited`\n"), ("docs/errors/README.md", "[`exited`](exited.md)")]);
        assert_eq!(pages(&tree, &BTreeSet::from(["exited"])), []);
    }

    #[test]
    fn a_code_without_a_page_and_a_page_without_a_code_are_found() {
        let tree = Tree::of(&[("docs/errors/gone.md", "# `gone`\n"), ("docs/errors/README.md", "](exited.md)")]);
        assert_eq!(
            printed(&pages(&tree, &BTreeSet::from(["exited"]))),
            [
                "docs/errors/exited.md:1: missing: code `exited` needs a page",
                "docs/errors/gone.md:1: `gone` is not an error code"
            ]
        );
    }

    #[test]
    fn a_code_of_the_store_is_found_in_its_text() {
        let source = "impl E {\n    pub const fn code(&self) -> &'static str {\n        match self {\n            \
                      Self::A { .. } => \"a_code\",\n        }\n    }\n    fn other() { match x { y => \"no_code\", } }\n}\n";
        let tree = Tree::of(&[("crates/store/src/error.rs", source), ("crates/cli/src/style.rs", source)]);
        assert_eq!(codes_of_store(&tree), BTreeSet::from(["a_code"]));
    }

    #[test]
    fn every_list_of_the_model_is_known() {
        assert!(["no_capacity_memory", "restart_exhausted", "dst_cap"].iter().all(|code| known().contains(code)));
    }
}
