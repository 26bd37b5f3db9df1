//! Jobs: how many replicas run at once, when they run again, and when their records are collected.
//!
//! ```text
//! open ──▶ placed ──▶ completed, or given up ──an hour──▶ collected
//!            │ spec changed: stop              │ spec changed: next generation,
//!            └───────────▶ then run again ◀────┘ once a given-up one has stopped
//! ```
//!
//! A job's replica never runs beside another generation of its slot, and an ended one is not run again unless the spec
//! changed.
//!
//! Owns: those rules. Must not touch: restarts, which jobs have like any service, and the choice of nodes.

use std::collections::BTreeSet;

use longshore_model::{PlanItem, ReplicaState, RuntimeCode, SlotKey, replica::DesiredState, service::RestartCondition};

use super::{GroupPass, slots};
use crate::{
    placement::PendingSlot,
    request::PlacementRequest,
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Replica, Slot, is_live},
    },
};

/// Whether a generation has completed or failed for good, and is not run again with the same spec: a job's, or one of a
/// service that runs once. A service that was given up is another matter: it was meant to run.
pub(super) fn has_ended(group: &Group, replica: &Replica) -> bool {
    let restart = &group.spec.restart;
    let given_up = replica.code == Some(RuntimeCode::RestartExhausted);
    let own_fault = replica.code.is_none_or(RuntimeCode::is_own_fault);
    let never_restarted = restart.condition == RestartCondition::None && group.spec.reschedule.is_none() && own_fault;
    match replica.state {
        ReplicaState::Completed => replica.reservation.kind.is_job() || restart.may_complete(),
        ReplicaState::Failed if group.spec.kind.is_job() => given_up || never_restarted,
        ReplicaState::Failed => never_restarted && !given_up,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => false,
    }
}

/// Collects what ended at least `gc_finished` ago. Returns the collected slots.
pub(super) fn collect(
    pass: &mut GroupPass<'_>,
    request: &PlacementRequest,
    closed: &BTreeSet<SlotKey>,
) -> BTreeSet<SlotKey> {
    let group = pass.view.group(request.group);
    let keep = pass.view.config.gc_finished;
    let mut gone = BTreeSet::new();
    let mut items = Vec::new();
    let mut wake_at = None;
    for slot in group.desired_slots().filter(|slot| !closed.contains(&slot.key)) {
        let Some(replica) = slot.current().filter(|replica| has_ended(group, replica)) else { continue };
        if slots::is_outdated(request, replica) || replica.generation != slot.newest {
            continue;
        }
        let at = replica.since.after(keep);
        if at <= pass.now {
            gone.insert(slot.key.clone());
            items.push(PlanItem::Collect(slot.key.generation(replica.generation)));
        } else {
            wake_at = Some(wake_at.map_or(at, |earlier: longshore_model::Time| earlier.min(at)));
        }
    }
    pass.items.extend(items);
    if let Some(at) = wake_at {
        pass.wake(at);
    }
    gone
}

/// Stops every running generation of an outdated spec, including an older one kept beside the last: the slot runs
/// again once all have stopped. A given-up generation may still be running, e.g. with a failed health check, and is
/// stopped too.
pub(super) fn stop_outdated(pass: &mut GroupPass<'_>, request: &PlacementRequest, closed: &BTreeSet<SlotKey>) {
    let group = pass.view.group(request.group);
    let slots = group.desired_slots().filter(|slot| !closed.contains(&slot.key));
    let outdated = slots.flat_map(|slot| {
        let running = slot.replicas.iter().filter(|replica| replica.desired == DesiredState::Run);
        let stops = running.filter(|it| slots::is_outdated(request, it) && it.state != ReplicaState::Completed);
        stops.map(|replica| slot.key.generation(replica.generation))
    });
    for key in outdated.collect::<Vec<_>>() {
        pass.view.assume_stopping(request.group, &key);
        pass.items.push(PlanItem::Stop(key));
    }
}

/// Slots that completed with an outdated spec and run again, each with the node it was on.
pub(super) fn reruns(
    view: &View,
    request: &PlacementRequest,
    closed: &BTreeSet<SlotKey>,
) -> Vec<(PendingSlot, NodeIx)> {
    let group = view.group(request.group);
    let slots = group.desired_slots().filter(|slot| !closed.contains(&slot.key));
    let ended = slots.filter_map(|slot| {
        let replica = slot.current()?;
        let ended = replica.state == ReplicaState::Completed && has_ended(group, replica);
        let again = slots::is_outdated(request, replica) && ended && is_alone(view, slot, replica);
        again.then(|| (slots::next_generation(slot), replica.node))
    });
    ended.collect()
}

/// Whether no other generation of the slot is at work on a reachable node.
fn is_alone(view: &View, slot: &Slot, replica: &Replica) -> bool {
    let others = slot.replicas.iter().filter(|other| other.generation != replica.generation);
    let mut seen = others.filter(|other| !view.nodes.is_down(other.node));
    seen.all(|other| matches!(other.state, ReplicaState::Completed | ReplicaState::Failed))
}

