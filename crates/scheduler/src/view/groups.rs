//! The scheduler's record of a group: its spec, its slots, and the generations not yet stopped.
//!
//! Owns: the slots in order. Must not touch: node loads, which [`super::occupancy`] keeps.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Attempt, Generation, GroupKey, Reason, ReplicaState, Reservation, RevisionNumber, RuntimeCode, ServiceSpec,
    SlotGeneration, SlotKey, Time,
    device::TakenDevices,
    rebalance::SpreadRebalance,
    replica::{Collected, DesiredState, Details, Rescheduled, RestartHistory},
    rollout::{RolloutPosition, Step},
};
use smallvec::SmallVec;

use super::NodeIx;
use crate::feasibility::constraints::Rules;

/// A service of a deployment.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: GroupKey,
    pub(crate) spec: Arc<ServiceSpec>,
    /// The spec's constraints and affinities, parsed when the spec arrived.
    pub(crate) rules: Arc<Rules>,
    pub(crate) revision: RevisionNumber,
    pub(crate) desired: DesiredState,
    pub(crate) next_index: u32,
    /// How often an operator restarted it.
    pub(crate) restart_epoch: u32,
    /// Its position in the rollout of its deployment.
    pub(crate) rollout_position: RolloutPosition,
    /// Sorted by key.
    pub(crate) slots: Vec<Slot>,
    /// Moves of its slots after their restarts were exhausted.
    pub(crate) reschedules: BTreeMap<SlotKey, Vec<Rescheduled>>,
    /// Ended replicas of a job whose records were collected.
    pub(crate) collected: Collected,
    /// Recent failures by node.
    pub(crate) failures: BTreeMap<NodeIx, Vec<Time>>,
    /// Whether an operator requested a rebalance of its spread.
    pub(crate) spread_rebalance: SpreadRebalance,
    /// Placements of the last plan that were not committed since; recorded only while other groups wait.
    pub(crate) outstanding: u32,
    /// When it is to be decided again without an event.
    pub(crate) wake_at: Option<Time>,
}

/// One of the service's replicas, across its generations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) key: SlotKey,
    pub(crate) newest: Generation,
    /// Generations not observed stopped, oldest first.
    pub(crate) replicas: SmallVec<[Replica; 1]>,
    pub(crate) waiting: Option<Reason>,
    /// Details of `waiting`, meaningless without it.
    pub(crate) waiting_details: Details,
    pub(crate) desired: DesiredState,
    /// Its step in the newest rollout that had one for it.
    pub(crate) step: Option<Step>,
    /// When the rebalancer last moved it.
    pub(crate) moved_at: Option<Time>,
    /// The generation that starts it again after its deployment was stopped.
    pub(crate) starts_again: Option<Generation>,
}

/// One generation on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) generation: Generation,
    pub(crate) attempt: Attempt,
    pub(crate) node: NodeIx,
    pub(crate) address: Ipv6Addr,
    pub(crate) reservation: Arc<Reservation>,
    /// Devices allocated to it, by device group.
    pub(crate) devices: TakenDevices,
    pub(crate) desired: DesiredState,
    pub(crate) state: ReplicaState,
    pub(crate) code: Option<RuntimeCode>,
    /// Whether the registry refused its image; it is pulled again, but nothing suggests that this helps.
    pub(crate) pull_refused: bool,
    pub(crate) since: Time,
    pub(crate) placed_at: Time,
    pub(crate) failures: u32,
    pub(crate) history: RestartHistory,
    /// The generation that had replaced it when it reconnected after its node was lost.
    pub(crate) replaced_by: Option<Generation>,
}

/// Whether a generation is desired and in a state that is alive.
pub(crate) fn is_live(replica: &Replica) -> bool {
    replica.desired.is_live(replica.state)
}

