//! Services that run one replica on every node that fits.
//!
//! An infeasible node is not a target; one that is merely full is a target whose slot waits, with its reason. Slots are
//! named after their node, so that a node that joins or leaves renames no other slot.
//!
//! Owns: the set of target nodes. Must not touch: other nodes; a global replica is never placed anywhere else.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::{
    Explanation, Generation, Health, Intent, NodeName, PlanItem, ServiceSpec, SlotGeneration, SlotKey, Time,
    replica::DesiredState,
};

use super::{
    GroupPass, generation_cutover, jobs, mode_change, node_loss, restart,
    revisit_unplaced::UnplacedSlots,
    rollout::{self, FollowedSpec},
    rollout_steps, slots, step_deadline, superseded_canary,
};
use crate::{
    explain,
    feasibility::{self, gates},
    placement::{self, PendingSlot},
    request::PlacementRequest,
    view::{NodeIx, View, groups::Slot, node_table::takes_work},
};

/// Decides a global service: one replica on every target node.
pub(super) fn decide(pass: &mut GroupPass<'_>, request: &mut PlacementRequest) {
    let group = request.group;
    let mut closed = close_off_target(pass, request);
    if request.spec.kind.is_job() {
        closed.extend(jobs::collect(pass, request, &closed));
        jobs::stop_outdated(pass, request, &closed);
    }
    for slot in &closed {
        request.counts.remove_from(slots::counts_on(pass.view, group, slot));
    }
    generation_cutover::stop_superseded(pass, request);
    restart::restart_ended(pass, group);
    rollout::return_to_older(pass, request);
    rollout::judge_steps(pass, request);
    pass.view.waiting.remove(&group);
    let (previous, mut pending_slots) = pending_slots(pass, request, &closed);
    if request.spec.kind.is_job() {
        let view = &*pass.view;
        let reruns = jobs::reruns(view, request, &closed).into_iter();
        pending_slots.extend(reruns.filter(|(_, node)| takes_work(view.nodes.node(*node))));
    }
    let pending_slots = jobs::limit_concurrency(pass, request, pending_slots, &closed, |(pending, _)| pending);
    place_with_previous_spec(pass, request, previous);
    let outdated = outdated(pass, request, &closed);
    let due = rollout_steps::take_steps(pass, request, &outdated, &BTreeSet::new(), &closed);
    let back = superseded_canary::withdraw(pass, request, &outdated, &BTreeSet::new());
    let node = |pending: &PendingSlot| slots::node_of(pass.view, group, &pending.slot);
    let back = back.into_iter().filter_map(|pending| Some((node(&pending)?, pending)));
    let back = back.map(|(node, pending)| (pending, node)).collect();
    place_with_previous_spec(pass, request, back);
    place_each(pass, request, pending_slots);
    mode_change::close_ahead(pass, request, &mut closed);
    step_deadline::watch(pass, request, &due);
    rollout::record_progress(pass, request, &closed);
}

/// Places each replica on its node, or records why not.
fn place_each(pass: &mut GroupPass<'_>, request: &mut PlacementRequest, pending_slots: Vec<(PendingSlot, NodeIx)>) {
    super::assume_stops(pass.view, request.group, &pass.items);
    let mut barred = Vec::new();
    let mut full = Vec::new();
    let mut placed = Vec::new();
    for (pending, node) in pending_slots {
        request.counts.remove_from(slots::counts_on(pass.view, request.group, &pending.slot));
        if let Some(refusal) = gates::blocking(pass.view, request, &pending) {
            barred.push((pending, explain::gated(pass.view, refusal)));
            continue;
        }
        match placement::place_at(pass.view, request, pending, node) {
            Ok(found) => placed.push(found),
            Err(pending) => full.push((pending, node)),
        }
    }
    let moved = rollout::moved(pass.view, request, &placed);
    pass.items.extend(placed.into_iter().map(PlanItem::Place));
    pass.items.extend(moved);
    slots::stop_replaced(pass, request.group);
    pass.need_room(full.iter().map(|(pending, _)| pending.clone()).collect());
    // Explained after all placements: a replica placed on one node can be the reason another node refuses.
    let explained = full.into_iter().map(|(pending, node)| (pending, explain::at_node(pass.view, request, node)));
    let waits: Vec<(PendingSlot, Explanation)> = barred.into_iter().chain(explained).collect();
    let left = waits.iter().map(|(pending, _)| pending.clone()).collect();
    pass.unplaced = UnplacedSlots::new(pass.view, request, left, pass.items.len());
    for (pending, why) in waits {
        pass.wait(request, vec![pending.slot], &why);
    }
}

