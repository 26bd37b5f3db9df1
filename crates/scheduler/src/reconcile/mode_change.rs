//! A service with a count becomes global, or the other way round. Slot keys differ between the two modes, so no slot is
//! converted; slots of the old mode serve until as many of the new mode are ready:
//!
//! ```text
//! new slots are opened at once ─▶ each that is ready lets one old slot close
//! stop-first order, or no room for both for 30 s ─▶ up to `parallelism` old slots close ahead
//! ```
//!
//! Owns: which slots of the old mode stay for now. Must not touch: slots of the current mode; they are opened, placed
//! and judged like any slot a rollout adds.
//! Invariant: while a rollout is live at most `parallelism` slots are short of the desired or the previous count, and
//! none with start-first order; a slot that does not serve is not kept.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::{
    PlanItem, Rollout, RuntimeCode, ServiceSpec, SlotKey, Time,
    rollout::StepOutcome,
    service::{FailureAction, UpdatePolicy},
};

use super::{
    GroupPass,
    rollout::{self, GroupRollout},
    rollout_steps,
};
use crate::{
    request::{PlacementRequest, replica_fingerprint},
    view::{
        View,
        groups::{Group, Replica, Slot},
    },
};

/// Whether a slot's key belongs to the mode (global or counted) that the service no longer has.
pub(crate) fn is_of_other_mode(spec: &ServiceSpec, slot: &SlotKey) -> bool {
    match slot {
        SlotKey::Node(_) => !spec.kind.is_per_node(),
        SlotKey::Index(_) => spec.kind.is_per_node(),
    }
}

/// The slots of the old mode to close now. `wanted` is the desired number of slots of the current mode; `leaving` are
/// those of them that close anyway.
pub(super) fn slots_to_close(
    view: &View,
    group: &Group,
    wanted: usize,
    leaving: &BTreeSet<SlotKey>,
    now: Time,
) -> BTreeSet<SlotKey> {
    let misnamed = group.desired_slots().filter(|slot| is_of_other_mode(&group.spec, &slot.key));
    let (mut useful, useless): (Vec<&Slot>, Vec<&Slot>) = misnamed.partition(|slot| serves(slot));
    let kept = needed_count(view, group, wanted, leaving, now);
    let going = useful.len().saturating_sub(kept);
    // Slots without a successor on their node close first: a pending one may be waiting for that capacity.
    useful.sort_by_cached_key(|slot| (has_successor(group, slot), slot.key.clone()));
    useful.into_iter().take(going).chain(useless).map(|slot| slot.key.clone()).collect()
}

/// Whether a slot is running for a service. Jobs are not rolled, so a run of one is not kept.
fn serves(slot: &Slot) -> bool {
    rollout_steps::serves(slot) && slot.current().is_some_and(|replica| !replica.reservation.kind.is_job())
}

/// Whether a slot of the current mode has a generation on the same node.
fn has_successor(group: &Group, slot: &Slot) -> bool {
    let node = slot.current().map(|replica| replica.node);
    let mut named = group.desired_slots().filter(|other| !is_of_other_mode(&group.spec, &other.key));
    named.any(|other| other.current().map(|replica| replica.node) == node)
}

/// How many slots of the old mode are still needed.
fn needed_count(view: &View, group: &Group, wanted: usize, leaving: &BTreeSet<SlotKey>, now: Time) -> usize {
    let Some(rollout) = view.rollout_of(&group.key).filter(|_| !group.spec.kind.is_job()) else { return 0 };
    wanted.saturating_sub(ready_count(view, group, rollout, leaving, now))
}

/// How many slots of the current mode are ready and stay.
fn ready_count(view: &View, group: &Group, rollout: &Arc<Rollout>, leaving: &BTreeSet<SlotKey>, now: Time) -> usize {
    let policy = rollout::policy(&group.spec, Some(rollout));
    let tolerated = !has_too_many_failures(group, rollout, policy, now);
    let is_there = |slot: &&Slot| match rollout_steps::outcome_in(rollout, slot) {
        Some(StepOutcome::Done) => true,
        // A failed step is not waited for, unless its failure rolls everything back.
        Some(StepOutcome::Failed(_)) => tolerated,
        Some(StepOutcome::UnderWay) if rollout_steps::is_added(slot) => false,
        // Created by an earlier rollout, and possibly changing.
        Some(StepOutcome::UnderWay) | None => rollout_steps::serves(slot) || is_given_up(view, group, slot),
    };
    let named = group.desired_slots().filter(|slot| !is_of_other_mode(&group.spec, &slot.key));
    named.filter(|slot| !leaving.contains(&slot.key)).filter(is_there).count()
}

