//! Terminal replicas: which generations ended for good, and which were garbage-collected.
//!
//! Owns: the count of a job's collected replicas, so that they are not run again.
//! Must not touch: when a replica is collected; the scheduler decides that.
//! Invariant: a replica is counted as collected once, when its slot closes.

use longshore_model::{
    Event, GroupKey, ReplicaKey, ReplicaState, RuntimeCode, ServiceKind, ServiceSpec, Slot, SlotKey,
    replica::{Collected, DesiredState, JobOutcome, Replica},
    service::RestartCondition,
};

use crate::{State, state::Group};

impl State {
    /// Collects the terminal replica of a job, or of a service that runs once. The item is stale, and is dropped, if the
    /// replica is not terminal or belongs to an older spec, kind or restart epoch: that work must run again and must not
    /// count as done.
    pub(crate) fn collect(&mut self, key: &ReplicaKey, events: &mut Vec<Event>) {
        let Some(group) = self.groups.get_mut(&key.group) else {
            return;
        };
        let is_newest = |slot: &&Slot| slot.desired == DesiredState::Run && slot.newest == key.generation;
        let slot = group.slots.get(&key.slot).filter(is_newest);
        let newest = slot.and_then(|slot| slot.replicas.last()).filter(|replica| is_current_end(group, replica));
        let Some(terminal_outcome) = newest.and_then(|replica| terminal_outcome(&group.spec, replica)) else {
            return;
        };
        match terminal_outcome {
            JobOutcome::Completed => group.collected.completed += 1,
            JobOutcome::Failed => group.collected.failed += 1,
        }
        if let SlotKey::Node(node) = &key.slot {
            group.collected.nodes.insert(node.clone(), terminal_outcome);
        }
        events.push(collected_event(&key.group, group));
        self.close(&key.group, &key.slot, events);
    }
}

/// Whether a generation belongs to a job, or ended as its restart policy lets it end, and has the group's current spec,
/// kind and restart epoch. A service that was given up was meant to run.
fn is_current_end(group: &Group, replica: &Replica) -> bool {
    let (reservation, spec) = (&replica.assignment.reservation, &group.spec);
    let runs_once = spec.restart.may_complete() && replica.code != Some(RuntimeCode::RestartExhausted);
    let made = spec.made(reservation) && reservation.restart_epoch == group.restart_epoch;
    (is_job(reservation.kind) || runs_once) && made
}

/// Resets the count of collected replicas if the job's spec changed, and returns the event.
pub(crate) fn reset_collected(key: &GroupKey, group: &mut Group, spec: &ServiceSpec) -> Option<Event> {
    let same = group.spec.is_same_program(spec) && group.spec.may_end() == spec.may_end();
    if same || group.collected == Collected::default() {
        return None;
    }
    group.collected = Collected::default();
    Some(collected_event(key, group))
}

/// Whether every replica of a service or job has ended, as its restart policy lets it end.
pub(crate) fn is_over(group: &Group, spec: &ServiceSpec) -> bool {
    let mut open = group.slots.values().filter(|slot| slot.desired == DesiredState::Run).peekable();
    let any = open.peek().is_some() || group.collected.total() > 0;
    let ended = |slot: &Slot| {
        let current = slot.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run);
        // What was given up starts again with every apply.
        let current = current.filter(|replica| replica.code != Some(RuntimeCode::RestartExhausted));
        current.is_some_and(|replica| terminal_outcome(spec, replica).is_some())
    };
    any && open.all(ended)
}

/// Drops the count of collected replicas, so that they run again.
pub(crate) fn forget_collected(key: &GroupKey, group: &mut Group) -> Event {
    group.collected = Collected::default();
    collected_event(key, group)
}

/// Clears the failed replicas from the count, so that they run again.
pub(crate) fn reset_failed(key: &GroupKey, group: &mut Group) -> Option<Event> {
    if group.collected.failed == 0 {
        return None;
    }
    group.collected.failed = 0;
    group.collected.nodes.retain(|_, terminal_outcome| *terminal_outcome == JobOutcome::Completed);
    Some(collected_event(key, group))
}

fn collected_event(key: &GroupKey, group: &Group) -> Event {
    Event::Collected { group: key.clone(), collected: group.collected.clone() }
}

/// Whether a generation completed or failed, and nothing starts it again.
pub fn has_ended(spec: &ServiceSpec, replica: &Replica) -> bool {
    replica.desired == DesiredState::Run && terminal_outcome(spec, replica).is_some()
}

/// How a generation ended, or `None` if something will start it again.
pub(crate) fn terminal_outcome(spec: &ServiceSpec, replica: &Replica) -> Option<JobOutcome> {
    match replica.state {
        ReplicaState::Completed => {
            let stays_ended =
                is_job(replica.assignment.reservation.kind) || spec.restart.condition != RestartCondition::Any;
            stays_ended.then_some(JobOutcome::Completed)
        }
        ReplicaState::Failed => {
            let given_up = replica.code == Some(RuntimeCode::RestartExhausted) && !spec.returns_after_exhaustion();
            let own_fault = replica.code.is_none_or(RuntimeCode::is_own_fault);
            let never_restarted = spec.restart.condition == RestartCondition::None && own_fault;
            (given_up || never_restarted).then_some(JobOutcome::Failed)
        }
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => None,
    }
}

/// Whether a job's generation failed. Nothing of it runs on its node.
pub(crate) fn is_failed_job(replica: &Replica) -> bool {
    is_job(replica.assignment.reservation.kind) && replica.state == ReplicaState::Failed
}

pub(crate) const fn is_job(kind: ServiceKind) -> bool {
    match kind {
        ServiceKind::Batch | ServiceKind::Sysbatch => true,
        ServiceKind::Service | ServiceKind::System => false,
    }
}
