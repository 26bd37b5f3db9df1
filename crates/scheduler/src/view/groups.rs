//! What the scheduler knows of a group: its spec, its slots, and the generations that are alive.
//!
//! Owns: the slots in order. Must not touch: node loads, which [`super::occupancy`] keeps.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Attempt, Generation, GroupKey, Reason, ReplicaState, RevisionNumber, RuntimeCode, ServiceSpec, SlotKey, Terms,
    Time,
    device::TakenDevices,
    rebalance::EveningOut,
    replica::{Collected, Details, Rescheduled, Wanted},
    rollout::{Rolling, Step},
};
use smallvec::SmallVec;

use super::NodeIx;
use crate::feasibility::constraints::Rules;

/// A service of a deployment.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: GroupKey,
    pub(crate) spec: Arc<ServiceSpec>,
    /// The spec's constraints and affinities, made ready when it came.
    pub(crate) rules: Arc<Rules>,
    pub(crate) revision: RevisionNumber,
    pub(crate) wanted: Wanted,
    pub(crate) next_index: u32,
    /// How often it was restarted on purpose.
    pub(crate) restart_epoch: u32,
    /// How it stands in the rollout of its deployment.
    pub(crate) rolling: Rolling,
    /// Sorted by key.
    pub(crate) slots: Vec<Slot>,
    /// Moves of its slots after used-up restarts.
    pub(crate) reschedules: BTreeMap<SlotKey, Vec<Rescheduled>>,
    /// Replicas of a job that are done and no longer kept.
    pub(crate) collected: Collected,
    /// Recent failures by node.
    pub(crate) failures: BTreeMap<NodeIx, Vec<Time>>,
    /// Whether its spread is to be evened out.
    pub(crate) evening_out: EveningOut,
    /// Placements of the last plan that were not heard of since, noted where others waited.
    pub(crate) promised: u32,
    /// When it asked to be looked at again.
    pub(crate) alarm: Option<Time>,
}

/// One place in the count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) key: SlotKey,
    pub(crate) newest: Generation,
    /// Generations not observed stopped, oldest first.
    pub(crate) replicas: SmallVec<[Replica; 1]>,
    pub(crate) waiting: Option<Reason>,
    /// Particulars of `waiting`, meaningless without it.
    pub(crate) waiting_details: Details,
    pub(crate) wanted: Wanted,
    /// Its part in the newest rollout that had one for it.
    pub(crate) step: Option<Step>,
    /// When it was last moved to even the load.
    pub(crate) moved_at: Option<Time>,
}

/// One generation on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) generation: Generation,
    pub(crate) attempt: Attempt,
    pub(crate) node: NodeIx,
    pub(crate) address: Ipv6Addr,
    pub(crate) terms: Arc<Terms>,
    /// Groups of devices taken for it.
    pub(crate) devices: TakenDevices,
    pub(crate) wanted: Wanted,
    pub(crate) state: ReplicaState,
    pub(crate) code: Option<RuntimeCode>,
    pub(crate) since: Time,
    pub(crate) placed_at: Time,
    pub(crate) failures: u32,
    /// The generation that had replaced it when it came back from a node lost from sight.
    pub(crate) rival: Option<Generation>,
}

/// Whether a generation can be counted on.
pub(crate) fn is_live(replica: &Replica) -> bool {
    replica.wanted.is_live(replica.state)
}

impl Slot {
    pub(crate) fn new(key: SlotKey) -> Self {
        Self {
            key,
            newest: Generation(0),
            replicas: SmallVec::new(),
            waiting: None,
            waiting_details: Details::new(),
            wanted: Wanted::Run,
            step: None,
            moved_at: None,
        }
    }

    /// The generation that counts: the newest that shall run. Where a newer one was told to stop, an older one counts again.
    pub(crate) fn current(&self) -> Option<&Replica> {
        self.replicas.iter().rev().find(|replica| replica.wanted == Wanted::Run)
    }

    /// The node the slot counts on: that of the generation that counts. While the last one stops so that the next can start,
    /// the slot keeps its place, or a sibling would take it.
    pub(crate) fn counts_on(&self) -> Option<NodeIx> {
        self.current().or(self.replicas.last()).map(|replica| replica.node)
    }

    /// Other nodes on which an older generation of it shall run too, each once: until the newest has proved itself, or because
    /// one that came back may be kept instead.
    pub(crate) fn beside(&self) -> SmallVec<[NodeIx; 1]> {
        let mut beside = SmallVec::new();
        if self.replicas.len() < 2 {
            return beside;
        }
        let counted = self.counts_on();
        for replica in self.replicas.iter().filter(|replica| replica.wanted == Wanted::Run) {
            if Some(replica.node) != counted && !beside.contains(&replica.node) {
                beside.push(replica.node);
            }
        }
        beside
    }

    /// Whether it is known to wait for this reason, in these particulars.
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

    /// The slot, made if it does not exist.
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

    /// Slots still wanted, in order.
    pub(crate) fn wanted_slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.wanted == Wanted::Run)
    }

    /// Whether five failures in five minutes, or as configured, make the node faulty for this group.
    pub(crate) fn is_faulty_on(&self, node: NodeIx, now: Time, limit: u32, window: std::time::Duration) -> bool {
        let Some(times) = self.failures.get(&node) else { return false };
        let recent = times.iter().filter(|at| now.since(**at) < window).count();
        recent >= limit as usize
    }
}
