//! Replicas that ended: restarted after a pause, moved, or given up.
//!
//! Owns: the restart budget. The third failure in a row is the last (so two restarts happen), unless the service says
//! otherwise; a run that lasted its window clears the count, which the state machine keeps.

use std::time::Duration;

use longshore_model::{
    Attempt, PlanItem, ReplicaState, RuntimeCode, ServiceKind, ServiceSpec, Time, service::RestartCondition,
};

use super::{
    Pass, handover, jobs,
    reschedule::{self, Next},
};
use crate::view::{
    GroupIx, View,
    groups::{Group, Replica, Slot},
};

/// Failures in a row that exhaust a replica.
const DEFAULT_MAX_FAILURES: u32 = 3;
/// The first pause that is one; it doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// What an ended replica is due.
enum Due {
    Nothing,
    Restart,
    Later(Time),
    /// It leaves the node, having waited so long.
    Reschedule(Duration),
    GiveUp,
}

/// Decides about every ended replica of a group.
pub(super) fn restart_ended(pass: &mut Pass<'_>, group: GroupIx) {
    let known = pass.view.group(group);
    let mut items = Vec::new();
    let mut wake_at = None;
    let mut leaving = Vec::new();
    let mut turns = jobs::turns_left(known);
    for slot in known.wanted_slots() {
        let Some(replica) = slot.current() else { continue };
        match due(known, slot, replica, pass.now) {
            Due::Nothing => {}
            Due::Reschedule(_) | Due::GiveUp if is_vain_move(pass.view, slot, replica) => {
                items.push(PlanItem::Stop { slot: slot.key.clone(), generation: replica.generation });
            }
            // Nobody there would hear it: it is replaced elsewhere, or started again once its node is back.
            Due::Restart if pass.view.fleet.is_down(replica.node) => {}
            // What was forgiven comes back in its turn, like anything else of a job.
            Due::Restart if takes_a_turn(slot, replica) && turns == 0 => {}
            Due::Restart => {
                turns -= usize::from(takes_a_turn(slot, replica));
                items.push(restart(slot, replica));
            }
            Due::Later(at) => wake_at = Some(wake_at.map_or(at, |earlier: Time| earlier.min(at))),
            Due::Reschedule(delay) => {
                let (slot, generation) = (slot.key.clone(), replica.generation);
                leaving.push((slot.clone(), generation));
                items.push(PlanItem::Reschedule { slot, generation, delay });
            }
            Due::GiveUp => items.push(give_up(slot, replica)),
        }
    }
    pass.items.extend(items);
    // Told at once, so that this very pass looks for the next node.
    for (slot, generation) in leaving {
        pass.view.suppose_stopping(group, &slot, generation);
    }
    if let Some(at) = wake_at {
        pass.wake(at);
    }
}

/// Whether a replica that is started again is one more at work: it is not while its slot has another generation that is.
fn takes_a_turn(slot: &Slot, replica: &Replica) -> bool {
    replica.state == ReplicaState::Failed && !jobs::an_older_works(slot)
}

/// Whether a generation that was to even the load does not come to run while the one it was to replace still does. It is
/// taken back: nobody was in need of it. A slot it was taken back from is not moved again as it is.
fn is_vain_move(view: &View, slot: &Slot, replica: &Replica) -> bool {
    slot.moved_at == Some(replica.placed_at) && handover::older_serves(view, slot, replica)
}

fn due(group: &Group, slot: &Slot, replica: &Replica, now: Time) -> Due {
    let policy = &group.spec.restart;
    let ended = match replica.state {
        ReplicaState::Failed | ReplicaState::Degraded => true,
        ReplicaState::Completed => matches!(replica.terms.kind, ServiceKind::Service | ServiceKind::System),
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => false,
    };
    if !ended || replica.code == Some(RuntimeCode::RestartExhausted) {
        return Due::Nothing;
    }
    let well = replica.state == ReplicaState::Completed;
    match policy.condition {
        RestartCondition::Any => {}
        RestartCondition::OnFailure if !well => {}
        RestartCondition::OnFailure => return Due::Nothing,
        RestartCondition::None if well => return Due::Nothing,
        // Never to be restarted is to have used up all restarts, but nobody gave it up: it says how it ended.
        RestartCondition::None => return moves(reschedule::next(group, slot, replica), now).unwrap_or(Due::Nothing),
    }
    if is_exhausted(&group.spec, replica) {
        return moves(reschedule::next(group, slot, replica), now).unwrap_or(Due::GiveUp);
    }
    let at = replica.since.after(policy.delay.unwrap_or_else(|| pause(replica.failures)));
    if at <= now { Due::Restart } else { Due::Later(at) }
}

/// Whether a replica has failed as often in a row as it may.
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
fn pause(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => FIRST_PAUSE.saturating_mul(1 << (more - 2).min(16)).min(LONGEST_PAUSE),
    }
}

fn restart(slot: &Slot, replica: &Replica) -> PlanItem {
    let attempt = Attempt(replica.attempt.0 + 1);
    PlanItem::Restart { slot: slot.key.clone(), generation: replica.generation, attempt }
}

fn give_up(slot: &Slot, replica: &Replica) -> PlanItem {
    let (slot, generation) = (slot.key.clone(), replica.generation);
    PlanItem::GiveUp { slot, generation, code: RuntimeCode::RestartExhausted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_five_seconds_to_five_minutes() {
        let pauses: Vec<u64> = (1..=9).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(pauses, [0, 5, 10, 20, 40, 80, 160, 300, 300]);
    }
}
