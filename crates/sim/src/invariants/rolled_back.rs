//! A rollback leaves every slot on the old manifest, and no replica is made from the failed one again.

use longshore_model::{
    Assignment, DeploymentName, GroupKey, NamespaceName, RolloutState, Slot, SlotKey, replica::DesiredState,
};
use longshore_store::{Group, State, is_live};

pub(super) const NAME: &str = "rolled_back";

/// Slots that are still on the failed manifest when the rollback is reported complete.
pub(super) fn check_back(state: &State, namespace: &NamespaceName, deployment: &DeploymentName) -> Vec<String> {
    let mut messages = Vec::new();
    for (key, group) in state.groups_of(namespace, deployment).filter(|(_, group)| group.desired == DesiredState::Run) {
        let open = group.slots.values().filter(|slot| slot.desired == DesiredState::Run);
        let wrong = open.filter(|slot| is_on_other_spec(group, slot) && !group.spec.kind.is_job());
        messages.extend(wrong.map(|slot| format!("{} is not back on the old manifest", slot.key.replica_id(key))));
    }
    messages
}

fn is_on_other_spec(group: &Group, slot: &Slot) -> bool {
    let newest = slot.replicas.iter().rev().find(|replica| is_live(replica));
    newest.is_some_and(|replica| replica.assignment.reservation.spec_hash != group.spec.spec_hash)
}

/// Whether a placement was made from the manifest of a rollout that failed.
pub(super) fn check_retry(state: &State, key: &GroupKey, slot: &SlotKey, assignment: &Assignment) -> Option<String> {
    let rollout = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let failed =
        matches!(rollout.state, RolloutState::Aborted | RolloutState::RolledBack) && rollout.from != rollout.to;
    let retried = failed && assignment.reservation.revision == rollout.to;
    retried.then(|| format!("{} was made from revision {}, which failed", slot.replica_id(key), rollout.to))
}