/// Whether a slot was given up earlier: it is not waited for, unless its spec changed and it is tried again.
fn is_given_up(view: &View, group: &Group, slot: &Slot) -> bool {
    let given_up = |replica: &Replica| replica.code == Some(RuntimeCode::RestartExhausted);
    slot.current()
        .is_some_and(|it| given_up(it) && replica_fingerprint::matches_current_spec(view, group, &it.reservation))
}

/// Whether more of the new slots failed than are tolerated, so that the rollout is about to pause or roll back.
fn has_too_many_failures(group: &Group, rollout: &Rollout, policy: &UpdatePolicy, now: Time) -> bool {
    let outcomes = group.desired_slots().filter_map(|slot| rollout_steps::outcome_in(rollout, slot));
    let misnamed = group.desired_slots().filter(|slot| is_of_other_mode(&group.spec, &slot.key)).count();
    let total = outcomes.count() + misnamed;
    let failed = |slot: &&Slot| matches!(rollout_steps::outcome_in(rollout, slot), Some(StepOutcome::Failed(_)));
    let failed: Vec<&Slot> = group.desired_slots().filter(failed).collect();
    let is_news = |slot: &&Slot| slot.step.is_some_and(|step| step.at > rollout.since || step.at == now);
    let news = failed.iter().any(is_news) || !rollout::may_step(rollout);
    news && policy.failure_action != FailureAction::Continue && rollout::too_many(policy, failed.len(), total)
}

/// Closes some old slots ahead of their successors, where new ones wait and the order is stop-first, or there was no
/// room for both for too long. An old slot stays where its successor would not fit even then. Before that time is
/// over, records since when there is no room.
pub(super) fn close_ahead(pass: &mut GroupPass<'_>, request: &mut PlacementRequest, closed: &mut BTreeSet<SlotKey>) {
    let Some(part) = GroupRollout::of(pass.view, request).filter(GroupRollout::may_step) else { return };
    let group = pass.view.group(request.group);
    let is_kept = |slot: &&Slot| is_of_other_mode(&request.spec, &slot.key) && !closed.contains(&slot.key);
    let mut kept: Vec<Slot> = group.desired_slots().filter(is_kept).cloned().collect();
    if pass.unplaced.is_empty() || kept.is_empty() || rollout::has_too_many_failures(pass, request, &part, closed) {
        return;
    }
    if !rollout_steps::stops_first(request, &part) && !rollout_steps::has_waited_for_room(group, pass.now) {
        return rollout_steps::note_no_room(pass, request);
    }
    kept.sort_by_cached_key(|slot| (has_successor(group, slot), slot.key.clone()));
    let come = ready_count(pass.view, group, &part.rollout, closed, pass.now);
    let short = desired_count(pass, request, closed).saturating_sub(come + kept.len());
    let most = part.policy.slots_at_once().map_or(usize::MAX, |limit| (limit as usize).saturating_sub(short));
    let mut ahead = Vec::new();
    // A global service does not need the capacity beside a successor that is already placed on the node.
    let is_waited_for = |slot: &Slot| !request.spec.kind.is_per_node() || !has_successor(group, slot);
    let kept: Vec<Slot> = kept.into_iter().filter(is_waited_for).collect();
    for slot in kept {
        if ahead.len() < most && rollout_steps::makes_room(pass.view, request, &slot) {
            ahead.push(slot.key);
        }
    }
    pass.unplaced.insert_before_answers(&mut pass.items, ahead.iter().cloned().map(PlanItem::Close));
    closed.extend(ahead);
}

/// The desired number of slots: the existing ones of the current mode and those this turn opens.
fn desired_count(pass: &GroupPass<'_>, request: &PlacementRequest, closed: &BTreeSet<SlotKey>) -> usize {
    let group = pass.view.group(request.group);
    let is_open = |slot: &&Slot| !is_of_other_mode(&request.spec, &slot.key) && !closed.contains(&slot.key);
    let opened = pass.items.iter().filter_map(|item| match item {
        PlanItem::Open(slot) => Some(slot),
        PlanItem::Place(placement) => Some(&placement.key.slot),
        _ => None,
    });
    let opened: BTreeSet<&SlotKey> = opened.filter(|slot| group.slot_at(slot).is_err()).collect();
    group.desired_slots().filter(is_open).count() + opened.len()
}
