//! A step is done only by its own generation: one that shall run, made as the group is now, seen running.

use longshore_model::{GroupKey, ReplicaState, RolloutNumber, SlotKey};
use longshore_store::{State, is_live};

pub(super) const NAME: &str = "stepped";

pub(super) fn check(state: &State, key: &GroupKey, slot: &SlotKey, rollout: RolloutNumber) -> Option<String> {
    // One that turned around in the same breath has put another manifest into force.
    let known = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let group = state.group(key).filter(|_| known.number == rollout)?;
    // Not only the newest: the same plan may already move it away from a node that is being drained.
    let own = group.slots.get(slot)?.replicas.iter().filter(|replica| is_live(replica)).any(|replica| {
        let terms = &replica.assignment.terms;
        let made = (&terms.spec_hash, terms.kind, terms.restart_epoch);
        replica.state == ReplicaState::Running && made == (&group.spec.spec_hash, group.spec.kind, group.restart_epoch)
    });
    (!own).then(|| format!("{} is done with its step by another generation than the step's", slot.printed(key)))
}
