//! A machine of the cluster: its platform, capacity, intent and health.
//!
//! Owns: the node's own properties. Which replicas run on it is recorded with the replicas.
//! Invariant: intent is written by operators and health by detection; neither can overwrite the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

pub use crate::device::DeviceGroup;

use crate::{
    NodeAttributes, NodeConditionCode, NodeName, NodeNumber, PoolName, Time, drain::Drain, overlay::NodeNetwork,
    service::Protocol,
};

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
    /// Whether it belongs to the control plane.
    pub role: ConstraintRole,
    /// The pool it belongs to.
    pub pool: PoolName,
    /// The data centre it stands in; empty if none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub datacenter: String,
    /// Operating system and processor.
    pub platform: Platform,
    /// Drivers it can start replicas with.
    pub drivers: BTreeSet<Driver>,
    /// Installed plugins, each `volume/x`, `network/x` or `log/x`.
    pub plugins: BTreeSet<String>,
    /// Capacity of the machine.
    pub capacity: Capacity,
    /// Part of the capacity that is reserved for the host.
    pub reserved: Capacity,
    /// Set by operators.
    pub intent: Intent,
    /// Set by the failure detector.
    pub health: Health,
    /// An operator's override that allows new work while it is degraded.
    pub use_degraded: UseDegraded,
    /// Whether it can reach its overlay peers.
    pub overlay: Overlay,
    /// When its health last changed.
    #[serde(default)]
    pub health_since: Time,
    /// When an operator confirmed that it is lost for good; cleared when it reports again.
    #[serde(default)]
    pub confirmed_lost: Option<Time>,
    /// Its drain, kept after completion until the node is active again.
    #[serde(default)]
    pub drain: Option<Drain>,
    /// When it left the cluster.
    #[serde(default)]
    pub removed_at: Option<Time>,
    /// When it joined; `None` if it joined before this was recorded, and in simulations. Its block is its number then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<Time>,
    /// Number of its block of addresses; assigned by the state machine, see [`Node::address_block`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
    /// Its part in the overlay, as it reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NodeNetwork>,
    /// What operators declared about it, as in force.
    #[serde(default, skip_serializing_if = "NodeAttributes::is_empty")]
    pub attributes: NodeAttributes,
    /// What the flags of its daemon last declared. The same flags again change nothing, so that a restart does not undo
    /// what was set since.
    #[serde(default, skip_serializing_if = "NodeAttributes::is_empty")]
    pub flags: NodeAttributes,
}

impl Node {
    /// An active, ready Linux worker in the default pool, without capacity, labels and drivers: what is not named
    /// otherwise has this value.
    pub fn new(name: impl Into<NodeName>) -> Self {
        Self {
            name: name.into(),
            number: NodeNumber::default(),
            ip: None,
            labels: BTreeMap::new(),
            engine_labels: BTreeMap::new(),
            role: ConstraintRole::default(),
            pool: PoolName::default_pool(),
            datacenter: String::new(),
            platform: Platform::new("linux", "amd64"),
            drivers: BTreeSet::new(),
            plugins: BTreeSet::new(),
            capacity: Capacity::default(),
            reserved: Capacity::default(),
            intent: Intent::default(),
            health: Health::default(),
            use_degraded: UseDegraded::default(),
            overlay: Overlay::default(),
            health_since: Time::default(),
            confirmed_lost: None,
            drain: None,
            removed_at: None,
            joined_at: None,
            block: None,
            network: None,
            attributes: NodeAttributes::default(),
            flags: NodeAttributes::default(),
        }
    }

    /// Number of its block of addresses. A state of before blocks were assigned has none; the number selected it then.
    pub fn address_block(&self) -> u32 {
        self.block.unwrap_or(self.number.0)
    }

    /// Memory the scheduler may assign.
    pub fn allocatable_memory(&self) -> u64 {
        self.capacity.memory_bytes.saturating_sub(self.reserved.memory_bytes)
    }

