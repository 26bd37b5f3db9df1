//! Slots that need a new generation, and generations that are no longer needed.
//!
//! A replica stays while its node is valid: active or paused, not down, and still feasible. A replica on a node that is
//! down is replaced, unless it may reconnect; on a live node that is draining or no longer feasible it moves
//! make-before-break. A stateful replica never leaves its node: it waits there.
//!
//! Owns: validity of an existing placement. Must not touch: the choice of the next node.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Explanation, Generation, Health, Placement, PlanItem, Reason, Reservation, RuntimeCode, SlotGeneration, SlotKey,
    Time, service::ServiceSpec,
};
use smallvec::SmallVec;

use super::{
    GroupPass,
    buckets::{self, Bucket},
    generation_cutover, jobs, mode_change, node_loss,
    rollout::{self, FollowedSpec, GroupRollout},
    rollout_steps::blocks_successor,
};
use crate::{
    explain,
    feasibility::gates::dependencies,
    placement::PendingSlot,
    request::{PlacementRequest, replica_fingerprint},
    view::{
        GroupIx, NodeIx, View,
        groups::{Replica, Slot},
    },
};

/// What a slot needs.
enum Need {
    /// It is where it should be.
    Nothing,
    /// Its next generation, on some node.
    Place,
    /// Its node is down and holds its data.
    WaitForHome,
    /// Its spec changed; it is updated when its step comes.
    Update,
}

/// Whether a desired slot has no generation that could run.
pub(crate) fn is_without_node(view: &View, slot: &Slot) -> bool {
    usable_replica(view, slot).is_none()
}

/// The generation of a slot that needs no replacement: it is desired and its node is not down, or it was given up.
pub(super) fn usable_replica<'a>(view: &View, slot: &'a Slot) -> Option<&'a Replica> {
    slot.current().filter(|replica| {
        let given_up = replica.code == Some(RuntimeCode::RestartExhausted);
        given_up || view.nodes.node(replica.node).health != Health::Down
    })
}

/// Stops generations that serve nobody as soon as this pass has placed a successor, instead of restarting them. A node
/// that is down receives the stop when it is back.
pub(super) fn stop_replaced(pass: &mut GroupPass<'_>, group: GroupIx) {
    let record = pass.view.group(group);
    if record.slots.is_empty() {
        return;
    }
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(given_up).collect();
    let mut stops: BTreeMap<SlotKey, Generation> = BTreeMap::new();
    for item in &pass.items {
        let PlanItem::Place(placement) = item else { continue };
        let replica = record.slot_at(&placement.key.slot).ok().and_then(|at| record.slots[at].current());
        let slot = record.slot_at(&placement.key.slot).ok().map(|at| &record.slots[at]);
        let useless = |replica: &&Replica| {
            let stays_served = slot.is_some_and(|slot| generation_cutover::older_serves(pass.view, slot, replica));
            let serves_nobody = generation_cutover::serves_nobody(pass.view, &record.spec, replica, pass.now);
            serves_nobody || stays_served || given_up.contains(&placement.key.slot)
        };
        if let Some(replica) = replica.filter(useless) {
            stops.insert(placement.key.slot.clone(), replica.generation);
        }
    }
    if !stops.is_empty() {
        pass.items.retain(|item| match item {
            PlanItem::Restart { key, .. } | PlanItem::GiveUp { key, .. } => !stops.contains_key(&key.slot),
            PlanItem::Open(_)
            | PlanItem::Place(_)
            | PlanItem::Wait(_)
            | PlanItem::Stop(_)
            | PlanItem::Close(_)
            | PlanItem::Step { .. }
            | PlanItem::NoRoom { .. }
            | PlanItem::Blocked { .. }
            | PlanItem::Promote
            | PlanItem::Reschedule { .. }
            | PlanItem::Collect(_)
            | PlanItem::EvenOutDone => true,
        });
    }
    pass.items.extend(stops.into_iter().map(|(slot, generation)| PlanItem::Stop(SlotGeneration { slot, generation })));
}

/// The slots of a group by what they need.
#[derive(Default)]
pub(super) struct Needs {
    /// Their next generation, in slot order.
    pub(super) pending_slots: Vec<PendingSlot>,
    /// Their next generation, with the previous spec: their step in the rollout has not come.
    pub(super) with_previous_spec: Vec<PendingSlot>,
    /// The group's current spec, when their step comes.
    pub(super) outdated: Vec<SlotKey>,
    /// Those of `outdated` that need another node in any case, so that they step at once.
    pub(super) leaving: BTreeSet<SlotKey>,
}

