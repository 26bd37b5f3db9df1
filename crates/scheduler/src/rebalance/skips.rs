//! Why replicas stayed on a hot node, told once.
//!
//! Owns: what was told already, and how often it has been seen since.
//! Invariant: a generation is told of at most once for each reason and node, however long the trouble lasts.

use std::collections::BTreeMap;

use longshore_model::{Generation, GroupKey, NodeName, SkipReason, SlotKey, rebalance::Weighed};

use crate::view::View;

/// One generation of one slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The group.
    pub group: GroupKey,
    /// The slot.
    pub slot: SlotKey,
    /// The generation.
    pub generation: Generation,
}

/// A replica that was left on a hot node, or that there was none to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Who; nobody where nothing may be moved.
    pub subject: Option<Subject>,
    /// Why.
    pub reason: SkipReason,
    /// What was weighed.
    pub weighed: Weighed,
    /// How often it was seen by now; more than once is no news.
    pub count: u32,
}

/// What was told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    counts: BTreeMap<(NodeName, Option<Subject>, SkipReason), u32>,
}

impl Told {
    pub(super) const fn new() -> Self {
        Self { counts: BTreeMap::new() }
    }

    /// Counts a skip; says how often it has been seen.
    pub(super) fn count(&mut self, node: &NodeName, subject: Option<&Subject>, reason: SkipReason) -> u32 {
        let seen = self.counts.entry((node.clone(), subject.cloned(), reason)).or_default();
        *seen = seen.saturating_add(1);
        *seen
    }

    /// Forgets what is about nodes and generations that are gone.
    pub(super) fn forget_gone(&mut self, view: &View) {
        self.counts.retain(|(node, subject, _), _| {
            view.fleet.by_name.contains_key(node) && subject.as_ref().is_none_or(|subject| exists(view, subject))
        });
    }
}

/// Whether a generation is still there.
pub(super) fn exists(view: &View, subject: &Subject) -> bool {
    let Some(&group) = view.group_ids.get(&subject.group) else { return false };
    let known = view.group(group);
    let slot = known.slot_at(&subject.slot).ok().map(|at| &known.slots[at]);
    slot.is_some_and(|slot| slot.replicas.iter().any(|replica| replica.generation == subject.generation))
}
