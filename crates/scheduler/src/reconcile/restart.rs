//! Replicas that ended: restarted after a back-off, moved, or given up.
//!
//! Owns: the restart budget. The third failure in a row is the last (so two restarts happen), unless the service says
//! otherwise; a run that lasted its window resets the count, which the state machine keeps. With `restart: always` the
//! budget begins anew after a pause. The back-off has a count of its own, which only a run of ten minutes resets.

use std::time::Duration;

use longshore_model::{
    Attempt, PlanItem, ReplicaState, RuntimeCode, ServiceKind, ServiceSpec, Time, replica::RestartHistory,
    service::RestartCondition,
};

use super::{
    GroupPass, generation_cutover, jobs,
    reschedule::{self, Next},
};
use crate::view::{
    GroupIx, View,
    groups::{Group, Replica, Slot},
};

/// Failures in a row that exhaust a replica's restarts.
const DEFAULT_MAX_FAILURES: u32 = 3;
/// The back-off after the second failure; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(5);
/// The longest back-off, and the longest pause before a return.
const MAX_BACKOFF: Duration = Duration::from_mins(5);
/// The pause before the first return of a replica with exhausted restarts; it doubles with each further one.
const RETURN_PAUSE: Duration = Duration::from_secs(30);

/// What is to be done about an ended replica.
enum Due {
    Nothing,
    Restart,
    Later(Time),
    /// It moves to another node, after that delay.
    Reschedule(Duration),
    GiveUp,
}

/// When a replica whose restarts are exhausted since then starts again by itself: 30 s later, then 60 s … 5 min. `None` if
/// it does not.
pub fn returns_at(spec: &ServiceSpec, exhausted_at: Time, history: RestartHistory) -> Option<Time> {
    let pause = RETURN_PAUSE.saturating_mul(1 << history.returns.min(16)).min(MAX_BACKOFF);
    spec.returns_after_exhaustion().then(|| exhausted_at.after(pause))
}

/// Decides about every ended replica of a group.
pub(super) fn restart_ended(pass: &mut GroupPass<'_>, group: GroupIx) {
    let record = pass.view.group(group);
    let mut items = Vec::new();
    let mut wake_at = None;
    let mut leaving = Vec::new();
    let mut starts_left = jobs::starts_left(record);
    for slot in record.desired_slots() {
        let Some(replica) = slot.current() else { continue };
        match due(record, slot, replica, pass.now) {
            Due::Nothing => {}
            Due::Reschedule(_) | Due::GiveUp if is_failed_move(pass.view, slot, replica) => {
                items.push(PlanItem::Stop(slot.key.generation(replica.generation)));
            }
            // The node could not receive it: the replica is replaced elsewhere, or restarted once its node is back.
            Due::Restart if pass.view.nodes.is_down(replica.node) => {}
            // A job's restart is subject to `max_concurrent` like its other starts.
            Due::Restart if counts_as_start(slot, replica) && starts_left == 0 => {}
            Due::Restart => {
                starts_left -= usize::from(counts_as_start(slot, replica));
                items.push(restart(slot, replica));
            }
            Due::Later(at) => wake_at = Some(wake_at.map_or(at, |earlier: Time| earlier.min(at))),
            Due::Reschedule(delay) => {
                let key = slot.key.generation(replica.generation);
                leaving.push(key.clone());
                items.push(PlanItem::Reschedule { key, delay });
            }
            Due::GiveUp => items.push(give_up(slot, replica)),
        }
    }
    pass.items.extend(items);
    // Assumed stopped at once, so that this pass looks for the next node.
    for key in &leaving {
        pass.view.assume_stopping(group, key);
    }
    if let Some(at) = wake_at {
        pass.wake(at);
    }
}

/// Whether restarting a replica adds one at work: not where another generation of its slot is at work already.
fn counts_as_start(slot: &Slot, replica: &Replica) -> bool {
    replica.state == ReplicaState::Failed && !jobs::has_older_at_work(slot)
}