/// How many more replicas of a group may start: unlimited, unless it is a job with `max_concurrent`. A failed one
/// waiting for its restart is not counted as at work.
pub(super) fn starts_left(group: &Group) -> usize {
    let Some(limit) = group.spec.max_concurrent.filter(|_| group.spec.kind.is_job()) else { return usize::MAX };
    let backs_off = |replica: &Replica| has_ended(group, replica) || replica.state == ReplicaState::Failed;
    let works = |slot: &Slot| slot.current().is_none_or(|replica| !backs_off(replica)) || has_older_at_work(slot);
    let at_work = group.desired_slots().filter(|slot| works(slot)).count();
    (limit as usize).saturating_sub(at_work)
}

/// Whether an older generation, reconnected after a node loss, is at work.
pub(super) fn has_older_at_work(slot: &Slot) -> bool {
    let current = slot.current().map(|replica| replica.generation);
    let older = slot.replicas.iter().filter(|replica| Some(replica.generation) != current && is_live(replica));
    older.into_iter().any(|replica| !matches!(replica.state, ReplicaState::Completed | ReplicaState::Failed))
}

/// Limits pending slots to what `max_concurrent` allows beside the slots under way. A slot whose last generation is on
/// a lost node comes first: it may still be at work, so it already holds its share, and failed slots waiting for a
/// restart do not block it. A slot over the limit without any generation is closed, and opened again when the limit
/// allows.
pub(super) fn limit_concurrency<T>(
    pass: &mut GroupPass<'_>,
    request: &PlacementRequest,
    mut pending_slots: Vec<T>,
    closed: &BTreeSet<SlotKey>,
    pending: impl Fn(&T) -> &PendingSlot,
) -> Vec<T> {
    let Some(limit) = request.spec.max_concurrent.filter(|_| request.spec.kind.is_job()) else { return pending_slots };
    let group = pass.view.group(request.group);
    let requested: BTreeSet<SlotKey> = pending_slots.iter().map(|it| pending(it).slot.clone()).collect();
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(slots::given_up).collect();
    let under_way = |slot: &&Slot| {
        let ended = |replica| has_ended(group, replica) || given_up.contains(&slot.key);
        let unfinished = slot.current().is_none_or(|replica| !ended(replica)) || has_older_at_work(slot);
        !closed.contains(&slot.key) && !requested.contains(&slot.key) && unfinished
    };
    let busy = group.desired_slots().filter(under_way).count();
    let backs_off =
        |slot: &&Slot| slot.current().is_some_and(|it| it.state == ReplicaState::Failed) && !has_older_at_work(slot);
    let backing_off = group.desired_slots().filter(under_way).filter(backs_off).count();
    let may_work = |key: &SlotKey| {
        let current = group.slot_at(key).ok().and_then(|at| group.slots[at].current());
        current.is_some_and(|replica| replica.state != ReplicaState::Failed && !has_ended(group, replica))
    };
    pending_slots.sort_by_cached_key(|it| !may_work(&pending(it).slot));
    let lost = pending_slots.iter().filter(|it| may_work(&pending(it).slot)).count();
    let limit = limit as usize;
    // A lost one is counted as at work by `starts_left`, so the limit still holds.
    let allowed = lost.min(limit.saturating_sub(busy - backing_off)).max(limit.saturating_sub(busy));
    let later = pending_slots.split_off(allowed.min(pending_slots.len()));
    let idle = later.iter().map(|it| &pending(it).slot).filter(|key| {
        let slot = group.slot_at(key).ok().map(|at| &group.slots[at]);
        slot.is_some_and(|slot| slot.current().is_none())
    });
    let idle: Vec<SlotKey> = idle.cloned().collect();
    pass.items.extend(idle.into_iter().map(PlanItem::Close));
    pending_slots
}

/// Decides a job with a count.
pub(super) fn decide(pass: &mut GroupPass<'_>, group: GroupIx, request: &mut PlacementRequest) {
    pass.view.waiting.remove(&group);
    let surplus = super::scale::close_surplus(pass, group);
    let mut closed = collect(pass, request, &surplus);
    closed.extend(surplus.iter().cloned());
    super::generation_cutover::stop_superseded(pass, request);
    stop_outdated(pass, request, &closed);
    super::restart::restart_ended(pass, group);
    let mut pending_slots = slots::needs(pass, request, &closed).pending_slots;
    for (pending, node) in reruns(pass.view, request, &closed) {
        request.counts.remove_from(Some(node));
        pending_slots.push(pending);
    }
    pending_slots.sort_by(|a, b| a.slot.cmp(&b.slot));
    // A collected slot is done: it is not replaced.
    pending_slots.extend(super::scale::missing(pass, group, &surplus));
    let pending_slots = limit_concurrency(pass, request, pending_slots, &closed, |pending| pending);
    pass.place(request, pending_slots);
    super::rollout::record_progress(pass, request, &closed);
}
