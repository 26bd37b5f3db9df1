//! A scenario drawn from a seed: a cluster, work for it, and trouble.
//!
//! Owns: that what is drawn makes sense, so that hardly anything is refused before it runs.
//! Must not touch: the run. What is drawn is a file anybody could have written.
//! Invariant: the same seed gives the same scenario, and one that comes to rest once nothing happens any more: nothing is
//! drawn that a user could only want to go on for ever, such as restarts without end.

mod cluster;
mod manifest;
mod timeline;

use super::{
    dice::Dice,
    tree::{Tree, map, word},
};
use crate::Scenario;

/// Rounds of taking out what the reader refuses. One is enough for most; what follows from a refusal takes another.
const ROUNDS: u32 = 8;

/// Draws a scenario.
pub(super) fn draw(seed: u64) -> Tree {
    let nodes = cluster::nodes(&mut Dice::new(seed, "nodes"));
    let deployments = manifest::deployments(&mut Dice::new(seed, "deployments"));
    let applied = deployments.iter().map(|drawn| (drawn.name.clone(), drawn.applied())).collect();
    let timeline = timeline::timeline(&mut Dice::new(seed, "timeline"), nodes.len(), deployments);
    let until = timeline.last().map_or(30, |(at, _)| at / 1000 + 30);
    // Load is evened by one move at a time, each once the last has shown; that takes longer than anything else.
    let pressed = timeline.iter().any(|(_, entry)| entry.get("pressure").is_some());
    let settle = if pressed { "2h" } else { "40m" };
    let mut scenario = map([
        ("config", cluster::config(&mut Dice::new(seed, "config"))),
        ("nodes", Tree::List(nodes)),
        ("images", cluster::images()),
        ("deployments", Tree::Map(applied)),
        ("timeline", Tree::List(timeline.into_iter().map(|(_, entry)| entry).collect())),
        ("until", word(format!("{until}s"))),
        ("settle", word(settle)),
    ]);
    if let Some(faults) = cluster::faults(&mut Dice::new(seed, "faults")) {
        scenario.set("faults", faults);
    }
    for _ in 0..ROUNDS {
        if !repair(&mut scenario) {
            break;
        }
    }
    scenario
}

/// Takes out the entries of the timeline the reader refuses: to scale what was removed a moment ago, and the like.
/// Whether there were any.
fn repair(scenario: &mut Tree) -> bool {
    let text = scenario.print();
    let Err(problems) = Scenario::parse("drawn.yaml", &text) else { return false };
    let starts = entry_lines(&text);
    let mut refused: Vec<usize> =
        problems.iter().filter_map(|problem| starts.iter().rposition(|start| *start <= problem.place.line)).collect();
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