impl Slot {
    pub(crate) fn new(key: SlotKey) -> Self {
        Self {
            key,
            newest: Generation(0),
            replicas: SmallVec::new(),
            waiting: None,
            waiting_details: Details::new(),
            desired: DesiredState::Run,
            step: None,
            moved_at: None,
            starts_again: None,
        }
    }

    /// The newest generation that is desired. When a newer one was stopped, an older one becomes current again.
    pub(crate) fn current(&self) -> Option<&Replica> {
        self.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run)
    }

    /// The node the slot counts on: that of its current generation. While the last one stops so that the next can
    /// start, the slot keeps counting there, or another slot would take its node.
    pub(crate) fn counts_on(&self) -> Option<NodeIx> {
        self.current().or(self.replicas.last()).map(|replica| replica.node)
    }

    /// Other nodes with an older generation that is still desired, each once: until the newest is ready, or because a
    /// reconnected one may be kept instead.
    pub(crate) fn overlap_nodes(&self) -> SmallVec<[NodeIx; 1]> {
        let mut nodes = SmallVec::new();
        if self.replicas.len() < 2 {
            return nodes;
        }
        let counted = self.counts_on();
        for replica in self.replicas.iter().filter(|replica| replica.desired == DesiredState::Run) {
            if Some(replica.node) != counted && !nodes.contains(&replica.node) {
                nodes.push(replica.node);
            }
        }
        nodes
    }

    /// Whether the recorded wait has this reason and these details.
    pub(crate) fn waits_for(&self, reason: Reason, details: &Details) -> bool {
        self.waiting == Some(reason) && self.waiting_details == *details
    }

    pub(crate) fn replica_mut(&mut self, generation: Generation) -> Option<&mut Replica> {
        self.replicas.iter_mut().find(|replica| replica.generation == generation)
    }
}

impl Group {
    pub(crate) fn slot_at(&self, key: &SlotKey) -> Result<usize, usize> {
        self.slots.binary_search_by(|slot| slot.key.cmp(key))
    }

    pub(crate) fn slot_mut(&mut self, key: &SlotKey) -> Option<&mut Slot> {
        let at = self.slot_at(key).ok()?;
        self.slots.get_mut(at)
    }

    /// One generation of one of its slots.
    pub(crate) fn replica(&self, slot: &SlotKey, generation: Generation) -> Option<&Replica> {
        let at = self.slot_at(slot).ok()?;
        self.slots[at].replicas.iter().find(|replica| replica.generation == generation)
    }

    pub(crate) fn replica_mut(&mut self, key: &SlotGeneration) -> Option<&mut Replica> {
        self.slot_mut(&key.slot)?.replica_mut(key.generation)
    }

    /// The slot, created if it does not exist.
    pub(crate) fn slot_or_open(&mut self, key: &SlotKey) -> &mut Slot {
        let at = match self.slot_at(key) {
            Ok(at) => at,
            Err(at) => {
                self.slots.insert(at, Slot::new(key.clone()));
                if let SlotKey::Index(index) = key {
                    self.next_index = self.next_index.max(index.0.saturating_add(1));
                }
                at
            }
        };
        &mut self.slots[at]
    }

    /// The spec in force, and the previous one while a rollout keeps it: slots whose step has not come follow that.
    pub(crate) fn specs_in_use(&self) -> impl Iterator<Item = &ServiceSpec> {
        let previous = self.rollout_position.previous.as_ref().map(|previous| &*previous.spec);
        std::iter::once(&*self.spec).chain(previous)
    }

    /// Slots that are desired, in order.
    pub(crate) fn desired_slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.desired == DesiredState::Run)
    }

    /// Whether the group failed on the node at least `limit` times within `window`.
    pub(crate) fn is_faulty_on(&self, node: NodeIx, now: Time, limit: u32, window: std::time::Duration) -> bool {
        let Some(times) = self.failures.get(&node) else { return false };
        let recent = times.iter().filter(|at| now.since(**at) < window).count();
        recent >= limit as usize
    }
}
