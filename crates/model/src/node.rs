//! A machine of the cluster: what it is, what it has, what the operator wants of it, how it is doing.
//!
//! Owns: the node's own facts. What runs on it is known by the replicas.
//! Invariant: intent is written by operators and health by detection; neither can overwrite the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

pub use crate::device::DeviceGroup;

use crate::{NodeName, NodeNumber, PoolName, Time, drain::Drain};

/// A machine that can run replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Unique name.
    pub name: NodeName,
    /// Joining number; assigned by the state machine, 0 before that.
    pub number: NodeNumber,
    /// Address the node is reached at, if known.
    pub ip: Option<IpAddr>,
    /// Labels set by operators.
    pub labels: BTreeMap<String, String>,
    /// Labels reported by the container engine.
    pub engine_labels: BTreeMap<String, String>,
    /// Voter or mere worker.
    pub role: Role,
    /// The pool it belongs to.
    pub pool: PoolName,
    /// Operating system and processor.
    pub platform: Platform,
    /// What it can start replicas with.
    pub drivers: BTreeSet<Driver>,
    /// Installed plugins, each `volume/x`, `network/x` or `log/x`.
    pub plugins: BTreeSet<String>,
    /// What the machine has.
    pub capacity: Capacity,
    /// What the host keeps for itself.
    pub reserved: Capacity,
    /// What operators want.
    pub intent: Intent,
    /// What was detected.
    pub health: Health,
    /// An operator's word that a degraded node may be used all the same.
    pub use_degraded: UseDegraded,
    /// Whether it can reach its overlay peers.
    pub overlay: Overlay,
    /// When its health last changed.
    #[serde(default)]
    pub health_since: Time,
    /// When an operator said that it is gone for good; forgotten when it is heard of again.
    #[serde(default)]
    pub confirmed_lost: Option<Time>,
    /// How it is being emptied, while it is, and afterwards until it is wanted again.
    #[serde(default)]
    pub drain: Option<Drain>,
    /// When it left the cluster.
    #[serde(default)]
    pub removed_at: Option<Time>,
}

impl Node {
    /// Memory the scheduler may give out.
    pub fn allocatable_memory(&self) -> u64 {
        self.capacity.memory_bytes.saturating_sub(self.reserved.memory_bytes)
    }

    /// Disk the scheduler may give out; `None` where the node reports none, which means unlimited.
    pub fn allocatable_disk(&self) -> Option<u64> {
        let reserved = self.reserved.disk_bytes.unwrap_or(0);
        self.capacity.disk_bytes.map(|disk| disk.saturating_sub(reserved))
    }

    /// Physical cores the scheduler may give out, in thousandths, before overcommitment.
    pub fn usable_cpu_millis(&self) -> u64 {
        self.capacity.cpu_millis.saturating_sub(self.reserved.cpu_millis)
    }

    /// The groups of devices the scheduler may give out, by identity, each with how many. Of two that claim one identity
    /// the first counts: what is on top of it would be given out without knowing which is meant.
    pub fn allocatable_groups(&self) -> BTreeMap<String, (&DeviceGroup, u64)> {
        let mut groups = BTreeMap::new();
        for group in &self.capacity.device_groups {
            let id = group.id();
            let kept = self.reserved.device_groups.iter().filter(|kept| kept.id() == id).map(|kept| kept.count);
            let left = kept.fold(group.count, u64::saturating_sub);
            groups.entry(id).or_insert((group, left));
        }
        groups
    }
}

/// A machine as it presents itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Operating system and processor.
    pub platform: Platform,
    /// What it has. Devices and addresses are the operator's to name.
    pub capacity: Capacity,
    /// Drivers that answered.
    pub drivers: BTreeSet<Driver>,
    /// Labels of the engine, by name.
    pub engine_labels: BTreeMap<String, String>,
    /// Plugins of the engine, each `volume/x`, `network/x` or `log/x`.
    pub plugins: BTreeSet<String>,
}

/// Amounts of what a node has or keeps back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Thousandths of a core.
    pub cpu_millis: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Scratch disk, where reported.
    pub disk_bytes: Option<u64>,
    /// Countable devices and generic resources, by kind.
    pub devices: BTreeMap<String, u64>,
    /// Devices with a maker, a model and attributes, in groups of equal ones.
    #[serde(default)]
    pub device_groups: Vec<DeviceGroup>,
    /// How many overlay addresses the node can hold; `None` is unlimited.
    pub addresses: Option<u64>,
}

/// Part a node plays in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Runs replicas only.
    #[default]
    Worker,
    /// Also a member of the control plane.
    Manager,
}

impl Role {
    /// The word used in constraints.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Manager => "manager",
        }
    }
}

/// What an operator wants of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// Use it.
    #[default]
    Active,
    /// Nothing new; what runs stays.
    Paused,
    /// Nothing new; what runs moves away.
    Draining,
    /// Gone.
    Removed,
}

/// What was detected of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Beats on time.
    #[default]
    Ready,
    /// Missed a few beats; nothing new is placed.
    Suspect,
    /// Missed so many that its work is replaced.
    Down,
    /// Reports itself unfit for new work.
    Degraded,
}

/// Whether an operator allows new work on a degraded node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UseDegraded {
    /// The default.
    #[default]
    No,
    /// By operator override.
    Yes,
}

/// Whether a node reaches enough of its overlay peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlay {
    /// It does, or nobody measured.
    #[default]
    Reachable,
    /// It does not: replicas there could not be talked to.
    Cut,
}

/// What starts a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// A container on Docker Engine.
    #[default]
    Docker,
    /// A plain process.
    Exec,
    /// A small virtual machine of its own.
    Microvm,
}

impl Driver {
    /// The word used in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Exec => "exec",
            Self::Microvm => "microvm",
        }
    }
}

/// Operating system and processor architecture. On a request an empty part means "any".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// `linux`, `windows`, …
    pub os: String,
    /// `amd64`, `arm64`, … in its canonical spelling.
    pub arch: String,
}

impl Platform {
    /// Builds a platform with the architecture in its canonical spelling.
    pub fn new(os: &str, arch: &str) -> Self {
        Self { os: os.to_lowercase(), arch: canonical_arch(arch) }
    }
}

/// Folds the two names each common architecture has into one.
pub fn canonical_arch(arch: &str) -> String {
    match arch.to_lowercase().as_str() {
        "x86_64" | "x86-64" => "amd64".to_owned(),
        "aarch64" => "arm64".to_owned(),
        other => other.to_owned(),
    }
}
