//! How many steps of a rollout may begin now.
//!
//! ```text
//! first step ─▶ runs ─▶ has run for the monitor time ─▶ the others overlap:
//!     next step as soon as the last one runs ─▶ at most `surge` slots with two generations, or `parallelism` if written
//! ```
//!
//! Monitor times overlap with start-first order, because the old generations serve on until the new ones are proven.
//! With stop-first order a slot under way is short, so `parallelism` limits them all.
//!
//! Owns: parallelism, surge and delay. Must not touch: which slots step; that is [`super::rollout_steps`].
//! Invariant: no step in order begins while a slot that was changed is not running.

use longshore_model::{ReplicaState, RolloutState, Time, rollout::StepOutcome};

use super::{
    GroupPass,
    readiness::is_seen_running,
    rollout::GroupRollout,
    rollout_steps::{self, counts_as_under_way, is_added, serves},
    slots,
    step_retry::Retries,
};
use crate::{
    request::PlacementRequest,
    view::groups::{Replica, Slot},
};

/// How far a slot is in its step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No change of it is under way, or only its old generation is still stopping.
    Settled,
    /// Its new generation runs, and its old one is kept for the monitor time.
    Monitored,
    /// Its new generation does not run yet.
    Coming,
}

/// Steps that may begin.
pub(super) struct Pace {
    /// How many of those in order.
    pub(super) free: usize,
    /// When the delay after the last step is over, where nothing begins because of it.
    pub(super) paused_until: Option<Time>,
}

/// What the pace of a group's rollout is decided from.
pub(super) struct StepPace<'a> {
    pub(super) pass: &'a GroupPass<'a>,
    pub(super) request: &'a PlacementRequest,
    pub(super) part: &'a GroupRollout,
    /// Slots that are not closed.
    pub(super) staying: &'a [&'a Slot],
}

impl StepPace<'_> {
    /// How many steps in order may begin. `hurries` are slots that step now in any case.
    pub(super) fn pace(&self, hurries: impl Fn(&Slot) -> bool, waits: impl Fn(&Slot) -> bool) -> Pace {
        let paused_until = self.delay_ends().filter(|at| *at > self.pass.now);
        if paused_until.is_some() || self.has_changed_slot_down() {
            return Pace { free: 0, paused_until };
        }
        let retries = Retries::new(self.pass, self.request, self.part);
        let phase = |slot: &&Slot| if hurries(slot) { Phase::Coming } else { self.phase(&retries, slot) };
        let phases = self.staying.iter().filter(|slot| !waits(slot)).map(phase);
        let (mut coming, mut monitored) = (0_usize, 0_usize);
        for phase in phases {
            match phase {
                Phase::Settled => {}
                Phase::Monitored => monitored += 1,
                Phase::Coming => coming += 1,
            }
        }
        let at_once = self.part.policy.slots_at_once().map_or(usize::MAX, |limit| limit as usize);
        let free = if self.starts_first() {
            at_once.saturating_sub(coming).min(self.most_overlaps().saturating_sub(coming + monitored))
        } else {
            at_once.saturating_sub(coming + monitored)
        };
        Pace { free, paused_until: None }
    }

    fn starts_first(&self) -> bool {
        let group = self.pass.view.group(self.request.group);
        let falls_back = rollout_steps::has_waited_for_room(group, self.pass.now);
        !rollout_steps::stops_first(self.request, self.part) && !falls_back
    }

    /// Slots that may have two generations at the same time. The first step is monitored alone, except on the way back,
    /// where the revision served before, and where the manifest says that several change at once.
    fn most_overlaps(&self) -> usize {
        let has_ended = |slot: &&&Slot| {
            let outcome = self.part.outcome_after(slot, &self.pass.items);
            !is_added(slot) && matches!(outcome, Some(StepOutcome::Done | StepOutcome::Failed(_)))
        };
        let most = self.part.policy.slots_with_two_generations(self.staying.len()).unwrap_or(usize::MAX);
        let is_said = self.part.policy.parallelism.is_some();
        let alone = !is_said && !self.goes_back() && !self.staying.iter().any(|slot| has_ended(&slot));
        if alone { most.min(1) } else { most }
    }

    fn goes_back(&self) -> bool {
        self.part.rollout.state == RolloutState::Aborted
    }

    fn phase(&self, retries: &Retries<'_>, slot: &Slot) -> Phase {
        if !counts_as_under_way(self.pass, self.part, retries, slot) {
            return Phase::Settled;
        }
        let runs =
            slot.current().is_some_and(|replica| self.is_current(replica) && is_seen_running(self.pass.view, replica));
        match self.part.outcome_after(slot, &self.pass.items) {
            Some(StepOutcome::Done) if runs && self.starts_first() => Phase::Settled,
            Some(StepOutcome::UnderWay) if runs => Phase::Monitored,
            Some(StepOutcome::Done | StepOutcome::UnderWay | StepOutcome::Failed(_)) | None => Phase::Coming,
        }
    }

    fn is_current(&self, replica: &Replica) -> bool {
        !slots::is_outdated(self.request, replica)
    }

    /// Whether a slot whose step is done does not run. On the way back nothing waits for it.
    fn has_changed_slot_down(&self) -> bool {
        let is_down = |slot: &&&Slot| {
            let is_done = self.part.outcome_after(slot, &self.pass.items) == Some(StepOutcome::Done) && !is_added(slot);
            let has_completed = slot.current().is_some_and(|replica| replica.state == ReplicaState::Completed);
            is_done && !has_completed && !serves(slot)
        };
        !self.goes_back() && self.staying.iter().any(|slot| is_down(&slot))
    }

    /// When the delay is over: it counts from the time at which the last changed slot began to run, or its step failed.
    fn delay_ends(&self) -> Option<Time> {
        let delay = self.part.policy.delay;
        let begun = self.staying.iter().filter_map(|slot| Some((slot, self.part.outcome(slot)?, slot.step?)));
        let since = begun.filter_map(|(slot, outcome, step)| {
            let running = slot.current().filter(|replica| self.is_current(replica));
            let running = running.filter(|replica| replica.state == ReplicaState::Running).map(|replica| replica.since);
            running.or((outcome != StepOutcome::UnderWay).then_some(step.at))
        });
        since.max().map(|since| since.after(delay)).filter(|_| !delay.is_zero())
    }
}
