//! What follows from a plan belongs to it: planning an applied plan gives nothing more to do.
//!
//! What is told to stop gives its share of a quota to whoever waits, a displaced replica looks for another node, and so
//! on. A pass sees some of that in its own course. The rest is seen by taking its changes for carried out and deciding
//! once more, until there is nothing left to decide. Letting the next pass find it was refused: a plan would then depend
//! on how often somebody asked.
//!
//! Owns: the rounds, and one list of changes a group. Must not touch: what a round decides.
//! Invariant: each item of the result is one that a pass decided upon what the earlier ones left.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use longshore_model::{GroupPlan, NodePlan, PlanItem, SlotKey, Time, config::Preemption};

use super::nodes;
use crate::view::{GroupIx, View};

/// Rounds end by themselves after a few: each gives room or quota to somebody who matters less than the last. The limit
/// only keeps a mistake here from becoming a loop; what it would cut off is left to the next pass.
const MOST_ROUNDS: usize = 16;

/// Adds to changes whatever follows from them, for groups and then for nodes.
pub(super) fn complete(view: &mut View, changes: Vec<GroupPlan>, now: Time) -> (Vec<GroupPlan>, Vec<NodePlan>) {
    if !has_consequences(view, &changes) {
        return (changes, nodes::decide(view, now));
    }
    let mut supposed = view.suppose();
    let mut all: BTreeMap<GroupIx, GroupPlan> = BTreeMap::new();
    let mut next = changes;
    for _ in 0..MOST_ROUNDS {
        if next.is_empty() {
            break;
        }
        view.carry_out(&next, now, &mut supposed);
        for part in next {
            let Some(&group) = view.group_ids.get(&part.group) else { continue };
            match all.entry(group) {
                Entry::Vacant(entry) => _ = entry.insert(part),
                Entry::Occupied(entry) => add(&mut entry.into_mut().items, part.items),
            }
        }
        // As when the plan is committed: everybody it is about is asked again.
        view.dirty.extend(all.keys());
        next = super::pass(view, now);
    }
    let unfinished = next.iter().filter_map(|part| view.group_ids.get(&part.group).copied());
    let unfinished: Vec<GroupIx> = unfinished.collect();
    let nodes = nodes::decide(view, now);
    view.take_back(supposed);
    view.dirty.extend(all.keys().copied().chain(unfinished));
    let order = view.in_turn(all.keys().copied().collect());
    (order.into_iter().filter_map(|group| all.remove(&group)).collect(), nodes)
}

/// Whether changes can make anybody else's answer another one. What is only placed takes room, and whoever is left
/// without was told so in the same pass; unless there is a quota, somebody to displace, or a service to be near.
fn has_consequences(view: &View, changes: &[GroupPlan]) -> bool {
    let entangled = !view.quotas.is_empty() || view.config.preemption == Preemption::On || !view.watchers.is_empty();
    // With the last replica that leaves a drain is done.
    let entangled = entangled || !view.fleet.drained.is_empty();
    let counts = |part: &GroupPlan, item: &PlanItem| match item {
        PlanItem::Stop { .. }
        | PlanItem::Reschedule { .. }
        | PlanItem::Collect { .. }
        | PlanItem::Step { .. }
        | PlanItem::NoRoom { .. }
        | PlanItem::Promote
        // A rollout may have waited for it.
        | PlanItem::GiveUp { .. } => true,
        // Whoever shares the volume now knows where to go.
        PlanItem::Place(placement) => !placement.new_volumes.is_empty(),
        // What starts again is not there for those that come after it.
        PlanItem::Restart { .. } => view.dependents.contains_key(&part.group),
        PlanItem::Open(_) | PlanItem::Wait(_) | PlanItem::Close(_) | PlanItem::EvenedOut => false,
    };
    let counts = |part: &GroupPlan| part.items.iter().any(|item| counts(part, item));
    !changes.is_empty() && (entangled || changes.iter().any(counts))
}

/// Adds changes of a group to those it has. Of two answers to one slot the last is right.
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

/// The slots an item gives an answer.
fn answers(item: &PlanItem) -> &[SlotKey] {
    match item {
        PlanItem::Place(placement) => std::slice::from_ref(&placement.slot),
        PlanItem::Wait(wait) => &wait.slots,
        PlanItem::Open(_)
        | PlanItem::Stop { .. }
        | PlanItem::Close(_)
        | PlanItem::Restart { .. }
        | PlanItem::Reschedule { .. }
        | PlanItem::Collect { .. }
        | PlanItem::Step { .. }
        | PlanItem::NoRoom { .. }
        | PlanItem::Promote
        | PlanItem::GiveUp { .. }
        | PlanItem::EvenedOut => &[],
    }
}
