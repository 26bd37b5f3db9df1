//! The `faults` block: how unreliable everything between the control plane and the agents is.
//!
//! Owns: its keys. An addition to the format: without it every message arrives at once and exactly once.
//! Invariant: chance comes from the seed in the file, so that the same file gives the same run.

use std::time::Duration;

use longshore_compose::{Diagnostics, Extensions, yaml::Node as Yaml};

const KEYS: &[&str] = &["seed", "loss", "duplicate", "delay", "agent_restart", "leader_change", "clock_step"];
/// Beyond it a message would outlive the connection it was sent on.
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Beyond it a cluster's clocks are not merely apart but wrong.
const LONGEST_STEP: Duration = Duration::from_mins(1);

/// How unreliable everything is. Chances are in millionths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Where chance comes from.
    pub seed: u64,
    /// Chance that a message, a heartbeat included, is lost.
    pub loss_millionths: u32,
    /// Chance that a message comes twice.
    pub duplicate_millionths: u32,
    /// Longest time a message takes. Messages that take unlike times overtake each other.
    pub delay: Duration,
    /// Chance, every few seconds, that an agent restarts; containers run on.
    pub agent_restart_millionths: u32,
    /// Chance, after anything that happens, that another leader takes over.
    pub leader_change_millionths: u32,
    /// How far the clocks of two leaders may be apart.
    pub clock_step: Duration,
}

pub(super) fn read(node: &Yaml, problems: &mut Diagnostics) -> Option<Faults> {
    let mapping = problems.mapping(node, "`faults`")?;
    problems.known_keys(mapping, "`faults`", KEYS, Extensions::Refused);
    let mut chance = |key: &str| mapping.get(key).map_or(0, |node| read_chance(node, key, problems));
    let (loss, duplicate) = (chance("loss"), chance("duplicate"));
    let (agent_restart, leader_change) = (chance("agent_restart"), chance("leader_change"));
    let mut wait =
        |key: &str, most| mapping.get(key).map_or(Duration::ZERO, |node| read_wait(node, key, most, problems));
    let (delay, clock_step) = (wait("delay", LONGEST_DELAY), wait("clock_step", LONGEST_STEP));
    Some(Faults {
        seed: mapping.get("seed").and_then(|node| problems.unsigned(node, "`seed`")).unwrap_or(0),
        loss_millionths: loss,
        duplicate_millionths: duplicate,
        delay,
        agent_restart_millionths: agent_restart,
        leader_change_millionths: leader_change,
        clock_step,
    })
}

fn read_chance(node: &Yaml, key: &str, problems: &mut Diagnostics) -> u32 {
    let Some(millionths) = problems.millionths(node, format_args!("`{key}`")) else { return 0 };
    if millionths > 900_000 {
        problems.error(&node.place, format!("`{key}` must be at most 0.9")).hint("what never arrives is `do: isolate`");
    }
    u32::try_from(millionths).unwrap_or(0)
}

fn read_wait(node: &Yaml, key: &str, most: Duration, problems: &mut Diagnostics) -> Duration {
    let Some(wait) = problems.duration(node, format_args!("`{key}`")) else { return Duration::ZERO };
    if wait > most {
        problems.error(&node.place, format!("`{key}` must be at most {} s", most.as_secs()));
    }
    wait
}
