//! Which crate may depend on which.
//!
//! Owns: the order of the crates, and the crates that must not depend on an async runtime.
//! Must not touch: `[dev-dependencies]`. A test may use a crate further down the list; production code may not.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, numbered};
use crate::tree::Tree;

/// A crate may only depend on crates before it in this list.
const CRATES: &[&str] =
    &["model", "durable-file", "api", "compose", "scheduler", "store", "network", "agent", "server", "sim", "cli"];

/// Crates that must be deterministic: they run without an async runtime, so that one thread and one seed reproduce a run.
const PURE: &[&str] = &["model", "scheduler", "store", "sim"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let lock = Lock::of(tree.text("Cargo.lock").unwrap_or_default());
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        let Some(krate) = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        let Some(rank) = CRATES.iter().position(|known| *known == krate) else {
            findings.push(Finding::new(
                path,
                1,
                format!("unknown crate `{krate}`: record it in an ADR and add it to the list of crates"),
            ));
            continue;
        };
        for (line, dependency) in dependencies(text) {
            let whole = text.lines().nth(line - 1).unwrap_or_default();
            let complaint = order(krate, rank, dependency).or_else(|| runtime(krate, dependency, whole, &lock));
            findings.extend(complaint.map(|message| Finding::new(path, line, message)));
        }
    }
    findings
}

/// The message if `krate` must not depend on `dependency`, which is one of our crates.
fn order(krate: &str, rank: usize, dependency: &str) -> Option<String> {
    let other = dependency.strip_prefix("longshore-")?;
    let other_rank = CRATES.iter().position(|known| *known == other);
    if other_rank.is_none_or(|other_rank| other_rank >= rank) {
        return Some(format!(
            "`{krate}` must not depend on `{other}`: crates depend on those before them in the list only"
        ));
    }
    (krate == "scheduler" && other != "model")
        .then(|| format!("`scheduler` depends on `model` alone, not on `{other}`"))
}

/// The message if a dependency brings in tokio. An optional one is the responsibility of the crate that enables the feature.
fn runtime(krate: &str, dependency: &str, line: &str, lock: &Lock<'_>) -> Option<String> {
    let optional = line.contains("optional = true");
    let brings = dependency == "tokio" || lock.reaches(dependency, "tokio") || line.contains("\"replicated\"");
    (!optional && PURE.contains(&krate) && brings)
        .then(|| format!("`{dependency}` brings tokio into `{krate}`, which must run without it"))
}

/// Names under `[dependencies]`, `[build-dependencies]` and their per-target forms, with their lines.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in numbered(manifest) {
        if let Some(section) = line.trim().strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = is_dependency_table(section);
            // `[dependencies.name]` names its dependency in the heading itself.
            if let Some((table, name)) = section.rsplit_once('.')
                && is_dependency_table(table)
            {
                found.push((number, name));
                inside = false;
            }
        } else if inside && let Some((name, _)) = line.split_once('=') {
            let name = name.trim().split('.').next().unwrap_or_default();
            if !name.starts_with('#') {
                found.push((number, name.trim_matches('"')));
            }
        }
    }
    found
}

fn is_dependency_table(section: &str) -> bool {
    let last = section.rsplit('.').next().unwrap_or_default();
    matches!(last, "dependencies" | "build-dependencies")
}

/// The dependency graph of the lock file.
struct Lock<'a> {
    needs: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Lock<'a> {
    fn of(text: &'a str) -> Self {
        let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut package = "";
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("name = \"") {
                package = name.trim_end_matches('"');
            } else if let Some(name) = line.strip_prefix(" \"") {
                // ` "name"` or ` "name 1.2.3"`, then a comma.
                let name = name.split(['"', ' ']).next().unwrap_or_default();
                needs.entry(package).or_default().push(name);
            }
        }
        Self { needs }
    }

    /// Whether building `from` builds `target`. Our own crates are not followed: each has a check of its own, and the lock
    /// file does not tell dev-dependencies from others.
    fn reaches(&self, from: &'a str, target: &str) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(package) = open.pop() {
            if package == target {
                return true;
            }
            if seen.insert(package) && !package.starts_with("longshore-") {
                open.extend(self.needs.get(package).into_iter().flatten());
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        printed(&check(&Tree::of(files)))
    }

    #[test]
    fn a_dependency_on_an_earlier_crate_passes() {
        let manifest = "[dependencies]\nlongshore-model = { workspace = true }\nserde = \"1\"\n";
        assert!(complaints(&[("crates/scheduler/Cargo.toml", manifest)]).is_empty());
    }

    #[test]
    fn a_dependency_on_a_later_crate_is_found() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nlongshore-sim.workspace = true\n";
        assert_eq!(
            complaints(&[("crates/store/Cargo.toml", manifest)]),
            [
                "crates/store/Cargo.toml:4: `store` must not depend on `sim`: crates depend on those before them in the list only"
            ]
        );
    }

    #[test]
    fn the_scheduler_depends_on_the_model_alone() {
        let manifest = "[dependencies.longshore-compose]\nworkspace = true\n";
        assert_eq!(
            complaints(&[("crates/scheduler/Cargo.toml", manifest)]),
            ["crates/scheduler/Cargo.toml:1: `scheduler` depends on `model` alone, not on `compose`"]
        );
    }

    #[test]
    fn tests_may_use_a_later_crate() {
        let manifest = "[dev-dependencies]\nlongshore-store = { workspace = true }\ntokio = \"1\"\n";
        assert!(complaints(&[("crates/scheduler/Cargo.toml", manifest)]).is_empty());
    }

    #[test]
    fn tokio_is_found_behind_another_crate() {
        let lock = "[[package]]\nname = \"hyper\"\ndependencies = [\n \"bytes\",\n \"tokio 1.2.3\",\n]\n";
        let manifest = "[target.'cfg(unix)'.dependencies]\nhyper = \"1\"\n";
        assert_eq!(
            complaints(&[("Cargo.lock", lock), ("crates/sim/Cargo.toml", manifest)]),
            ["crates/sim/Cargo.toml:2: `hyper` brings tokio into `sim`, which must run without it"]
        );
        assert!(complaints(&[("Cargo.lock", lock), ("crates/server/Cargo.toml", manifest)]).is_empty());
    }

    #[test]
    fn the_runtime_may_be_optional_where_no_pure_crate_enables_it() {
        let store = "[dependencies]\ntokio = { workspace = true, optional = true }\n";
        assert!(complaints(&[("crates/store/Cargo.toml", store)]).is_empty());
        let sim = "[dependencies]\nlongshore-store = { workspace = true, features = [\"replicated\"] }\n";
        assert_eq!(
            complaints(&[("crates/sim/Cargo.toml", sim)]),
            ["crates/sim/Cargo.toml:2: `longshore-store` brings tokio into `sim`, which must run without it"]
        );
    }

    #[test]
    fn an_unknown_crate_is_found() {
        assert_eq!(complaints(&[("crates/utils/Cargo.toml", "")]).len(), 1);
    }
}
