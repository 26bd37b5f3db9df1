//! Reservations within one pass: a decision counts for the next one at once, and is taken back at the end.
//!
//! A plan takes effect only through its events, so the pass must leave the view as it found it. Copying the view
//! per pass was refused: it would cost nodes × pass where this costs what was touched.
//!
//! Owns: the journal of what a pass changed. Invariant: after [`View::roll_back`] the view is what it was.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Generation, GroupKey, NamespaceName, ReplicaState, SlotKey, Terms, VolumeKey, device::TakenDevices, replica::Wanted,
};

use super::{
    GroupIx, NodeIx, View,
    fleet::Load,
    occupancy::{self, Holding},
    usage::Usage,
    volumes::Holder,
};
use crate::{ask::Ask, feasibility::devices};

/// What a pass changed, in order.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Loads as they were, each node once.
    loads: Vec<(NodeIx, Load)>,
    saved: Vec<bool>,
    /// Nodes whose place in the lanes is out of date.
    moved: Vec<NodeIx>,
    moving: Vec<bool>,
    addresses: Vec<(NodeIx, u64)>,
    extras: Vec<(NodeIx, Arc<Terms>)>,
    /// Groups of devices taken.
    devices: Vec<(NodeIx, TakenDevices)>,
    holders: Vec<(VolumeKey, Holder)>,
    homes: Vec<VolumeKey>,
    usage: Vec<(NamespaceName, Usage)>,
    /// Where replicas of groups that others look at were put.
    company: Vec<(GroupIx, SlotKey, NodeIx)>,
    /// Room kept for groups until others have stopped.
    claims: Vec<Claim>,
    /// How often room was kept elsewhere than before.
    shifts: usize,
    /// Generations supposed to be stopping, each with the state it is in.
    stopping: Vec<(GroupIx, SlotKey, Generation, ReplicaState)>,
    /// Slots that were found to be too many before their group's turn.
    closing: BTreeMap<GroupIx, BTreeSet<SlotKey>>,
    /// Those of the stopping that another group displaced.
    displaced: Vec<(GroupIx, SlotKey, Generation)>,
}

/// Room kept on a node.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    group: GroupIx,
    node: NodeIx,
    holding: Holding,
}

impl Journal {
    /// Where this pass put replicas of a watched group.
    pub(super) fn decided(&self, group: GroupIx) -> impl Iterator<Item = (&SlotKey, NodeIx)> {
        self.company.iter().filter(move |(other, ..)| *other == group).map(|(_, slot, node)| (slot, *node))
    }
}

/// How far the journal was at some point of a pass.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    addresses: usize,
    extras: usize,
    devices: usize,
    holders: usize,
    homes: usize,
    usage: usize,
    company: usize,
}

/// What a reservation brought.
pub(crate) struct Reserved {
    pub(crate) host: u64,
    pub(crate) new_volumes: Vec<VolumeKey>,
    pub(crate) devices: TakenDevices,
}

impl View {
    /// Takes room for one replica on a node.
    pub(crate) fn reserve(&mut self, ask: &Ask, slot: &SlotKey, generation: Generation, node: NodeIx) -> Reserved {
        self.save_load(node);
        let devices = devices::allocate(ask, &self.fleet, node).expect("only nodes that have the devices are taken");
        occupancy::load(&mut self.fleet, node, &ask.terms);
        if !devices.is_empty() {
            occupancy::take_devices(&mut self.fleet, node, &devices);
            self.journal.devices.push((node, devices.clone()));
        }
        self.fleet.seats[node.at()].load.replicas += 1;
        if !ask.terms.host_ports.is_empty() || !ask.terms.devices.is_empty() {
            self.journal.extras.push((node, Arc::clone(&ask.terms)));
        }
        let host = self.fleet.addresses[node.at()].take_lowest();
        self.journal.addresses.push((node, host));
        if ask.is_watched {
            self.journal.company.push((ask.group, slot.clone(), node));
        }
        let new_volumes = self.reserve_volumes(ask, slot, generation, node);
        Reserved { host, new_volumes, devices }
    }

