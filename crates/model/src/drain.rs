//! Emptying a node: what was asked, how it stands, and what is in the way.
//!
//! Owns: the record of a drain, kept with its node so that a new leader goes on with it.
//! Must not touch: who moves where; the `scheduler` room decides.

use serde::{Deserialize, Serialize};

use crate::{GroupKey, NodeName, Reason, RuntimeCode, SlotKey, Time, VolumeKey};

/// A drain of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// When it was asked for; tells one drain of a node from the next.
    pub since: Time,
    /// Until when jobs may finish; `None` is as long as they take.
    pub deadline: Option<Time>,
    /// What follows once the node is empty.
    pub then: AfterDrain,
    /// How it stands.
    pub outcome: DrainOutcome,
    /// What is still there and why: what blocks it, or after a timeout everything.
    pub left: Vec<Remainder>,
}

/// What follows once a node is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterDrain {
    /// It stays, empty, until it is wanted again.
    #[default]
    Keep,
    /// It leaves the cluster.
    Remove,
}

/// How a drain stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainOutcome {
    /// Work is moving away.
    #[default]
    UnderWay,
    /// It took too long; the node stays as it is, and what can still move does.
    TimedOut,
    /// Nothing is left.
    Done,
}

/// A replica that is still on a node to be emptied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remainder {
    /// Its group.
    pub group: GroupKey,
    /// Its slot.
    pub slot: SlotKey,
    /// What keeps it there.
    pub why: Hindrance,
}

/// What keeps a replica on a node to be emptied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hindrance {
    /// Its data is there.
    Stateful {
        /// The named volumes; a path of the host has no name.
        volumes: Vec<VolumeKey>,
    },
    /// No other node takes it.
    NoNode(Reason),
    /// It is a job that may finish.
    Finishing,
    /// Its replacement does not run well yet.
    Moving,
    /// It was told to stop and has not been seen to.
    Stopping,
}

impl Hindrance {
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

/// Whether work is taken off nodes that are down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evacuation {
    /// It is.
    #[default]
    Free,
    /// Too many are gone at once: it is more likely us than them.
    Paused {
        /// Since when.
        since: Time,
        /// The nodes that were suspect or down then.
        gone: Vec<NodeName>,
        /// Of how many.
        nodes: u32,
    },
}

/// A decision about nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePlan {
    /// A drain stands otherwise than was known.
    Drain {
        /// The node.
        node: NodeName,
        /// Which of its drains.
        since: Time,
        /// How it stands.
        outcome: DrainOutcome,
        /// What is left.
        left: Vec<Remainder>,
    },
    /// Work is no longer taken off nodes that are down, or is again.
    Evacuation(Evacuation),
    /// A node that was removed is no longer kept in the books.
    Forget {
        /// The node.
        node: NodeName,
        /// When it was removed; one of that name that was removed later is another one.
        removed_at: Time,
    },
}
