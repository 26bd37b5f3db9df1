//! A rollout step is done only by a generation of the current spec: one that has run for the monitor time on a healthy node,
//! one of a service that runs once and has completed, or an older one that matches the current spec again and runs while every newer one is being stopped, except one that the
//! same plan places to move it away from a draining node.

use longshore_model::{
    GroupKey, Health, Intent, ReplicaState, Rollout, RolloutNumber, RolloutState, Slot, SlotKey, Time,
    replica::{DesiredState, Replica},
    rollout::{RolloutKind, StepKind},
    service::{RestartCondition, UpdatePolicy},
};
use longshore_store::{Group, State, is_live};

pub(super) const NAME: &str = "rollout_step_proven";

pub(super) fn check(
    state: &State,
    key: &GroupKey,
    slot: &SlotKey,
    rollout: RolloutNumber,
    now: Time,
) -> Option<String> {
    // A rollout aborted by the same plan has put another manifest into force.
    let known = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let group = state.group(key).filter(|_| known.number == rollout)?;
    let slot_known = group.slots.get(slot)?;
    let monitor = policy(group, known).monitor;
    if is_run_again(group, slot_known) {
        return None;
    }
    // Not only the newest: the same plan may already move it away from a draining node.
    let qualifies =
        slot_known.replicas.iter().filter(|replica| is_current(state, key, group, replica)).any(|replica| {
            let proved = replica.since.after(monitor) <= now && is_on_healthy_node(state, replica);
            proved || replica.state == ReplicaState::Completed || is_kept_over_newer(state, slot_known, replica, now)
        });
    (!qualifies).then(|| format!("{} has its step done by a generation that does not qualify", slot.replica_id(key)))
}

/// Whether a service that runs once was only run again, and failed as it may have before: the rollout did not change it.
fn is_run_again(group: &Group, slot: &Slot) -> bool {
    let newest = slot.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run);
    let failed = newest.is_some_and(|replica| {
        let made = (&replica.assignment.reservation.spec_hash, replica.assignment.reservation.restart_epoch);
        replica.state == ReplicaState::Failed && made == (&group.spec.spec_hash, group.restart_epoch)
    });
    let added = slot.step.is_some_and(|step| step.kind == StepKind::Added);
    let unchanged = group.rollout_position.previous.is_none() && !added;
    failed && unchanged && group.spec.restart.condition == RestartCondition::None
}

/// The policy of a group's rollout: that of updates, or of rollbacks where the rollout goes back.
pub(super) fn policy<'g>(group: &'g Group, rollout: &Rollout) -> &'g UpdatePolicy {
    // The plan that finishes the last step also sets the rollout to `rolled_back`.
    let reverted = matches!(rollout.state, RolloutState::Aborted | RolloutState::RolledBack);
    let backwards = rollout.kind == RolloutKind::Rollback || reverted;
    group.spec.rollback.as_ref().filter(|_| backwards).unwrap_or(&group.spec.update)
}

fn is_current(state: &State, key: &GroupKey, group: &Group, replica: &Replica) -> bool {
    let reservation = &replica.assignment.reservation;
    let made = (&reservation.spec_hash, reservation.kind, reservation.restart_epoch);
    let completed = replica.state == ReplicaState::Completed && group.spec.restart.may_complete();
    let runs = is_live(replica) && (replica.state == ReplicaState::Running || completed);
    // A job is not run again for another version of a secret.
    let has_secrets =
        group.spec.kind.is_job()
            || group.spec.secrets_required.iter().all(|name| {
                reservation.secret_versions.get(name).copied() == state.secret_version(&key.namespace, name)
            });
    runs && has_secrets && made == (&group.spec.spec_hash, group.spec.kind, group.restart_epoch)
}

fn is_on_healthy_node(state: &State, replica: &Replica) -> bool {
    let node = state.node(&replica.assignment.node);
    node.is_some_and(|node| matches!(node.health, Health::Ready | Health::Degraded))
}

/// Whether a slot goes back to this generation: there are newer ones, and all of them are being stopped, except one that the
/// same plan placed to move it away from a draining node.
fn is_kept_over_newer(state: &State, slot: &Slot, replica: &Replica, now: Time) -> bool {
    let newer = || slot.replicas.iter().filter(|other| other.generation > replica.generation);
    let node = state.node(&replica.assignment.node);
    let is_draining = node.is_some_and(|node| node.intent == Intent::Draining);
    let goes_back = is_draining && newer().any(|other| other.desired == DesiredState::Stop);
    let is_superseded =
        |other: &Replica| other.desired == DesiredState::Stop || (goes_back && other.assignment.placed_at == now);
    replica.generation < slot.newest && newer().all(is_superseded)
}
