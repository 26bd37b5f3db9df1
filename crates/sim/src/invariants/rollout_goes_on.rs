//! A rollout does not go on over a slot that it changed and that has failed since: no step begins while the step of such a
//! slot counts as done.
//!
//! Checked when a step of a slot that serves begins. A slot that serves nobody may change whatever else is down.

use longshore_model::{
    GroupKey, ReplicaState, RolloutNumber, RolloutState, SlotKey,
    replica::{DesiredState, Replica},
    rollout::{StepKind, StepOutcome},
};
use longshore_store::State;

pub(super) const NAME: &str = "rollout_goes_on";

/// Slots whose changed generation failed by itself after its step was done.
pub(super) type FailedAgain = std::collections::BTreeSet<(GroupKey, SlotKey, RolloutNumber)>;

/// The entry of a slot, if an observation of one of its generations means that it failed after its step was done.
pub(super) fn failed_again(
    state: &State,
    key: &GroupKey,
    slot: &SlotKey,
    is_failed: impl Fn(&Replica) -> bool,
) -> Option<(GroupKey, SlotKey, RolloutNumber)> {
    let rollout = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let group = state.group(key)?;
    let known = group.slots.get(slot)?;
    let step = known.step.filter(|step| step.rollout == rollout.number && step.kind == StepKind::Changed)?;
    let newest = known.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run)?;
    let is_changed = newest.assignment.reservation.spec_hash == group.spec.spec_hash;
    let counts = step.outcome == StepOutcome::Done && is_changed && is_failed(newest);
    (counts && rollout.state == RolloutState::InProgress).then(|| (key.clone(), slot.clone(), rollout.number))
}

pub(super) fn check(state: &State, failed: &FailedAgain, begun: &(GroupKey, SlotKey, RolloutNumber)) -> Option<String> {
    let (key, slot, number) = begun;
    let rollout = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let group = state.group(key).filter(|_| rollout.number == *number && rollout.state == RolloutState::InProgress)?;
    let serves = |replica: &Replica| matches!(replica.state, ReplicaState::Running | ReplicaState::Draining);
    let stepped = group.slots.get(slot).filter(|slot| slot.replicas.iter().any(serves))?;
    stepped.step.filter(|step| step.kind == StepKind::Changed)?;
    let is_down = |(other, down, in_rollout): &&(GroupKey, SlotKey, RolloutNumber)| {
        let step = group.slots.get(down).and_then(|slot| slot.step);
        let still_done = step.is_some_and(|step| step.rollout == *number && step.outcome == StepOutcome::Done);
        other == key && in_rollout == number && down != slot && still_done
    };
    let (_, down, _) = failed.iter().find(is_down)?;
    Some(format!("the step of {} begins although {} failed again", slot.replica_id(key), down.replica_id(key)))
}
