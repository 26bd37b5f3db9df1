//! Reschedules of slots whose restarts are exhausted.
//!
//! Owns: their record, from which the scheduler computes the next delay and whether another attempt is allowed.
//! Must not touch: whether and when a slot is rescheduled.
//! Invariant: the record holds no more attempts than can still count.

use std::time::Duration;

use longshore_model::{
    Event, GroupKey, ReplicaKey, Time,
    replica::{DesiredState, Rescheduled},
};

use crate::{State, plan_commit::stop_replica, state::Group};

/// Attempts kept when their number is unlimited. Delays grow from the last two.
const KEPT_WITHOUT_LIMIT: usize = 5;

impl State {
    pub(crate) fn reschedule(&mut self, key: &ReplicaKey, at: Time, delay: Duration, events: &mut Vec<Event>) {
        let Some(group) = self.groups.get_mut(&key.group) else {
            return;
        };
        // The newest running generation, not the slot's newest: one that came back from a lost node may outlive its
        // replacement.
        let slot = group.slots.get_mut(&key.slot);
        let current = slot.and_then(|slot| slot.replicas.iter_mut().rev().find(|it| it.desired == DesiredState::Run));
        let (Some(replica), Some(policy)) =
            (current.filter(|replica| replica.generation == key.generation), &group.spec.reschedule)
        else {
            return;
        };
        let moves = group.reschedules.entry(key.slot.clone()).or_default();
        match policy.attempts {
            Some(_) => moves.retain(|before| at.since(before.at) < policy.interval),
            None => drop(moves.drain(..moves.len().saturating_sub(KEPT_WITHOUT_LIMIT - 1))),
        }
        moves.push(Rescheduled { at, from: replica.assignment.node.clone(), delay });
        let moves = moves.clone();
        events.push(Event::Rescheduled { group: key.group.clone(), slot: key.slot.clone(), moves });
        stop_replica(&key.group, &key.slot, replica, events);
    }
}

/// Clears the record, so that the attempts are counted from zero.
pub(crate) fn clear(key: &GroupKey, group: &mut Group, events: &mut Vec<Event>) {
    for (slot, _) in std::mem::take(&mut group.reschedules) {
        events.push(Event::Rescheduled { group: key.clone(), slot, moves: Vec::new() });
    }
}
