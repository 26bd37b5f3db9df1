//! The one definition of what occupies a node.
//!
//! Owns: which states hold resources, and the sums that follow. The scheduler, the check before a commit and the
//! rebalancer all ask here, so they cannot disagree.

use std::sync::Arc;

use longshore_model::{GroupKey, SlotKey, Terms, device::TakenDevices, replica::Wanted};

use super::{GroupIx, NodeIx, RoomAppeared, View, fleet::Fleet, groups::Replica, volumes::Holder};

/// Defined with the states, as the check before a commit asks it too.
pub use longshore_model::replica::occupies;

/// What one generation holds of a node: what it was promised, and the groups of devices that were taken for it.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) terms: Arc<Terms>,
    pub(crate) devices: TakenDevices,
}

impl Holding {
    /// What a generation holds.
    pub(crate) fn of(replica: &Replica) -> Self {
        Self { terms: Arc::clone(&replica.terms), devices: replica.devices.clone() }
    }

    /// Adds it to a node's sums.
    pub(crate) fn load(&self, fleet: &mut Fleet, node: NodeIx) {
        load(fleet, node, &self.terms);
        take_devices(fleet, node, &self.devices);
    }

    /// Takes it off a node's sums.
    pub(crate) fn unload(&self, fleet: &mut Fleet, node: NodeIx) {
        unload(fleet, node, &self.terms);
        free_devices(fleet, node, &self.devices);
    }
}

/// Adds what `terms` promise to a node's sums.
pub(crate) fn load(fleet: &mut Fleet, node: NodeIx, terms: &Terms) {
    let load = &mut fleet.seats[node.at()].load;
    load.cpu_millis += terms.cpu_millis;
    load.memory_bytes += terms.memory_total();
    load.disk_bytes += terms.disk_bytes;
    for port in &terms.host_ports {
        *fleet.ports.entry((node, *port)).or_default() += 1;
    }
    for (kind, amount) in &terms.devices {
        *fleet.devices.entry((node, kind.clone())).or_default() += amount;
    }
}

/// Takes what `terms` promised off a node's sums.
fn unload(fleet: &mut Fleet, node: NodeIx, terms: &Terms) {
    let load = &mut fleet.seats[node.at()].load;
    load.cpu_millis = load.cpu_millis.saturating_sub(terms.cpu_millis);
    load.memory_bytes = load.memory_bytes.saturating_sub(terms.memory_total());
    load.disk_bytes = load.disk_bytes.saturating_sub(terms.disk_bytes);
    unload_extras(fleet, node, terms);
}

/// The part of [`unload`] that is kept in maps rather than in the columns.
pub(crate) fn unload_extras(fleet: &mut Fleet, node: NodeIx, terms: &Terms) {
    for port in &terms.host_ports {
        if let Some(count) = fleet.ports.get_mut(&(node, *port)) {
            *count -= 1;
            if *count == 0 {
                fleet.ports.remove(&(node, *port));
            }
        }
    }
    for (kind, amount) in &terms.devices {
        free_device(fleet, node, kind, *amount);
    }
}

/// Takes groups of devices on a node.
pub(crate) fn take_devices(fleet: &mut Fleet, node: NodeIx, devices: &TakenDevices) {
    for (group, amount) in devices {
        *fleet.devices.entry((node, group.clone())).or_default() += amount;
    }
}

/// Gives groups of devices on a node back.
pub(crate) fn free_devices(fleet: &mut Fleet, node: NodeIx, devices: &TakenDevices) {
    for (group, amount) in devices {
        free_device(fleet, node, group, *amount);
    }
}

fn free_device(fleet: &mut Fleet, node: NodeIx, kind: &str, amount: u64) {
    let key = (node, kind.to_owned());
    if let Some(used) = fleet.devices.get_mut(&key) {
        *used = used.saturating_sub(amount);
        if *used == 0 {
            fleet.devices.remove(&key);
        }
    }
}

impl View {
    /// A generation begins to occupy its node.
    pub(crate) fn occupy(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        load(&mut self.fleet, replica.node, &replica.terms);
        take_devices(&mut self.fleet, replica.node, &replica.devices);
        for held in &replica.terms.volumes {
            let holder = Holder { group, slot: slot.clone(), generation: replica.generation, sharing: held.sharing };
            self.volumes.hold(&held.key, holder);
        }
        self.fleet.reseat(replica.node);
    }

    /// A generation no longer occupies its node.
    pub(crate) fn vacate(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        unload(&mut self.fleet, replica.node, &replica.terms);
        free_devices(&mut self.fleet, replica.node, &replica.devices);
        for held in &replica.terms.volumes {
            let holder = Holder { group, slot: slot.clone(), generation: replica.generation, sharing: held.sharing };
            self.volumes.release(&held.key, &holder);
        }
        self.fleet.reseat(replica.node);
    }

    /// Takes a generation off its node for a moment, as far as it is there: one that completed holds nothing. No room comes
    /// of it for whoever waits.
    pub(crate) fn set_aside(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        let room_appeared = self.room_appeared;
        if counts(replica) {
            let key = self.group(group).key.clone();
            self.uncount(&key, replica.node, &replica.terms);
        }
        if occupies(replica.terms.kind, replica.state) {
            self.vacate(group, slot, replica);
        }
        self.room_appeared = room_appeared;
    }

    /// The opposite of [`View::set_aside`].
    pub(crate) fn restore(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        if occupies(replica.terms.kind, replica.state) {
            self.occupy(group, slot, replica);
        }
        if counts(replica) {
            let key = self.group(group).key.clone();
            self.count(&key, replica.node, &replica.terms);
        }
    }

    /// A generation that shall run counts for balance and quota.
    pub(crate) fn count(&mut self, group: &GroupKey, node: NodeIx, terms: &Terms) {
        self.fleet.seats[node.at()].load.replicas += 1;
        self.usage.entry(group.namespace.clone()).or_default().add(terms);
        self.fleet.reseat(node);
    }

    /// A generation that shall stop no longer counts.
    pub(crate) fn uncount(&mut self, group: &GroupKey, node: NodeIx, terms: &Terms) {
        let load = &mut self.fleet.seats[node.at()].load;
        load.replicas = load.replicas.saturating_sub(1);
        self.usage.entry(group.namespace.clone()).or_default().subtract(terms);
        if self.quotas.contains_key(&group.namespace) {
            self.room_appeared = RoomAppeared::Yes;
        }
        self.fleet.reseat(node);
    }
}

/// Whether a replica counts for balance and quota: it shall run, and has not ended for good.
pub(crate) fn counts(replica: &Replica) -> bool {
    replica.wanted == Wanted::Run && occupies(replica.terms.kind, replica.state)
}
