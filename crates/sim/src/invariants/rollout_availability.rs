//! A rollout makes no more slots unavailable than its policy allows: none with start-first, `parallelism` with stop-first.
//!
//! Checked when a running generation of a stepping slot is told to stop. Then a newer generation of the slot has run for the
//! monitor time, or an older one still runs, or the update is stop-first and at most `parallelism` slots have none running.
//! A slot whose step failed is stopped like this once more, where its replacement was rescheduled and an older generation
//! was left: then it is one of those slots until its next generation has come up or failed.

use std::time::Duration;

use longshore_model::{
    ReplicaKey, ReplicaState, Rollout, RuntimeCode, ServiceKind, Slot, SlotKey, Time,
    replica::{DesiredState, Replica},
    rollout::{Step, StepKind, StepOutcome},
    service::{Access, Mount, MountSource, PortMode, UpdateOrder, UpdatePolicy},
};
use longshore_store::{Group, State};

pub(super) const NAME: &str = "rollout_availability";

/// How long a start-first update waits for capacity before it becomes stop-first.
const CAPACITY_WAIT: Duration = Duration::from_secs(30);

/// The time a step may take, unless the service sets one or its health check takes longer.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) fn check(state: &State, stopped: &ReplicaKey, now: Time) -> Option<String> {
    let ReplicaKey { group: key, slot, generation } = stopped;
    // An operator who stops a deployment asks for all of its replicas to stop.
    let group = state.group(key).filter(|group| group.desired == DesiredState::Run && !state.is_stopped(key))?;
    let rollout = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let known = group.slots.get(slot)?;
    if known.replicas.iter().any(|replica| replica.generation == *generation && is_past_drain(state, replica, now)) {
        return None;
    }
    if known.desired == DesiredState::Stop {
        return closed_too_soon(group, rollout, known, now).map(|short| format!("{key} {short}"));
    }
    let steps = |slot: &Slot| slot.step.filter(|step| step.rollout == rollout.number && step.kind == StepKind::Changed);
    let step = steps(known)?;
    let policy = super::rollout_step_proven::policy(group, rollout);
    // After a rollout a move uses the update policy; the plan that ended the rollout may still have used the rollout's own.
    let monitor = if rollout.is_live() { policy.monitor } else { policy.monitor.min(group.spec.update.monitor) };
    let proved = |replica: &Replica| replica.since.after(monitor) <= now;
    let serves = |replica: &Replica| runs(replica) && (replica.generation < *generation || proved(replica));
    // A service that runs once serves nobody any more once its newer generation has completed.
    let completed = |replica: &Replica| replica.state == ReplicaState::Completed && replica.generation > *generation;
    if known.replicas.iter().any(|replica| serves(replica) || completed(replica)) {
        return None;
    }
    let printed = slot.replica_id(key);
    if step.outcome == StepOutcome::Done || !is_stop_first(group, policy, now) {
        return Some(format!("{printed} was stopped before its replacement had run for the monitor time"));
    }
    // A slot that is closed, because its node is down or draining, is not counted as unavailable.
    let desired = group.slots.values().filter(|slot| slot.desired == DesiredState::Run);
    let stepping = desired.filter(|slot| {
        steps(slot).is_some_and(|step| match step.outcome {
            StepOutcome::UnderWay => true,
            StepOutcome::Failed(_) => is_retried(group, slot, step, policy, now),
            StepOutcome::Done => false,
        })
    });
    let unavailable = stepping.filter(|slot| !slot.replicas.iter().any(runs)).count();
    let limit = policy.slots_at_once().filter(|limit| unavailable > *limit as usize)?;
    Some(format!("{unavailable} slots of {key} are unavailable, `parallelism` is {limit}"))
}

/// Whether a replica is a job's work on a draining node after the drain's deadline. The operator gave it that long to finish;
/// that its service becomes something else meanwhile gives it no more time, and a job serves nobody who would miss it.
fn is_past_drain(state: &State, replica: &Replica, now: Time) -> bool {
    let node = state.node(&replica.assignment.node);
    let deadline = node.and_then(|node| node.drain.as_ref()).and_then(|drain| drain.deadline);
    replica.assignment.reservation.kind == ServiceKind::Batch && deadline.is_some_and(|deadline| deadline <= now)
}

