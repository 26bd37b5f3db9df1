//! Cluster settings, each with its default.
//!
//! Owns: names and defaults of settings. A scenario's `config` block uses the same names.

use std::{net::Ipv6Addr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    node::Driver,
    service::Resources,
    units::{GIB, MIB},
};

/// Settings of the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterConfig {
    /// Allocatable CPU in millionths of the physical cores (4.0 is 4,000,000).
    pub cpu_overcommit_millionths: u64,
    /// Memory accounted for a replica that declares none.
    pub default_memory_bytes: u64,
    /// Disk accounted for a replica where the node reports disk.
    pub default_ephemeral_disk_bytes: u64,
    /// Memory a micro virtual machine costs on top of its replica.
    pub microvm_overhead_bytes: u64,
    /// Memory a container costs on top of its replica.
    pub container_overhead_bytes: u64,
    /// Missed heartbeats that make a node suspect.
    pub suspect_after_missed: u32,
    /// Missed heartbeats that make a node down.
    pub down_after_missed: u32,
    /// Time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// First 48 bits of every overlay address.
    pub cluster_prefix: Ipv6Addr,
    /// How long an address rests before another replica may get it.
    pub address_cooldown: Duration,
    /// Failures of a service on a node that make the node faulty for it.
    pub faulty_after_failures: u32,
    /// Time in which they must fall.
    pub faulty_window: Duration,
    /// How long a job's replica that has ended stays visible.
    #[serde(default = "gc_finished")]
    pub gc_finished: Duration,
    /// How long a node that was removed stays visible.
    #[serde(default = "gc_nodes")]
    pub gc_nodes: Duration,
    /// Whether higher priorities may displace lower ones.
    pub preemption: Preemption,
    /// Time a replica has to leave a node that is drained.
    #[serde(default = "default_drain_timeout")]
    pub drain_timeout: Duration,
    /// Time between two samples of a node's pressure, 5 seconds to 5 minutes.
    #[serde(default = "default_node_status_interval")]
    pub node_status_interval: Duration,
}

const fn default_node_status_interval() -> Duration {
    Duration::from_secs(30)
}

const fn default_drain_timeout() -> Duration {
    Duration::from_mins(5)
}

impl ClusterConfig {
    /// Time between two heartbeats of one of so many nodes: more of them beat less often, so that a leader takes at most a
    /// thousand beats a second.
    pub fn beat_every(&self, nodes: usize) -> Duration {
        self.heartbeat_interval.max(Duration::from_millis(nodes as u64))
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            cpu_overcommit_millionths: 4_000_000,
            default_memory_bytes: 0,
            default_ephemeral_disk_bytes: 4 * GIB,
            microvm_overhead_bytes: 64 * MIB,
            container_overhead_bytes: 0,
            suspect_after_missed: 3,
            down_after_missed: 10,
            heartbeat_interval: Duration::from_secs(1),
            cluster_prefix: Ipv6Addr::new(0xfd4c, 0x6f6e, 0x6773, 0, 0, 0, 0, 0),
            address_cooldown: Duration::from_hours(1),
            faulty_after_failures: 5,
            faulty_window: Duration::from_mins(5),
            gc_finished: gc_finished(),
            gc_nodes: gc_nodes(),
            preemption: Preemption::Off,
            drain_timeout: default_drain_timeout(),
            node_status_interval: default_node_status_interval(),
        }
    }
}

const fn gc_finished() -> Duration {
    Duration::from_hours(1)
}

const fn gc_nodes() -> Duration {
    Duration::from_hours(24)
}

impl ClusterConfig {
    /// Memory a replica may use: its limit, else its reservation, else the default.
    pub fn memory_cap_bytes(&self, resources: &Resources) -> u64 {
        resources.memory_limit_bytes.or(resources.memory_reservation_bytes).unwrap_or(self.default_memory_bytes)
    }

    /// Memory a replica costs beyond its own cap.
    pub const fn overhead_bytes(&self, driver: Driver) -> u64 {
        match driver {
            Driver::Docker => self.container_overhead_bytes,
            Driver::Exec => 0,
            Driver::Microvm => self.microvm_overhead_bytes,
        }
    }
}

/// Whether a service may displace services of lower priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preemption {
    /// Never.
    #[default]
    Off,
    /// When nothing else fits.
    On,
}
