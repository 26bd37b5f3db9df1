//! Replicas without a node, counted per service and reason.
//!
//! Must not touch: the explanation; the scheduler computes it, the model words it.

use std::collections::BTreeMap;

use longshore_model::{Explanation, GroupKey, Reason, SlotKey, Time};
use longshore_scheduler::View;
use serde::Serialize;

/// The replicas of one service that have no node for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// The deployment.
    pub deployment: String,
    /// The service.
    pub service: String,
    /// Number of replicas.
    pub count: usize,
    /// The first filter that leaves no node.
    pub reason: Reason,
    /// Number of nodes that each filter refuses on its own.
    pub refused: BTreeMap<Reason, u32>,
    /// The explanation as a sentence.
    pub explain: String,
}

/// The replicas of a group that have no node, by reason.
pub(super) fn of_group(view: &mut View, key: &GroupKey, now: Time) -> Vec<Pending> {
    let mut by_reason: BTreeMap<Reason, Pending> = BTreeMap::new();
    for (slots, explanation) in longshore_scheduler::explain(view, key, now) {
        let pending = by_reason.entry(explanation.reason).or_insert_with(|| Pending::new(key, &explanation));
        pending.count += slots.len();
    }
    by_reason.into_values().collect()
}

/// Why one slot has no node.
pub(crate) fn of_slot(view: &mut View, key: &GroupKey, slot: &SlotKey, now: Time) -> Option<Pending> {
    let mut explanations = longshore_scheduler::explain(view, key, now).into_iter();
    let (_, explanation) = explanations.find(|(slots, _)| slots.contains(slot))?;
    Some(Pending { count: 1, ..Pending::new(key, &explanation) })
}

impl Pending {
    fn new(key: &GroupKey, explanation: &Explanation) -> Self {
        Self {
            deployment: key.deployment.to_string(),
            service: key.service.to_string(),
            count: 0,
            reason: explanation.reason,
            refused: explanation.refused.clone(),
            explain: explanation.to_string(),
        }
    }
}
