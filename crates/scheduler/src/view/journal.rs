//! The journal of a pass: each decision takes effect in the view at once, for the decisions after it, and is undone at
//! the end.
//!
//! A plan takes effect only through its events, so a pass must leave the view unchanged. Copying the view per pass was
//! refused: it would cost the number of nodes where this costs what was touched.
//!
//! Owns: the record of what a pass changed. Invariant: after [`View::roll_back`] the view is what it was.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    GroupKey, NamespaceName, ReplicaState, Reservation, SlotGeneration, SlotKey, VolumeKey, device::TakenDevices,
    replica::DesiredState,
};

use super::{
    GroupIx, NodeIx, View,
    node_table::Load,
    occupancy::{self, Holding},
    usage::Usage,
    volumes::Holder,
};
use crate::{feasibility::devices, request::PlacementRequest};

/// What a pass changed, in order.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Original loads, each node once.
    loads: Vec<(NodeIx, Load)>,
    saved: Vec<bool>,
    /// Nodes whose position in the node indexes is out of date.
    moved: Vec<NodeIx>,
    moving: Vec<bool>,
    addresses: Vec<(NodeIx, u64)>,
    extras: Vec<(NodeIx, Arc<Reservation>)>,
    /// Devices allocated.
    devices: Vec<(NodeIx, TakenDevices)>,
    holders: Vec<(VolumeKey, Holder)>,
    homes: Vec<VolumeKey>,
    usage: Vec<(NamespaceName, Usage)>,
    /// Placements of groups that others watch.
    watched_placements: Vec<(GroupIx, SlotKey, NodeIx)>,
    /// Capacity claimed for groups until others have stopped.
    claims: Vec<Claim>,
    /// How often a group's claims moved to other nodes.
    claim_changes: usize,
    /// Generations assumed to be stopping.
    stopping: Vec<AssumedStop>,
    /// Surplus slots of groups, found before their turn.
    closing: BTreeMap<GroupIx, BTreeSet<SlotKey>>,
    /// Those of `stopping` that were preempted for another group.
    displaced: Vec<(GroupIx, SlotGeneration)>,
}

/// A generation that the pass stops, with the state it had before.
#[derive(Clone, Debug)]
struct AssumedStop {
    group: GroupIx,
    key: SlotGeneration,
    state: ReplicaState,
}

/// Capacity claimed on a node for a group.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    group: GroupIx,
    node: NodeIx,
    holding: Holding,
}

impl Journal {
    /// The placements of a watched group in this pass.
    pub(super) fn decided(&self, group: GroupIx) -> impl Iterator<Item = (&SlotKey, NodeIx)> {
        self.watched_placements.iter().filter(move |(other, ..)| *other == group).map(|(_, slot, node)| (slot, *node))
    }
}

/// Lengths of the journal's lists at some point of a pass.
#[derive(Clone, Copy, Default)]
pub(crate) struct Savepoint {
    addresses: usize,
    extras: usize,
    devices: usize,
    holders: usize,
    homes: usize,
    usage: usize,
    watched_placements: usize,
}

/// What one reservation allocated.
pub(crate) struct Reserved {
    pub(crate) host: u64,
    pub(crate) new_volumes: Vec<VolumeKey>,
    pub(crate) devices: TakenDevices,
}

impl View {
    /// Reserves the resources of one replica on a node.
    pub(crate) fn reserve(&mut self, request: &PlacementRequest, key: &SlotGeneration, node: NodeIx) -> Reserved {
        self.save_load(node);
        let devices =
            devices::allocate(request, &self.nodes, node).expect("a node is taken only if it has the devices");
        occupancy::load(&mut self.nodes, node, &request.reservation);
        if !devices.is_empty() {
            occupancy::take_devices(&mut self.nodes, node, &devices);
            self.journal.devices.push((node, devices.clone()));
        }
        self.nodes.stats[node.at()].load.replicas += 1;
        if !request.reservation.host_ports.is_empty() || !request.reservation.devices.is_empty() {
            self.journal.extras.push((node, Arc::clone(&request.reservation)));
        }
        let host = self.nodes.addresses[node.at()].take_lowest();
        self.journal.addresses.push((node, host));
        if request.is_watched {
            self.journal.watched_placements.push((request.group, key.slot.clone(), node));
        }
        let new_volumes = self.reserve_volumes(request, key, node);
        Reserved { host, new_volumes, devices }
    }