/// Whether a generation placed by the rebalancer fails to run while the one it was to replace is still running. It is
/// stopped: the slot is served. The rebalancer does not move such a slot again in the same way.
fn is_failed_move(view: &View, slot: &Slot, replica: &Replica) -> bool {
    slot.moved_at == Some(replica.placed_at) && generation_cutover::older_serves(view, slot, replica)
}

fn due(group: &Group, slot: &Slot, replica: &Replica, now: Time) -> Due {
    let policy = &group.spec.restart;
    let ended = match replica.state {
        ReplicaState::Failed | ReplicaState::Degraded => true,
        ReplicaState::Completed => matches!(replica.reservation.kind, ServiceKind::Service | ServiceKind::System),
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => false,
    };
    if !ended {
        return Due::Nothing;
    }
    if replica.code == Some(RuntimeCode::RestartExhausted) {
        let at = returns_at(&group.spec, replica.since, replica.history);
        return at.map_or(Due::Nothing, |at| restart_at(at, now));
    }
    let paced = backoff(replica.history.ends);
    // What its node, engine or registry lacks is no end of its own: it starts again whatever its policy says. A policy's
    // delay is meant for its own ends, so a short one does not hammer an engine that lacks something.
    if !replica.code.is_none_or(RuntimeCode::is_own_fault) {
        return restart_at(replica.since.after(policy.delay.map_or(paced, |delay| delay.max(paced))), now);
    }
    let at = replica.since.after(policy.delay.unwrap_or(paced));
    let well = replica.state == ReplicaState::Completed;
    match policy.condition {
        RestartCondition::Any => {}
        RestartCondition::OnFailure if !well => {}
        RestartCondition::OnFailure => return Due::Nothing,
        RestartCondition::None if well => return Due::Nothing,
        // A replica that is never restarted counts as exhausted, but is not given up: it keeps the state in which it
        // ended.
        RestartCondition::None => return moves(reschedule::next(group, slot, replica), now).unwrap_or(Due::Nothing),
    }
    if is_exhausted(&group.spec, replica) {
        return moves(reschedule::next(group, slot, replica), now).unwrap_or(Due::GiveUp);
    }
    restart_at(at, now)
}

fn restart_at(at: Time, now: Time) -> Due {
    if at <= now { Due::Restart } else { Due::Later(at) }
}

/// Whether a replica has failed as often in a row as its policy allows.
pub(super) fn is_exhausted(spec: &ServiceSpec, replica: &Replica) -> bool {
    replica.failures >= spec.restart.max_attempts.unwrap_or(DEFAULT_MAX_FAILURES)
}

fn moves(next: Next, now: Time) -> Option<Due> {
    match next {
        Next::Never => None,
        Next::At(at, _) if at > now => Some(Due::Later(at)),
        Next::At(_, delay) => Some(Due::Reschedule(delay)),
    }
}

/// 0 s before the first restart, then 5 s, 10 s, 20 s … 5 min.
fn backoff(ends: u32) -> Duration {
    match ends {
        0 | 1 => Duration::ZERO,
        more => FIRST_BACKOFF.saturating_mul(1 << (more - 2).min(16)).min(MAX_BACKOFF),
    }
}

fn restart(slot: &Slot, replica: &Replica) -> PlanItem {
    let attempt = Attempt(replica.attempt.0 + 1);
    PlanItem::Restart { key: slot.key.generation(replica.generation), attempt }
}

fn give_up(slot: &Slot, replica: &Replica) -> PlanItem {
    PlanItem::GiveUp { key: slot.key.generation(replica.generation), code: RuntimeCode::RestartExhausted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_from_five_seconds_to_five_minutes() {
        let pauses: Vec<u64> = (1..=9).map(|ends| backoff(ends).as_secs()).collect();
        assert_eq!(pauses, [0, 5, 10, 20, 40, 80, 160, 300, 300]);
    }
}