/// Tries slots again that were left unplaced earlier in the pass.
pub(super) fn place_again(pass: &mut GroupPass<'_>, request: &mut PlacementRequest, pending_slots: Vec<PendingSlot>) {
    let node = |pending: &PendingSlot| match &pending.slot {
        SlotKey::Node(name) => pass.view.nodes.by_name.get(name).copied(),
        SlotKey::Index(_) => None,
    };
    let pending_slots = pending_slots.into_iter().filter_map(|pending| Some((node(&pending)?, pending)));
    let pending_slots: Vec<_> = pending_slots.map(|(node, pending)| (pending, node)).collect();
    place_each(pass, request, pending_slots);
}

/// A slot to be placed, and its node.
type NodeSlot = (PendingSlot, NodeIx);

/// All slots to be placed, with their nodes: first those that get the previous spec, then the others.
fn pending_slots(
    pass: &GroupPass<'_>,
    request: &PlacementRequest,
    closed: &BTreeSet<SlotKey>,
) -> (Vec<NodeSlot>, Vec<NodeSlot>) {
    let view = &*pass.view;
    let empty = view.nodes.by_name_order().filter_map(|node| Some((pending(view, request, node)?, node)));
    let empty = empty.filter(|(pending, _)| !closed.contains(&pending.slot));
    let group = view.group(request.group);
    let is_held = rollout::holds_growth(view, request);
    let mut lost_canaries = rollout::lost_canaries(view, request);
    let gets_previous_spec = |(pending, _): &NodeSlot| {
        let slot = group.slot_at(&pending.slot).ok().map(|at| &group.slots[at]);
        match slot {
            Some(slot) => rollout::followed_spec(view, request, slot) == FollowedSpec::Previous,
            None if lost_canaries > 0 => {
                lost_canaries -= 1;
                false
            }
            None => is_held,
        }
    };
    empty.partition(gets_previous_spec)
}

/// Places slots whose step in a rollout has not come with the previous spec, or records why not.
fn place_with_previous_spec(
    pass: &mut GroupPass<'_>,
    request: &mut PlacementRequest,
    pending_slots: Vec<(PendingSlot, NodeIx)>,
) {
    let Some(mut previous) =
        PlacementRequest::for_previous_spec(pass.view, request, pass.now).filter(|_| !pending_slots.is_empty())
    else {
        return;
    };
    for (pending, node) in pending_slots {
        previous.counts.remove_from(slots::counts_on(pass.view, request.group, &pending.slot));
        match placement::place_at(pass.view, &mut previous, pending, node) {
            Ok(mut placed) => {
                placed.reservation = Some(Arc::clone(&previous.reservation));
                pass.items.push(PlanItem::Place(placed));
            }
            Err(pending) => {
                let why = explain::at_node(pass.view, &previous, node);
                pass.wait(&previous, vec![pending.slot], &why);
            }
        }
    }
}

/// Slots with an outdated spec, on nodes that take work.
pub(super) fn outdated(pass: &GroupPass<'_>, request: &PlacementRequest, closed: &BTreeSet<SlotKey>) -> Vec<SlotKey> {
    let view = &*pass.view;
    // A generation stopped in this turn, so that an older one becomes current again, is decided after it has stopped.
    let stopped: BTreeSet<&SlotGeneration> = pass.items.iter().filter_map(slots::stopped).collect();
    let goes =
        |slot: &Slot| slot.current().is_some_and(|replica| stopped.contains(&slot.key.generation(replica.generation)));
    let own = view
        .group(request.group)
        .desired_slots()
        .filter(|slot| !mode_change::is_of_other_mode(&request.spec, &slot.key));
    let staying = own.filter(|slot| !closed.contains(&slot.key) && !goes(slot));
    let changed = staying.filter(|slot| slot.current().is_some_and(|replica| slots::is_outdated(request, replica)));
    let changed = changed.filter(|slot| slot.current().is_some_and(|it| takes_work(view.nodes.node(it.node))));
    changed.map(|slot| slot.key.clone()).collect()
}