/// Sorts the slots of a group by what they need. Slots that leave their node do not count on it any more.
pub(super) fn needs(pass: &mut GroupPass<'_>, request: &mut PlacementRequest, closed: &BTreeSet<SlotKey>) -> Needs {
    let group = request.group;
    let mut needs = Needs::default();
    let mut waiting_for_home = Vec::new();
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(given_up).collect();
    let stopped: BTreeSet<&SlotGeneration> = pass.items.iter().filter_map(stopped).collect();
    let previous = PlacementRequest::for_previous_spec(pass.view, request, pass.now);
    let free = GroupRollout::of(pass.view, request).is_some_and(|part| part.is_free());
    for slot in pass.view.group(group).desired_slots() {
        let leaving = slot.counts_on();
        if closed.contains(&slot.key) {
            request.counts.remove_from(leaving);
            continue;
        }
        // A slot of the old mode serves unchanged until `mode_change` closes it.
        if mode_change::is_of_other_mode(&request.spec, &slot.key) {
            continue;
        }
        // A slot stopped in this turn is decided after it has stopped.
        if slot.current().is_some_and(|replica| stopped.contains(&slot.key.generation(replica.generation))) {
            continue;
        }
        let own =
            previous.as_ref().filter(|_| rollout::followed_spec(pass.view, request, slot) == FollowedSpec::Previous);
        match need(pass.view, own.unwrap_or(request), slot, &given_up, pass.now) {
            Need::Place if own.is_some() && free && slot.current().is_some_and(|it| is_outdated(request, it)) => {
                needs.outdated.push(slot.key.clone());
                needs.leaving.insert(slot.key.clone());
            }
            Need::Place => {
                request.counts.remove_from(leaving);
                let pending_slots =
                    if own.is_some() { &mut needs.with_previous_spec } else { &mut needs.pending_slots };
                pending_slots.push(next_generation(slot));
            }
            Need::WaitForHome => waiting_for_home.push(slot.key.clone()),
            Need::Nothing | Need::Update => {
                if slot.current().is_some_and(|replica| is_outdated(request, replica)) {
                    needs.outdated.push(slot.key.clone());
                }
            }
        }
    }
    if !waiting_for_home.is_empty() {
        let why = home_node_offline(pass.view, request);
        pass.wait(request, waiting_for_home, &why);
    }
    needs
}

/// Keeps the replaced generation's dependency fingerprints while a dependency is not up to date yet, so that the
/// replacement is still restarted after it.
pub(super) fn keep_old_dependency_fingerprints(view: &View, request: &PlacementRequest, placed: &mut [Placement]) {
    if request.restarts_after.is_empty() || dependencies::unmet(view, &request.key, &request.spec).is_none() {
        return;
    }
    let group = view.group(request.group);
    for placement in placed {
        let last = group.slot_at(&placement.key.slot).ok().and_then(|at| group.slots[at].replicas.last());
        if let Some(last) = last.filter(|last| {
            !last
                .reservation
                .matches_dependencies(&request.restarts_after, &request.reservation.dependency_fingerprints)
        }) {
            let dependency_fingerprints = last.reservation.dependency_fingerprints.clone();
            placement.reservation =
                Some(Arc::new(Reservation { dependency_fingerprints, ..Reservation::clone(&request.reservation) }));
        }
    }
}

/// Slots that need another node but could not step: they are placed with the previous spec.
pub(super) fn moving_without_step(
    pass: &GroupPass<'_>,
    request: &mut PlacementRequest,
    leaving: &BTreeSet<SlotKey>,
) -> Vec<PendingSlot> {
    let stepped = |slot: &SlotKey| {
        pass.items.iter().any(|item| matches!(item, PlanItem::Step { slot: other, .. } if other == slot))
    };
    let group = pass.view.group(request.group);
    let left = leaving.iter().filter(|slot| !stepped(slot)).filter_map(|slot| group.slot_at(slot).ok());
    let left: Vec<&Slot> = left.map(|at| &group.slots[at]).collect();
    for slot in &left {
        request.counts.remove_from(slot.counts_on());
    }
    left.into_iter().map(next_generation).collect()
}

/// The explanation for replicas whose data is on a node that is down.
pub(crate) fn home_node_offline(view: &View, request: &PlacementRequest) -> Explanation {
    let mut why = explain::nowhere(view, request);
    why.reason = Reason::VolumeHomeNodeOffline;
    // A bind mount has no volume that a filter could check, but its data is just as unavailable on every other node.
    why.refused.insert(why.reason, why.nodes);
    why.fits = 0;
    why
}

