//! Explains why a replica is on its node, or on none, at the end of a run.
//!
//! Owns: the explanation as data. Must not touch: the decision; the scheduler repeats it and returns what it compared.

use std::collections::BTreeMap;

use longshore_model::{GroupKey, Reason, SlotKey, Time};
use longshore_scheduler::{Decision, View};
use longshore_store::State;
use serde::Serialize;

use crate::report::{self, Pending};

/// Why a replica is on its node, or has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Why {
    /// It has a node.
    Placed(Placed),
    /// It has none.
    Waits(Pending),
}

/// The placement decision, repeated as if the replica were not placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// The printed id of the replica.
    pub replica: String,
    /// The node it is on.
    pub node: String,
    /// The bucket the scheduler's pass sorts it into, as `untainted` or `migrating`.
    pub bucket: &'static str,
    /// The placement strategy.
    pub strategy: &'static str,
    /// Nodes considered.
    pub nodes: u32,
    /// Nodes no filter refused.
    pub candidates: u32,
    /// Nodes refused by each filter, every filter on its own over all nodes.
    pub refused: BTreeMap<Reason, u32>,
    /// The best candidates, best first.
    pub best: Vec<Ranked>,
}

/// A candidate node and its ranking keys, most important first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ranked {
    /// The node.
    pub node: String,
    /// Name and value of each key. Those of `binpack` are in billionths, and higher is better; with other strategies lower is.
    pub keys: Vec<(String, i64)>,
}

/// Explains the replica with a printed id. `None` if there is none.
pub(crate) fn explain(state: &State, view: &mut View, now: Time, replica: &str) -> Option<Why> {
    let (key, slot) = find(state, replica)?;
    match longshore_scheduler::explain_placed(view, &key, &slot, now) {
        Some(decision) => Some(Why::Placed(placed(replica, decision))),
        None => report::pending_of_slot(view, &key, &slot, now).map(Why::Waits),
    }
}

fn find(state: &State, replica: &str) -> Option<(GroupKey, SlotKey)> {
    let slots = state.groups().flat_map(|(key, group)| group.slots.keys().map(move |slot| (key, slot)));
    let mut found = slots.filter(|(key, slot)| slot.replica_id(key) == replica);
    found.next().map(|(key, slot)| (key.clone(), slot.clone()))
}

fn placed(replica: &str, decision: Decision) -> Placed {
    let best = decision.best.into_iter();
    Placed {
        replica: replica.to_owned(),
        node: decision.node.to_string(),
        bucket: decision.bucket.as_str(),
        strategy: decision.strategy.as_str(),
        nodes: decision.nodes,
        candidates: decision.candidates,
        refused: decision.refused,
        best: best.map(|ranked| Ranked { node: ranked.node.to_string(), keys: ranked.keys }).collect(),
    }
}
