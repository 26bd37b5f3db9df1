//! A rollout that went back leaves every slot on the old manifest, and its own is not tried again.

use longshore_model::{
    Assignment, DeploymentName, GroupKey, NamespaceName, RolloutState, Slot, SlotKey, replica::Wanted,
};
use longshore_store::{Group, State, is_live};

pub(super) const NAME: &str = "rolled_back";

/// What is left of the failed manifest when everything is said to be back.
pub(super) fn check_back(state: &State, namespace: &NamespaceName, deployment: &DeploymentName) -> Vec<String> {
    let mut messages = Vec::new();
    for (key, group) in state.groups_of(namespace, deployment).filter(|(_, group)| group.wanted == Wanted::Run) {
        let open = group.slots.values().filter(|slot| slot.wanted == Wanted::Run);
        let stray = open.filter(|slot| is_stray(group, slot) && !group.spec.kind.is_job());
        messages.extend(stray.map(|slot| format!("{} is not back on the old manifest", slot.key.printed(key))));
    }
    messages
}

fn is_stray(group: &Group, slot: &Slot) -> bool {
    let newest = slot.replicas.iter().rev().find(|replica| is_live(replica));
    newest.is_some_and(|replica| replica.assignment.terms.spec_hash != group.spec.spec_hash)
}

/// Whether something was made from the manifest of a rollout that failed.
pub(super) fn check_retry(state: &State, key: &GroupKey, slot: &SlotKey, assignment: &Assignment) -> Option<String> {
    let rollout = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let failed =
        matches!(rollout.state, RolloutState::Aborted | RolloutState::RolledBack) && rollout.from != rollout.to;
    let retried = failed && assignment.terms.revision == rollout.to;
    retried.then(|| format!("{} was made from revision {}, which failed", slot.printed(key), rollout.to))
}
