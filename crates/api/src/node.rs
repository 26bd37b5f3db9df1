//! Nodes: health, intent, capacity and drains.

use std::collections::BTreeMap;

use longshore_model::{NodeAttributes, node::UseDegraded};
use serde::{Deserialize, Serialize};

use crate::{AfterDrain, ConstraintRole, DrainBlocker, DrainOutcome, Driver, Health, Intent, NodeNetwork, Protocol};

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Order of joining, from 1.
    pub number: u32,
    /// What an operator wants of it.
    pub intent: Intent,
    /// What the failure detector says of it.
    pub health: Health,
    /// When the health changed, in milliseconds since 1970.
    pub health_since_ms: u64,
    /// Whether an operator allows its use while it is degraded.
    pub use_degraded: bool,
    /// Its role in placement constraints.
    pub role: ConstraintRole,
    /// The pool it belongs to; empty for none.
    pub pool: String,
    /// The data centre it stands in; empty if none is known.
    #[serde(default)]
    pub datacenter: String,
    /// Labels set by operators.
    pub labels: BTreeMap<String, String>,
    /// Operating system.
    pub os: String,
    /// Processor architecture.
    pub arch: String,
    /// Drivers it can start replicas with.
    pub drivers: Vec<Driver>,
    /// Usable CPU in thousandths of a core.
    pub cpu_millis: u64,
    /// Allocatable memory in bytes.
    pub memory_bytes: u64,
    /// Reserved memory in bytes.
    pub memory_used_bytes: u64,
    /// Disk that replicas may use, in bytes; absent where the scheduler does not count disk.
    #[serde(default)]
    pub disk_bytes: Option<u64>,
    /// CPU that is kept for the machine itself, in thousandths of a core.
    #[serde(default)]
    pub reserved_cpu_millis: u64,
    /// Memory that is kept for the machine itself, in bytes.
    #[serde(default)]
    pub reserved_memory_bytes: u64,
    /// Disk that is kept for the machine itself, in bytes.
    #[serde(default)]
    pub reserved_disk_bytes: Option<u64>,
    /// Countable devices, by kind.
    #[serde(default)]
    pub devices: BTreeMap<String, u64>,
    /// Devices with maker and model.
    #[serde(default)]
    pub device_groups: Vec<DeviceGroup>,
    /// The ranges that its replicas' overlay addresses come from, IPv4 first.
    #[serde(default)]
    pub blocks: Vec<String>,
    /// Its part in the overlay; absent if it takes none.
    #[serde(default)]
    pub network: Option<NodeNetwork>,
    /// Most overlay addresses it may hold; absent if unlimited.
    #[serde(default)]
    pub addresses: Option<u64>,
    /// Generations on it that were not reported stopped.
    pub replicas: u32,
    /// Its latest load; absent before the first sample, and while the leader does not answer.
    #[serde(default)]
    pub load: Option<Load>,
    /// Its drain, if there is one.
    pub drain: Option<Drain>,
    /// What is wrong with it, as of its last heartbeat; empty while the leader does not answer.
    #[serde(default)]
    pub conditions: Vec<NodeCondition>,
}

/// Something an operator should know about a node. It ends by itself once its cause does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCondition {
    /// What it is, for example `port_taken_on_node`.
    pub code: String,
    /// What it is about, and what can be done.
    pub message: String,
    /// The port it is about.
    #[serde(default)]
    pub port: Option<u16>,
    /// The transport of that port.
    #[serde(default)]
    pub protocol: Option<Protocol>,
}

impl From<longshore_model::node::NodeCondition> for NodeCondition {
    fn from(condition: longshore_model::node::NodeCondition) -> Self {
        let longshore_model::node::NodeCondition { code, message, port, protocol } = condition;
        Self { code: code.code().to_owned(), message, port, protocol: protocol.map(Protocol::from) }
    }
}

/// Measured load of a machine, everything on it included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// CPU in use, in millionths of the whole.
    pub cpu_millionths: u32,
    /// Memory in use, in millionths of the whole.
    pub memory_millionths: u32,
    /// Its fullest disk.
    #[serde(default)]
    pub disk: Option<Disk>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Size and free space of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its size.
    pub total_bytes: u64,
    /// What is left of it.
    pub free_bytes: u64,
    /// Whether so little is left that an operator should act.
    pub short: bool,
}

/// A drain of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// `under_way`, `timed_out` or `done`.
    pub outcome: DrainOutcome,
    /// `keep` or `remove`.
    pub then: AfterDrain,
    /// Replicas that are still there.
    pub left: Vec<UndrainedReplica>,
}

/// A replica on a node that is drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndrainedReplica {
    /// The replica's printed id.
    pub replica: String,
    /// What keeps it there.
    pub why: DrainBlocker,
}

/// Drains a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DrainRequest {
    /// Seconds that jobs may take to finish; unlimited unless given.
    pub deadline_secs: Option<u64>,
}

