//! The messages between the control plane and the agent of a node: work to do, and reports about it.
//!
//! Owns: the feed of work with its cursor, and the reports that come back.
//! Must not touch: transport, and how the work is carried out.
//! Invariant: a feed starts with a snapshot and continues with every change, so an agent that has read up to a cursor has
//! the complete work of that state.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    Assignment, Attempt, DeploymentName, Driver, NamespacePolicy, Observation, ReplicaKey, ReplicaState,
    RevisionNumber, RuntimeCode, SecretName, ServiceSpec, StateIndex, Time,
    container::FileKind,
    node::NodeCondition,
    rebalance::Pressure,
    replica::Details,
    service::{NetworkSpec, VolumeSpec},
    units::GIB,
};

/// One generation and attempt that a node shall run or stop, with everything that was decided about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Which generation of which slot.
    pub key: ReplicaKey,
    /// Which start of it. The agent stops lower attempts.
    pub attempt: Attempt,
    /// The revision it was placed for.
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
    /// How the volumes it mounts are created, by name; one that is not listed gets the engine's defaults.
    #[serde(default)]
    pub volumes: BTreeMap<String, VolumeSpec>,
    /// What its manifest was allowed to ask, to be checked again before it is created; `None` is everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Arc<NamespacePolicy>>,
}

impl Work {
    /// `longshore_<replica id>_g<generation>_r<attempt>`.
    pub fn container_name(&self) -> String {
        container_name(&self.key, self.attempt)
    }

    /// The deployment whose volumes, networks and services it uses: its own, or for a one-off job the one it was made from.
    pub fn base_deployment(&self) -> &DeploymentName {
        self.spec.one_off.as_ref().map_or(&self.key.group.deployment, |job| &job.of)
    }
}

/// The name a replica's container has on its node.
pub fn container_name(key: &ReplicaKey, attempt: Attempt) -> String {
    format!("longshore_{}_g{}_r{attempt}", key.replica_id(), key.generation)
}

/// Whether a generation shall run on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    /// It shall run.
    #[default]
    Run,
    /// It shall stop: by its stop signal, then by SIGKILL.
    Stop {
        /// Time between the two; `None` is the grace period of its spec.
        grace: Option<Duration>,
    },
}

/// Position in the feed. Grows with every change, also across a change of leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cursor {
    /// Raised when a cluster is restored from a backup: its indices start again, and must still compare as newer.
    pub incarnation: u64,
    /// The state the message was made from.
    pub index: StateIndex,
}

/// One message to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkFeed {
    /// The node's complete work; the first message of every connection.
    Snapshot {
        /// The state it was made from. An agent with a newer cursor ignores the message.
        cursor: Cursor,
        /// The work.
        work: Vec<Work>,
    },
    /// Changes since the previous message.
    Changes {
        /// The state it was made from. An agent whose cursor is not older ignores the message.
        cursor: Cursor,
        /// Work that is new or different.
        changed: Vec<Work>,
        /// Work that is no longer the node's: observed stopped, or given up.
        gone: Vec<ReplicaKey>,
    },
}

/// One message from an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// A replica changed its state. Sent at once, and for all replicas again on every connection.
    #[serde(rename = "seen")]
    Replica(ReplicaReport),
    /// The periodic heartbeat.
    #[serde(rename = "beat")]
    Heartbeat(Heartbeat),
}

/// An agent's observation of one replica, before the leader adds its own time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// The generation seen.
    pub key: ReplicaKey,
    /// The attempt seen.
    pub attempt: Attempt,
    /// When the generation seen was placed, copied from the work.
    #[serde(default)]
    pub placed_at: Option<Time>,
    /// Its state.
    pub state: ReplicaState,
    /// Why, where the state needs a reason.
    pub code: Option<RuntimeCode>,
    /// Details of the code: `exit_code`, `reason`, `address`, `ports` and the like.
    pub details: Details,
}

impl ReplicaReport {
    /// The observation for the state machine, with the leader's time.
    pub fn into_observation(self, at: Time) -> Observation {
        let Self { key, attempt, placed_at, state, code, details } = self;
        Observation { key, attempt, placed_at, state, code, details, at }
    }
}

/// A sign of life of the agent. It also confirms the last reported state of every replica whose driver answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Last cursor it has read; `None` before the first message.
    pub cursor: Option<Cursor>,
    /// Whether orphans of older work still run.
    #[serde(rename = "standing")]
    pub cleanup: CleanupState,
    /// Drivers that answer.
    pub answering: BTreeSet<Driver>,
    /// The machine's load, in heartbeats that follow a new sample.
    pub pressure: Option<Pressure>,
    /// Usage of the replicas, in the same heartbeats; one that could not be measured is not listed.
    pub usage: Vec<Usage>,
    /// What is wrong with the node, as of now; older agents send none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// The disk with the least free space, in the same heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSpace>,
}

/// Size and free space of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpace {
    /// Its size.
    pub total_bytes: u64,
    /// What is left of it.
    pub free_bytes: u64,
}

impl DiskSpace {
    /// Whether an operator should act: less than a tenth is free, and less than 10 GiB. A tenth of a large disk is
    /// plenty, and a small disk is nearly empty with less than 10 GiB.
    pub const fn is_short(self) -> bool {
        self.free_bytes < self.total_bytes / 10 && self.free_bytes < 10 * GIB
    }
}

/// Whether a node has stopped the replicas that are no longer its work. A returning node is ready only once it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanupState {
    /// Orphans may still run.
    #[default]
    #[serde(rename = "settling")]
    InProgress,
    /// Nothing runs but the node's work.
    #[serde(rename = "settled")]
    Done,
}

/// Resource usage of one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The key.
    pub key: ReplicaKey,
    /// CPU since the previous sample, in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory.
    pub memory_bytes: u64,
}

/// A request of an agent for a secret or config that one of its replicas mounts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileRequest {
    /// The replica.
    pub key: ReplicaKey,
    /// Its name.
    pub name: SecretName,
    /// Secret or config.
    pub kind: FileKind,
    /// The version in the replica's reservation; `None` is the newest.
    pub version: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, GroupKey, SlotIndex, SlotKey};

    fn key(namespace: &str) -> ReplicaKey {
        let group = GroupKey { namespace: namespace.into(), deployment: "shop".into(), service: "web".into() };
        ReplicaKey { group, slot: SlotKey::Index(SlotIndex(3)), generation: Generation(2) }
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
