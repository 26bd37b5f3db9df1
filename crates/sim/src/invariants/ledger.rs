//! The auditor's own books: what is on which node, by the events alone.
//!
//! Owns: tenants, addresses, volume holders and the highest index of each service.
//! Must not touch: the scheduler's view. Two sets of books that agree are worth more than one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use longshore_model::{
    Assignment, DeploymentName, Event, Generation, GroupKey, NamespaceName, NodeName, ReplicaState, RolloutNumber,
    RolloutState, SlotIndex, SlotKey, VolumeKey, rollout::StepOutcome, volume::Sharing,
};
use longshore_scheduler::occupies;
use longshore_store::State;

use super::moves::Moves;

/// One generation of one slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tenant {
    pub(super) group: GroupKey,
    pub(super) slot: SlotKey,
    pub(super) generation: Generation,
}

impl Tenant {
    pub(super) fn printed(&self) -> String {
        format!("{} g{}", self.slot.printed(&self.group), self.generation)
    }
}

/// What occupies a node, and with what.
pub(super) type Tenants = BTreeMap<Tenant, Assignment>;

/// The books.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    tenants: BTreeMap<NodeName, Tenants>,
    addresses: BTreeMap<Ipv6Addr, BTreeSet<Tenant>>,
    addresses_by_node: BTreeMap<NodeName, BTreeMap<Ipv6Addr, u32>>,
    holders: BTreeMap<VolumeKey, BTreeMap<Tenant, (NodeName, Sharing)>>,
    assignments: BTreeMap<Tenant, Assignment>,
    highest: BTreeMap<GroupKey, SlotIndex>,
    running: BTreeSet<Tenant>,
    failed: BTreeSet<Tenant>,
    moves: Moves,
    touched: Touched,
}

/// What has to be looked at again.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) nodes: BTreeSet<NodeName>,
    pub(super) addresses: BTreeSet<Ipv6Addr>,
    pub(super) volumes: BTreeSet<VolumeKey>,
    pub(super) placed: BTreeSet<(GroupKey, NodeName)>,
    pub(super) slots: BTreeSet<(GroupKey, SlotKey)>,
    pub(super) reopened: Vec<String>,
    /// What is wrong with moves.
    pub(super) moved: Vec<String>,
    /// What only whoever followed along can judge.
    pub(super) changes: Changes,
}

/// What happened in rollouts.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Running generations that were told to stop.
    pub(super) stopped: BTreeSet<Tenant>,
    /// Services of which something was placed, or started again after it had failed.
    pub(super) begun: BTreeSet<GroupKey>,
    /// Slots whose step is done, each with the rollout.
    pub(super) stepped: BTreeSet<(GroupKey, SlotKey, RolloutNumber)>,
    /// Deployments said to be back on the old manifest.
    pub(super) back: BTreeSet<(NamespaceName, DeploymentName)>,
    pub(super) retried: Vec<String>,
}

impl Ledger {
    /// Writes down what an event says of occupancy.
    pub(crate) fn take(&mut self, event: &Event, state: &State) {
        match event {
            Event::NodeChanged(node) => drop(self.touched.nodes.insert(node.name.clone())),
            Event::Placed { group, slot, generation, assignment } => {
                let tenant = Tenant { group: group.clone(), slot: slot.clone(), generation: *generation };
                self.touched.changes.retried.extend(super::rolled_back::check_retry(state, group, slot, assignment));
                self.touched.changes.begun.insert(group.clone());
                self.move_in(tenant, assignment);
            }
            Event::Restarting { group, slot, generation, .. } => {
                let tenant = Tenant { group: group.clone(), slot: slot.clone(), generation: *generation };
                if self.failed.remove(&tenant) {
                    self.touched.changes.begun.insert(group.clone());
                }
            }
            Event::Released { group, slot, generation, .. } => {
                let tenant = Tenant { group: group.clone(), slot: slot.clone(), generation: *generation };
                self.vacate(&tenant);
                self.move_out(&tenant);
            }
            Event::Observed { group, slot, generation, state: seen, .. } => {
                let tenant = Tenant { group: group.clone(), slot: slot.clone(), generation: *generation };
                self.seen(tenant, *seen);
            }
            Event::Stopping { group, slot, generation } => {
                let tenant = Tenant { group: group.clone(), slot: slot.clone(), generation: *generation };
                if self.running.remove(&tenant) {
                    self.touched.changes.stopped.insert(tenant);
                }
            }
            Event::SlotStepped { group, slot, step } => {
                if step.outcome == StepOutcome::Done {
                    self.touched.changes.stepped.insert((group.clone(), slot.clone(), step.rollout));
                }
            }
            Event::RolloutChanged { namespace, deployment, rollout } => {
                if rollout.state == RolloutState::RolledBack {
                    self.touched.changes.back.insert((namespace.clone(), deployment.clone()));
                }
            }
            Event::SlotOpened { group, slot, .. } => self.opened(group, slot),
            Event::GroupGone(group) => self.forgotten(group, state),
            Event::Rebalanced(made) => self.touched.moved.extend(self.moves.take(made, state)),
            Event::NodeGone(_)
            | Event::NodeRemoved { .. }
            | Event::NodeForgotten(_)
            | Event::EvacuationChanged(_)
            | Event::Configured(_)
            | Event::GroupChanged { .. }
            | Event::GroupRolls { .. }
            | Event::DeploymentGone { .. }
            | Event::GroupUnwanted(_)
            | Event::SlotWaits { .. }
            | Event::SlotClosing { .. }
            | Event::SlotGone { .. }
            | Event::FailureCounted { .. }
            | Event::EvenOutAsked(_)
            | Event::EvenedOut(_)
            | Event::AddressResting { .. }
            | Event::VolumeMade(_)
            | Event::VolumeGone(_)
            | Event::SecretSet { .. }
            | Event::SecretGone { .. }
            | Event::Rescheduled { .. }
            | Event::Collected { .. }
            | Event::AccessChanged
            | Event::QuotaSet { .. } => {}
        }
    }

