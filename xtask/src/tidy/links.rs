//! Links between pages of the repository resolve.
//!
//! Owns: relative links of Markdown files. External links are not checked, as that would need the network.

use super::{Finding, numbered};
use crate::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.markdown() {
        for (number, target) in links(text) {
            let (page, anchor) = target.split_once('#').unwrap_or((target, ""));
            let resolved = if page.is_empty() { Some(path.to_owned()) } else { resolve(path, page) };
            match resolved {
                Some(found) if tree.has(&found) => {
                    if !anchor.is_empty() && !tree.text(&found).is_some_and(|text| has_heading(text, anchor)) {
                        findings.push(Finding::new(path, number, format!("no heading `#{anchor}` in {found}")));
                    }
                }
                _ => findings.push(Finding::new(path, number, format!("link to `{target}` does not resolve"))),
            }
        }
    }
    findings
}

/// Link targets outside code blocks, with their lines; external links are left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in numbered(text) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
            found.extend(
                targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).map(|t| (number, t)),
            );
        }
    }
    found
}

/// Resolves `target` relative to `page`; `None` if it leaves the repository.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Whether a heading has that anchor: lower case, spaces to hyphens, punctuation removed.
fn has_heading(text: &str, anchor: &str) -> bool {
    text.lines().filter(|line| line.starts_with('#')).any(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let slug: String = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect();
        slug.replace(' ', "-") == anchor
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn links_to_files_folders_headings_and_other_sites_pass() {
        let tree = Tree::of(&[
            ("README.md", "[a](docs/a.md#the-second-part) [b](docs/) [c](https://example.com/x) [d](#top)\n# Top\n"),
            ("docs/a.md", "# A\n## The second part!\n[up](../README.md)\n```\n[x](nowhere)\n```\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let tree = Tree::of(&[("docs/a.md", "one\n[b](b.md) and [c](../../c.md)\n")]);
        assert_eq!(
            printed(&check(&tree)),
            ["docs/a.md:2: link to `b.md` does not resolve", "docs/a.md:2: link to `../../c.md` does not resolve"]
        );
    }

    #[test]
    fn a_heading_that_is_not_there_is_found() {
        let tree = Tree::of(&[("a.md", "[b](#gone)\n# Here\n")]);
        assert_eq!(printed(&check(&tree)), ["a.md:1: no heading `#gone` in a.md"]);
    }
}