    /// Saves a node's load before its first change, and marks its index position as out of date.
    pub(crate) fn save_load(&mut self, node: NodeIx) {
        let nodes = self.nodes.records.len();
        let journal = &mut self.journal;
        journal.saved.resize(nodes, false);
        journal.moving.resize(nodes, false);
        if !std::mem::replace(&mut journal.saved[node.at()], true) {
            journal.loads.push((node, self.nodes.stats[node.at()].load));
        }
        if !std::mem::replace(&mut journal.moving[node.at()], true) {
            journal.moved.push(node);
        }
    }

    fn reserve_volumes(&mut self, request: &PlacementRequest, key: &SlotGeneration, node: NodeIx) -> Vec<VolumeKey> {
        let mut made = Vec::new();
        for held in &request.reservation.volumes {
            if self.volumes.get(&held.key).is_none_or(|volume| volume.home.is_none()) {
                let (owner, home) = (&request.key.deployment, &self.nodes.node(node).name);
                self.volumes.set_home(&held.key, owner, home);
                self.journal.homes.push(held.key.clone());
                made.push(held.key.clone());
            }
            let holder = Holder { group: request.group, key: key.clone(), sharing: held.sharing };
            self.volumes.hold(&held.key, holder.clone());
            self.journal.holders.push((held.key.clone(), holder));
        }
        made
    }

    /// Claims capacity on a node for a group: groups decided later see it as taken.
    pub(crate) fn claim(&mut self, request: &PlacementRequest, node: NodeIx) {
        self.load_claim(Claim { group: request.group, node, holding: request.holding(self, node) });
    }

    /// Groups with claims.
    pub(crate) fn claimants(&self) -> impl Iterator<Item = GroupIx> {
        self.journal.claims.iter().map(|claim| claim.group)
    }

    /// Releases the claims of some groups and returns them.
    pub(crate) fn release_claims(&mut self, whose: impl Fn(GroupIx) -> bool) -> Vec<Claim> {
        let claims = std::mem::take(&mut self.journal.claims);
        let (released, kept): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(|claim| whose(claim.group));
        self.journal.claims = kept;
        for claim in &released {
            self.save_load(claim.node);
            claim.holding.unload(&mut self.nodes, claim.node);
        }
        self.reindex_changed();
        released
    }

    /// Restores released claims except those of `but_for`, which has been decided again.
    pub(crate) fn restore_claims(&mut self, claims: Vec<Claim>, but_for: GroupIx) {
        let (old, others): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(|claim| claim.group == but_for);
        let nodes = |claims: &[Claim]| -> Vec<NodeIx> {
            let own = claims.iter().filter(|claim| claim.group == but_for);
            own.map(|claim| claim.node).collect()
        };
        if nodes(&old) != nodes(&self.journal.claims) {
            self.journal.claim_changes += 1;
        }
        for claim in others {
            self.load_claim(claim);
        }
        self.reindex_changed();
    }

    fn load_claim(&mut self, claim: Claim) {
        self.save_load(claim.node);
        claim.holding.load(&mut self.nodes, claim.node);
        self.journal.claims.push(claim);
    }

    /// Nodes on which a generation of the slot failed and was stopped in this pass.
    pub(crate) fn failed_nodes_stopped_by_pass(&self, group: GroupIx, slot: &SlotKey) -> impl Iterator<Item = NodeIx> {
        let of_slot = self.journal.stopping.iter().filter(move |stop| (stop.group, &stop.key.slot) == (group, slot));
        let failed = of_slot.filter(|stop| matches!(stop.state, ReplicaState::Failed | ReplicaState::Degraded));
        let record = self.group(group);
        failed.filter_map(move |stop| record.replica(slot, stop.key.generation).map(|replica| replica.node))
    }

