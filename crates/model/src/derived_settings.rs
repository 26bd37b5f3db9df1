//! Values derived from the cluster settings: heartbeat interval, memory cap, driver overhead.
//!
//! Owns: what is computed from [`ClusterConfig`]. Must not touch: names, defaults and ranges of the settings,
//! which [`crate::settings`] declares.

use std::time::Duration;

use crate::{node::Driver, service::Resources, settings::ClusterConfig};

impl ClusterConfig {
    /// Time between two heartbeats of a node in a cluster of that many nodes: at least 1 ms per node, so that a leader
    /// receives at most a thousand heartbeats a second.
    pub fn heartbeat_interval_for(&self, nodes: usize) -> Duration {
        self.heartbeat_interval.max(Duration::from_millis(nodes as u64))
    }

    /// Memory cap of a replica: its limit, else its reservation, else the default.
    pub fn memory_cap_bytes(&self, resources: &Resources) -> u64 {
        resources.memory_limit_bytes.or(resources.memory_reservation_bytes).unwrap_or(self.default_memory_bytes)
    }

    /// Memory overhead of a replica beyond its cap.
    pub const fn overhead_bytes(&self, driver: Driver) -> u64 {
        match driver {
            Driver::Docker => self.container_overhead_bytes,
            Driver::Exec => 0,
            Driver::Microvm => self.microvm_overhead_bytes,
        }
    }
}
