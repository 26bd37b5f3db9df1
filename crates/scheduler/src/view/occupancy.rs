//! The one definition of what occupies a node.
//!
//! Owns: which states hold resources, and the load sums that follow. The scheduler, the plan check before a commit and
//! the rebalancer all use it, so they cannot disagree.

use std::sync::Arc;

use longshore_model::{GroupKey, Reservation, SlotKey, device::TakenDevices, replica::DesiredState};

use super::{GroupIx, NodeIx, View, groups::Replica, node_table::NodeTable, volumes::Holder};

/// Defined in `model`, because the plan check before a commit uses it too.
pub use longshore_model::replica::occupies;

/// What one generation holds on a node: its reservation and the devices allocated to it.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) reservation: Arc<Reservation>,
    pub(crate) devices: TakenDevices,
}

impl Holding {
    /// What a generation holds.
    pub(crate) fn of(replica: &Replica) -> Self {
        Self { reservation: Arc::clone(&replica.reservation), devices: replica.devices.clone() }
    }

    /// Adds it to a node's load.
    pub(crate) fn load(&self, table: &mut NodeTable, node: NodeIx) {
        load(table, node, &self.reservation);
        take_devices(table, node, &self.devices);
    }

    /// Subtracts it from a node's load.
    pub(crate) fn unload(&self, table: &mut NodeTable, node: NodeIx) {
        unload(table, node, &self.reservation);
        free_devices(table, node, &self.devices);
    }
}

/// Adds a reservation to a node's load.
pub(crate) fn load(table: &mut NodeTable, node: NodeIx, reservation: &Reservation) {
    let load = &mut table.stats[node.at()].load;
    load.cpu_millis += reservation.cpu_millis;
    load.memory_bytes += reservation.memory_total();
    load.disk_bytes += reservation.disk_bytes;
    for port in &reservation.host_ports {
        *table.ports.entry((node, *port)).or_default() += 1;
    }
    for (kind, amount) in &reservation.devices {
        *table.devices.entry((node, kind.clone())).or_default() += amount;
    }
}

/// Subtracts a reservation from a node's load.
fn unload(table: &mut NodeTable, node: NodeIx, reservation: &Reservation) {
    let load = &mut table.stats[node.at()].load;
    load.cpu_millis = load.cpu_millis.saturating_sub(reservation.cpu_millis);
    load.memory_bytes = load.memory_bytes.saturating_sub(reservation.memory_total());
    load.disk_bytes = load.disk_bytes.saturating_sub(reservation.disk_bytes);
    unload_extras(table, node, reservation);
}

/// The part of [`unload`] that is kept in maps rather than in the columns.
pub(crate) fn unload_extras(table: &mut NodeTable, node: NodeIx, reservation: &Reservation) {
    for port in &reservation.host_ports {
        if let Some(count) = table.ports.get_mut(&(node, *port)) {
            *count -= 1;
            if *count == 0 {
                table.ports.remove(&(node, *port));
            }
        }
    }
    for (kind, amount) in &reservation.devices {
        free_device(table, node, kind, *amount);
    }
}

/// Allocates devices on a node.
pub(crate) fn take_devices(table: &mut NodeTable, node: NodeIx, devices: &TakenDevices) {
    for (group, amount) in devices {
        *table.devices.entry((node, group.clone())).or_default() += amount;
    }
}

/// Frees devices on a node.
pub(crate) fn free_devices(table: &mut NodeTable, node: NodeIx, devices: &TakenDevices) {
    for (group, amount) in devices {
        free_device(table, node, group, *amount);
    }
}

fn free_device(table: &mut NodeTable, node: NodeIx, kind: &str, amount: u64) {
    let key = (node, kind.to_owned());
    if let Some(used) = table.devices.get_mut(&key) {
        *used = used.saturating_sub(amount);
        if *used == 0 {
            table.devices.remove(&key);
        }
    }
}

impl View {
    /// A generation begins to occupy its node.
    pub(crate) fn occupy(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        load(&mut self.nodes, replica.node, &replica.reservation);
        take_devices(&mut self.nodes, replica.node, &replica.devices);
        for held in &replica.reservation.volumes {
            let key = slot.generation(replica.generation);
            let holder = Holder { group, key, sharing: held.sharing };
            self.volumes.hold(&held.key, holder);
        }
        self.nodes.reindex(replica.node);
    }

    /// A generation no longer occupies its node.
    pub(crate) fn vacate(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        unload(&mut self.nodes, replica.node, &replica.reservation);
        free_devices(&mut self.nodes, replica.node, &replica.devices);
        for held in &replica.reservation.volumes {
            let key = slot.generation(replica.generation);
            let holder = Holder { group, key, sharing: held.sharing };
            self.volumes.release(&held.key, &holder);
        }
        self.nodes.reindex(replica.node);
    }

    /// Takes a generation off its node temporarily. One that holds nothing (a completed job) is left. Waiting groups
    /// are not marked dirty for it.
    pub(crate) fn set_aside(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        let capacity_freed = self.capacity_freed;
        if counts(replica) {
            let key = self.group(group).key.clone();
            self.uncount(&key, replica.node, &replica.reservation);
        }
        if occupies(replica.reservation.kind, replica.state) {
            self.vacate(group, slot, replica);
        }
        self.capacity_freed = capacity_freed;
    }

    /// The opposite of [`View::set_aside`].
    pub(crate) fn restore(&mut self, group: GroupIx, slot: &SlotKey, replica: &Replica) {
        if occupies(replica.reservation.kind, replica.state) {
            self.occupy(group, slot, replica);
        }
        if counts(replica) {
            let key = self.group(group).key.clone();
            self.count(&key, replica.node, &replica.reservation);
        }
    }

    /// Counts a desired generation for balance and quota.
    pub(crate) fn count(&mut self, group: &GroupKey, node: NodeIx, reservation: &Reservation) {
        self.nodes.stats[node.at()].load.replicas += 1;
        self.usage.entry(group.namespace.clone()).or_default().add(reservation);
        self.nodes.reindex(node);
    }

    /// Stops counting a generation for balance and quota.
    pub(crate) fn uncount(&mut self, group: &GroupKey, node: NodeIx, reservation: &Reservation) {
        let load = &mut self.nodes.stats[node.at()].load;
        load.replicas = load.replicas.saturating_sub(1);
        self.usage.entry(group.namespace.clone()).or_default().subtract(reservation);
        if self.quotas.contains_key(&group.namespace) {
            self.capacity_freed = true;
        }
        self.nodes.reindex(node);
    }
}

/// Whether a replica counts for balance and quota: it is desired, and has not ended for good.
pub(crate) fn counts(replica: &Replica) -> bool {
    replica.desired == DesiredState::Run && occupies(replica.reservation.kind, replica.state)
}
