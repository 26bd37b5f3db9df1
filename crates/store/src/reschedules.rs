//! Moves of slots that used up their restarts.
//!
//! Owns: the record of those moves, from which the scheduler works out the next pause and whether there is one.
//! Must not touch: whether and when a slot moves.
//! Invariant: the record holds no more moves than can still count.

use std::time::Duration;

use longshore_model::{
    Event, Generation, GroupKey, SlotKey, Time,
    replica::{Rescheduled, Wanted},
};

use crate::{State, commit::stop_replica, state::Group};

/// Moves kept where their number is not limited: pauses grow from the last two.
const KEPT_WITHOUT_LIMIT: usize = 5;

impl State {
    pub(crate) fn reschedule(
        &mut self,
        key: &GroupKey,
        slot_key: &SlotKey,
        generation: Generation,
        (at, delay): (Time, Duration),
        events: &mut Vec<Event>,
    ) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let slot = group.slots.get_mut(slot_key).filter(|slot| slot.newest == generation);
        let newest = slot.and_then(|slot| slot.replicas.last_mut());
        let (Some(replica), Some(policy)) =
            (newest.filter(|replica| replica.wanted == Wanted::Run), &group.spec.reschedule)
        else {
            return;
        };
        let moves = group.reschedules.entry(slot_key.clone()).or_default();
        match policy.attempts {
            Some(_) => moves.retain(|before| at.since(before.at) < policy.interval),
            None => drop(moves.drain(..moves.len().saturating_sub(KEPT_WITHOUT_LIMIT - 1))),
        }
        moves.push(Rescheduled { at, from: replica.assignment.node.clone(), delay });
        let moves = moves.clone();
        events.push(Event::Rescheduled { group: key.clone(), slot: slot_key.clone(), moves });
        stop_replica(key, slot_key, replica, events);
    }
}

/// Another chance begins with an empty record.
pub(crate) fn forgive(key: &GroupKey, group: &mut Group, events: &mut Vec<Event>) {
    for (slot, _) in std::mem::take(&mut group.reschedules) {
        events.push(Event::Rescheduled { group: key.clone(), slot, moves: Vec::new() });
    }
}
