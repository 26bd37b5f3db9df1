//! Nothing of a job begins while as many of it are under way as may be at once.
//!
//! Slots are counted: one lost from sight is still under way, as far as anybody knows, and so is its replacement, but they are
//! the same piece of work; once the replacement has ended, it has. One that failed and waits to be started again has no process.
//! Asked whenever something was placed, or started again after it had failed: a limit that was lowered stops nobody.

use longshore_model::{
    GroupKey, ReplicaState, RuntimeCode, Slot,
    replica::{Replica, Wanted},
    service::RestartCondition,
};
use longshore_store::{Group, is_live};

pub(super) const NAME: &str = "concurrency";

pub(super) fn check(key: &GroupKey, group: &Group) -> Option<String> {
    let is_job = group.spec.kind.is_job() && group.wanted == Wanted::Run;
    let most = group.spec.max_concurrent.filter(|_| is_job)? as usize;
    let counts = |replica: &Replica| {
        replica.wanted == Wanted::Run && !has_ended(group, replica) && replica.state != ReplicaState::Failed
    };
    let is_under_way = |slot: &&Slot| {
        let newest = slot.replicas.iter().rev().find(|replica| replica.wanted == Wanted::Run);
        newest.is_some_and(counts) || slot.replicas.iter().any(|replica| is_live(replica) && counts(replica))
    };
    let under_way = group.slots.values().filter(is_under_way).count();
    (under_way > most).then(|| format!("{key} has {under_way} under way, {most} may be at once"))
}

/// Whether a piece of work is over, well or for good: nothing starts it again.
pub(super) fn has_ended(group: &Group, replica: &Replica) -> bool {
    let never_again = group.spec.restart.condition == RestartCondition::None && group.spec.reschedule.is_none();
    match replica.state {
        ReplicaState::Completed => true,
        ReplicaState::Failed => never_again || replica.code == Some(RuntimeCode::RestartExhausted),
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
