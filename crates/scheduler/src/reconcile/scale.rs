//! Fewer or more slots: which go, and what the new ones are called.
//!
//! Owns: the order of scaling down: not running first, and of those the ones without a node, then from the node with most
//! of the service, counting what this pass already takes away, then the highest index.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longshore_model::{
    Generation, PlanItem, RolloutNumber, RolloutState, SlotIndex, SlotKey, Time,
    config::Preemption,
    replica::Wanted,
    rollout::{Step, StepKind},
};

use super::{Pass, changeover, jobs, steps};
use crate::{
    placement::Vacancy,
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Slot},
    },
};

/// Closes every slot of a group nobody wants any more.
pub(super) fn close_all(pass: &mut Pass<'_>, group: GroupIx) {
    pass.view.waiting.remove(&group);
    let open: Vec<SlotKey> = pass.view.group(group).wanted_slots().map(|slot| slot.key.clone()).collect();
    pass.items.extend(open.into_iter().map(PlanItem::Close));
}

/// What is about to be closed gives its share of a quota back, and makes room before anybody is displaced, whoever's turn
/// comes first.
pub(super) fn close_first(view: &mut View, due: &VecDeque<GroupIx>, now: Time) {
    if view.config.preemption == Preemption::Off && view.quotas.is_empty() {
        return;
    }
    for group in due {
        let known = view.group(*group);
        let closing = match known.wanted {
            Wanted::Stop => known.wanted_slots().map(|slot| slot.key.clone()).collect(),
            Wanted::Run => surplus(view, known, now),
        };
        if !closing.is_empty() {
            view.suppose_closing(*group, closing);
        }
    }
}

/// Closes the slots beyond the count; gives back which.
pub(super) fn close_surplus(pass: &mut Pass<'_>, group: GroupIx) -> BTreeSet<SlotKey> {
    let closed = pass.view.closing(group).unwrap_or_else(|| surplus(pass.view, pass.view.group(group), pass.now));
    pass.items.extend(closed.iter().cloned().map(PlanItem::Close));
    closed
}

/// The slots of a group beyond its count, and those left from when it was global that are no longer needed.
pub(super) fn surplus(view: &View, known: &Group, now: Time) -> BTreeSet<SlotKey> {
    if known.spec.kind.is_per_node() {
        return BTreeSet::new();
    }
    let mut closed = beyond_count(view, known);
    let going = changeover::going(view, known, (to_do(known), &closed), now);
    closed.extend(going);
    closed
}

/// The slots of a group beyond its count.
pub(crate) fn beyond_count(view: &View, known: &Group) -> BTreeSet<SlotKey> {
    let mut closed = BTreeSet::new();
    if known.spec.kind.is_per_node() {
        return closed;
    }
    let mut left: Vec<&Slot> = known.wanted_slots().filter(|slot| is_counted(slot)).collect();
    let surplus = left.len().saturating_sub(to_do(known));
    if surplus == 0 {
        return closed;
    }
    let aborted = view.rollout_of(&known.key).filter(|rollout| rollout.state == RolloutState::Aborted);
    let aborted = aborted.map(|rollout| RolloutNumber(rollout.number.0.saturating_sub(1)));
    let mut on_node: BTreeMap<NodeIx, u32> = BTreeMap::new();
    for replica in left.iter().filter_map(|slot| slot.current()) {
        *on_node.entry(replica.node).or_default() += 1;
    }
    for _ in 0..surplus {
        let worst = left
            .iter()
            .enumerate()
            .max_by_key(|(_, slot)| least_missed(known, slot, aborted, &on_node))
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

/// The larger, the sooner it goes. What was made for a rollout that was aborted goes before anything that was there.
fn least_missed(
    known: &Group,
    slot: &Slot,
    aborted: Option<RolloutNumber>,
    on_node: &BTreeMap<NodeIx, u32>,
) -> (Missed, u32, SlotKey) {
    let added = |step: Step| Some(step.rollout) == aborted && step.kind == StepKind::Added;
    let current = slot.current();
    let done = jobs::is_job(known.spec.kind) && current.is_some_and(|replica| jobs::has_ended(known, replica));
    let missed = match (done, steps::serves(slot)) {
        _ if slot.step.is_some_and(added) => Missed::Added,
        (true, _) => Missed::Done,
        (false, true) => Missed::Running,
        (false, false) if current.is_some() => Missed::NotRunning,
        (false, false) => Missed::Waiting,
    };
    let crowd = current.and_then(|replica| on_node.get(&replica.node)).copied().unwrap_or(0);
    (missed, crowd, slot.key.clone())
}

/// How a slot does, the most missed first. A job's work that is done is what was wanted of it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Missed {
    Done,
    Running,
    NotRunning,
    /// Without a node. Were one on its way to running closed instead, this one would be placed in its stead.
    Waiting,
    Added,
}

/// Slots a group should have: its count, less what is done and no longer shown.
fn to_do(known: &Group) -> usize {
    let collected = if jobs::is_job(known.spec.kind) { known.collected.total() } else { 0 };
    known.spec.replicas.saturating_sub(collected) as usize
}

/// The slots a group lacks, named by its counter.
pub(super) fn missing(pass: &Pass<'_>, group: GroupIx, closed: &BTreeSet<SlotKey>) -> Vec<Vacancy> {
    let known = pass.view.group(group);
    let open = known.wanted_slots().filter(|slot| is_counted(slot) && !closed.contains(&slot.key)).count();
    let lacking = to_do(known).saturating_sub(open);
    let first = known.next_index;
    let indexes = (first..u32::MAX).take(lacking);
    let vacancy = |index| Vacancy { slot: SlotKey::Index(SlotIndex(index)), generation: Generation(1) };
    indexes.map(vacancy).collect()
}