    /// A deployment that is gone for good starts to count anew; one that stays does not.
    fn forgotten(&mut self, group: &GroupKey, state: &State) {
        if state.deployment(&group.namespace, &group.deployment).is_none() {
            self.highest.retain(|key, _| (&key.namespace, &key.deployment) != (&group.namespace, &group.deployment));
        }
    }

    fn move_in(&mut self, tenant: Tenant, assignment: &Assignment) {
        let node = &assignment.node;
        self.tenants.entry(node.clone()).or_default().insert(tenant.clone(), assignment.clone());
        self.addresses.entry(assignment.address).or_default().insert(tenant.clone());
        *self.addresses_by_node.entry(node.clone()).or_default().entry(assignment.address).or_default() += 1;
        for held in &assignment.terms.volumes {
            let holders = self.holders.entry(held.key.clone()).or_default();
            holders.insert(tenant.clone(), (node.clone(), held.sharing));
            self.touched.volumes.insert(held.key.clone());
        }
        self.touched.nodes.insert(node.clone());
        self.touched.addresses.insert(assignment.address);
        self.touched.placed.insert((tenant.group.clone(), node.clone()));
        self.touched.slots.insert((tenant.group.clone(), tenant.slot.clone()));
        self.assignments.insert(tenant, assignment.clone());
    }

    /// It occupies nothing any more; its address is still its own.
    fn vacate(&mut self, tenant: &Tenant) {
        let Some(assignment) = self.assignments.get(tenant) else { return };
        if let Some(tenants) = self.tenants.get_mut(&assignment.node) {
            tenants.remove(tenant);
        }
        for held in &assignment.terms.volumes {
            if let Some(holders) = self.holders.get_mut(&held.key) {
                holders.remove(tenant);
            }
        }
    }

    fn move_out(&mut self, tenant: &Tenant) {
        let Some(assignment) = self.assignments.remove(tenant) else { return };
        if let Some(owners) = self.addresses.get_mut(&assignment.address) {
            owners.remove(tenant);
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

    /// A generation keeps the kind it was made as, whatever its service has become.
    fn seen(&mut self, tenant: Tenant, seen: ReplicaState) {
        let kind = self.assignments.get(&tenant).map(|assignment| assignment.terms.kind);
        if kind.is_some_and(|kind| !occupies(kind, seen)) {
            self.vacate(&tenant);
        }
        self.running.remove(&tenant);
        self.failed.remove(&tenant);
        match seen {
            ReplicaState::Running => drop(self.running.insert(tenant)),
            ReplicaState::Failed => drop(self.failed.insert(tenant)),
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

    fn opened(&mut self, group: &GroupKey, slot: &SlotKey) {
        let SlotKey::Index(index) = slot else { return };
        if let Some(message) = super::indices::check(self.highest.get(group), group, slot, *index) {
            self.touched.reopened.push(message);
        }
        let highest = self.highest.entry(group.clone()).or_insert(*index);
        *highest = (*highest).max(*index);
    }

    /// Leaves out what cannot be judged by the state alone. Nothing was placed or moved just now: a limit that was lowered
    /// since evicts nobody, and what must not move any more may have moved before.
    pub(super) fn forget_changes(&mut self) {
        self.touched.changes = Changes::default();
        self.touched.moved.clear();
        self.touched.placed.clear();
    }

    pub(super) fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn tenants(&self, node: &NodeName) -> Option<&Tenants> {
        self.tenants.get(node)
    }

    pub(super) fn addresses_of(&self, node: &NodeName) -> impl ExactSizeIterator<Item = Ipv6Addr> {
        static NONE: BTreeMap<Ipv6Addr, u32> = BTreeMap::new();
        self.addresses_by_node.get(node).unwrap_or(&NONE).keys().copied()
    }

    pub(super) fn owners(&self, address: Ipv6Addr) -> impl Iterator<Item = &Tenant> {
        self.addresses.get(&address).into_iter().flatten()
    }

    pub(super) fn holders(&self, volume: &VolumeKey) -> impl Iterator<Item = (&Tenant, &(NodeName, Sharing))> {
        self.holders.get(volume).into_iter().flatten()
    }

    /// What two ledgers of the same truth have in common.
    pub(super) fn books(&self) -> (Vec<(&NodeName, &Tenants)>, &BTreeMap<Tenant, Assignment>) {
        (self.tenants.iter().filter(|(_, tenants)| !tenants.is_empty()).collect(), &self.assignments)
    }
}
