//! The coverage table names tests that exist.
//!
//! Owns: what a backticked word of `docs/coverage.md` must refer to: a file, a scenario or a test function.

use super::{Finding, backticked, codes, numbered};
use crate::tree::{Tree, has_extension};

const PAGE: &str = "docs/coverage.md";
const SCENARIOS: &str = "tests/scenarios";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(PAGE) else { return Vec::new() };
    let named = numbered(text).flat_map(|(number, line)| backticked(line).map(move |word| (number, word)));
    named.filter_map(|(number, word)| Some(Finding::new(PAGE, number, complaint(tree, word)?))).collect()
}

fn complaint(tree: &Tree, word: &str) -> Option<String> {
    if let Some((place, test)) = word.rsplit_once("::") {
        let found = if has_extension(place, "rs") {
            tree.text(place).is_some_and(|text| defines(text, test))
        } else {
            is_test(tree, test)
        };
        return (!found).then(|| format!("no test `{word}`"));
    }
    if is_path(word) {
        let found = tree.has(word) || tree.has(&format!("{SCENARIOS}/{word}"));
        return (!found).then(|| format!("no file `{word}`, nor under {SCENARIOS}"));
    }
    (is_sentence(word) && !codes::known().contains(word) && !is_test(tree, word)).then(|| format!("no test `{word}`"))
}

/// Whether a word is a path of the repository: by its first folder, or by its extension.
fn is_path(word: &str) -> bool {
    let rooted =
        ["crates/", "docs/", "examples/", "fuzz/", "tests/", "xtask/"].iter().any(|root| word.starts_with(root));
    let like_file = ["json", "md", "rs", "yaml"].iter().any(|extension| has_extension(word, extension));
    !word.contains([' ', '*', '<']) && (rooted || like_file)
}

/// Tests are named as sentences: four words or more, joined by underscores. Shorter words are settings and codes.
fn is_sentence(word: &str) -> bool {
    word.matches('_').count() >= 3 && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn is_test(tree: &Tree, name: &str) -> bool {
    tree.rust().any(|(_, text)| defines(text, name))
}

fn defines(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}("))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn without_the_page_there_is_nothing_to_check() {
        assert_eq!(check(&Tree::of(&[])), []);
    }

    #[test]
    fn files_scenarios_and_tests_that_exist_pass() {
        let page = "| PL1 | `tests/scenarios/plfm/a.yaml` `plfm/a.yaml` `it_goes_where_it_fits` |\n\
                    | PL2 | `crates/x/tests/y.rs::short` `volume_home_node_offline` `node.labels.zone` |\n";
        let tree = Tree::of(&[
            ("docs/coverage.md", page),
            ("tests/scenarios/plfm/a.yaml", ""),
            ("crates/x/tests/y.rs", "fn short() {}\nfn it_goes_where_it_fits() {}\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_test_or_file_that_does_not_exist_is_found() {
        let page = "one\n`plfm/b.yaml` `it_is_not_there_at_all` `crates/x/tests/y.rs::gone`\n";
        let tree = Tree::of(&[("docs/coverage.md", page), ("crates/x/tests/y.rs", "fn here() {}\n")]);
        assert_eq!(
            printed(&check(&tree)),
            [
                "docs/coverage.md:2: no file `plfm/b.yaml`, nor under tests/scenarios",
                "docs/coverage.md:2: no test `it_is_not_there_at_all`",
                "docs/coverage.md:2: no test `crates/x/tests/y.rs::gone`"
            ]
        );
    }
}
