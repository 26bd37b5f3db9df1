//! An independent record of what is on which node, built from the events alone.
//!
//! Owns: assignments, addresses, volume holders and the highest slot index of each service.
//! Must not touch: the scheduler's view. The invariants compare against a record that shares no code with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    sync::Arc,
};

use longshore_model::{
    Assignment, DeploymentName, Event, GroupKey, NamespaceName, NodeName, ReplicaKey, ReplicaState, Rollout,
    RolloutNumber, RolloutState, RuntimeCode, SlotIndex, SlotKey, VolumeKey, replica::Replica, rollout::StepOutcome,
    volume::Sharing,
};
use longshore_scheduler::occupies;
use longshore_store::State;

use super::{moves::Moves, rollout_goes_on::FailedAgain, stays_paused::PausedRollouts};

/// The replicas that occupy a node, with their assignments.
pub(super) type Occupants = BTreeMap<ReplicaKey, Assignment>;

/// What the events say is on which node.
#[derive(Debug, Default)]
pub(crate) struct ShadowState {
    occupants: BTreeMap<NodeName, Occupants>,
    addresses: BTreeMap<Ipv6Addr, BTreeSet<ReplicaKey>>,
    addresses_by_node: BTreeMap<NodeName, BTreeMap<Ipv6Addr, u32>>,
    volume_holders: BTreeMap<VolumeKey, BTreeMap<ReplicaKey, (NodeName, Sharing)>>,
    assignments: BTreeMap<ReplicaKey, Assignment>,
    highest_index: BTreeMap<GroupKey, SlotIndex>,
    running: BTreeSet<ReplicaKey>,
    failed: BTreeSet<ReplicaKey>,
    moves: Moves,
    failed_again: FailedAgain,
    paused: PausedRollouts,
    dirty: Dirty,
}

/// What changed since the last check and has to be checked.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    pub(super) nodes: BTreeSet<NodeName>,
    pub(super) addresses: BTreeSet<Ipv6Addr>,
    pub(super) volumes: BTreeSet<VolumeKey>,
    pub(super) placed: BTreeSet<(GroupKey, NodeName)>,
    pub(super) slots: BTreeSet<(GroupKey, SlotKey)>,
    /// Violations of the rule on slot indices.
    pub(super) reused_indices: Vec<String>,
    /// Violations of the rules on moves.
    pub(super) bad_moves: Vec<String>,
    /// Transitions, which a state alone does not show.
    pub(super) transitions: Transitions,
}

/// What happened to replicas and rollouts since the last check.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    /// Running generations that were told to stop.
    pub(super) stopped: BTreeSet<ReplicaKey>,
    /// Services of which a replica was placed, or restarted after it had failed.
    pub(super) started: BTreeSet<GroupKey>,
    /// Slots whose step is done, each with its rollout.
    pub(super) stepped: BTreeSet<(GroupKey, SlotKey, RolloutNumber)>,
    /// Slots whose step has begun, each with its rollout.
    pub(super) begun: BTreeSet<(GroupKey, SlotKey, RolloutNumber)>,
    /// Placements of a version that waits, as violation messages.
    pub(super) held: Vec<String>,
    /// Deployments whose rollback was reported complete.
    pub(super) rolled_back: BTreeSet<(NamespaceName, DeploymentName)>,
    /// Placements made from a manifest whose rollout failed, as violation messages.
    pub(super) retried: Vec<String>,
}

