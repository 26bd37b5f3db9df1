//! Nodes: what they are, what operators want of them, how they do.

use std::collections::BTreeMap;

use longshore_model::{AfterDrain, DrainOutcome, Health, Intent, node::UseDegraded};
use serde::{Deserialize, Serialize};

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Joining number.
    pub number: u32,
    /// What operators want of it.
    pub intent: String,
    /// How it does.
    pub health: String,
    /// Since when, in milliseconds since 1970.
    pub health_since_ms: u64,
    /// Whether an operator allows its use while it is degraded.
    pub use_degraded: bool,
    /// Part it plays.
    pub role: String,
    /// The pool it belongs to; empty is none.
    pub pool: String,
    /// Labels set by operators.
    pub labels: BTreeMap<String, String>,
    /// Operating system.
    pub os: String,
    /// Processor.
    pub arch: String,
    /// What it starts replicas with.
    pub drivers: Vec<String>,
    /// Thousandths of a core.
    pub cpu_millis: u64,
    /// Memory that may be given out.
    pub memory_bytes: u64,
    /// Memory given out.
    pub memory_used_bytes: u64,
    /// Generations on it that were not seen stopped.
    pub replicas: u32,
    /// How busy it last said it is; nothing before its first sample, and while nobody can say.
    #[serde(default)]
    pub load: Option<Load>,
    /// How it is being emptied.
    pub drain: Option<Drain>,
}

/// How busy a machine is, as it measured itself, everything on it counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// CPU in use, millionths of all there is.
    pub cpu_millionths: u32,
    /// The same of memory.
    pub memory_millionths: u32,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// How a node is being emptied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// `under_way`, `timed_out` or `done`.
    pub outcome: String,
    /// `keep` or `remove`.
    pub then: String,
    /// What is still there.
    pub left: Vec<Remainder>,
}

/// A replica that is still on a node to be emptied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remainder {
    /// The replica's printed id.
    pub replica: String,
    /// What keeps it there.
    pub why: String,
}

/// How a node shall be emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DrainRequest {
    /// Seconds jobs may take to finish; as long as they need, unless given.
    pub deadline_secs: Option<u64>,
}

/// How a node shall leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoveNode {
    /// Emptied first.
    #[default]
    Drained,
    /// At once; what runs there is no longer ours.
    AtOnce,
}

impl RemoveNode {
    /// The word in a query.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::AtOnce => "at_once",
        }
    }
}

/// Labels to set; an empty value takes the label away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelRequest {
    /// The labels.
    pub labels: BTreeMap<String, String>,
}

impl From<&longshore_model::Node> for Node {
    /// What runs there is not known by the node itself; it is counted by whoever makes the answer.
    fn from(node: &longshore_model::Node) -> Self {
        Self {
            name: node.name.to_string(),
            number: node.number.0,
            intent: intent(node.intent).to_owned(),
            health: health(node.health).to_owned(),
            health_since_ms: node.health_since.0,
            use_degraded: node.use_degraded == UseDegraded::Yes,
            role: node.role.as_str().to_owned(),
            pool: node.pool.to_string(),
            labels: node.labels.clone(),
            os: node.platform.os.clone(),
            arch: node.platform.arch.clone(),
            drivers: node.drivers.iter().map(|driver| driver.as_str().to_owned()).collect(),
            cpu_millis: node.usable_cpu_millis(),
            memory_bytes: node.allocatable_memory(),
            memory_used_bytes: 0,
            replicas: 0,
            load: None,
            drain: node.drain.as_ref().map(Drain::from),
        }
    }
}

impl From<&longshore_model::Drain> for Drain {
    fn from(drain: &longshore_model::Drain) -> Self {
        let outcome = match drain.outcome {
            DrainOutcome::UnderWay => "under_way",
            DrainOutcome::TimedOut => "timed_out",
            DrainOutcome::Done => "done",
        };
        let then = match drain.then {
            AfterDrain::Keep => "keep",
            AfterDrain::Remove => "remove",
        };
        let left = drain
            .left
            .iter()
            .map(|left| Remainder { replica: left.slot.printed(&left.group), why: left.why.code().to_owned() });
        Self { outcome: outcome.to_owned(), then: then.to_owned(), left: left.collect() }
    }
}

const fn intent(intent: Intent) -> &'static str {
    match intent {
        Intent::Active => "active",
        Intent::Paused => "paused",
        Intent::Draining => "draining",
        Intent::Removed => "removed",
    }
}

const fn health(health: Health) -> &'static str {
    match health {
        Health::Ready => "ready",
        Health::Suspect => "suspect",
        Health::Down => "down",
        Health::Degraded => "degraded",
    }
}
