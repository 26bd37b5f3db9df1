//! What an operator declares about a node, by flags of its daemon or by `node set`.
//!
//! Owns: the declaration, and how two of them are combined.
//! Must not touch: what the machine reports about itself, and labels set one by one.
//! Invariant: an absent part changes nothing, so a declaration can be sent again without undoing another one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Capacity, Health, PoolName, device::DeviceGroup};

/// Declared attributes of a node; absent parts were not declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAttributes {
    /// The pool it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The data centre it stands in; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Memory that is kept for the machine itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_memory_bytes: Option<u64>,
    /// Thousandths of a core that are kept for the machine itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_cpu_millis: Option<u64>,
    /// Disk that is kept for the machine itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_disk_bytes: Option<u64>,
    /// Devices by kind. A declared kind replaces what was found of it; a count of 0 says that there is none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, Vec<DeviceGroup>>,
    /// Most overlay addresses the node may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<u64>,
    /// Whether it is unfit for new work although it is reachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<bool>,
}

impl NodeAttributes {
    /// Whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes over every part that `newer` declares.
    pub fn extend(&mut self, newer: &Self) {
        let Self {
            pool,
            datacenter,
            labels,
            reserved_memory_bytes,
            reserved_cpu_millis,
            reserved_disk_bytes,
            devices,
            addresses,
            degraded,
        } = newer.clone();
        self.pool = pool.or_else(|| self.pool.take());
        self.datacenter = datacenter.or_else(|| self.datacenter.take());
        self.labels.extend(labels);
        self.reserved_memory_bytes = reserved_memory_bytes.or(self.reserved_memory_bytes);
        self.reserved_cpu_millis = reserved_cpu_millis.or(self.reserved_cpu_millis);
        self.reserved_disk_bytes = reserved_disk_bytes.or(self.reserved_disk_bytes);
        self.devices.extend(devices);
        self.addresses = addresses.or(self.addresses);
        self.degraded = degraded.or(self.degraded);
    }

    /// The parts of this declaration that `before` did not have, or had otherwise.
    pub fn changed_since(&self, before: &Self) -> Self {
        fn new<T: Clone + PartialEq>(now: Option<&T>, before: Option<&T>) -> Option<T> {
            now.filter(|_| now != before).cloned()
        }
        let labels = self.labels.iter().filter(|(name, value)| before.labels.get(*name) != Some(*value));
        let devices = self.devices.iter().filter(|(kind, groups)| before.devices.get(*kind) != Some(*groups));
        Self {
            pool: new(self.pool.as_ref(), before.pool.as_ref()),
            datacenter: new(self.datacenter.as_ref(), before.datacenter.as_ref()),
            labels: labels.map(|(name, value)| (name.clone(), value.clone())).collect(),
            reserved_memory_bytes: new(self.reserved_memory_bytes.as_ref(), before.reserved_memory_bytes.as_ref()),
            reserved_cpu_millis: new(self.reserved_cpu_millis.as_ref(), before.reserved_cpu_millis.as_ref()),
            reserved_disk_bytes: new(self.reserved_disk_bytes.as_ref(), before.reserved_disk_bytes.as_ref()),
            devices: devices.map(|(kind, groups)| (kind.clone(), groups.clone())).collect(),
            addresses: new(self.addresses.as_ref(), before.addresses.as_ref()),
            degraded: new(self.degraded.as_ref(), before.degraded.as_ref()),
        }
    }

    /// The health of a node whose heartbeats arrive.
    pub fn health_when_heard(&self) -> Health {
        if self.degraded == Some(true) { Health::Degraded } else { Health::Ready }
    }

    /// The capacity of a node with the devices it has by this declaration, of what it reported.
    pub fn capacity_of(&self, mut reported: Capacity) -> Capacity {
        for (kind, groups) in &self.devices {
            let count: u64 = groups.iter().map(|group| group.count).sum();
            reported.devices.insert(kind.clone(), count);
            reported.device_groups.retain(|group| group.kind != *kind);
            // A plain count names neither maker nor model, so it is no group that a request could name.
            reported.device_groups.extend(groups.iter().filter(|group| !group.name.is_empty()).cloned());
        }
        reported.addresses = self.addresses.or(reported.addresses);
        reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(count: u64, name: &str) -> DeviceGroup {
        let (vendor, kind, name) = ("nvidia".to_owned(), "gpu".to_owned(), name.to_owned());
        DeviceGroup { vendor, kind, name, count, attributes: BTreeMap::new() }
    }

    #[test]
    fn a_declared_kind_replaces_what_was_found_of_it() {
        let found = Capacity {
            devices: BTreeMap::from([("gpu".to_owned(), 8), ("fpga".to_owned(), 1)]),
            device_groups: vec![gpus(8, "a100")],
            ..Capacity::default()
        };
        let devices = BTreeMap::from([("gpu".to_owned(), vec![gpus(2, "h100"), gpus(1, "")])]);
        let declared = NodeAttributes { devices, addresses: Some(7), ..NodeAttributes::default() };
        let capacity = declared.capacity_of(found);
        assert_eq!(capacity.devices, BTreeMap::from([("gpu".to_owned(), 3), ("fpga".to_owned(), 1)]));
        assert_eq!(capacity.device_groups, [gpus(2, "h100")]);
        assert_eq!(capacity.addresses, Some(7));
    }

    #[test]
    fn flags_that_did_not_change_undo_nothing() {
        let pool = |name: &str| NodeAttributes { pool: Some(name.into()), ..NodeAttributes::default() };
        let mut in_force = pool("edge");
        in_force.extend(&pool("batch").changed_since(&pool("batch")));
        assert_eq!(in_force, pool("edge"));
        in_force.extend(&pool("gpu").changed_since(&pool("batch")));
        assert_eq!(in_force, pool("gpu"));
    }
}
