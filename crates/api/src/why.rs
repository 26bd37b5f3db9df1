//! Why a replica is where it is, or nowhere.

use std::collections::BTreeMap;

use longshore_model::{Explanation, GroupKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What speaks for a replica's node, or stands in its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Why {
    /// It has a node; the decision was made again as if it were not there.
    Placed {
        /// The replica.
        replica: String,
        /// Where it is.
        node: String,
        /// The strategy that compared.
        strategy: String,
        /// Nodes looked at.
        nodes: u32,
        /// Nodes no filter refused.
        candidates: u32,
        /// Nodes refused by each filter.
        refused: BTreeMap<String, u32>,
        /// The best candidates, best first.
        best: Vec<Candidate>,
        /// What it was last seen doing.
        #[serde(default)]
        state: String,
        /// Why it is in that state, where there is a why.
        #[serde(default)]
        code: Option<String>,
        /// Particulars of the code: `exit_code`, `reason`, `output` and the like.
        #[serde(default)]
        details: BTreeMap<String, Value>,
        /// Which start of it.
        #[serde(default)]
        attempt: u32,
        /// Restarts in this generation.
        #[serde(default)]
        restarts: u32,
        /// When it was placed, in milliseconds since 1970.
        #[serde(default)]
        placed_at_ms: u64,
        /// The state this was answered from.
        #[serde(default)]
        index: u64,
    },
    /// A service was asked about.
    Service {
        /// The service, as `DEPLOYMENT/SERVICE`.
        service: String,
        /// Slots that are wanted.
        wanted: u32,
        /// Slots that have a node.
        placed: u32,
        /// What has none, and why.
        pending: Vec<Pending>,
    },
    /// It has none.
    Waits {
        /// The replica.
        replica: String,
        /// Why.
        pending: Pending,
    },
}

/// A candidate and what was compared, most important first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The node.
    pub node: String,
    /// Name and value of each key. Those of `binpack` are in billionths, and more is better; elsewhere less is.
    pub keys: Vec<(String, i64)>,
}

/// Replicas of one service that have no node, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Scope.
    pub namespace: String,
    /// The deployment.
    pub deployment: String,
    /// The service.
    pub service: String,
    /// How many.
    pub count: u32,
    /// The first filter that leaves no node.
    pub reason: String,
    /// How many nodes each filter refuses on its own.
    pub refused: BTreeMap<String, u32>,
    /// The same in words.
    pub explain: String,
}

impl Pending {
    /// So many replicas of a service, with the same answer.
    pub fn new(group: &GroupKey, count: usize, explanation: &Explanation) -> Self {
        Self {
            namespace: group.namespace.to_string(),
            deployment: group.deployment.to_string(),
            service: group.service.to_string(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            reason: explanation.reason.code().to_owned(),
            refused: explanation.refused.iter().map(|(reason, nodes)| (reason.code().to_owned(), *nodes)).collect(),
            explain: explanation.to_string(),
        }
    }
}
