//! The deadline of a step that cannot begin or cannot be placed.
//!
//! ```text
//! due, and no node takes it or a dependency is not ready ─▶ blocked since then ─▶ the time of a step is over ─▶ failed
//! ```
//!
//! A step that was placed has a clock of its own, which [`super::rollout`] reads. One that only waits for the room that
//! the group's other steps give back, or for a dependency that is still on its way, is not blocked.
//!
//! Owns: since when a group's rollout is blocked. Must not touch: slots that a rollout adds; they wait with their reason
//! for as long as it takes, because nothing that was there depends on them.

use std::collections::BTreeSet;

use longshore_model::{
    PlanItem, RolloutState, SlotKey,
    rollout::{StepFailure, StepOutcome},
};

use super::{
    GroupPass,
    rollout::{self, GroupRollout},
    rollout_steps::is_added,
};
use crate::{explain, feasibility::gates::dependencies, request::PlacementRequest, view::groups::Slot};

/// Records whether the group's rollout is blocked, and fails the steps that were blocked for too long. `due` are slots
/// whose step should have begun in this turn and could not.
pub(super) fn watch(pass: &mut GroupPass<'_>, request: &PlacementRequest, due: &[SlotKey]) {
    let since = pass.view.group(request.group).rollout_position.blocked_since;
    // The way back has no deadline: there is nothing else to go to.
    let part = GroupRollout::of(pass.view, request).filter(GroupRollout::may_step);
    let part = part.filter(|part| part.rollout.state != RolloutState::Aborted);
    let blocked = part.as_ref().map(|part| blocked(pass, request, part, due)).unwrap_or_default();
    let Some(part) = part.filter(|_| !blocked.is_empty()) else {
        if since.is_some() {
            pass.items.push(PlanItem::Blocked { since: None });
        }
        return;
    };
    if since.is_none() {
        pass.items.push(PlanItem::Blocked { since: Some(pass.now) });
    }
    let deadline = since.unwrap_or(pass.now).after(rollout::step_timeout(&part, &request.spec));
    if deadline > pass.now {
        return pass.wake(deadline);
    }
    let unmet = dependencies::unmet(pass.view, &request.key, &request.spec).filter(|_| !part.is_rolling_back());
    let why = match unmet {
        Some(refusal) => explain::gated(pass.view, refusal),
        None => explain::nowhere(pass.view, request),
    };
    pass.blocked_by = Some(why);
    let failed = StepOutcome::Failed(StepFailure::StepTimeout);
    pass.items.extend(blocked.iter().map(|slot| part.step(slot, failed)));
}

fn blocked(
    pass: &GroupPass<'_>,
    request: &PlacementRequest,
    part: &GroupRollout,
    due: &[SlotKey],
) -> BTreeSet<SlotKey> {
    let group = pass.view.group(request.group);
    let under_way =
        |slot: &&Slot| part.outcome_after(slot, &pass.items) == Some(StepOutcome::UnderWay) && !is_added(slot);
    let is_placed = |slot: &Slot| {
        pass.items.iter().any(|item| matches!(item, PlanItem::Place(placed) if placed.key.slot == slot.key))
    };
    let is_there = |slot: &Slot| !slot.replicas.is_empty() || is_placed(slot);
    let mut blocked: BTreeSet<SlotKey> =
        group.desired_slots().filter(under_way).filter(|slot| !is_there(slot)).map(|slot| slot.key.clone()).collect();
    if !group.desired_slots().filter(under_way).any(is_there) {
        let is_open = |key: &&SlotKey| {
            let slot = group.slot_at(key).ok().map(|at| &group.slots[at]);
            slot.is_some_and(|slot| part.outcome_after(slot, &pass.items).is_none())
        };
        blocked.extend(due.iter().filter(is_open).cloned());
    }
    blocked
}