impl ShadowState {
    /// Records what an event changes.
    pub(crate) fn apply(&mut self, event: &Event, state: &State) {
        match event {
            Event::NodeChanged(node) => drop(self.dirty.nodes.insert(node.name.clone())),
            Event::Placed { key, assignment } => {
                self.check_placement(key, assignment, state);
                self.place(key.clone(), assignment);
            }
            Event::Restarting { key, .. } => {
                if self.failed.remove(key) {
                    self.dirty.transitions.started.insert(key.group.clone());
                }
            }
            Event::Released { key, .. } => {
                self.release_resources(key);
                self.release_address(key);
            }
            Event::Observed { key, state: observed, code, .. } => {
                let own = code.is_none_or(RuntimeCode::is_own_fault);
                let failed = matches!(observed, ReplicaState::Failed | ReplicaState::Degraded) && own;
                let is_failed = |newest: &Replica| failed && newest.generation == key.generation;
                self.failed_again.extend(super::rollout_goes_on::failed_again(state, &key.group, &key.slot, is_failed));
                self.observe(key.clone(), *observed);
            }
            Event::Stopping(key) => {
                if self.running.remove(key) {
                    self.dirty.transitions.stopped.insert(key.clone());
                }
            }
            Event::SlotStepped { group, slot, step } => {
                let stepped = (group.clone(), slot.clone(), step.rollout);
                match step.outcome {
                    StepOutcome::Done => drop(self.dirty.transitions.stepped.insert(stepped)),
                    StepOutcome::UnderWay => drop(self.dirty.transitions.begun.insert(stepped)),
                    StepOutcome::Failed(_) => {}
                }
            }
            Event::RolloutChanged { namespace, deployment, rollout } => {
                self.change_rollout(namespace, deployment, rollout);
            }
            Event::SlotOpened { group, slot, .. } => self.open_slot(group, slot),
            Event::Rebalanced(made) => self.dirty.bad_moves.extend(self.moves.record(made, state)),
            Event::NodeGone(_)
            | Event::NodeRemoved { .. }
            | Event::NodeForgotten(_)
            | Event::EvacuationChanged(_)
            | Event::Configured(_)
            | Event::GroupChanged { .. }
            | Event::GroupRolloutChanged { .. }
            | Event::DeploymentGone { .. }
            | Event::DeploymentStopped { .. }
            | Event::SlotStartsAgain(_)
            | Event::DeploymentStarted { .. }
            | Event::GroupGone(_)
            | Event::GroupRemoved(_)
            | Event::SlotWaits { .. }
            | Event::SlotClosing { .. }
            | Event::SlotGone { .. }
            | Event::FailureCounted { .. }
            | Event::EvenOutRequested(_)
            | Event::EvenOutDone(_)
            | Event::AddressCoolingDown { .. }
            | Event::VolumeCreated(_)
            | Event::VolumeGone(_)
            | Event::SecretSet { .. }
            | Event::SecretGone { .. }
            | Event::Rescheduled { .. }
            | Event::Collected { .. }
            | Event::AccessChanged
            | Event::QuotaSet { .. } => {}
        }
    }

    fn check_placement(&mut self, key: &ReplicaKey, assignment: &Assignment, state: &State) {
        let retried = super::rolled_back::check_retry(state, &key.group, &key.slot, assignment);
        self.dirty.transitions.retried.extend(retried);
        let held = super::held_version::check(state, &key.group, &key.slot, assignment);
        self.dirty.transitions.held.extend(held);
        self.dirty.transitions.started.insert(key.group.clone());
    }

    fn change_rollout(&mut self, namespace: &NamespaceName, deployment: &DeploymentName, rollout: &Arc<Rollout>) {
        self.paused.record(namespace, deployment, rollout);
        let is_other = |key: &GroupKey| (&key.namespace, &key.deployment) != (namespace, deployment);
        self.failed_again.retain(|(key, _, number)| is_other(key) || *number == rollout.number);
        if rollout.state == RolloutState::RolledBack {
            self.dirty.transitions.rolled_back.insert((namespace.clone(), deployment.clone()));
        }
    }

    fn place(&mut self, key: ReplicaKey, assignment: &Assignment) {
        let node = &assignment.node;
        self.occupants.entry(node.clone()).or_default().insert(key.clone(), assignment.clone());
        self.addresses.entry(assignment.address).or_default().insert(key.clone());
        *self.addresses_by_node.entry(node.clone()).or_default().entry(assignment.address).or_default() += 1;
        for held in &assignment.reservation.volumes {
            let holders = self.volume_holders.entry(held.key.clone()).or_default();
            holders.insert(key.clone(), (node.clone(), held.sharing));
            self.dirty.volumes.insert(held.key.clone());
        }
        self.dirty.nodes.insert(node.clone());
        self.dirty.addresses.insert(assignment.address);
        self.dirty.placed.insert((key.group.clone(), node.clone()));
        self.dirty.slots.insert((key.group.clone(), key.slot.clone()));
        self.assignments.insert(key, assignment.clone());
    }

