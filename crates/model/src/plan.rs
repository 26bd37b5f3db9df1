//! The decisions of one scheduling pass. A plan leaves no choice to the state machine that applies it.
//!
//! Owns: the types of a decision, and of the explanation when nothing fits.
//! Invariant: applying a plan twice is harmless; each item names the generation it creates or stops.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Attempt, DeploymentPlan, GroupKey, NodeName, NodePlan, Reason, Reservation, RolloutNumber, RuntimeCode, SlotKey,
    StateIndex, Time, VolumeKey, device::TakenDevices, rebalance::RebalanceScore, refusal::Refusal, replica::Details,
    replica_key::SlotGeneration, rollout::StepOutcome,
};

/// The decisions of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Index of the state it was computed from.
    pub made_from: StateIndex,
    /// Time of the change.
    pub made_at: Time,
    /// Changes by group, in the order decided.
    pub groups: Vec<GroupPlan>,
    /// Changes of nodes, applied after the groups.
    #[serde(default)]
    pub nodes: Vec<NodePlan>,
    /// Changes of rollouts, applied after the groups.
    #[serde(default)]
    pub deployments: Vec<DeploymentPlan>,
    /// Earliest time at which a new pass could decide otherwise without any event.
    pub wake_at: Option<Time>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.nodes.is_empty() && self.deployments.is_empty()
    }

    /// Number of replicas that are placed.
    pub fn placements(&self) -> usize {
        self.groups.iter().flat_map(|group| &group.items).filter(|item| matches!(item, PlanItem::Place(_))).count()
    }
}

/// Changes of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// The group.
    pub group: GroupKey,
    /// The reservation of every placement below that has none of its own.
    #[serde(rename = "terms")]
    pub reservation: Arc<Reservation>,
    /// The changes, applied in this order.
    pub items: Vec<PlanItem>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanItem {
    /// Creates a slot without placing it.
    Open(SlotKey),
    /// Places a new generation of a slot on a node; creates the slot if needed.
    Place(Placement),
    /// Sets why slots are not placed.
    Wait(Wait),
    /// A generation shall stop.
    Stop(SlotGeneration),
    /// Removes a slot; all its generations shall stop.
    Close(SlotKey),
    /// Restarts a generation on its node.
    #[serde(with = "crate::flat_key::restart")]
    Restart {
        /// The slot and its generation.
        key: SlotGeneration,
        /// The attempt that begins.
        attempt: Attempt,
    },
    /// Stops a generation that exhausted its restarts; the slot is placed on another node.
    #[serde(with = "crate::flat_key::reschedule")]
    Reschedule {
        /// The slot and its generation.
        key: SlotGeneration,
        /// How long it waited for the move.
        delay: Duration,
    },
    /// Garbage-collects a finished replica of a job; it is not run again.
    Collect(SlotGeneration),
    /// Begins or ends a slot's rollout step.
    Step {
        /// The slot.
        slot: SlotKey,
        /// The rollout.
        rollout: RolloutNumber,
        /// Progress of the step.
        outcome: StepOutcome,
    },
    /// No node has room for a second generation of a slot, so start-first cannot proceed.
    NoRoom {
        /// When that began.
        since: Time,
    },
    /// A step that is due cannot begin or be placed, or (`None`) nothing is blocked any more.
    Blocked {
        /// When that began.
        since: Option<Time>,
    },
    /// Promotes the group's canary slots; the other slots follow.
    Promote,
    /// Marks a generation as failed for good.
    #[serde(with = "crate::flat_key::give_up")]
    GiveUp {
        /// The slot and its generation.
        key: SlotGeneration,
        /// The code.
        code: RuntimeCode,
    },
    /// Ends a requested rebalance of the group's spread: no move improves it.
    #[serde(rename = "evened_out")]
    EvenOutDone,
}

/// A new generation of a slot and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The slot and its new generation.
    pub key: SlotGeneration,
    /// The node.
    pub node: NodeName,
    /// The overlay address, from the node's range.
    pub address: Ipv6Addr,
    /// Volumes that are created on this node for it.
    pub new_volumes: Vec<VolumeKey>,
    /// Devices taken, by group.
    pub devices: TakenDevices,
    /// Its reservation where it differs from the group's: a slot whose rollout step has not begun is replaced by the
    /// previous spec.
    pub reservation: Option<Arc<Reservation>>,
    /// The score of the move, for a placement by a rebalance.
    pub moved: Option<Box<RebalanceScore>>,
}

/// Slots that could not be placed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The slots.
    pub slots: Vec<SlotKey>,
    /// The primary reason.
    pub reason: Reason,
    /// Details of the reason, by name.
    pub details: Details,
}

/// Why no node fits, with the numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The primary reason: the first filter that refuses every node the earlier filters accepted.
    pub reason: Reason,
    /// Number of nodes considered.
    pub nodes: u32,
    /// Nodes that no filter refuses; above 0 only where pinned hosts or an all-or-nothing batch need more of them.
    #[serde(default)]
    pub fits: u32,
    /// Number of nodes refused by each filter; each filter is counted over all nodes.
    pub refused: BTreeMap<Reason, u32>,
    /// The node that came closest.
    pub nearest: Option<NearMiss>,
    /// A refusal that concerns the service before any node.
    pub gate: Option<Refusal>,
    /// Pinned hosts that cannot be used.
    pub missing: Vec<NodeName>,
}

/// The node that came closest, and what it lacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearMiss {
    /// The node.
    pub node: NodeName,
    /// What it lacked, in filter order.
    pub lacks: Vec<Refusal>,
}
