//! Explanations of placements.

use std::collections::BTreeMap;

use longshore_model::{Explanation, GroupKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Code, ReplicaState};

/// Why a replica is on its node, or has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Why {
    /// It has a node; the decision was computed again as if the replica were not there.
    Placed {
        /// The replica.
        replica: String,
        /// Its node.
        node: String,
        /// The strategy that ranked the nodes.
        strategy: String,
        /// Nodes considered.
        nodes: u32,
        /// Nodes no filter refused.
        candidates: u32,
        /// Nodes refused by each filter.
        refused: BTreeMap<Code, u32>,
        /// The best candidates, best first.
        best: Vec<Candidate>,
        /// Its last reported state.
        #[serde(default)]
        state: Option<ReplicaState>,
        /// The code of that state, if there is one.
        #[serde(default)]
        code: Option<Code>,
        /// Details of the code, such as `exit_code`, `reason` and `output`.
        #[serde(default)]
        details: BTreeMap<String, Value>,
        /// Attempt: grows with every restart of the generation.
        #[serde(default)]
        attempt: u32,
        /// Restarts in this generation.
        #[serde(default)]
        restarts: u32,
        /// When it was placed, in milliseconds since 1970.
        #[serde(default)]
        placed_at_ms: u64,
        /// Index of the state this was computed from.
        #[serde(default)]
        index: u64,
    },
    /// The question was about a service.
    Service {
        /// The service, as `DEPLOYMENT/SERVICE`.
        service: String,
        /// Number of replicas that should run.
        desired: u32,
        /// The older name of `desired`: the same number.
        wanted: u32,
        /// Slots that have a node.
        placed: u32,
        /// Replicas without a node, and why.
        pending: Vec<Pending>,
    },
    /// It has no node.
    Waits {
        /// The replica.
        replica: String,
        /// Why.
        pending: Pending,
    },
    /// It has no node and no filter keeps it from one: it is lost, is being stopped, or its placement is about to be
    /// decided.
    Observed {
        /// The replica.
        replica: String,
        /// Its newest generation; 0 if it was never placed.
        generation: u32,
        /// The node of that generation, if there is one.
        node: Option<String>,
        /// Its last state.
        state: ReplicaState,
        /// The code of that state.
        code: Option<Code>,
        /// Details of the code.
        details: BTreeMap<String, Value>,
        /// The explanation as a sentence.
        explain: String,
    },
}

/// A candidate node and its ranking keys, most important first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The node.
    pub node: String,
    /// Name and value of each key. Lower is better, except for `binpack`, whose keys are in billionths and where higher
    /// is better.
    pub keys: Vec<(String, i64)>,
}

/// Replicas of one service that have no node, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Its namespace.
    pub namespace: String,
    /// The deployment.
    pub deployment: String,
    /// The service.
    pub service: String,
    /// Number of replicas.
    pub count: u32,
    /// The first filter that leaves no node.
    pub reason: Code,
    /// How many nodes each filter refuses on its own.
    pub refused: BTreeMap<Code, u32>,
    /// The explanation as a sentence.
    pub explain: String,
}

impl Pending {
    /// A row for replicas of a service with the same explanation.
    pub fn new(group: &GroupKey, count: usize, explanation: &Explanation) -> Self {
        Self {
            namespace: group.namespace.to_string(),
            deployment: group.deployment.to_string(),
            service: group.service.to_string(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            reason: explanation.reason.into(),
            refused: explanation.refused.iter().map(|(reason, nodes)| (Code::from(*reason), *nodes)).collect(),
            explain: explanation.to_string(),
        }
    }
}