    /// Whether this pass stops a generation.
    pub(crate) fn is_stopped_by_pass(&self, group: &GroupKey, key: &SlotGeneration) -> bool {
        let Some(ix) = self.group_ids.get(group) else { return false };
        self.journal.stopping.iter().any(|stop| (stop.group, &stop.key) == (*ix, key))
    }

    /// The slots of a watched group that this pass placed.
    pub(crate) fn slots_placed_by_pass(&self, group: &GroupKey) -> BTreeSet<&SlotKey> {
        let ix = self.group_ids.get(group).into_iter();
        ix.flat_map(|ix| self.journal.decided(*ix)).map(|(slot, _)| slot).collect()
    }

    /// Assumes, until the pass ends, that a generation was stopped.
    pub(crate) fn assume_stopping(&mut self, group: GroupIx, key: &SlotGeneration) {
        let namespace = self.group(group).key.namespace.clone();
        let Some(replica) = self.group_mut(group).replica_mut(key) else { return };
        if replica.desired == DesiredState::Stop {
            return;
        }
        let (node, reservation, state, counted) =
            (replica.node, Arc::clone(&replica.reservation), replica.state, occupancy::counts(replica));
        replica.desired = DesiredState::Stop;
        // As in `View::stopping`: a completed replica has nothing left to drain.
        if state != ReplicaState::Completed {
            replica.state = ReplicaState::Draining;
        }
        self.save_load(node);
        if counted {
            let usage = self.usage.entry(namespace.clone()).or_default();
            self.journal.usage.push((namespace, *usage));
            usage.subtract(&reservation);
            let load = &mut self.nodes.stats[node.at()].load;
            load.replicas = load.replicas.saturating_sub(1);
            self.nodes.reindex(node);
        }
        self.journal.stopping.push(AssumedStop { group, key: key.clone(), state });
    }

    /// Assumes, until the pass ends, that slots were closed, and records them for the group's turn.
    pub(crate) fn assume_closing(&mut self, group: GroupIx, slots: BTreeSet<SlotKey>) {
        for slot in &slots {
            let record = self.group(group);
            let replicas = record.slot_at(slot).map(|at| &record.slots[at].replicas);
            let keys: Vec<SlotGeneration> =
                replicas.into_iter().flatten().map(|it| slot.generation(it.generation)).collect();
            for key in &keys {
                self.assume_stopping(group, key);
            }
        }
        self.journal.closing.insert(group, slots);
    }

    /// The surplus slots of a group found earlier in this pass; `None` where they were not computed.
    pub(crate) fn closing(&self, group: GroupIx) -> Option<BTreeSet<SlotKey>> {
        self.journal.closing.get(&group).cloned()
    }

    /// Assumes that a generation was stopped, and records that another group preempted it.
    pub(crate) fn displace(&mut self, group: GroupIx, key: &SlotGeneration) {
        self.assume_stopping(group, key);
        self.journal.displaced.push((group, key.clone()));
    }

    /// The generations preempted in this pass.
    pub(crate) fn displaced(&self) -> Vec<(GroupIx, SlotGeneration)> {
        self.journal.displaced.clone()
    }

    /// How many generations this pass has stopped so far.
    pub(crate) fn stops_in_pass(&self) -> usize {
        self.journal.stopping.len()
    }

    /// Counts a batch towards its namespace's quota.
    pub(crate) fn reserve_quota(&mut self, request: &PlacementRequest, replicas: usize) {
        let usage = self.usage.entry(request.key.namespace.clone()).or_default();
        self.journal.usage.push((request.key.namespace.clone(), *usage));
        for _ in 0..replicas {
            usage.add(&request.reservation);
        }
    }

