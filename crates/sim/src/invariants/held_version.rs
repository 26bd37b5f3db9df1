//! A version that waits for its promotion or a resume runs in the slots that its rollout changed, and in no other: a slot
//! that is opened meanwhile gets the version before it.

use longshore_model::{Assignment, GroupKey, RolloutState, SlotKey, rollout::RolloutKind};
use longshore_store::State;

pub(super) const NAME: &str = "held_version";

pub(super) fn check(state: &State, key: &GroupKey, slot: &SlotKey, assignment: &Assignment) -> Option<String> {
    let rollout = state.deployment(&key.namespace, &key.deployment)?.rollout.as_ref()?;
    let group = state.group(key)?;
    let previous = &group.rollout_position.previous.as_ref()?.spec;
    let comparable = previous.kind == group.spec.kind && !previous.kind.is_job() && previous.volumes().next().is_none();
    let has_canaries =
        rollout.kind == RolloutKind::Forward && group.spec.canary.count > 0 && !group.rollout_position.promoted;
    let held = match rollout.state {
        RolloutState::Paused | RolloutState::AwaitingPromotion => true,
        RolloutState::InProgress => has_canaries,
        RolloutState::Completed | RolloutState::Aborted | RolloutState::RolledBack | RolloutState::Superseded => false,
    };
    let known = group.slots.get(slot)?;
    let is_waiting_version = assignment.reservation.spec_hash == group.spec.spec_hash;
    let is_new = known.newest.0 == 1 && known.step.is_none_or(|step| step.rollout != rollout.number);
    let was_changed = !is_waiting_version || group.spec.spec_hash == previous.spec_hash || !is_new;
    (comparable && held && !was_changed)
        .then(|| format!("{} is opened with a version that waits", slot.replica_id(key)))
}