/// Whether a slot whose step failed is stopped for another attempt, or its next generation is on its way. A generation that
/// is not up within the time of a step is not waited for.
fn is_retried(group: &Group, slot: &Slot, step: Step, policy: &UpdatePolicy, now: Time) -> bool {
    let is_stopping = |replica: &Replica| {
        let is_old = replica.assignment.reservation.spec_hash != group.spec.spec_hash;
        is_old && replica.desired == DesiredState::Stop && replica.state == ReplicaState::Draining
    };
    let is_coming = |replica: &Replica| {
        let timeout = policy.step_timeout.unwrap_or(STEP_TIMEOUT).min(STEP_TIMEOUT);
        let placed_at = replica.assignment.placed_at;
        let comes = matches!(replica.state, ReplicaState::Pulling | ReplicaState::Starting) && replica.failures == 0;
        comes && replica.desired == DesiredState::Run && placed_at > step.at && placed_at.after(timeout) > now
    };
    slot.replicas.iter().any(|replica| is_stopping(replica) || is_coming(replica))
}

/// Checks a service that changes between global and counted, when one of its slots of the old mode is closed: the remaining old
/// slots and the finished new ones are as many as desired, or `parallelism` fewer with stop-first.
fn closed_too_soon(group: &Group, rollout: &Rollout, closed: &Slot, now: Time) -> Option<String> {
    let is_old = |slot: &Slot| matches!(slot.key, SlotKey::Node(_)) != group.spec.kind.is_per_node();
    let is_job = |slot: &Slot| slot.replicas.iter().any(|replica| replica.assignment.reservation.kind.is_job());
    if !is_old(closed) || is_job(closed) || group.spec.kind.is_job() {
        return None;
    }
    let is_ready = |slot: &Slot| match slot.step.filter(|step| step.rollout == rollout.number) {
        Some(step) if step.outcome != StepOutcome::UnderWay => true,
        Some(step) if step.kind == StepKind::Added => false,
        // It was ready before this rollout, and is updated now.
        Some(_) | None => slot.replicas.iter().any(|replica| runs(replica) || has_exhausted_restarts(group, replica)),
    };
    let (old, new): (Vec<&Slot>, Vec<&Slot>) =
        group.slots.values().filter(|slot| slot.desired == DesiredState::Run).partition(|slot| is_old(slot));
    let wanted = if group.spec.kind.is_per_node() { new.len() } else { group.spec.replicas as usize };
    let ready = old.len() + new.into_iter().filter(|slot| is_ready(slot)).count();
    let policy = super::rollout_step_proven::policy(group, rollout);
    let short = wanted.saturating_sub(ready);
    let allowed = if is_stop_first(group, policy, now) {
        policy.slots_at_once().map_or(usize::MAX, |limit| limit as usize)
    } else {
        0
    };
    (short > allowed).then(|| format!("lacks {short} replicas during its change of mode, {allowed} allowed"))
}

/// Whether a replica has exhausted its restarts and the rollout does not change it, so that it gets no other chance.
fn has_exhausted_restarts(group: &Group, replica: &Replica) -> bool {
    let reservation = &replica.assignment.reservation;
    let is_current =
        (&reservation.spec_hash, reservation.restart_epoch) == (&group.spec.spec_hash, group.restart_epoch);
    is_current && replica.desired == DesiredState::Run && replica.code == Some(RuntimeCode::RestartExhausted)
}

fn runs(replica: &Replica) -> bool {
    replica.desired == DesiredState::Run && replica.state == ReplicaState::Running
}

/// Whether the old generation may be stopped before the new one starts.
fn is_stop_first(group: &Group, policy: &UpdatePolicy, now: Time) -> bool {
    let spec = &group.spec;
    let host_port = spec.ports.iter().any(|port| port.mode == PortMode::Host && port.published.is_some());
    let is_written = |mount: &Mount| matches!(mount.source, MountSource::Bind(_)) && mount.access == Access::ReadWrite;
    let shares = host_port || spec.mounts.iter().any(is_written) || spec.volumes().next().is_some();
    let asked = [policy.order, spec.update.order].contains(&Some(UpdateOrder::StopFirst));
    let waited = group.rollout_position.no_room_since.is_some_and(|since| since.after(CAPACITY_WAIT) <= now);
    asked || shares || waited
}
