//! What would happen: answers that change nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ApplyRequest, Changed, Pending};

/// What applying a manifest would do, if everything that is started starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestPlan {
    /// Scope.
    pub namespace: String,
    /// The deployment.
    pub deployment: String,
    /// The state it was worked out from.
    pub index: u64,
    /// Whether anything would change.
    pub changed: Changed,
    /// The manifest that would be in force.
    pub revision: u64,
    /// Its services, those that would go included.
    pub services: Vec<ServicePlan>,
    /// Which fields differ outside of services: networks, volumes, routes.
    #[serde(default)]
    pub shared: Vec<String>,
    /// What would become of replicas of other deployments.
    pub elsewhere: Vec<Move>,
    /// Whether everything would have come to rest.
    pub rest: Rest,
    /// What is worth knowing, as `file:line:column: warning: …`.
    pub warnings: Vec<String>,
}

/// What would become of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePlan {
    /// Its name.
    pub name: String,
    /// What kind of change.
    pub change: ServiceChange,
    /// Which fields differ, as `deploy.replicas`; never their values, which may be secrets.
    pub fields: Vec<String>,
    /// Those of them that are fixed when a replica is made, so that each is made anew.
    #[serde(default)]
    pub recreated_by: Vec<String>,
    /// Replicas that would come, move, be replaced or go, in the end.
    pub replicas: Vec<Move>,
    /// What would have no node, and why.
    pub pending: Vec<Pending>,
}

/// What kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceChange {
    /// None.
    Unchanged,
    /// It is new.
    Added,
    /// It is no longer wanted.
    Removed,
    /// What runs can stay as it is.
    InPlace,
    /// What runs is replaced, step by step.
    Destructive,
}

impl ServiceChange {
    /// The word in JSON and tables.
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

/// Where a replica is, and where it would be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Move {
    /// The replica.
    pub replica: String,
    /// Its node now; nothing where it has none.
    pub from: Option<String>,
    /// Its node then; nothing where it would have none.
    pub to: Option<String>,
    /// Which decision about its slot that would be; nothing where it would go.
    pub generation: Option<u32>,
}

/// Whether there was an end to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// Nothing more would happen.
    Reached,
    /// Something waits for a word of the operator.
    Held,
    /// It would go on for longer than was looked ahead.
    TooFar,
}

/// What to suppose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WhatIfRequest {
    /// Nodes that are lost.
    pub down: Vec<String>,
    /// Nodes that are emptied.
    pub drain: Vec<String>,
    /// Nodes that join.
    pub add: Vec<NewNode>,
    /// Services that get another count.
    pub scale: Vec<NewCount>,
    /// A manifest that is applied.
    pub apply: Option<Box<ApplyRequest>>,
}

/// A node that is supposed to join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewNode {
    /// Its name.
    pub name: String,
    /// Thousandths of a core.
    pub cpu_millis: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// A count that is supposed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewCount {
    /// Scope; `default` where it is empty.
    pub namespace: String,
    /// The deployment.
    pub deployment: String,
    /// The service.
    pub service: String,
    /// The count.
    pub replicas: u32,
}

/// What would come of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// The state it was worked out from.
    pub index: u64,
    /// How long that took, in microseconds.
    pub took_micros: u64,
    /// Replicas that would come, move or go.
    pub moves: Vec<Move>,
    /// What would have no node, and why.
    pub pending: Vec<Pending>,
    /// Nodes as they would be.
    pub nodes: Vec<Headroom>,
    /// Whether replacing what is lost would be held back, because too many nodes are gone at once.
    pub evacuation_paused: bool,
    /// Whether everything would have come to rest.
    pub rest: Rest,
}

/// What a node would have left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// The node.
    pub node: String,
    /// Whether anything new could be placed there.
    pub usable: bool,
    /// Memory that may be given out.
    pub memory_bytes: u64,
    /// Memory given out now.
    pub memory_used_before_bytes: u64,
    /// Memory given out then.
    pub memory_used_bytes: u64,
    /// Replicas on it now.
    pub replicas_before: u32,
    /// Replicas on it then.
    pub replicas: u32,
}
