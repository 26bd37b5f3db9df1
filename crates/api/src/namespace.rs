//! Namespaces, quotas, policies, volumes, and evening out on the wire.
//!
//! Owns: these types. Invariant: an absent limit is unlimited, and is never written as a number.

use std::collections::BTreeMap;

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

/// What the manifests of a namespace may ask of the machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The namespace.
    pub namespace: String,
    /// Whether it was set, or denies everything because the namespace is new; else the namespace keeps everything.
    pub is_set: bool,
    /// The allowed values by rule; an empty list denies the rule.
    pub rules: BTreeMap<String, Vec<String>>,
}

/// A change of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequest {
    /// The new values by rule; an empty list denies the rule.
    #[serde(default)]
    pub rules: BTreeMap<String, Vec<String>>,
    /// What becomes of the rules that are not named.
    #[serde(default)]
    pub others: OtherRules,
}

/// What becomes of the rules that a change of a policy does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherRules {
    /// They stay as they are.
    #[default]
    Keep,
    /// They allow everything.
    Allow,
    /// They deny everything.
    Deny,
}

/// What a policy says about a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTest {
    /// The namespace.
    pub namespace: String,
    /// The deployment.
    pub deployment: String,
    /// What an apply would be refused for; empty if it would not be.
    pub denied: Vec<DeniedDemand>,
}

/// Something a manifest asks and its namespace may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedDemand {
    /// The key in the manifest.
    pub key: String,
    /// The asked value.
    pub value: String,
    /// The rule that denies it.
    pub rule: String,
    /// What to do.
    pub hint: String,
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
