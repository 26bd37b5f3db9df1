//! A step is done only by its own generation: one that shall run, made as the group is now, seen running for the monitor time
//! on a node that is heard of; or by an older one that is what is wanted again and runs, in whose favour everything newer goes,
//! but for what takes it away from a node that is being drained.

use longshore_model::{
    GroupKey, Health, Intent, ReplicaState, Rollout, RolloutNumber, RolloutState, Slot, SlotKey, Time,
    replica::{Replica, Wanted},
    rollout::RolloutKind,
    service::UpdatePolicy,
};
use longshore_store::{Group, State, is_live};

pub(super) const NAME: &str = "stepped";

pub(super) fn check(
    state: &State,
    key: &GroupKey,
    slot: &SlotKey,
    rollout: RolloutNumber,
    now: Time,
) -> Option<String> {
    // One that turned around in the same breath has put another manifest into force.
    let known = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let group = state.group(key).filter(|_| known.number == rollout)?;
    let slot_known = group.slots.get(slot)?;
    let monitor = policy(group, known).monitor;
    // Not only the newest: the same plan may already move it away from a node that is being drained.
    let own = slot_known.replicas.iter().filter(|replica| is_made_so(state, key, group, replica)).any(|replica| {
        let proved = replica.since.after(monitor) <= now && is_heard_of(state, replica);
        proved || is_kept(state, slot_known, replica, now)
    });
    (!own).then(|| format!("{} is done with its step by another generation than the step's", slot.printed(key)))
}

/// How the rollout of a group goes, forwards or backwards.
pub(super) fn policy<'g>(group: &'g Group, rollout: &Rollout) -> &'g UpdatePolicy {
    // The plan that ends the last step also says that all are back.
    let turned = matches!(rollout.state, RolloutState::Aborted | RolloutState::RolledBack);
    let backwards = rollout.kind == RolloutKind::Rollback || turned;
    group.spec.rollback.as_ref().filter(|_| backwards).unwrap_or(&group.spec.update)
}

fn is_made_so(state: &State, key: &GroupKey, group: &Group, replica: &Replica) -> bool {
    let terms = &replica.assignment.terms;
    let made = (&terms.spec_hash, terms.kind, terms.restart_epoch);
    let runs = is_live(replica) && replica.state == ReplicaState::Running;
    // Work that ends is not done once more for another version of a secret.
    let has_secrets = group.spec.kind.is_job()
        || group
            .spec
            .secrets_required
            .iter()
            .all(|name| terms.secret_versions.get(name).copied() == state.secret_version(&key.namespace, name));
    runs && has_secrets && made == (&group.spec.spec_hash, group.spec.kind, group.restart_epoch)
}

fn is_heard_of(state: &State, replica: &Replica) -> bool {
    let node = state.node(&replica.assignment.node);
    node.is_some_and(|node| matches!(node.health, Health::Ready | Health::Degraded))
}

/// Whether a slot goes back to a generation: there are newer ones, and none of them shall run; but for one that the same plan
/// made to take it away from a node that is being drained.
fn is_kept(state: &State, slot: &Slot, replica: &Replica, now: Time) -> bool {
    let newer = || slot.replicas.iter().filter(|other| other.generation > replica.generation);
    let node = state.node(&replica.assignment.node);
    let leaves = node.is_some_and(|node| node.intent == Intent::Draining);
    let makes_way = leaves && newer().any(|other| other.wanted == Wanted::Stop);
    let gives_way = |other: &Replica| other.wanted == Wanted::Stop || (makes_way && other.assignment.placed_at == now);
    replica.generation < slot.newest && newer().all(gives_way)
}
