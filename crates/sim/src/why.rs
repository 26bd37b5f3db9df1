//! Why a replica is where it is, or nowhere, at the end of a run.
//!
//! Owns: the answer as data. Must not touch: the decision; the scheduler makes it again and shows what it compared.

use std::collections::BTreeMap;

use longshore_model::{GroupKey, Reason, SlotKey, Time};
use longshore_scheduler::{Decision, View};
use longshore_store::State;
use serde::Serialize;

use crate::report::{self, Pending};

/// What speaks for a replica's node, or stands in its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Why {
    /// It has a node.
    Placed(Placed),
    /// It has none.
    Waits(Pending),
}

/// A decision, made again as if the replica were not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// The replica.
    pub replica: String,
    /// Where it is.
    pub node: String,
    /// What it is to whoever decides about its group, as `untainted` or `migrating`.
    pub bucket: &'static str,
    /// The strategy that compared.
    pub strategy: &'static str,
    /// Nodes looked at.
    pub nodes: u32,
    /// Nodes no filter refused.
    pub candidates: u32,
    /// Nodes refused by each filter, every filter on its own over all nodes.
    pub refused: BTreeMap<Reason, u32>,
    /// The best candidates, best first.
    pub best: Vec<Ranked>,
}

/// A candidate and what was compared, most important first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ranked {
    /// The node.
    pub node: String,
    /// Name and value of each key. Those of `binpack` are in billionths, and more is better; elsewhere less is.
    pub keys: Vec<(String, i64)>,
}

/// The answer for a printed id; nothing where no replica has it.
pub(crate) fn of(state: &State, view: &mut View, now: Time, replica: &str) -> Option<Why> {
    let (key, slot) = find(state, replica)?;
    match longshore_scheduler::explain_placed(view, &key, &slot, now) {
        Some(decision) => Some(Why::Placed(placed(replica, decision))),
        None => report::waits(view, &key, &slot, now).map(Why::Waits),
    }
}

fn find(state: &State, replica: &str) -> Option<(GroupKey, SlotKey)> {
    let slots = state.groups().flat_map(|(key, group)| group.slots.keys().map(move |slot| (key, slot)));
    let mut found = slots.filter(|(key, slot)| slot.printed(key) == replica);
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