/// The slot of a target node that has no replica.
fn pending(view: &View, request: &PlacementRequest, node: NodeIx) -> Option<PendingSlot> {
    let record = view.nodes.node(node);
    if !feasibility::may_stay(request, view, node) {
        return None;
    }
    let group = view.group(request.group);
    let key = SlotKey::Node(record.name.clone());
    let generation = match group.slot_at(&key) {
        // A job that is done on the node is done, also after its record was collected.
        Err(_) if group.collected.nodes.contains_key(&record.name) => return None,
        // A node that takes no new work is not a target; its existing slot waits there.
        Err(_) if !takes_work(record) => return None,
        Err(_) => Generation(1),
        Ok(at) if group.slots[at].desired == DesiredState::Stop => return None,
        Ok(at) if slots::may_have_successor(view, &request.spec, &group.slots[at]) => {
            Generation(group.slots[at].newest.0 + 1)
        }
        Ok(_) => return None,
    };
    Some(PendingSlot { slot: key, generation })
}

/// Closes the slots of nodes that are no longer targets, including nodes that are draining or down: the count follows
/// the present nodes. A paused or suspect node keeps its replica, and completed jobs stay completed.
fn close_off_target(pass: &mut GroupPass<'_>, request: &PlacementRequest) -> BTreeSet<SlotKey> {
    let view = &*pass.view;
    let group = view.group(request.group);
    let is_done = |slot: &Slot| slot.current().is_some_and(|replica| jobs::has_ended(group, replica));
    // Before its step in the rollout a replica is subject to the previous spec's disconnect rules.
    let waited_by = |slot: &Slot| rollout::spec_of(view, request, slot);
    let stays = |name: &NodeName, slot: &Slot| {
        view.nodes.by_name.get(name).is_some_and(|node| {
            // What has ended is shown until it is collected, whatever happens to its node.
            let done = is_done(slot);
            done || (is_there(view, waited_by(slot), *node, slot, pass.now)
                && feasibility::may_stay(request, view, *node))
        })
    };
    let own = |slot: &Slot| match &slot.key {
        SlotKey::Node(name) => Some(stays(name, slot)),
        // Left over from when the service had a count.
        SlotKey::Index(_) => None,
    };
    let gone = group.desired_slots().filter(|slot| own(slot) == Some(false)).map(|slot| slot.key.clone());
    let mut gone: BTreeSet<SlotKey> = gone.collect();
    if group.desired_slots().any(|slot| own(slot).is_none()) {
        let staying = group.desired_slots().filter(|slot| own(slot) == Some(true)).count();
        let is_new = |node: &NodeIx| pending(view, request, *node).is_some_and(|it| group.slot_at(&it.slot).is_err());
        let wanted = staying + view.nodes.by_name_order().filter(is_new).count();
        let going = mode_change::slots_to_close(view, group, wanted, &gone, pass.now);
        gone.extend(going);
    }
    pass.items.extend(gone.iter().cloned().map(PlanItem::Close));
    gone
}

/// Whether a node counts as present for its replica: it is not draining, and it is up or may reconnect.
fn is_there(view: &View, spec: &ServiceSpec, node: NodeIx, slot: &Slot, now: Time) -> bool {
    let group = view.nodes.node(node);
    let waited_for = || {
        let current = slot.current();
        current.is_some_and(|it| {
            node_loss::is_replacement_held(view, spec, it, now) || node_loss::may_reconnect(view, spec, it, now)
        })
    };
    matches!(group.intent, Intent::Active | Intent::Paused) && (group.health != Health::Down || waited_for())
}

/// Why the slot of each node waits: the reason and details are those of its node, the counts those of all nodes.
pub(crate) fn explain_each(
    view: &View,
    request: &PlacementRequest,
    unplaced: Vec<PendingSlot>,
) -> Vec<(Vec<SlotKey>, Explanation)> {
    let mut explained: Vec<(Vec<SlotKey>, Explanation)> = Vec::new();
    let everywhere = explain::nowhere(view, request);
    for pending in unplaced {
        let SlotKey::Node(name) = &pending.slot else { continue };
        let Some(&node) = view.nodes.by_name.get(name) else { continue };
        let why = match gates::blocking(view, request, &pending) {
            Some(refusal) => explain::gated(view, refusal),
            None => Explanation {
                nodes: everywhere.nodes,
                fits: everywhere.fits,
                refused: everywhere.refused.clone(),
                ..explain::at_node(view, request, node)
            },
        };
        explained.push((vec![pending.slot], why));
    }
    explained
}
