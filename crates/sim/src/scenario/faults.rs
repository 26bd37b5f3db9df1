//! The `faults` block: random faults of messages, agents and leaders.
//!
//! Owns: its keys. Without the block every message arrives at once and exactly once.
//! Invariant: all randomness comes from the seed in the file, so that the same file gives the same run.

use std::time::Duration;

use longshore_compose::{Diagnostics, Extensions, yaml::Node as Yaml};

const KEYS: &[&str] = &["seed", "loss", "duplicate", "delay", "agent_restart", "leader_change", "clock_step"];
/// Longest `delay`: a message that takes longer would outlive its connection.
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Longest `clock_step`: beyond it clocks are not skewed but wrong.
const LONGEST_STEP: Duration = Duration::from_mins(1);

/// Random faults. Probabilities are in millionths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Seed of all random streams.
    pub seed: u64,
    /// Probability that a message or a heartbeat is lost.
    pub loss_millionths: u32,
    /// Probability that a message arrives twice.
    pub duplicate_millionths: u32,
    /// Longest delay of a message. Messages with different delays overtake each other.
    pub delay: Duration,
    /// Probability, at every resend (5 s), that an agent restarts. Its containers run on.
    pub agent_restart_millionths: u32,
    /// Probability, after every change of the state, that another leader takes over.
    pub leader_change_millionths: u32,
    /// Largest difference between the clocks of two leaders.
    pub clock_step: Duration,
}

pub(super) fn read(node: &Yaml, problems: &mut Diagnostics) -> Option<Faults> {
    let mapping = problems.mapping(node, "`faults`")?;
    problems.known_keys(mapping, "`faults`", KEYS, Extensions::Refused);
    let mut probability = |key: &str| mapping.get(key).map_or(0, |node| read_probability(node, key, problems));
    let (loss, duplicate) = (probability("loss"), probability("duplicate"));
    let (agent_restart, leader_change) = (probability("agent_restart"), probability("leader_change"));
    let mut duration =
        |key: &str, most| mapping.get(key).map_or(Duration::ZERO, |node| read_duration(node, key, most, problems));
    let (delay, clock_step) = (duration("delay", LONGEST_DELAY), duration("clock_step", LONGEST_STEP));
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

fn read_probability(node: &Yaml, key: &str, problems: &mut Diagnostics) -> u32 {
    let Some(millionths) = problems.millionths(node, format_args!("`{key}`")) else { return 0 };
    if millionths > 900_000 {
        problems
            .error(&node.location, format!("`{key}` must be at most 0.9"))
            .hint("to drop every message, use `do: isolate`");
    }
    u32::try_from(millionths).unwrap_or(0)
}

fn read_duration(node: &Yaml, key: &str, most: Duration, problems: &mut Diagnostics) -> Duration {
    let Some(wait) = problems.duration(node, format_args!("`{key}`")) else { return Duration::ZERO };
    if wait > most {
        problems.error(&node.location, format!("`{key}` must be at most {} s", most.as_secs()));
    }
    wait
}
