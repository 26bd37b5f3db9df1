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
        // Not the newest there ever was: one that came back from a lost node may have outlived its replacement.
        let slot = group.slots.get_mut(slot_key);
        let current = slot.and_then(|slot| slot.replicas.iter_mut().rev().find(|it| it.wanted == Wanted::Run));
        let (Some(replica), Some(policy)) =
            (current.filter(|replica| replica.generation == generation), &group.spec.reschedule)
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
