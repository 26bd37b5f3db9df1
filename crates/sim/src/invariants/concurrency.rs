//! A job never has more than `max_concurrent` slots active when one of them starts.
//!
//! Slots are counted, not replicas: a lost replica may still run and so does its replacement, but both are the same piece of
//! work, which has ended once the replacement has. A failed replica that waits for a restart has no process and is not
//! counted. Checked when a replica is placed, or restarted after a failure: a lowered limit stops nothing that runs.

use longshore_model::{
    GroupKey, ReplicaState, RuntimeCode, Slot,
    replica::{DesiredState, Replica},
    service::RestartCondition,
};
use longshore_store::{Group, is_live};

pub(super) const NAME: &str = "concurrency";

pub(super) fn check(key: &GroupKey, group: &Group) -> Option<String> {
    let is_job = group.spec.kind.is_job() && group.desired == DesiredState::Run;
    let most = group.spec.max_concurrent.filter(|_| is_job)? as usize;
    let counts = |replica: &Replica| {
        replica.desired == DesiredState::Run && !has_ended(group, replica) && replica.state != ReplicaState::Failed
    };
    let is_active = |slot: &&Slot| {
        let newest = slot.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run);
        newest.is_some_and(counts) || slot.replicas.iter().any(|replica| is_live(replica) && counts(replica))
    };
    let active = group.slots.values().filter(is_active).count();
    (active > most).then(|| format!("{key} has {active} active slots, `max_concurrent` is {most}"))
}

/// Whether a replica has ended and nothing restarts or reschedules it.
pub(super) fn has_ended(group: &Group, replica: &Replica) -> bool {
    let no_restarts = group.spec.restart.condition == RestartCondition::None && group.spec.reschedule.is_none();
    match replica.state {
        ReplicaState::Completed => true,
        ReplicaState::Failed => no_restarts || replica.code == Some(RuntimeCode::RestartExhausted),
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => replica.code == Some(RuntimeCode::RestartExhausted),
    }
}
