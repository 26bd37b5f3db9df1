//! Fewer or more slots: which are closed, and the keys of new ones.
//!
//! Owns: the order of scaling down: not running first, and of those the ones without a node; then on the node with most
//! slots of the service, counting what this pass already closes; then the highest index.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longshore_model::{
    Generation, PlanItem, RolloutNumber, RolloutState, SlotIndex, SlotKey, Time,
    replica::DesiredState,
    rollout::{Step, StepKind},
    settings::Preemption,
};

use super::{GroupPass, jobs, mode_change, rollout_steps};
use crate::{
    placement::PendingSlot,
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Slot},
    },
};

/// Closes every slot of a group that was removed.
pub(super) fn close_all(pass: &mut GroupPass<'_>, group: GroupIx) {
    pass.view.waiting.remove(&group);
    let open: Vec<SlotKey> = pass.view.group(group).desired_slots().map(|slot| slot.key.clone()).collect();
    pass.items.extend(open.into_iter().map(PlanItem::Close));
}

/// Assumes the closings of all due groups before the first turn: they give back quota, and free capacity before
/// anything is preempted, whichever group comes first.
pub(super) fn assume_closings(view: &mut View, due: &VecDeque<GroupIx>, now: Time) {
    if view.config.preemption == Preemption::Off && view.quotas.is_empty() {
        return;
    }
    for group in due {
        let record = view.group(*group);
        let closing = match record.desired {
            DesiredState::Stop => record.desired_slots().map(|slot| slot.key.clone()).collect(),
            DesiredState::Run if view.is_stopped(&record.key) => beyond_count(view, record),
            DesiredState::Run => surplus(view, record, now),
        };
        if !closing.is_empty() {
            view.assume_closing(*group, closing);
        }
    }
}

/// Closes the slots beyond the count. Returns them.
pub(super) fn close_surplus(pass: &mut GroupPass<'_>, group: GroupIx) -> BTreeSet<SlotKey> {
    let closed = pass.view.closing(group).unwrap_or_else(|| surplus(pass.view, pass.view.group(group), pass.now));
    pass.items.extend(closed.iter().cloned().map(PlanItem::Close));
    closed
}

/// The slots of a group beyond its count, and those of its global mode that are no longer needed.
pub(super) fn surplus(view: &View, group: &Group, now: Time) -> BTreeSet<SlotKey> {
    if group.spec.kind.is_per_node() {
        return BTreeSet::new();
    }
    let mut closed = beyond_count(view, group);
    let going = mode_change::slots_to_close(view, group, desired_slot_count(group), &closed, now);
    closed.extend(going);
    closed
}

/// The slots of a group beyond its count.
pub(crate) fn beyond_count(view: &View, group: &Group) -> BTreeSet<SlotKey> {
    let mut closed = BTreeSet::new();
    if group.spec.kind.is_per_node() {
        return closed;
    }
    let mut left: Vec<&Slot> = group.desired_slots().filter(|slot| is_counted(slot)).collect();
    let surplus = left.len().saturating_sub(desired_slot_count(group));
    if surplus == 0 {
        return closed;
    }
    let aborted = view.rollout_of(&group.key).filter(|rollout| rollout.state == RolloutState::Aborted);
    let aborted = aborted.map(|rollout| RolloutNumber(rollout.number.0.saturating_sub(1)));
    let mut on_node: BTreeMap<NodeIx, u32> = BTreeMap::new();
    for replica in left.iter().filter_map(|slot| slot.current()) {
        *on_node.entry(replica.node).or_default() += 1;
    }
    for _ in 0..surplus {
        let worst = left
            .iter()
            .enumerate()
            .max_by_key(|(_, slot)| close_order(group, slot, aborted, &on_node))
            .map(|(at, _)| at);
        let Some(at) = worst else { break };
        let slot = left.remove(at);
        if let Some(count) = slot.current().and_then(|replica| on_node.get_mut(&replica.node)) {
            *count -= 1;
        }
        closed.insert(slot.key.clone());
    }
    closed
}

/// Whether a slot is one of a count. Those named after nodes are left from when the service was global.
fn is_counted(slot: &Slot) -> bool {
    matches!(slot.key, SlotKey::Index(_))
}

/// The slot with the largest value is closed first. What an aborted rollout added goes before anything older.
fn close_order(
    group: &Group,
    slot: &Slot,
    aborted: Option<RolloutNumber>,
    on_node: &BTreeMap<NodeIx, u32>,
) -> (CloseOrder, u32, SlotKey) {
    let added = |step: Step| Some(step.rollout) == aborted && step.kind == StepKind::Added;
    let current = slot.current();
    let done = current.is_some_and(|replica| jobs::has_ended(group, replica));
    let order = match (done, rollout_steps::serves(slot)) {
        _ if slot.step.is_some_and(added) => CloseOrder::Added,
        (true, _) => CloseOrder::Done,
        (false, true) => CloseOrder::Running,
        (false, false) if current.is_some() => CloseOrder::NotRunning,
        (false, false) => CloseOrder::Waiting,
    };
    let crowd = current.and_then(|replica| on_node.get(&replica.node)).copied().unwrap_or(0);
    (order, crowd, slot.key.clone())
}

/// In which order slots are closed, the last variant first. A completed job's slot has done its work and is kept
/// longest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CloseOrder {
    Done,
    Running,
    NotRunning,
    /// Without a node. If a starting one were closed instead, this one would be placed in its stead.
    Waiting,
    Added,
}

/// The number of slots a group should have: its count, less those that ended and were collected.
fn desired_slot_count(group: &Group) -> usize {
    let collected = if group.spec.may_end() { group.collected.total() } else { 0 };
    group.spec.replicas.saturating_sub(collected) as usize
}

/// The slots a group lacks, with keys from its counter.
pub(super) fn missing(pass: &GroupPass<'_>, group: GroupIx, closed: &BTreeSet<SlotKey>) -> Vec<PendingSlot> {
    let record = pass.view.group(group);
    let open = record.desired_slots().filter(|slot| is_counted(slot) && !closed.contains(&slot.key)).count();
    let lacking = desired_slot_count(record).saturating_sub(open);
    let first = record.next_index;
    let indexes = (first..u32::MAX).take(lacking);
    let pending = |index| PendingSlot { slot: SlotKey::Index(SlotIndex(index)), generation: Generation(1) };
    indexes.map(pending).collect()
}