    /// Remembers a node's load before it is changed, and that its place in the lanes has to follow.
    pub(crate) fn save_load(&mut self, node: NodeIx) {
        let nodes = self.fleet.nodes.len();
        let journal = &mut self.journal;
        journal.saved.resize(nodes, false);
        journal.moving.resize(nodes, false);
        if !std::mem::replace(&mut journal.saved[node.at()], true) {
            journal.loads.push((node, self.fleet.seats[node.at()].load));
        }
        if !std::mem::replace(&mut journal.moving[node.at()], true) {
            journal.moved.push(node);
        }
    }

    fn reserve_volumes(&mut self, ask: &Ask, slot: &SlotKey, generation: Generation, node: NodeIx) -> Vec<VolumeKey> {
        let mut made = Vec::new();
        for held in &ask.terms.volumes {
            if self.volumes.get(&held.key).is_none_or(|volume| volume.home.is_none()) {
                let (owner, home) = (&ask.key.deployment, &self.fleet.node(node).name);
                self.volumes.settle(&held.key, owner, home);
                self.journal.homes.push(held.key.clone());
                made.push(held.key.clone());
            }
            let holder = Holder { group: ask.group, slot: slot.clone(), generation, sharing: held.sharing };
            self.volumes.hold(&held.key, holder.clone());
            self.journal.holders.push((held.key.clone(), holder));
        }
        made
    }

    /// Keeps room on a node for a group: it counts as taken for whoever is decided next.
    pub(crate) fn claim(&mut self, ask: &Ask, node: NodeIx) {
        self.load_claim(Claim { group: ask.group, node, holding: ask.holding(self, node) });
    }

    /// Groups that room is kept for.
    pub(crate) fn claimants(&self) -> impl Iterator<Item = GroupIx> {
        self.journal.claims.iter().map(|claim| claim.group)
    }

    /// Gives up the room kept for some groups; gives back what was kept.
    pub(crate) fn lift_claims(&mut self, whose: impl Fn(GroupIx) -> bool) -> Vec<Claim> {
        let claims = std::mem::take(&mut self.journal.claims);
        let (lifted, kept): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(|claim| whose(claim.group));
        self.journal.claims = kept;
        for claim in &lifted {
            self.save_load(claim.node);
            claim.holding.unload(&mut self.fleet, claim.node);
        }
        self.settle_lanes();
        lifted
    }

    /// Keeps again what was given up, but for one group, which was answered anew.
    pub(crate) fn put_back_claims(&mut self, claims: Vec<Claim>, but_for: GroupIx) {
        let (old, others): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(|claim| claim.group == but_for);
        let nodes = |claims: &[Claim]| -> Vec<NodeIx> {
            let own = claims.iter().filter(|claim| claim.group == but_for);
            own.map(|claim| claim.node).collect()
        };
        if nodes(&old) != nodes(&self.journal.claims) {
            self.journal.shifts += 1;
        }
        for claim in others {
            self.load_claim(claim);
        }
        self.settle_lanes();
    }

    fn load_claim(&mut self, claim: Claim) {
        self.save_load(claim.node);
        claim.holding.load(&mut self.fleet, claim.node);
        self.journal.claims.push(claim);
    }

    /// Where generations of a slot are that failed and were told to stop in this pass.
    pub(crate) fn failing_and_supposed_to_stop(&self, group: GroupIx, slot: &SlotKey) -> impl Iterator<Item = NodeIx> {
        let of_slot = self.journal.stopping.iter().filter(move |(ix, key, ..)| (*ix, key) == (group, slot));
        let failing = of_slot.filter(|(.., state)| matches!(state, ReplicaState::Failed | ReplicaState::Degraded));
        let known = self.group(group);
        let replicas = known.slot_at(slot).ok().map(|at| &known.slots[at].replicas);
        failing.filter_map(move |(_, _, generation, _)| {
            replicas?.iter().find(|replica| replica.generation == *generation).map(|replica| replica.node)
        })
    }