    /// The replica occupies nothing any more, but keeps its address until it is released.
    fn release_resources(&mut self, key: &ReplicaKey) {
        let Some(assignment) = self.assignments.get(key) else { return };
        if let Some(occupants) = self.occupants.get_mut(&assignment.node) {
            occupants.remove(key);
        }
        for held in &assignment.reservation.volumes {
            if let Some(holders) = self.volume_holders.get_mut(&held.key) {
                holders.remove(key);
            }
        }
    }

    fn release_address(&mut self, key: &ReplicaKey) {
        let Some(assignment) = self.assignments.remove(key) else { return };
        if let Some(owners) = self.addresses.get_mut(&assignment.address) {
            owners.remove(key);
            if owners.is_empty() {
                self.addresses.remove(&assignment.address);
            }
        }
        if let Some(addresses) = self.addresses_by_node.get_mut(&assignment.node)
            && let Some(count) = addresses.get_mut(&assignment.address)
        {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&assignment.address);
            }
        }
    }

    /// A generation keeps the service kind it was placed with, also when its service has changed since.
    fn observe(&mut self, key: ReplicaKey, observed: ReplicaState) {
        let kind = self.assignments.get(&key).map(|assignment| assignment.reservation.kind);
        if kind.is_some_and(|kind| !occupies(kind, observed)) {
            self.release_resources(&key);
        }
        self.running.remove(&key);
        self.failed.remove(&key);
        match observed {
            ReplicaState::Running => drop(self.running.insert(key)),
            ReplicaState::Failed => drop(self.failed.insert(key)),
            ReplicaState::Pending
            | ReplicaState::Pulling
            | ReplicaState::Starting
            | ReplicaState::Degraded
            | ReplicaState::Draining
            | ReplicaState::Stopped
            | ReplicaState::Completed
            | ReplicaState::Lost => {}
        }
    }

    fn open_slot(&mut self, group: &GroupKey, slot: &SlotKey) {
        let SlotKey::Index(index) = slot else { return };
        if let Some(message) = super::slot_index_unique::check(self.highest_index.get(group), group, slot, *index) {
            self.dirty.reused_indices.push(message);
        }
        let highest = self.highest_index.entry(group.clone()).or_insert(*index);
        *highest = (*highest).max(*index);
    }

    /// Drops what can only be judged as it happens. After a replay of the state nothing was just placed or moved: a limit
    /// that was lowered since evicts nobody, and what must not move now may have been allowed to move before.
    pub(super) fn clear_transitions(&mut self) {
        self.dirty.transitions = Transitions::default();
        self.dirty.bad_moves.clear();
        self.dirty.placed.clear();
    }

    /// Slots that failed after their step was done.
    pub(super) fn failed_again(&self) -> &FailedAgain {
        &self.failed_again
    }

    /// Paused rollouts that went on without a resume.
    pub(super) fn check_paused(&mut self, state: &State) -> Vec<String> {
        self.paused.check(state)
    }

    pub(super) fn take_dirty(&mut self) -> Dirty {
        std::mem::take(&mut self.dirty)
    }

    pub(super) fn occupants(&self, node: &NodeName) -> Option<&Occupants> {
        self.occupants.get(node)
    }

    pub(super) fn addresses_of(&self, node: &NodeName) -> impl ExactSizeIterator<Item = Ipv6Addr> {
        static NONE: BTreeMap<Ipv6Addr, u32> = BTreeMap::new();
        self.addresses_by_node.get(node).unwrap_or(&NONE).keys().copied()
    }

    pub(super) fn address_owners(&self, address: Ipv6Addr) -> impl Iterator<Item = &ReplicaKey> {
        self.addresses.get(&address).into_iter().flatten()
    }

    pub(super) fn volume_holders(
        &self,
        volume: &VolumeKey,
    ) -> impl Iterator<Item = (&ReplicaKey, &(NodeName, Sharing))> {
        self.volume_holders.get(volume).into_iter().flatten()
    }

    /// The part that is equal in any two records of the same state.
    pub(super) fn comparable(&self) -> (Vec<(&NodeName, &Occupants)>, &BTreeMap<ReplicaKey, Assignment>) {
        (self.occupants.iter().filter(|(_, occupants)| !occupants.is_empty()).collect(), &self.assignments)
    }
}
