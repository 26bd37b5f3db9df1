//! Canaries of a rollout that another one superseded.
//!
//! While the new rollout is held, for its own canaries or because it is paused, slots follow the spec before it. One that
//! the superseded rollout changed ahead has neither that spec nor the new one: it goes back, or three versions would
//! run for as long as nobody promotes.
//!
//! Owns: which slots go back. Must not touch: slots that step now; they become the new canaries.

use std::collections::BTreeSet;

use longshore_model::{PlanItem, ReplicaState, SlotKey, replica::DesiredState};

use super::{
    GroupPass,
    rollout::{self, GroupRollout},
    rollout_steps::{blocks_successor, serves},
    slots,
};
use crate::{
    placement::PendingSlot,
    request::PlacementRequest,
    view::groups::{Replica, Slot},
};

/// Whether a generation is of neither the group's spec nor the one before its rollout.
pub(super) fn is_superseded(pass: &GroupPass<'_>, request: &PlacementRequest, replica: &Replica) -> bool {
    let group = pass.view.group(request.group);
    let previous = group.rollout_position.previous.as_ref();
    previous.is_some_and(|previous| !previous.spec.made(&replica.reservation)) && !group.spec.made(&replica.reservation)
}

/// Withdraws superseded canaries. Returns the slots that get a generation of the previous spec; those where an older one
/// of it still runs, or two generations cannot coexist, only lose the superseded one now.
pub(super) fn withdraw(
    pass: &mut GroupPass<'_>,
    request: &mut PlacementRequest,
    outdated: &[SlotKey],
    leaving: &BTreeSet<SlotKey>,
) -> Vec<PendingSlot> {
    let Some(part) = GroupRollout::of(pass.view, request).filter(|_| rollout::holds_growth(pass.view, request)) else {
        return Vec::new();
    };
    let group = pass.view.group(request.group);
    let Some(previous) = group.rollout_position.previous.as_ref() else { return Vec::new() };
    let at = |key: &SlotKey| group.slot_at(key).ok().map(|at| &group.slots[at]);
    let stays = |slot: &Slot| part.outcome_after(slot, &pass.items).is_none() && !leaving.contains(&slot.key);
    let (mut stops, mut pending) = (Vec::new(), Vec::new());
    // With stop-first order one at a time, and only while nothing else is down.
    let mut may_stop = group.desired_slots().all(serves);
    for slot in outdated.iter().filter_map(at).filter(|slot| stays(slot)) {
        let Some(replica) = slot.current().filter(|replica| is_superseded(pass, request, replica)) else { continue };
        let is_older = |other: &&Replica| {
            let runs = other.desired == DesiredState::Run && other.state == ReplicaState::Running;
            runs && other.generation < replica.generation && previous.spec.made(&other.reservation)
        };
        if slot.replicas.iter().any(|other| is_older(&other)) {
            stops.push((slot.key.clone(), replica.generation));
        } else if !blocks_successor(&previous.spec) {
            request.counts.remove_from(slot.counts_on());
            pending.push(slots::next_generation(slot));
        } else if may_stop || !serves(slot) {
            may_stop = false;
            stops.push((slot.key.clone(), replica.generation));
        }
    }
    let going: BTreeSet<SlotKey> = stops.iter().map(|(slot, _)| slot.clone()).collect();
    pass.items.retain(|item| match item {
        PlanItem::Restart { key, .. } | PlanItem::GiveUp { key, .. } => !going.contains(&key.slot),
        _ => true,
    });
    pass.items.extend(stops.into_iter().map(|(slot, generation)| PlanItem::Stop(slot.generation(generation))));
    pending
}