/// How a node is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoveNode {
    /// It is drained first.
    #[default]
    Drained,
    /// At once; what runs there is abandoned.
    AtOnce,
}

impl RemoveNode {
    /// The value of the query parameter.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::AtOnce => "at_once",
        }
    }
}

/// Labels to set; an empty value removes the label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelRequest {
    /// The labels.
    pub labels: BTreeMap<String, String>,
}

/// Devices of a node with the same maker, model and attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceGroup {
    /// Kind, for example `gpu`.
    pub kind: String,
    /// Maker, for example `nvidia`; empty if not named.
    #[serde(default)]
    pub vendor: String,
    /// Model, for example `a100`; empty if not named.
    #[serde(default)]
    pub model: String,
    /// How many there are; 0 says that there is none.
    pub count: u64,
    /// Attributes of each, for example `memory`.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// Declares attributes of a node; absent ones stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeAttributesRequest {
    /// The pool it belongs to.
    pub pool: Option<String>,
    /// The data centre it stands in; empty for none.
    pub datacenter: Option<String>,
    /// CPU that is kept for the machine itself, in thousandths of a core.
    pub reserved_cpu_millis: Option<u64>,
    /// Memory that is kept for the machine itself, in bytes.
    pub reserved_memory_bytes: Option<u64>,
    /// Disk that is kept for the machine itself, in bytes.
    pub reserved_disk_bytes: Option<u64>,
    /// Devices. A kind that is named here replaces everything known of that kind.
    pub devices: Vec<DeviceGroup>,
    /// Most overlay addresses it may hold.
    pub addresses: Option<u64>,
}

impl From<&longshore_model::device::DeviceGroup> for DeviceGroup {
    fn from(group: &longshore_model::device::DeviceGroup) -> Self {
        let longshore_model::device::DeviceGroup { vendor, kind, name, count, attributes } = group.clone();
        Self { kind, vendor, model: name, count, attributes }
    }
}

impl From<DeviceGroup> for longshore_model::device::DeviceGroup {
    fn from(DeviceGroup { kind, vendor, model, count, attributes }: DeviceGroup) -> Self {
        Self { vendor, kind, name: model, count, attributes }
    }
}

impl From<NodeAttributesRequest> for NodeAttributes {
    fn from(request: NodeAttributesRequest) -> Self {
        let mut devices: BTreeMap<String, Vec<longshore_model::device::DeviceGroup>> = BTreeMap::new();
        for group in request.devices {
            devices.entry(group.kind.clone()).or_default().push(group.into());
        }
        Self {
            pool: request.pool.map(|pool| pool.as_str().into()),
            datacenter: request.datacenter,
            reserved_memory_bytes: request.reserved_memory_bytes,
            reserved_cpu_millis: request.reserved_cpu_millis,
            reserved_disk_bytes: request.reserved_disk_bytes,
            devices,
            addresses: request.addresses,
            ..Self::default()
        }
    }
}

impl From<&longshore_model::Node> for Node {
    /// The node does not know what runs on it, nor the cluster's addresses: replicas, memory in use and blocks are filled
    /// in by the caller.
    fn from(node: &longshore_model::Node) -> Self {
        Self {
            name: node.name.to_string(),
            number: node.number.0,
            intent: node.intent.into(),
            health: node.health.into(),
            health_since_ms: node.health_since.0,
            use_degraded: node.use_degraded == UseDegraded::Allowed,
            role: node.role.into(),
            pool: node.pool.to_string(),
            datacenter: node.datacenter.clone(),
            labels: node.labels.clone(),
            os: node.platform.os.clone(),
            arch: node.platform.arch.clone(),
            drivers: node.drivers.iter().copied().map(Driver::from).collect(),
            cpu_millis: node.usable_cpu_millis(),
            memory_bytes: node.allocatable_memory(),
            memory_used_bytes: 0,
            disk_bytes: node.allocatable_disk(),
            reserved_cpu_millis: node.reserved.cpu_millis,
            reserved_memory_bytes: node.reserved.memory_bytes,
            reserved_disk_bytes: node.reserved.disk_bytes,
            devices: node.capacity.devices.clone(),
            device_groups: node.capacity.device_groups.iter().map(DeviceGroup::from).collect(),
            blocks: Vec::new(),
            network: node.network.as_ref().map(NodeNetwork::from),
            addresses: node.capacity.addresses,
            replicas: 0,
            load: None,
            drain: node.drain.as_ref().map(Drain::from),
            conditions: Vec::new(),
        }
    }
}

impl From<&longshore_model::Drain> for Drain {
    fn from(drain: &longshore_model::Drain) -> Self {
        let left = drain
            .left
            .iter()
            .map(|left| UndrainedReplica { replica: left.slot.replica_id(&left.group), why: left.why.code().into() });
        Self { outcome: drain.outcome.into(), then: drain.then.into(), left: left.collect() }
    }
}
