//! Namespaces, quotas, volumes, and evening out on the wire.
//!
//! Owns: these types. Invariant: an absent limit is unlimited, and is never written as a number.

use serde::{Deserialize, Serialize};

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceRow {
    /// Its name.
    pub name: String,
    /// Deployments in it.
    pub deployments: u64,
    /// The resources that their services request.
    pub desired: Amounts,
    /// Its quota.
    pub quota: Quota,
}

/// An amount of each limited resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Replicas.
    pub replicas: u64,
    /// CPU in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory in bytes, overhead included.
    pub memory_bytes: u64,
}

/// Quota of a namespace; an absent limit is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Replicas.
    #[serde(default)]
    pub replicas: Option<u64>,
    /// CPU in thousandths of a core.
    #[serde(default)]
    pub cpu_millis: Option<u64>,
    /// Memory in bytes, overhead included.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The deployment that declared it.
    pub deployment: String,
    /// The node its data is on.
    pub node: String,
    /// What it is called in the engine of that node.
    #[serde(default)]
    pub engine_name: String,
    /// Services that mount it.
    pub used_by: Vec<String>,
}

/// A move that evening out would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvenOutMove {
    /// Namespace of the replica.
    pub namespace: String,
    /// Its printed id.
    pub replica: String,
    /// Its current node.
    pub from: String,
    /// Its new node.
    pub to: String,
}