    /// Disk the scheduler may assign; `None`, where the node reports none, is unlimited.
    pub fn allocatable_disk(&self) -> Option<u64> {
        let reserved = self.reserved.disk_bytes.unwrap_or(0);
        self.capacity.disk_bytes.map(|disk| disk.saturating_sub(reserved))
    }

    /// Physical cores the scheduler may assign, in thousandths, before overcommitment.
    pub fn usable_cpu_millis(&self) -> u64 {
        self.capacity.cpu_millis.saturating_sub(self.reserved.cpu_millis)
    }

    /// The device groups the scheduler may assign, by identity, each with its count. Of two groups with one identity only
    /// the first counts, because an assignment names the identity alone.
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

/// What an agent reports about its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFingerprint {
    /// Operating system and processor.
    pub platform: Platform,
    /// Its capacity, with the devices that were found.
    pub capacity: Capacity,
    /// Drivers that answered.
    pub drivers: BTreeSet<Driver>,
    /// Labels of the engine, by name.
    pub engine_labels: BTreeMap<String, String>,
    /// Plugins of the engine, each `volume/x`, `network/x` or `log/x`.
    pub plugins: BTreeSet<String>,
    /// Its part in the overlay; older agents do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NodeNetwork>,
    /// What the flags of its daemon declare.
    #[serde(default, skip_serializing_if = "NodeAttributes::is_empty")]
    pub flags: NodeAttributes,
}

/// Something an operator should know about a node. It ends by itself once its cause does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCondition {
    /// What it is.
    pub code: NodeConditionCode,
    /// What it is about, and what can be done.
    pub message: String,
    /// The port it is about.
    #[serde(default)]
    pub port: Option<u16>,
    /// The transport of that port.
    #[serde(default)]
    pub protocol: Option<Protocol>,
}

/// Amounts of resources a node has or reserves.
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
    /// Devices with vendor, model and attributes, in groups of equal ones.
    #[serde(default)]
    pub device_groups: Vec<DeviceGroup>,
    /// How many overlay addresses the node can hold; `None` is unlimited.
    pub addresses: Option<u64>,
}

/// Role of a node in the cluster, as seen by constraints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstraintRole {
    /// Runs replicas only.
    #[default]
    Worker,
    /// Also a member of the control plane.
    Manager,
}

impl ConstraintRole {
    /// The spelling in constraints.
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
    /// Takes new replicas.
    #[default]
    Active,
    /// Takes no new replicas; running ones stay.
    Paused,
    /// Takes no new replicas; running ones move away.
    Draining,
    /// Removed from the cluster.
    Removed,
}

/// What the failure detector found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Its heartbeats arrive in time.
    #[default]
    Ready,
    /// Missed a few heartbeats; takes no new replicas.
    Suspect,
    /// Missed so many heartbeats that its replicas are replaced.
    Down,
    /// Reports itself unfit for new work.
    Degraded,
}

/// Whether an operator allows new work on a degraded node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UseDegraded {
    /// It takes none.
    #[default]
    #[serde(rename = "no")]
    Forbidden,
    /// It takes new work, by operator override.
    #[serde(rename = "yes")]
    Allowed,
}

/// Whether a node reaches enough of its overlay peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlay {
    /// It does, or this was not measured.
    #[default]
    Reachable,
    /// It does not, so its replicas could not be reached.
    #[serde(rename = "cut")]
    Unreachable,
}

/// How a replica is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// A container on Docker Engine.
    #[default]
    Docker,
    /// A plain process.
    Exec,
    /// A micro virtual machine.
    Microvm,
}

impl Driver {
    /// The spelling in manifests.
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

/// Maps alternative names of an architecture to one.
pub fn canonical_arch(arch: &str) -> String {
    match arch.to_lowercase().as_str() {
        "x86_64" | "x86-64" => "amd64".to_owned(),
        "aarch64" => "arm64".to_owned(),
        other => other.to_owned(),
    }
}
