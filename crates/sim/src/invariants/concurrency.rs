//! No more replicas of a job are under way than may be at once.

use longshore_model::{
    GroupKey, ReplicaState, RuntimeCode, ServiceKind,
    replica::{Replica, Wanted},
    service::RestartCondition,
};
use longshore_store::Group;

pub(super) const NAME: &str = "concurrency";

pub(super) fn check(key: &GroupKey, group: &Group) -> Option<String> {
    let is_job = matches!(group.spec.kind, ServiceKind::Batch | ServiceKind::Sysbatch);
    let most = group.spec.max_concurrent.filter(|_| is_job && group.wanted == Wanted::Run)? as usize;
    // Only what follows the present spec: a limit that was lowered stops nobody.
    let counts = |replica: &&Replica| {
        // One lost from sight is not under way as far as anybody knows, and another may be in its place.
        let ended = matches!(replica.state, ReplicaState::Completed | ReplicaState::Lost)
            || replica.code == Some(RuntimeCode::RestartExhausted)
            || (replica.state == ReplicaState::Failed && group.spec.restart.condition == RestartCondition::None);
        replica.wanted == Wanted::Run && !ended && replica.assignment.terms.revision == group.revision
    };
    let under_way = group.slots.values().flat_map(|slot| &slot.replicas).filter(counts).count();
    (under_way > most).then(|| format!("{key} has {under_way} under way, {most} may be at once"))
}
