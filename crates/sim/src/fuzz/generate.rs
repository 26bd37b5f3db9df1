//! Generates a scenario from a seed: a cluster, work for it, and faults.
//!
//! Owns: scenarios that make sense, so that hardly any step is refused before the run.
//! Must not touch: the run. The result is a file that anybody could have written.
//! Invariant: the same seed gives the same scenario, and it comes to rest once no more steps come: nothing is generated that
//! goes on for ever by intent, such as unlimited restarts.

mod cluster;
mod manifest;
mod timeline;

use super::{
    rng::Rng,
    tree::{Tree, map, scalar},
};
use crate::Scenario;

/// Rounds of removing refused steps. One is enough for most; steps that depend on a removed one take another.
const REPAIR_ROUNDS: u32 = 8;

/// Generates a scenario.
pub(super) fn generate(seed: u64) -> Tree {
    let nodes = cluster::nodes(&mut Rng::new(seed, "nodes"));
    let deployments = manifest::deployments(&mut Rng::new(seed, "deployments"));
    let applied = deployments.iter().map(|deployment| (deployment.name.clone(), deployment.manifest())).collect();
    let timeline = timeline::timeline(&mut Rng::new(seed, "timeline"), nodes.len(), deployments);
    let until = timeline.last().map_or(30, |(at, _)| at / 1000 + 30);
    // The rebalancer makes one move at a time and waits for its effect, which takes longer than anything else.
    let has_load = timeline.iter().any(|(_, entry)| entry.get("pressure").is_some());
    let settle = if has_load { "2h" } else { "40m" };
    let mut scenario = map([
        ("config", cluster::config(&mut Rng::new(seed, "config"))),
        ("nodes", Tree::List(nodes)),
        ("images", cluster::images()),
        ("deployments", Tree::Map(applied)),
        ("timeline", Tree::List(timeline.into_iter().map(|(_, entry)| entry).collect())),
        ("until", scalar(format!("{until}s"))),
        ("settle", scalar(settle)),
    ]);
    if let Some(faults) = cluster::faults(&mut Rng::new(seed, "faults")) {
        scenario.set("faults", faults);
    }
    for _ in 0..REPAIR_ROUNDS {
        if !repair(&mut scenario) {
            break;
        }
    }
    scenario
}

/// Removes the timeline entries that the parser refuses, such as scaling a removed deployment. Returns whether there were any.
fn repair(scenario: &mut Tree) -> bool {
    let text = scenario.print();
    let Err(problems) = Scenario::parse("generated.yaml", &text) else { return false };
    let starts = entry_lines(&text);
    let mut refused: Vec<usize> = problems
        .iter()
        .filter_map(|problem| starts.iter().rposition(|start| *start <= problem.location.line))
        .collect();
    refused.sort_unstable();
    refused.dedup();
    let Some(Tree::List(entries)) = scenario.get_mut("timeline") else { return false };
    for at in refused.iter().rev() {
        entries.remove(*at);
    }
    !refused.is_empty()
}

/// The lines on which entries of the timeline begin.
fn entry_lines(text: &str) -> Vec<u32> {
    let numbered = text.lines().zip(1_u32..);
    let timeline = numbered.skip_while(|(line, _)| *line != "timeline:").skip(1);
    timeline
        .take_while(|(line, _)| line.starts_with(' '))
        .filter(|(line, _)| line.starts_with("  - "))
        .map(|(_, number)| number)
        .collect()
}
