//! Replicas whose restarts are exhausted and that move to another node.
//!
//! ```text
//! exhausting failure ──delay──▶ Reschedule: stop here, record the move, next generation elsewhere
//!                     no move left ─▶ given up
//! ```
//!
//! The delay starts at the policy's `delay`. It stays constant, doubles or grows as the Fibonacci series, up to
//! `max_delay`; a replica that ran for longer than `max_delay` after its last move starts from the first delay again.
//!
//! Owns: whether a replica may move again, and when. Must not touch: which node it gets; the nodes it left are only
//! passed on as last choices.

use std::{collections::BTreeSet, time::Duration};

use longshore_model::{
    Time,
    replica::Rescheduled,
    service::{DelayFunction, Reschedule},
};

use crate::{
    placement::PendingSlot,
    request::PlacementRequest,
    view::{
        NodeIx, View,
        groups::{Group, Replica, Slot},
    },
};

/// The next move of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It does not move (again).
    Never,
    /// It moves at that time, after that delay.
    At(Time, Duration),
}

/// When a replica with exhausted restarts moves. A global or stateful one is bound to its node and never does.
pub(super) fn next(group: &Group, slot: &Slot, replica: &Replica) -> Next {
    match &group.spec.reschedule {
        Some(policy) if group.spec.is_rescheduled() => {
            let moves = group.reschedules.get(&slot.key).map_or(&[][..], Vec::as_slice);
            next_move(policy, moves, replica.since)
        }
        Some(_) | None => Next::Never,
    }
}

fn next_move(policy: &Reschedule, moves: &[Rescheduled], failed_at: Time) -> Next {
    let delay = next_delay(policy, moves, failed_at);
    let allowed = match policy.attempts {
        None => true,
        Some(limit) => {
            let recent = moves.iter().filter(|made| failed_at.since(made.at) < policy.interval).count();
            recent < limit as usize && delay < policy.interval
        }
    };
    if allowed { Next::At(failed_at.after(delay), delay) } else { Next::Never }
}

fn next_delay(policy: &Reschedule, moves: &[Rescheduled], failed_at: Time) -> Duration {
    let Some(last) = moves.last() else { return policy.delay.min(policy.max_delay) };
    let grown = match policy.delay_function {
        DelayFunction::Constant => policy.delay,
        DelayFunction::Exponential => last.delay.saturating_mul(2),
        DelayFunction::Fibonacci => match moves {
            // The series was reset at the last move.
            [.., before, last] if before.delay > last.delay => policy.delay,
            [.., before, last] => before.delay.saturating_add(last.delay),
            [_] | [] => policy.delay,
        },
    };
    if grown >= policy.max_delay && failed_at.since(last.at) > policy.max_delay {
        return policy.delay.min(policy.max_delay);
    }
    grown.min(policy.max_delay)
}

/// Nodes a slot has left after exhausting its restarts, in this pass or before.
fn left_behind(view: &View, request: &PlacementRequest, pending: &PendingSlot) -> BTreeSet<NodeIx> {
    let before = view.group(request.group).reschedules.get(&pending.slot).into_iter().flatten();
    let before = before.filter_map(|made| view.nodes.by_name.get(&made.from).copied());
    before.chain(view.failed_nodes_stopped_by_pass(request.group, &pending.slot)).collect()
}

/// Splits pending slots into those that left no node, and those that did, each with the nodes it left.
pub(super) fn split(
    view: &View,
    request: &PlacementRequest,
    pending_slots: Vec<PendingSlot>,
) -> (Vec<PendingSlot>, Vec<(PendingSlot, BTreeSet<NodeIx>)>) {
    if request.spec.reschedule.is_none() {
        return (pending_slots, Vec::new());
    }
    let (mut others, mut movers) = (Vec::new(), Vec::new());
    for pending in pending_slots {
        let left = left_behind(view, request, &pending);
        if left.is_empty() { others.push(pending) } else { movers.push((pending, left)) }
    }
    (others, movers)
}

#[cfg(test)]
mod tests {
    use longshore_model::NodeName;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy(delay_function: DelayFunction) -> Reschedule {
        Reschedule { delay: 5 * SECOND, max_delay: 60 * SECOND, delay_function, ..Reschedule::default() }
    }

    /// Delays of successive moves, each failing one second after it was made.
    fn delays(policy: &Reschedule, count: usize) -> Vec<u64> {
        let mut moves: Vec<Rescheduled> = Vec::new();
        let mut failed_at = Time::default();
        while moves.len() < count {
            let Next::At(at, delay) = next_move(policy, &moves, failed_at) else { break };
            moves.push(Rescheduled { at, from: NodeName::from("a"), delay });
            failed_at = at.after(SECOND);
        }
        moves.iter().map(|made| made.delay.as_secs()).collect()
    }

    #[test]
    fn delays_are_constant_exponential_or_fibonacci_up_to_the_maximum() {
        assert_eq!(delays(&policy(DelayFunction::Constant), 4), [5, 5, 5, 5]);
        assert_eq!(delays(&policy(DelayFunction::Exponential), 6), [5, 10, 20, 40, 60, 60]);
        assert_eq!(delays(&policy(DelayFunction::Fibonacci), 8), [5, 5, 10, 15, 25, 40, 60, 60]);
    }

    #[test]
    fn moves_within_the_interval_are_limited() {
        let limited = Reschedule { attempts: Some(3), ..policy(DelayFunction::Constant) };
        assert_eq!(delays(&limited, 10).len(), 3);
    }

    #[test]
    fn moves_older_than_the_interval_do_not_count() {
        let limited = Reschedule { attempts: Some(1), interval: 60 * SECOND, ..policy(DelayFunction::Constant) };
        let moves = [Rescheduled { at: Time::default(), from: NodeName::from("a"), delay: 5 * SECOND }];
        assert_eq!(next_move(&limited, &moves, Time(59_000)), Next::Never);
        assert_eq!(next_move(&limited, &moves, Time(60_000)), Next::At(Time(65_000), 5 * SECOND));
    }

    #[test]
    fn a_run_longer_than_the_maximum_delay_resets_the_delay() {
        let policy = policy(DelayFunction::Exponential);
        let moves = [Rescheduled { at: Time::default(), from: NodeName::from("a"), delay: 60 * SECOND }];
        assert_eq!(next_move(&policy, &moves, Time(30_000)), Next::At(Time(90_000), 60 * SECOND));
        assert_eq!(next_move(&policy, &moves, Time(61_000)), Next::At(Time(66_000), 5 * SECOND));
    }
}
