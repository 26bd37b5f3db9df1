//! Completes a plan with its own consequences: planning again after it was applied gives an empty plan.
//!
//! A stop gives back quota to groups that wait, a preempted replica needs another node, and so on. A pass sees some of
//! that itself. The rest is found by applying its changes speculatively and deciding once more, until nothing is left
//! to decide. Leaving it to the next pass was refused: a plan would then depend on how often planning is run.
//!
//! Owns: the rounds, and one list of changes per group. Must not touch: what a round decides.
//! Invariant: each item of the result was decided by a pass on the state the earlier items lead to.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use longshore_model::{GroupPlan, NodePlan, PlanItem, SlotKey, Time, settings::Preemption};

use super::nodes;
use crate::view::{GroupIx, View};

/// Rounds end after a few: each gives capacity or quota to a less important group than the last. The limit only keeps
/// a bug from becoming an endless loop; what it cuts off is left to the next pass.
const MAX_ROUNDS: usize = 16;

/// Adds to the changes whatever follows from them, for groups and then for nodes.
pub(super) fn complete(view: &mut View, changes: Vec<GroupPlan>, now: Time) -> (Vec<GroupPlan>, Vec<NodePlan>) {
    if !has_consequences(view, &changes) {
        return (changes, nodes::decide(view, now));
    }
    let mut speculation = view.speculate();
    let mut all: BTreeMap<GroupIx, GroupPlan> = BTreeMap::new();
    let mut next = changes;
    for _ in 0..MAX_ROUNDS {
        if next.is_empty() {
            break;
        }
        view.apply_speculatively(&next, now, &mut speculation);
        for part in next {
            let Some(&group) = view.group_ids.get(&part.group) else { continue };
            match all.entry(group) {
                Entry::Vacant(entry) => _ = entry.insert(part),
                Entry::Occupied(entry) => add(&mut entry.into_mut().items, part.items),
            }
        }
        // As when the plan is committed: every group it changes is decided again.
        view.dirty.extend(all.keys());
        next = super::pass(view, now);
    }
    let unfinished = next.iter().filter_map(|part| view.group_ids.get(&part.group).copied());
    let unfinished: Vec<GroupIx> = unfinished.collect();
    let nodes = nodes::decide(view, now);
    view.revert(speculation);
    view.dirty.extend(all.keys().copied().chain(unfinished));
    let order = view.decision_order(all.keys().copied().collect());
    (order.into_iter().filter_map(|group| all.remove(&group)).collect(), nodes)
}

/// Whether changes can alter another group's decision. A placement alone only takes capacity, which the same pass
/// accounted for; unless there is a quota, preemption, or a near or away rule.
fn has_consequences(view: &View, changes: &[GroupPlan]) -> bool {
    let entangled = !view.quotas.is_empty() || view.config.preemption == Preemption::On || !view.watchers.is_empty();
    // A drain is done when the last replica leaves.
    let entangled = entangled || !view.nodes.draining.is_empty();
    let counts = |part: &GroupPlan, item: &PlanItem| match item {
        PlanItem::Stop(_)
        | PlanItem::Reschedule { .. }
        | PlanItem::Collect(_)
        | PlanItem::Step { .. }
        | PlanItem::NoRoom { .. }
        | PlanItem::Blocked { .. }
        | PlanItem::Promote
        // A rollout may have waited for it.
        | PlanItem::GiveUp { .. } => true,
        // Groups that share the volume now have a home node to go to.
        PlanItem::Place(placement) => !placement.new_volumes.is_empty(),
        // A restarting replica does not satisfy its dependents.
        PlanItem::Restart { .. } => view.dependents.contains_key(&part.group),
        PlanItem::Open(_) | PlanItem::Wait(_) | PlanItem::Close(_) | PlanItem::EvenOutDone => false,
    };
    let counts = |part: &GroupPlan| part.items.iter().any(|item| counts(part, item));
    !changes.is_empty() && (entangled || changes.iter().any(counts))
}

/// Adds later changes of a group. Where two items wait for the same slot the later one replaces the earlier.
fn add(earlier: &mut Vec<PlanItem>, later: Vec<PlanItem>) {
    let answered: BTreeSet<&SlotKey> = later.iter().flat_map(answers).collect();
    for item in &mut *earlier {
        if let PlanItem::Wait(wait) = item {
            wait.slots.retain(|slot| !answered.contains(slot));
        }
    }
    earlier.retain(|item| !matches!(item, PlanItem::Wait(wait) if wait.slots.is_empty()));
    earlier.extend(later);
}

/// The slots an item places or explains.
fn answers(item: &PlanItem) -> &[SlotKey] {
    match item {
        PlanItem::Place(placement) => std::slice::from_ref(&placement.key.slot),
        PlanItem::Wait(wait) => &wait.slots,
        PlanItem::Open(_)
        | PlanItem::Stop(_)
        | PlanItem::Close(_)
        | PlanItem::Restart { .. }
        | PlanItem::Reschedule { .. }
        | PlanItem::Collect(_)
        | PlanItem::Step { .. }
        | PlanItem::NoRoom { .. }
        | PlanItem::Blocked { .. }
        | PlanItem::Promote
        | PlanItem::GiveUp { .. }
        | PlanItem::EvenOutDone => &[],
    }
}
