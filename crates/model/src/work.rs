//! What passes between the control plane and the agent of a node: work to do, and what was seen of it.
//!
//! Owns: the feed of work with its cursor, and the reports that come back.
//! Must not touch: how they travel, and how the work is done.
//! Invariant: a feed opens with everything there is and continues with every change, so whoever has read up to a cursor
//! knows all that was true at it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    Assignment, Attempt, Driver, Generation, GroupKey, Observation, ReplicaState, RevisionNumber, RuntimeCode,
    SecretName, ServiceSpec, SlotKey, StateIndex, Time,
    container::FileKind,
    replica::Details,
    service::{NetworkSpec, VolumeSpec},
};

/// One generation of a slot: what an agent starts, watches and stops as one thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkKey {
    /// The group.
    pub group: GroupKey,
    /// The slot.
    pub slot: SlotKey,
    /// The decision about the slot.
    pub generation: Generation,
}

impl fmt::Display for WorkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} g{}", self.slot.printed(&self.group), self.generation)
    }
}

/// One generation and attempt that a node shall run, or stop, with everything that was decided about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Which generation of which slot.
    pub key: WorkKey,
    /// Which start of it. A higher one than before ends the one before.
    pub attempt: Attempt,
    /// The manifest it follows.
    pub revision: RevisionNumber,
    /// What to run.
    pub spec: Arc<ServiceSpec>,
    /// Address, devices, ports and the versions of its secrets, as decided.
    pub assignment: Assignment,
    /// Whether it shall run or stop.
    pub desired: Desired,
    /// The networks its spec names, by the key it names them with.
    #[serde(default)]
    pub networks: BTreeMap<String, NetworkSpec>,
    /// How the volumes it mounts are made, by name; one that is not listed is made plainly.
    #[serde(default)]
    pub volumes: BTreeMap<String, VolumeSpec>,
}

impl Work {
    /// `longshore_<slot>_g<generation>_r<attempt>`.
    pub fn container_name(&self) -> String {
        container_name(&self.key, self.attempt)
    }
}

/// The name a replica's container has on its node.
pub fn container_name(key: &WorkKey, attempt: Attempt) -> String {
    format!("longshore_{}_g{}_r{attempt}", key.slot.printed(&key.group), key.generation)
}

/// What shall become of a generation on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    /// It shall run.
    #[default]
    Run,
    /// It shall end: by its own signal, then by force.
    Stop {
        /// Time it has; `None` is what its spec says.
        grace: Option<Duration>,
    },
}

/// How far somebody has read. Grows with every change, also when another server takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cursor {
    /// Raised when a cluster is restored from a backup: its indices start over, and must still count as newer.
    pub incarnation: u64,
    /// The state the message was made from.
    pub index: StateIndex,
}

/// One message to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkFeed {
    /// All there is for the node; what is not listed is not its work. The first message of every connection.
    Snapshot {
        /// As of when. An agent that knows better ignores the message.
        cursor: Cursor,
        /// The work.
        work: Vec<Work>,
    },
    /// What changed since the message before.
    Changes {
        /// As of when. A cursor that is not beyond the agent's is old news, and ignored.
        cursor: Cursor,
        /// Work that is new or different.
        changed: Vec<Work>,
        /// Work that is no longer the node's: seen stopped, or given up.
        gone: Vec<WorkKey>,
    },
}

/// One message from an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// A replica is in another state. Sent at once, and all of them again on every connection.
    Seen(Sighting),
    /// The agent lives.
    Beat(Heartbeat),
}

/// An observation before the leader has stamped it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The generation seen.
    pub key: WorkKey,
    /// The attempt seen.
    pub attempt: Attempt,
    /// When the generation seen was placed, as the work said.
    #[serde(default)]
    pub placed_at: Option<Time>,
    /// Its state.
    pub state: ReplicaState,
    /// Why, where there is a why.
    pub code: Option<RuntimeCode>,
    /// Particulars: `exit_code`, `reason`, `address`, `ports` and the like.
    pub details: Details,
}

impl Sighting {
    /// What the state machine takes in.
    pub fn stamped(self, at: Time) -> Observation {
        let Self { key: WorkKey { group, slot, generation }, attempt, placed_at, state, code, details } = self;
        Observation { group, slot, generation, attempt, placed_at, state, code, details, at }
    }
}

/// The agent lives, and vouches for what it last reported of every driver that answers: health is as fresh as this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// How far it has read its feed; `None` before the first message.
    pub cursor: Option<Cursor>,
    /// Whether anything runs that is not the node's work.
    pub standing: Standing,
    /// Drivers that answered just now.
    pub answering: BTreeSet<Driver>,
    /// The machine's load, in beats that follow a new sample.
    pub pressure: Option<Pressure>,
    /// What replicas use, in the same beats; one that could not be measured is not listed.
    pub usage: Vec<Usage>,
}

/// Whether a node is done with what is no longer its own. One that returns is ready only when it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Something of an older time still runs, or nobody knows yet.
    #[default]
    Settling,
    /// Nothing does.
    Settled,
}

/// How busy a machine is, in millionths of all it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Processor time used since the sample before.
    pub cpu_millionths: u32,
    /// Memory in use.
    pub memory_millionths: u32,
}

/// What one replica uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Which.
    pub key: WorkKey,
    /// Processor time since the sample before, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory.
    pub memory_bytes: u64,
}

/// A secret or config an agent asks for, because a replica it was given needs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileWanted {
    /// For whom.
    pub key: WorkKey,
    /// Its name.
    pub name: SecretName,
    /// What it is.
    pub kind: FileKind,
    /// The version promised to the replica; `None` is the newest.
    pub version: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SlotIndex;

    fn key(namespace: &str) -> WorkKey {
        let group = GroupKey { namespace: namespace.into(), deployment: "shop".into(), service: "web".into() };
        WorkKey { group, slot: SlotKey::Index(SlotIndex(3)), generation: Generation(2) }
    }

    #[test]
    fn a_container_is_named_after_slot_generation_and_attempt() {
        assert_eq!(container_name(&key("default"), Attempt(1)), "longshore_shop-web-3_g2_r1");
        assert_eq!(container_name(&key("team"), Attempt(0)), "longshore_team.shop-web-3_g2_r0");
    }

    #[test]
    fn a_restored_cluster_is_ahead_of_the_one_it_replaces() {
        let old = Cursor { incarnation: 0, index: StateIndex(900) };
        assert!(Cursor { incarnation: 1, index: StateIndex(7) } > old);
        assert!(Cursor { incarnation: 0, index: StateIndex(901) } > old);
    }
}