    /// The number of reservations, stops and moved claims of this pass. A decision made at a lower number may be out
    /// of date.
    pub(crate) fn pass_changes(&self) -> usize {
        self.journal.addresses.len() + self.journal.stopping.len() + self.journal.claim_changes
    }

    /// The current lengths of the journal.
    pub(crate) fn savepoint(&self) -> Savepoint {
        let journal = &self.journal;
        Savepoint {
            addresses: journal.addresses.len(),
            extras: journal.extras.len(),
            devices: journal.devices.len(),
            holders: journal.holders.len(),
            homes: journal.homes.len(),
            usage: journal.usage.len(),
            watched_placements: journal.watched_placements.len(),
        }
    }

    /// Takes back what `request` reserved since the savepoint, and nothing before it.
    pub(crate) fn roll_back_to(&mut self, savepoint: Savepoint, request: &PlacementRequest) {
        let mut journal = std::mem::take(&mut self.journal);
        // Each reservation has exactly one address, so these are the nodes that carry one replica too many.
        for (node, _) in journal.addresses[savepoint.addresses..].iter().rev() {
            let load = &mut self.nodes.stats[node.at()].load;
            load.cpu_millis -= request.reservation.cpu_millis;
            load.memory_bytes -= request.reservation.memory_total();
            load.disk_bytes -= request.reservation.disk_bytes;
            load.replicas -= 1;
            self.nodes.reindex(*node);
        }
        self.undo_since(&mut journal, savepoint);
        self.journal = journal;
    }

    /// Undoes every reservation since a savepoint, except for the loads of nodes.
    fn undo_since(&mut self, journal: &mut Journal, savepoint: Savepoint) {
        journal.watched_placements.truncate(savepoint.watched_placements);
        for (namespace, usage) in journal.usage.drain(savepoint.usage..).rev() {
            self.usage.insert(namespace, usage);
        }
        for (key, holder) in journal.holders.drain(savepoint.holders..).rev() {
            self.volumes.release(&key, &holder);
        }
        for key in journal.homes.drain(savepoint.homes..).rev() {
            self.volumes.clear_home(&key);
        }
        for (node, devices) in journal.devices.drain(savepoint.devices..).rev() {
            occupancy::free_devices(&mut self.nodes, node, &devices);
        }
        for (node, reservation) in journal.extras.drain(savepoint.extras..).rev() {
            occupancy::unload_extras(&mut self.nodes, node, &reservation);
        }
        for (node, host) in journal.addresses.drain(savepoint.addresses..).rev() {
            self.nodes.addresses[node.at()].free(host);
        }
    }

    /// Updates the node indexes for the loads that changed since the last call.
    pub(crate) fn reindex_changed(&mut self) {
        let moved = std::mem::take(&mut self.journal.moved);
        for node in &moved {
            self.journal.moving[node.at()] = false;
            self.nodes.reindex(*node);
        }
        // The allocation is kept for the next batch.
        self.journal.moved = moved;
        self.journal.moved.clear();
    }

    /// Undoes every change of the pass.
    pub(crate) fn roll_back(&mut self) {
        let mut journal = std::mem::take(&mut self.journal);
        self.undo_since(&mut journal, Savepoint::default());
        journal.displaced.clear();
        journal.closing.clear();
        journal.claim_changes = 0;
        for claim in journal.claims.drain(..).rev() {
            claim.holding.unload(&mut self.nodes, claim.node);
        }
        for AssumedStop { group, key, state } in journal.stopping.drain(..).rev() {
            if let Some(replica) = self.group_mut(group).replica_mut(&key) {
                replica.desired = DesiredState::Run;
                replica.state = state;
            }
        }
        // Loads are restored last: they are set to the saved values, whatever the steps above did to them.
        for (node, load) in journal.loads.drain(..).rev() {
            journal.saved[node.at()] = false;
            self.nodes.stats[node.at()].load = load;
            self.nodes.reindex(node);
        }
        journal.moved.clear();
        journal.moving.fill(false);
        self.journal = journal;
    }
}
