//! Draining a node: the request, its progress, and what blocks it.
//!
//! Owns: the record of a drain, stored with its node so that a new leader continues it.
//! Must not touch: which replica moves where; the `scheduler` crate decides.

use serde::{Deserialize, Serialize};

use crate::{GroupKey, NodeName, Reason, RuntimeCode, SlotKey, Time, VolumeKey};

/// A drain of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// When it was requested; identifies the drain among those of the node.
    pub since: Time,
    /// Time until which jobs may finish; `None` is unlimited.
    pub deadline: Option<Time>,
    /// What follows once the node is empty.
    pub then: AfterDrain,
    /// Its progress.
    pub outcome: DrainOutcome,
    /// Replicas still on the node: those that block it, or all of them after a timeout.
    pub left: Vec<UndrainedReplica>,
}

/// What follows once a node is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterDrain {
    /// It stays, empty, until an operator activates it again.
    #[default]
    Keep,
    /// It is removed from the cluster.
    Remove,
}

/// Progress of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainOutcome {
    /// Replicas are moving away.
    #[default]
    UnderWay,
    /// The deadline passed. The node keeps what cannot move; what can still moves.
    TimedOut,
    /// The node is empty.
    Done,
}

/// A replica that is still on a draining node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndrainedReplica {
    /// Its group.
    pub group: GroupKey,
    /// Its slot.
    pub slot: SlotKey,
    /// What keeps it on the node.
    pub why: DrainBlocker,
}

/// What keeps a replica on a draining node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainBlocker {
    /// Its data is on the node.
    Stateful {
        /// Its named volumes; host paths are not listed.
        volumes: Vec<VolumeKey>,
    },
    /// No other node can run it.
    NoNode(Reason),
    /// It is a job that may run to its end.
    Finishing,
    /// Its replacement is not running yet.
    Moving,
    /// It shall stop and was not observed stopped yet.
    Stopping,
}

impl DrainBlocker {
    /// Stable: operators alert on these strings. Add codes, never rename one.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Stateful { .. } => RuntimeCode::DrainBlockedStateful.code(),
            Self::NoNode(reason) => reason.code(),
            Self::Finishing => "finishing",
            Self::Moving => "moving",
            Self::Stopping => "stopping",
        }
    }
}

/// Whether replicas on nodes that are down are replaced elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evacuation {
    /// They are replaced.
    #[default]
    Free,
    /// They are not: so many nodes are gone at once that a failure on the control plane's side is more likely.
    Paused {
        /// When the pause began.
        since: Time,
        /// The nodes that were suspect or down at that time.
        gone: Vec<NodeName>,
        /// Number of all nodes at that time.
        nodes: u32,
    },
}

/// A decision about nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePlan {
    /// Updates the progress of a drain.
    Drain {
        /// The node.
        node: NodeName,
        /// When the drain was requested.
        since: Time,
        /// Its progress.
        outcome: DrainOutcome,
        /// Replicas still on the node.
        left: Vec<UndrainedReplica>,
    },
    /// Pauses or resumes the replacement of replicas on nodes that are down.
    Evacuation(Evacuation),
    /// Deletes the record of a removed node.
    Forget {
        /// The node.
        node: NodeName,
        /// When it was removed; a node of the same name removed at another time is a different one.
        removed_at: Time,
    },
}
