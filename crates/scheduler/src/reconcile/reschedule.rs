//! Replicas that used up their restarts and go to another node.
//!
//! ```text
//! failure that exhausts ──pause──▶ Reschedule: stop here, stamp, next generation elsewhere
//!                        no move left ─▶ given up
//! ```
//!
//! The pause is the policy's delay at first. It doubles, adds up as Fibonacci's numbers do, or stays, up to the longest
//! allowed; whoever ran for longer than that after the last move starts from the first delay again.
//!
//! Owns: whether a replica may move again, and when. Must not touch: which node it gets; the nodes it left are only
//! handed on as last choices.

use std::{collections::BTreeSet, time::Duration};

use longshore_model::{
    Time,
    replica::Rescheduled,
    service::{DelayFunction, Reschedule},
};

use crate::{
    ask::Ask,
    placement::Vacancy,
    view::{
        NodeIx, View,
        groups::{Group, Replica, Slot},
    },
};

/// The move a replica may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// None any more, or none at all.
    Never,
    /// At that instant, having waited so long.
    At(Time, Duration),
}

/// When an exhausted replica moves. What belongs to a node, by its kind or by its data, has nowhere to go.
pub(super) fn next(group: &Group, slot: &Slot, replica: &Replica) -> Next {
    match &group.spec.reschedule {
        Some(policy) if !group.spec.kind.is_per_node() && !group.spec.is_stateful() => {
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
            // The series began anew with the last move.
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

/// Nodes a slot has left after using up its restarts, in this pass or before.
fn left_behind(view: &View, ask: &Ask, vacancy: &Vacancy) -> BTreeSet<NodeIx> {
    let before = view.group(ask.group).reschedules.get(&vacancy.slot).into_iter().flatten();
    let before = before.filter_map(|made| view.fleet.by_name.get(&made.from).copied());
    before.chain(view.failing_and_supposed_to_stop(ask.group, &vacancy.slot)).collect()
}

/// Tells vacancies that come from nodes they left from all others; each of the first with those nodes.
pub(super) fn split(
    view: &View,
    ask: &Ask,
    vacancies: Vec<Vacancy>,
) -> (Vec<Vacancy>, Vec<(Vacancy, BTreeSet<NodeIx>)>) {
    if ask.spec.reschedule.is_none() {
        return (vacancies, Vec::new());
    }
    let (mut others, mut movers) = (Vec::new(), Vec::new());
    for vacancy in vacancies {
        let left = left_behind(view, ask, &vacancy);
        if left.is_empty() { others.push(vacancy) } else { movers.push((vacancy, left)) }
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

    /// Delays of moves made one after the other, each failing a second after it was made.
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
    fn pauses_stay_double_or_add_up_to_the_longest_allowed() {
        assert_eq!(delays(&policy(DelayFunction::Constant), 4), [5, 5, 5, 5]);
        assert_eq!(delays(&policy(DelayFunction::Exponential), 6), [5, 10, 20, 40, 60, 60]);
        assert_eq!(delays(&policy(DelayFunction::Fibonacci), 8), [5, 5, 10, 15, 25, 40, 60, 60]);
    }

    #[test]
    fn so_many_moves_within_the_interval_and_no_more() {
        let limited = Reschedule { attempts: Some(3), ..policy(DelayFunction::Constant) };
        assert_eq!(delays(&limited, 10).len(), 3);
    }

    #[test]
    fn moves_older_than_the_interval_are_forgiven() {
        let limited = Reschedule { attempts: Some(1), interval: 60 * SECOND, ..policy(DelayFunction::Constant) };
        let moves = [Rescheduled { at: Time::default(), from: NodeName::from("a"), delay: 5 * SECOND }];
        assert_eq!(next_move(&limited, &moves, Time(59_000)), Next::Never);
        assert_eq!(next_move(&limited, &moves, Time(60_000)), Next::At(Time(65_000), 5 * SECOND));
    }

    #[test]
    fn who_ran_for_longer_than_the_longest_pause_starts_from_the_first_again() {
        let policy = policy(DelayFunction::Exponential);
        let moves = [Rescheduled { at: Time::default(), from: NodeName::from("a"), delay: 60 * SECOND }];
        assert_eq!(next_move(&policy, &moves, Time(30_000)), Next::At(Time(90_000), 60 * SECOND));
        assert_eq!(next_move(&policy, &moves, Time(61_000)), Next::At(Time(66_000), 5 * SECOND));
    }
}