/// Whether a slot waits for a node that is down because its data is there.
pub(crate) fn waits_for_home(view: &View, request: &PlacementRequest, pending: &PendingSlot) -> bool {
    request.spec.is_stateful() && node_of(view, request.group, &pending.slot).is_some()
}

/// Slots running where they may not stay, each with its next generation.
pub(crate) fn slots_to_move(view: &View, request: &PlacementRequest, now: Time) -> Vec<PendingSlot> {
    let running = view.group(request.group).desired_slots().filter(|slot| usable_replica(view, slot).is_some());
    let moves = |slot: &&Slot| matches!(need(view, request, slot, &BTreeSet::new(), now), Need::Place);
    running.filter(moves).map(next_generation).collect()
}

/// The node a slot counts on.
pub(crate) fn counts_on(view: &View, group: GroupIx, slot: &SlotKey) -> Option<NodeIx> {
    let record = view.group(group);
    record.slots[record.slot_at(slot).ok()?].counts_on()
}

/// Other nodes with an older generation of a slot that is still desired.
pub(super) fn overlap_nodes(view: &View, group: GroupIx, slot: &SlotKey) -> SmallVec<[NodeIx; 1]> {
    let record = view.group(group);
    record.slot_at(slot).map_or_else(|_| SmallVec::new(), |at| record.slots[at].overlap_nodes())
}

/// The node a slot's current generation is on.
pub(crate) fn node_of(view: &View, group: GroupIx, slot: &SlotKey) -> Option<NodeIx> {
    let record = view.group(group);
    record.slots[record.slot_at(slot).ok()?].current().map(|replica| replica.node)
}

pub(crate) fn next_generation(slot: &Slot) -> PendingSlot {
    PendingSlot { slot: slot.key.clone(), generation: Generation(slot.newest.0 + 1) }
}

fn need(view: &View, request: &PlacementRequest, slot: &Slot, given_up: &BTreeSet<&SlotKey>, now: Time) -> Need {
    let Some(replica) = slot.current() else {
        return if may_have_successor(view, &request.spec, slot) { Need::Place } else { Need::Nothing };
    };
    let updated = || if is_outdated(request, replica) { Need::Update } else { Need::Nothing };
    match buckets::of(view, request, slot, replica, given_up, now) {
        Bucket::Lost | Bucket::Disconnecting | Bucket::Expiring if request.spec.is_stateful() => Need::WaitForHome,
        Bucket::Disconnecting if node_loss::is_replacement_held(view, &request.spec, replica, now) => Need::Nothing,
        Bucket::Lost | Bucket::Disconnecting | Bucket::Expiring | Bucket::Migrating => Need::Place,
        Bucket::Ignored if request.spec.kind.is_job() && jobs::has_ended(view.group(request.group), replica) => {
            Need::Nothing
        }
        // A given-up replica stays given up, also when its node is lost: only another spec, or the next apply, tries
        // again.
        Bucket::Ignored
        | Bucket::Reconnecting
        | Bucket::RescheduleNow
        | Bucket::RescheduleLater
        | Bucket::Untainted => updated(),
    }
}

/// Whether a generation was created from another spec, kind or secret version, or before a restart was requested of
/// the service or of a dependency with `restart: true`.
pub(crate) fn is_outdated(request: &PlacementRequest, replica: &Replica) -> bool {
    !replica_fingerprint::matches_reservation(&replica.reservation, &request.reservation, &request.restarts_after)
}

/// Whether a slot without a desired generation can get its next one now, or must wait for the old one to stop. One on
/// a node that is down blocks nothing here: its port is not needed there, and a filter lets nobody with a volume run
/// beside a generation that holds one there.
pub(super) fn may_have_successor(view: &View, spec: &ServiceSpec, slot: &Slot) -> bool {
    let mut alive = slot.replicas.iter().filter(|replica| view.nodes.node(replica.node).health != Health::Down);
    slot.current().is_none() && (alive.next().is_none() || !blocks_successor(spec))
}

pub(super) fn given_up(item: &PlanItem) -> Option<&SlotKey> {
    if let PlanItem::GiveUp { key, .. } = item { Some(&key.slot) } else { None }
}

pub(super) fn stopped(item: &PlanItem) -> Option<&SlotGeneration> {
    if let PlanItem::Stop(key) = item { Some(key) } else { None }
}
