//! A slot whose step failed and that is stopped first for another attempt.
//!
//! ```text
//! step failed, the older generation serves on ─▶ its replacement is rescheduled, and there is no room for both
//!     ─▶ the older one is stopped in its turn ─▶ the next one is placed ─▶ it runs, fails, or takes too long
//! ```
//!
//! The step stays failed: a rollout does not wait for a slot that failed by itself. But from the stop until the next
//! generation has had its chance the slot is short because of the rollout, so it counts towards `parallelism`, and the
//! rollout is not over.
//!
//! Owns: which slots are short because a failed step is tried again.
//! Must not touch: whether the slot is stopped; that is [`super::rollout_steps`].

use std::cell::OnceCell;

use longshore_model::{ReplicaState, RuntimeCode, Time, replica::DesiredState, rollout::StepOutcome};

use super::{
    GroupPass,
    rollout::{self, GroupRollout},
    rollout_steps, slots,
};
use crate::{
    request::PlacementRequest,
    view::{
        View,
        groups::{Group, Replica, Slot},
    },
};

/// Tells which slots of a group are short for another attempt of their failed step.
pub(super) struct Retries<'a> {
    view: &'a View,
    request: &'a PlacementRequest,
    part: &'a GroupRollout,
    now: Time,
    /// Whether one more replica would be placed now: the same for all slots, and asked of every node.
    has_room: OnceCell<bool>,
}

impl<'a> Retries<'a> {
    pub(super) fn new(pass: &'a GroupPass<'_>, request: &'a PlacementRequest, part: &'a GroupRollout) -> Self {
        Self { view: pass.view, request, part, now: pass.now, has_room: OnceCell::new() }
    }

    /// The group whose slots are looked at.
    pub(super) fn group(&self) -> &'a Group {
        self.view.group(self.request.group)
    }

    /// Whether a slot is short for another attempt of its failed step.
    pub(super) fn is_under_way(&self, slot: &Slot) -> bool {
        let Self { view, request, part, now, .. } = *self;
        if !has_failed(part, slot) || rollout_steps::serves(slot) {
            return false;
        }
        match slot.current() {
            // One of the current spec that stops was rescheduled after it had ended: that is not the rollout's doing.
            None if !slot.replicas.is_empty() => {
                let mut outdated = slot.replicas.iter().filter(|replica| slots::is_outdated(request, replica));
                outdated.any(|replica| is_stopping(view, replica))
            }
            None => *self.has_room.get_or_init(|| rollout_steps::fits_now(view, request)),
            Some(_) => attempt_ends(view, request, part, slot).is_some_and(|at| at > now),
        }
    }
}

/// Requests a turn for when attempts under way have taken too long.
pub(super) fn wake(pass: &mut GroupPass<'_>, request: &PlacementRequest, part: &GroupRollout) {
    let slots = pass.view.group(request.group).desired_slots().filter(|slot| has_failed(part, slot));
    let ends = slots.filter_map(|slot| attempt_ends(pass.view, request, part, slot)).filter(|at| *at > pass.now);
    if let Some(at) = ends.min() {
        pass.wake(at);
    }
}

fn has_failed(part: &GroupRollout, slot: &Slot) -> bool {
    matches!(part.outcome(slot), Some(StepOutcome::Failed(_)))
}

fn is_stopping(view: &View, replica: &Replica) -> bool {
    let stops = replica.desired == DesiredState::Stop && replica.state == ReplicaState::Draining;
    stops && !view.nodes.is_down(replica.node)
}

/// When the slot's next generation, placed after its step failed and on its way up, has had the time of a step.
fn attempt_ends(view: &View, request: &PlacementRequest, part: &GroupRollout, slot: &Slot) -> Option<Time> {
    let failed_at = slot.step?.at;
    let replica = slot.current().filter(|replica| replica.placed_at > failed_at)?;
    let untroubled = replica.failures == 0 && replica.code.is_none_or(|code| code == RuntimeCode::Pulling);
    let comes = matches!(replica.state, ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting);
    let on_its_way = comes && untroubled && !view.nodes.is_down(replica.node);
    on_its_way.then(|| replica.placed_at.after(rollout::step_timeout(part, &request.spec)))
}