    /// Whether this pass told a generation to stop.
    pub(crate) fn is_supposed_to_stop(&self, group: &GroupKey, slot: &SlotKey, generation: Generation) -> bool {
        let Some(ix) = self.group_ids.get(group) else { return false };
        self.journal.stopping.iter().any(|(of, key, told, _)| (of, key, *told) == (ix, slot, generation))
    }

    /// The slots of a group that others look at of which this pass placed another generation.
    pub(crate) fn placed_now(&self, group: &GroupKey) -> BTreeSet<&SlotKey> {
        let ix = self.group_ids.get(group).into_iter();
        ix.flat_map(|ix| self.journal.decided(*ix)).map(|(slot, _)| slot).collect()
    }

    /// Supposes, until the pass ends, that a generation was told to stop.
    pub(crate) fn suppose_stopping(&mut self, group: GroupIx, slot: &SlotKey, generation: Generation) {
        let key = self.group(group).key.clone();
        let found = self.group_mut(group).slot_mut(slot).and_then(|slot| slot.replica_mut(generation));
        let Some(replica) = found else { return };
        if replica.wanted == Wanted::Stop {
            return;
        }
        let (node, terms, state, counted) =
            (replica.node, Arc::clone(&replica.terms), replica.state, occupancy::counts(replica));
        replica.wanted = Wanted::Stop;
        // As when it is told indeed: what had ended by itself has nothing left to drain.
        if state != ReplicaState::Completed {
            replica.state = ReplicaState::Draining;
        }
        self.save_load(node);
        if counted {
            let usage = self.usage.entry(key.namespace.clone()).or_default();
            self.journal.usage.push((key.namespace.clone(), *usage));
            usage.subtract(&terms);
            let load = &mut self.fleet.seats[node.at()].load;
            load.replicas = load.replicas.saturating_sub(1);
            self.fleet.reseat(node);
        }
        self.journal.stopping.push((group, slot.clone(), generation, state));
    }

    /// Supposes, until the pass ends, that slots were closed, and remembers which for the group's turn.
    pub(crate) fn suppose_closing(&mut self, group: GroupIx, slots: BTreeSet<SlotKey>) {
        for slot in &slots {
            let known = self.group(group);
            let replicas = known.slot_at(slot).map(|at| &known.slots[at].replicas);
            let generations: Vec<Generation> = replicas.into_iter().flatten().map(|it| it.generation).collect();
            for generation in generations {
                self.suppose_stopping(group, slot, generation);
            }
        }
        self.journal.closing.insert(group, slots);
    }

    /// The slots of a group that were found to be too many in this pass, if anybody looked.
    pub(crate) fn closing(&self, group: GroupIx) -> Option<BTreeSet<SlotKey>> {
        self.journal.closing.get(&group).cloned()
    }

    /// Supposes the same of a generation that somebody else decided about, and remembers that it did.
    pub(crate) fn displace(&mut self, group: GroupIx, slot: &SlotKey, generation: Generation) {
        self.suppose_stopping(group, slot, generation);
        self.journal.displaced.push((group, slot.clone(), generation));
    }

    /// The generations displaced in this pass.
    pub(crate) fn displaced(&self) -> Vec<(GroupIx, SlotKey, Generation)> {
        self.journal.displaced.clone()
    }

    /// How many generations this pass has told to stop.
    pub(crate) fn told_to_stop(&self) -> usize {
        self.journal.stopping.len()
    }

    /// Counts a batch against its namespace's quota.
    pub(crate) fn reserve_quota(&mut self, ask: &Ask, replicas: usize) {
        let usage = self.usage.entry(ask.key.namespace.clone()).or_default();
        self.journal.usage.push((ask.key.namespace.clone(), *usage));
        for _ in 0..replicas {
            usage.add(&ask.terms);
        }
    }

    /// How often this pass has reserved room, told somebody to stop or kept other room than before; whoever was answered at
    /// a lower number may be out of date.
    pub(crate) fn reserved(&self) -> usize {
        self.journal.addresses.len() + self.journal.stopping.len() + self.journal.shifts
    }

