//! What the scheduler decided in one pass. It leaves no choice to whoever carries it out.
//!
//! Owns: the shape of a decision and of the answer "no".
//! Invariant: applying a plan twice is harmless; each item names the generation it makes or ends.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Attempt, DeploymentPlan, Generation, GroupKey, NodeName, NodePlan, Reason, RolloutNumber, RuntimeCode, SlotKey,
    StateIndex, Terms, Time, VolumeKey, device::TakenDevices, reason_text::Refusal, rebalance::Weighed,
    replica::Details, rollout::StepOutcome,
};

/// One pass of decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The state it was made from.
    pub made_from: StateIndex,
    /// When.
    pub made_at: Time,
    /// What changes, group by group in the order decided.
    pub groups: Vec<GroupPlan>,
    /// What changes about nodes, after the groups.
    #[serde(default)]
    pub nodes: Vec<NodePlan>,
    /// What becomes of rollouts, once the groups have changed.
    #[serde(default)]
    pub deployments: Vec<DeploymentPlan>,
    /// When the answer could change without any event.
    pub wake_at: Option<Time>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.nodes.is_empty() && self.deployments.is_empty()
    }

    /// How many replicas get a node.
    pub fn placements(&self) -> usize {
        self.groups.iter().flat_map(|group| &group.items).filter(|item| matches!(item, PlanItem::Place(_))).count()
    }
}

/// What changes in one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// The group.
    pub group: GroupKey,
    /// What every placement below is promised.
    pub terms: Arc<Terms>,
    /// The changes, to be carried out in this order.
    pub items: Vec<PlanItem>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanItem {
    /// A slot is made, without a node yet.
    Open(SlotKey),
    /// A slot gets a generation on a node; it is made if it does not exist.
    Place(Placement),
    /// Slots that have no node get a reason, or another one.
    Wait(Wait),
    /// A generation shall stop.
    Stop {
        /// The slot.
        slot: SlotKey,
        /// The generation.
        generation: Generation,
    },
    /// A slot goes away; all its generations shall stop.
    Close(SlotKey),
    /// A generation is started once more on its node.
    Restart {
        /// The slot.
        slot: SlotKey,
        /// The generation.
        generation: Generation,
        /// The attempt that begins.
        attempt: Attempt,
    },
    /// A generation that used up its restarts leaves its node: it shall stop, and the slot is placed elsewhere.
    Reschedule {
        /// The slot.
        slot: SlotKey,
        /// The generation.
        generation: Generation,
        /// How long it waited for this.
        delay: Duration,
    },
    /// A job's replica that has ended is no longer kept, and not run again.
    Collect {
        /// The slot.
        slot: SlotKey,
        /// The generation that ended.
        generation: Generation,
    },
    /// A slot's part in the rollout of its deployment begins, or ends.
    Step {
        /// The slot.
        slot: SlotKey,
        /// The rollout it is a step of.
        rollout: RolloutNumber,
        /// How it goes.
        outcome: StepOutcome,
    },
    /// There is no room for two generations of a slot at once.
    NoRoom {
        /// Since when.
        since: Time,
    },
    /// The group's first slots have proved themselves, and the others may follow.
    Promote,
    /// A generation is given up.
    GiveUp {
        /// The slot.
        slot: SlotKey,
        /// The generation.
        generation: Generation,
        /// Why.
        code: RuntimeCode,
    },
    /// No move would make the group's spread more even than it is.
    EvenedOut,
}

/// A slot's new generation and its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The slot.
    pub slot: SlotKey,
    /// The generation made by this decision.
    pub generation: Generation,
    /// The node.
    pub node: NodeName,
    /// The overlay address, from the node's range.
    pub address: Ipv6Addr,
    /// Volumes that come to exist, on this node, with this placement.
    pub new_volumes: Vec<VolumeKey>,
    /// The groups of devices taken, and how many of each.
    #[serde(default)]
    pub devices: TakenDevices,
    /// What it is promised instead of the group's terms: a slot whose step has not come gets another of what it had.
    #[serde(default)]
    pub terms: Option<Arc<Terms>>,
    /// What was weighed, where the placement evens the load.
    #[serde(default)]
    pub moved: Option<Box<Weighed>>,
}

/// Slots that have no node, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The slots.
    pub slots: Vec<SlotKey>,
    /// The primary reason.
    pub reason: Reason,
    /// Particulars for the status.
    pub details: Details,
}

/// Why nothing fits, with the numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The first filter that empties what the earlier ones left.
    pub reason: Reason,
    /// Nodes looked at.
    pub nodes: u32,
    /// Nodes no filter refuses: none, unless the service wants a node of its own or all at once.
    #[serde(default)]
    pub fits: u32,
    /// Nodes refused by each filter, every filter on its own over all nodes.
    pub refused: BTreeMap<Reason, u32>,
    /// The node that came closest.
    pub nearest: Option<NearMiss>,
    /// Numbers of a refusal that is no node's fault.
    pub gate: Option<Refusal>,
    /// Pinned hosts that are not usable.
    pub missing: Vec<NodeName>,
}

/// The node that came closest, and what it lacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearMiss {
    /// The node.
    pub node: NodeName,
    /// What it lacked, in order of the filters.
    pub lacks: Vec<Refusal>,
}
