//! Namespaces, their ceilings, volumes, and evening out: how they are written on the wire.
//!
//! Owns: these shapes. Invariant: an absent ceiling is no limit, and is never written as a number.

use serde::{Deserialize, Serialize};

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceRow {
    /// Its name.
    pub name: String,
    /// Deployments in it.
    pub deployments: u64,
    /// What they ask for together.
    pub desired: Amounts,
    /// Its ceilings.
    pub quota: Quota,
}

/// How much of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Replicas.
    pub replicas: u64,
    /// CPU, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory, overhead included.
    pub memory_bytes: u64,
}

/// Ceilings of a namespace; what is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Replicas.
    #[serde(default)]
    pub replicas: Option<u64>,
    /// CPU, thousandths of a core.
    #[serde(default)]
    pub cpu_millis: Option<u64>,
    /// Memory, overhead included.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// A volume that exists.
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
    /// Services that mount it.
    pub used_by: Vec<String>,
}

/// A move that evening out would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvenOutMove {
    /// Namespace of the replica.
    pub namespace: String,
    /// The replica, as people read it.
    pub replica: String,
    /// Where it is.
    pub from: String,
    /// Where it would go.
    pub to: String,
}
