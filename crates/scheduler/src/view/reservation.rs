//! Reservations within one pass: a decision counts for the next one at once, and is taken back at the end.
//!
//! A plan takes effect only through its events, so the pass must leave the view as it found it. Copying the view
//! per pass was refused: it would cost nodes × pass where this costs what was touched.
//!
//! Owns: the journal of what a pass changed. Invariant: after [`View::roll_back`] the view is what it was.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::{Generation, NamespaceName, SlotKey, Terms, VolumeKey};

use super::{GroupIx, NodeIx, View, fleet::Load, occupancy, usage::Usage, volumes::Holder};
use crate::ask::Ask;

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
    /// Generations supposed to be gone.
    gone: Vec<(NodeIx, Arc<Terms>)>,
    holders: Vec<(VolumeKey, Holder)>,
    homes: Vec<VolumeKey>,
    usage: Vec<(NamespaceName, Usage)>,
    /// Where replicas of watched groups were put.
    company: Vec<(GroupIx, SlotKey, NodeIx)>,
    /// Slots of watched groups that were closed.
    departed: BTreeSet<(GroupIx, SlotKey)>,
}

impl Journal {
    /// Whether this pass closed a slot of a watched group.
    pub(super) fn has_departed(&self, group: GroupIx, slot: &SlotKey) -> bool {
        !self.departed.is_empty() && self.departed.contains(&(group, slot.clone()))
    }

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
    holders: usize,
    homes: usize,
    usage: usize,
    company: usize,
}

/// What a reservation brought.
pub(crate) struct Reserved {
    pub(crate) host: u64,
    pub(crate) new_volumes: Vec<VolumeKey>,
}

impl View {
    /// Takes room for one replica on a node.
    pub(crate) fn reserve(&mut self, ask: &Ask, slot: &SlotKey, generation: Generation, node: NodeIx) -> Reserved {
        self.save_load(node);
        occupancy::load(&mut self.fleet, node, &ask.terms);
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
        Reserved { host, new_volumes }
    }

    fn save_load(&mut self, node: NodeIx) {
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

    /// A slot of a watched group is closed by this pass: whoever keeps away from it need not any more.
    pub(crate) fn depart(&mut self, group: GroupIx, slot: &SlotKey) {
        self.journal.departed.insert((group, slot.clone()));
    }

    /// Supposes, until the pass ends, that a generation no longer occupies its node.
    pub(crate) fn suppose_gone(&mut self, node: NodeIx, terms: &Arc<Terms>) {
        self.save_load(node);
        occupancy::unload(&mut self.fleet, node, terms);
        self.journal.gone.push((node, Arc::clone(terms)));
    }

    /// Counts a batch against its namespace's quota.
    pub(crate) fn reserve_quota(&mut self, ask: &Ask, replicas: usize) {
        let usage = self.usage.entry(ask.key.namespace.clone()).or_default();
        self.journal.usage.push((ask.key.namespace.clone(), *usage));
        for _ in 0..replicas {
            usage.add(&ask.terms);
        }
    }

    /// How many replicas this pass has reserved room for; whoever was answered at a lower number may be out of date.
    pub(crate) fn reserved(&self) -> usize {
        self.journal.addresses.len()
    }

    /// Where the journal is now.
    pub(crate) fn mark(&self) -> Mark {
        let journal = &self.journal;
        Mark {
            addresses: journal.addresses.len(),
            extras: journal.extras.len(),
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
        journal.departed.clear();
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
        for (node, terms) in journal.extras.drain(..).rev() {
            occupancy::unload_extras(&mut self.fleet, node, &terms);
        }
        for (node, terms) in journal.gone.drain(..).rev() {
            occupancy::load(&mut self.fleet, node, &terms);
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
