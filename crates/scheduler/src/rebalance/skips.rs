//! Why replicas stayed on a hot node, reported once per reason.
//!
//! Owns: how often each skip occurred.
//! Invariant: only the first skip of a generation for a reason and node has a count of one, however long the node is
//! hot.

use std::collections::BTreeMap;

use longshore_model::{NodeName, ReplicaKey, SkipReason, rebalance::RebalanceScore};

use crate::view::View;

/// A replica that was not moved off a hot node, or a hot node without a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The replica; `None` if no replica of the node may be moved.
    pub replica: Option<ReplicaKey>,
    /// Why it stays.
    pub reason: SkipReason,
    /// The pressures and the score that were considered.
    pub score: RebalanceScore,
    /// How often this skip has occurred; only the first is reported.
    pub count: u32,
}

/// Counts of skips by node, replica and reason.
#[derive(Clone, Debug)]
pub(super) struct SkipCounts {
    counts: BTreeMap<(NodeName, Option<ReplicaKey>, SkipReason), u32>,
}

impl SkipCounts {
    pub(super) const fn new() -> Self {
        Self { counts: BTreeMap::new() }
    }

    /// Counts a skip; returns how often it has occurred.
    pub(super) fn count(&mut self, node: &NodeName, replica: Option<&ReplicaKey>, reason: SkipReason) -> u32 {
        let seen = self.counts.entry((node.clone(), replica.cloned(), reason)).or_default();
        *seen = seen.saturating_add(1);
        *seen
    }

    /// Drops the counts of nodes and generations that no longer exist.
    pub(super) fn forget_gone(&mut self, view: &View) {
        self.counts.retain(|(node, replica, _), _| {
            view.nodes.by_name.contains_key(node) && replica.as_ref().is_none_or(|replica| exists(view, replica))
        });
    }
}

/// Whether the view still has this generation.
pub(super) fn exists(view: &View, key: &ReplicaKey) -> bool {
    let Some(&group) = view.group_ids.get(&key.group) else { return false };
    view.group(group).replica(&key.slot, key.generation).is_some()
}