    /// Where the journal is now.
    pub(crate) fn mark(&self) -> Mark {
        let journal = &self.journal;
        Mark {
            addresses: journal.addresses.len(),
            extras: journal.extras.len(),
            devices: journal.devices.len(),
            holders: journal.holders.len(),
            homes: journal.homes.len(),
            usage: journal.usage.len(),
            company: journal.company.len(),
        }
    }

    /// Takes back what one ask reserved since the mark, and nothing before.
    pub(crate) fn roll_back_to(&mut self, mark: Mark, ask: &Ask) {
        let mut journal = std::mem::take(&mut self.journal);
        journal.company.truncate(mark.company);
        for (namespace, usage) in journal.usage.drain(mark.usage..).rev() {
            self.usage.insert(namespace, usage);
        }
        for (key, holder) in journal.holders.drain(mark.holders..).rev() {
            self.volumes.release(&key, &holder);
        }
        for key in journal.homes.drain(mark.homes..).rev() {
            self.volumes.unsettle(&key);
        }
        for (node, devices) in journal.devices.drain(mark.devices..).rev() {
            occupancy::free_devices(&mut self.fleet, node, &devices);
        }
        for (node, terms) in journal.extras.drain(mark.extras..).rev() {
            occupancy::unload_extras(&mut self.fleet, node, &terms);
        }
        // Each reservation has exactly one address, so these are the nodes that carry one replica too many.
        for (node, host) in journal.addresses.drain(mark.addresses..).rev() {
            self.fleet.addresses[node.at()].free(host);
            let load = &mut self.fleet.seats[node.at()].load;
            load.cpu_millis -= ask.terms.cpu_millis;
            load.memory_bytes -= ask.terms.memory_total();
            load.disk_bytes -= ask.terms.disk_bytes;
            load.replicas -= 1;
            self.fleet.reseat(node);
        }
        self.journal = journal;
    }

    /// Brings the lanes up to date with what was reserved since the last call.
    pub(crate) fn settle_lanes(&mut self) {
        let moved = std::mem::take(&mut self.journal.moved);
        for node in &moved {
            self.journal.moving[node.at()] = false;
            self.fleet.reseat(*node);
        }
        // The allocation is kept for the next batch.
        self.journal.moved = moved;
        self.journal.moved.clear();
    }

    /// Takes every reservation of the pass back.
    pub(crate) fn roll_back(&mut self) {
        let mut journal = std::mem::take(&mut self.journal);
        journal.company.clear();
        for (namespace, usage) in journal.usage.drain(..).rev() {
            self.usage.insert(namespace, usage);
        }
        for (key, holder) in journal.holders.drain(..).rev() {
            self.volumes.release(&key, &holder);
        }
        for key in journal.homes.drain(..).rev() {
            self.volumes.unsettle(&key);
        }
        for (node, host) in journal.addresses.drain(..).rev() {
            self.fleet.addresses[node.at()].free(host);
        }
        for (node, devices) in journal.devices.drain(..).rev() {
            occupancy::free_devices(&mut self.fleet, node, &devices);
        }
        for (node, terms) in journal.extras.drain(..).rev() {
            occupancy::unload_extras(&mut self.fleet, node, &terms);
        }
        journal.displaced.clear();
        journal.closing.clear();
        journal.shifts = 0;
        for claim in journal.claims.drain(..).rev() {
            claim.holding.unload(&mut self.fleet, claim.node);
        }
        for (group, slot, generation, state) in journal.stopping.drain(..).rev() {
            let found = self.group_mut(group).slot_mut(&slot).and_then(|slot| slot.replica_mut(generation));
            if let Some(replica) = found {
                replica.wanted = Wanted::Run;
                replica.state = state;
            }
        }
        // Loads come last: they are put back as they were, whatever the steps above did to them.
        for (node, load) in journal.loads.drain(..).rev() {
            journal.saved[node.at()] = false;
            self.fleet.seats[node.at()].load = load;
            self.fleet.reseat(node);
        }
        journal.moved.clear();
        journal.moving.fill(false);
        self.journal = journal;
    }
}
