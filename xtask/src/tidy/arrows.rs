//! Which room may lean on which.
//!
//! Owns: the order of the rooms and the rooms that stay free of an async runtime.
//! Must not touch: `[dev-dependencies]`. A test may bring the room below into play; what ships may not.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, numbered};
use crate::tree::Tree;

/// An arrow may only point up this list.
const ROOMS: &[&str] = &["model", "api", "compose", "scheduler", "store", "network", "agent", "server", "sim", "cli"];

/// Rooms that decide or replay: they must run without a runtime, so that one thread and one seed repeat them.
const PURE: &[&str] = &["model", "scheduler", "store", "sim"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let lock = Lock::of(tree.text("Cargo.lock").unwrap_or_default());
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        let Some(room) = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        let Some(rank) = ROOMS.iter().position(|known| *known == room) else {
            findings.push(Finding::new(
                path,
                1,
                format!("`{room}` is no room of the house: an ADR and a rename first"),
            ));
            continue;
        };
        for (line, dependency) in dependencies(text) {
            let whole = text.lines().nth(line - 1).unwrap_or_default();
            let complaint = arrow(room, rank, dependency).or_else(|| runtime(room, dependency, whole, &lock));
            findings.extend(complaint.map(|message| Finding::new(path, line, message)));
        }
    }
    findings
}

/// What is wrong with `room` leaning on `dependency`, where that is one of ours.
fn arrow(room: &str, rank: usize, dependency: &str) -> Option<String> {
    let other = dependency.strip_prefix("longshore-")?;
    let other_rank = ROOMS.iter().position(|known| *known == other);
    if other_rank.is_none_or(|other_rank| other_rank >= rank) {
        return Some(format!("`{room}` must not depend on `{other}`: arrows point up the list of rooms only"));
    }
    (room == "scheduler" && other != "model").then(|| format!("`scheduler` depends on `model` alone, not on `{other}`"))
}

/// What stands behind a feature is brought in by whoever turns the feature on.
fn runtime(room: &str, dependency: &str, line: &str, lock: &Lock<'_>) -> Option<String> {
    let optional = line.contains("optional = true");
    let brings = dependency == "tokio" || lock.reaches(dependency, "tokio") || line.contains("\"replicated\"");
    (!optional && PURE.contains(&room) && brings)
        .then(|| format!("`{dependency}` brings tokio into `{room}`, which must run without"))
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

/// Who leans on whom among the packages of the lock file.
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

    /// Whether building `from` builds `target`. Our own rooms are not followed: each answers for its own manifest,
    /// and the lock does not tell their dev-dependencies apart.
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
    fn arrows_that_point_up_pass() {
        let manifest = "[dependencies]\nlongshore-model = { workspace = true }\nserde = \"1\"\n";
        assert!(complaints(&[("crates/scheduler/Cargo.toml", manifest)]).is_empty());
    }

    #[test]
    fn an_arrow_that_points_down_is_found() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nlongshore-sim.workspace = true\n";
        assert_eq!(
            complaints(&[("crates/store/Cargo.toml", manifest)]),
            ["crates/store/Cargo.toml:4: `store` must not depend on `sim`: arrows point up the list of rooms only"]
        );
    }

    #[test]
    fn the_scheduler_leans_on_the_model_alone() {
        let manifest = "[dependencies.longshore-compose]\nworkspace = true\n";
        assert_eq!(
            complaints(&[("crates/scheduler/Cargo.toml", manifest)]),
            ["crates/scheduler/Cargo.toml:1: `scheduler` depends on `model` alone, not on `compose`"]
        );
    }

    #[test]
    fn tests_may_bring_in_a_room_from_below() {
        let manifest = "[dev-dependencies]\nlongshore-store = { workspace = true }\ntokio = \"1\"\n";
        assert!(complaints(&[("crates/scheduler/Cargo.toml", manifest)]).is_empty());
    }

    #[test]
    fn tokio_is_found_behind_another_crate() {
        let lock = "[[package]]\nname = \"hyper\"\ndependencies = [\n \"bytes\",\n \"tokio 1.2.3\",\n]\n";
        let manifest = "[target.'cfg(unix)'.dependencies]\nhyper = \"1\"\n";
        assert_eq!(
            complaints(&[("Cargo.lock", lock), ("crates/sim/Cargo.toml", manifest)]),
            ["crates/sim/Cargo.toml:2: `hyper` brings tokio into `sim`, which must run without"]
        );
        assert!(complaints(&[("Cargo.lock", lock), ("crates/server/Cargo.toml", manifest)]).is_empty());
    }

    #[test]
    fn the_runtime_may_stand_behind_a_feature_that_no_pure_room_turns_on() {
        let store = "[dependencies]\ntokio = { workspace = true, optional = true }\n";
        assert!(complaints(&[("crates/store/Cargo.toml", store)]).is_empty());
        let sim = "[dependencies]\nlongshore-store = { workspace = true, features = [\"replicated\"] }\n";
        assert_eq!(
            complaints(&[("crates/sim/Cargo.toml", sim)]),
            ["crates/sim/Cargo.toml:2: `longshore-store` brings tokio into `sim`, which must run without"]
        );
    }

    #[test]
    fn a_room_not_on_the_map_is_found() {
        assert_eq!(complaints(&[("crates/utils/Cargo.toml", "")]).len(), 1);
    }
}
