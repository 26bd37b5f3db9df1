//! Requests and answers of dry runs (`plan` and `whatif`). The server's `dry_run` module computes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ApplyRequest, Changed, Pending};

/// A dry run of applying a manifest, if every start succeeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestPlan {
    /// Its namespace.
    pub namespace: String,
    /// The deployment.
    pub deployment: String,
    /// Index of the state it was computed from.
    pub index: u64,
    /// Whether anything would change.
    pub changed: Changed,
    /// The revision that would be current.
    pub revision: u64,
    /// Its services, those that would be removed included.
    pub services: Vec<ServicePlan>,
    /// Changed fields outside of services: networks, volumes, routes.
    #[serde(default)]
    pub shared: Vec<String>,
    /// Moves of replicas of other deployments.
    pub elsewhere: Vec<Move>,
    /// Whether the cluster would converge.
    #[serde(rename = "rest")]
    pub convergence: Convergence,
    /// Warnings, as `file:line:column: warning: …`.
    pub warnings: Vec<String>,
}

/// The plan for one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePlan {
    /// Its name.
    pub name: String,
    /// Kind of change.
    pub change: ServiceChange,
    /// Changed fields, such as `deploy.replicas`; never their values, which may be secrets.
    pub fields: Vec<String>,
    /// Those of them that can only be set when a replica is created, so every replica is replaced.
    #[serde(default)]
    pub recreated_by: Vec<String>,
    /// Replicas that would be created, moved, replaced or removed, in the end.
    pub replicas: Vec<Move>,
    /// Replicas that would have no node, and why.
    pub pending: Vec<Pending>,
}

/// Kind of change of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceChange {
    /// No change.
    Unchanged,
    /// The service is new.
    Added,
    /// The service is removed.
    Removed,
    /// Running replicas stay.
    InPlace,
    /// Running replicas are replaced, step by step.
    Destructive,
}

impl ServiceChange {
    /// The value in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Added => "added",
            Self::Removed => "removed",
            Self::InPlace => "in_place",
            Self::Destructive => "destructive",
        }
    }
}

/// A replica's node before and after.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Move {
    /// The replica.
    pub replica: String,
    /// Its node now, if it has one.
    pub from: Option<String>,
    /// Its node then, if it has one.
    pub to: Option<String>,
    /// Its generation then; absent if it would be removed.
    pub generation: Option<u32>,
}

/// Whether a dry run came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Convergence {
    /// Nothing more would happen.
    Converged,
    /// A rollout would wait for `promote` or `resume`.
    Waiting,
    /// Changes would go on beyond the time that was simulated.
    HorizonExceeded,
}

/// Assumptions of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WhatIfRequest {
    /// Nodes that are down.
    pub down: Vec<String>,
    /// Nodes that are drained.
    pub drain: Vec<String>,
    /// Nodes that join.
    pub add: Vec<NewNode>,
    /// Services that are scaled.
    pub scale: Vec<NewCount>,
    /// A manifest that is applied.
    pub apply: Option<Box<ApplyRequest>>,
}

/// A node that is assumed to join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewNode {
    /// Its name.
    pub name: String,
    /// CPU in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// A service that is assumed to be scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewCount {
    /// Its namespace; empty for `default`.
    pub namespace: String,
    /// The deployment.
    pub deployment: String,
    /// The service.
    pub service: String,
    /// Number of replicas.
    pub replicas: u32,
}

/// Result of a what-if request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// Index of the state it was computed from.
    pub index: u64,
    /// Time it took, in microseconds.
    pub took_micros: u64,
    /// Replicas that would be created, moved or removed.
    pub moves: Vec<Move>,
    /// Replicas that would have no node, and why.
    pub pending: Vec<Pending>,
    /// The nodes afterwards.
    pub nodes: Vec<Headroom>,
    /// Whether replacing lost replicas would be paused, because too many nodes are down at once.
    pub evacuation_paused: bool,
    /// Whether the cluster would converge.
    #[serde(rename = "rest")]
    pub convergence: Convergence,
}

/// A node's capacity and use, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// The node.
    pub node: String,
    /// Whether anything new could be placed there.
    pub usable: bool,
    /// Allocatable memory in bytes.
    pub memory_bytes: u64,
    /// Reserved memory now, in bytes.
    pub memory_used_before_bytes: u64,
    /// Reserved memory then, in bytes.
    pub memory_used_bytes: u64,
    /// Replicas on it now.
    pub replicas_before: u32,
    /// Replicas on it then.
    pub replicas: u32,
}
