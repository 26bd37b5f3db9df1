//! A group's part in the rollout of its deployment: which spec a slot follows, and how its steps went.
//!
//! ```text
//! step begins ─▶ runs for the monitor time ─▶ done
//!             └▶ given up, or not running in time ─▶ failed ─▶ too many? abort, or pause
//! every step done in every group ─▶ completed; back on the old manifest ─▶ rolled back
//! ```
//!
//! Owns: what a step's outcome is and what becomes of the rollout. Must not touch: which slot steps next; that is
//! [`super::steps`].
//! Invariant: a step is judged by the generation it made, never by an older one of the slot.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longshore_model::{
    DeploymentPlan, Placement, PlanItem, ReplicaState, Rollout, RolloutState, RuntimeCode, ServiceSpec, SlotKey, Time,
    replica::Wanted,
    rollout::{Held, Promoted, RolloutChange, RolloutFailure, RolloutKind, StepFailure, StepKind, StepOutcome},
    service::{FailureAction, Promotion, UpdatePolicy},
};

use super::{
    Pass,
    proof::{Proof, is_seen_running, proof},
    slots, steps,
};
use crate::{
    ask::Ask,
    view::{
        View,
        groups::{Group, Replica, Slot},
        rollouts::Standing,
    },
};

/// Time a step may take unless the service says otherwise, or checks its health more slowly.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

/// A group's part in a rollout that is live.
pub(super) struct Part {
    pub(super) rollout: Arc<Rollout>,
    pub(super) policy: UpdatePolicy,
    /// Slots that change first and then wait for a word; `None` where there are none, or the word was given.
    pub(super) canary: Option<u32>,
}

/// Which spec a slot follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// The group's.
    Target,
    /// The one before the rollout: its step has not come.
    Held,
}

impl Part {
    /// The part of a group that is rolled at all. Jobs are not: new runs use the new spec.
    pub(super) fn of(view: &View, ask: &Ask) -> Option<Self> {
        let rollout = Arc::clone(view.rollout_of(&ask.key).filter(|_| !ask.spec.kind.is_job())?);
        let policy = policy(&ask.spec, Some(&rollout)).clone();
        let known = view.group(ask.group);
        let held_back = !goes_back(&rollout) && known.rolling.held.is_some() && known.rolling.promotion == Promoted::No;
        let canary = Some(ask.spec.canary.count).filter(|count| held_back && *count > 0);
        Some(Self { rollout, policy, canary })
    }

    /// Whether new steps may begin.
    pub(super) fn may_step(&self) -> bool {
        may_step(&self.rollout)
    }

    /// Whether an older manifest is rolled to.
    pub(super) fn goes_back(&self) -> bool {
        goes_back(&self.rollout)
    }

    /// Whether nothing but pace keeps slots from changing.
    pub(super) fn is_free(&self) -> bool {
        self.may_step() && self.canary.is_none()
    }

    /// How a slot's step in this rollout goes, if it has begun.
    pub(super) fn outcome(&self, slot: &Slot) -> Option<StepOutcome> {
        steps::outcome_in(&self.rollout, slot)
    }

    pub(super) fn step(&self, slot: &SlotKey, outcome: StepOutcome) -> PlanItem {
        PlanItem::Step { slot: slot.clone(), rollout: self.rollout.number, outcome }
    }

    /// How a slot's step goes, by what this turn has said of it.
    fn outcome_after(&self, slot: &Slot, items: &[PlanItem]) -> Option<StepOutcome> {
        let said = items.iter().rev().find_map(|item| match item {
            PlanItem::Step { slot: other, outcome, .. } if *other == slot.key => Some(*outcome),
            _ => None,
        });
        said.or_else(|| self.outcome(slot))
    }
}

/// Which spec a slot follows: the group's, unless its step in a live rollout has not come. One that has no generation serves
/// nobody and may as well change at once, where nothing holds the rollout back, or where it was a job: a job is not rolled,
/// and its next run is what is wanted now. One that is what it shall become, by an earlier rollout to the same end, has
/// nothing left to hold it to; a node's own replica was never one of a count, nor the other way round; and one that a rollout
/// before this added was never of the manifest that both left.
pub(crate) fn follows(view: &View, ask: &Ask, slot: &Slot) -> Follows {
    let Some(rollout) = view.rollout_of(&ask.key) else { return Follows::Target };
    let rolling = &view.group(ask.group).rolling;
    let stepped = slot.step.is_some_and(|step| step.rollout == rollout.number);
    let was_job = rolling.held.as_ref().is_some_and(|held| held.spec.kind.is_job());
    let free = slot.current().is_none() && (was_job || Part::of(view, ask).is_some_and(|part| part.is_free()));
    let is_there = slot.current().is_some_and(|replica| !slots::is_outdated(ask, replica));
    let was_so = |held: &Held| held.spec.kind.is_per_node() == ask.spec.kind.is_per_node();
    let held = rolling.held.as_ref().is_some_and(was_so);
    let on_target =
        !held || stepped || is_there || slot.newest.0 == 0 || free || was_added(view.group(ask.group), slot);
    if on_target { Follows::Target } else { Follows::Held }
}

/// Whether a slot is beyond the count of the manifest that is left and has nothing of it: it was added since.
fn was_added(known: &Group, slot: &Slot) -> bool {
    let Some(held) = known.rolling.held.as_ref().filter(|held| !held.spec.kind.is_per_node()) else { return false };
    let made =
        |replica: &Replica| (&replica.terms.spec_hash, replica.terms.kind) == (&held.spec.spec_hash, held.spec.kind);
    if slot.replicas.iter().any(made) {
        return false;
    }
    let before = known.wanted_slots().take_while(|other| other.key < slot.key).count();
    before >= held.spec.replicas as usize
}

/// The spec a slot follows.
pub(super) fn spec_of<'v>(view: &'v View, ask: &Ask, slot: &Slot) -> &'v Arc<ServiceSpec> {
    let known = view.group(ask.group);
    match (follows(view, ask, slot), &known.rolling.held) {
        (Follows::Held, Some(held)) => &held.spec,
        (Follows::Held, None) | (Follows::Target, _) => &known.spec,
    }
}

/// How long a new generation of a group must run before it counts.
pub(super) fn monitor(view: &View, group: &Group) -> Duration {
    policy(&group.spec, view.rollout_of(&group.key)).monitor
}

/// Whether new steps of a rollout may begin.
pub(super) fn may_step(rollout: &Rollout) -> bool {
    match rollout.state {
        RolloutState::InProgress | RolloutState::Aborted => true,
        RolloutState::Paused
        | RolloutState::AwaitingPromotion
        | RolloutState::Completed
        | RolloutState::RolledBack
        | RolloutState::Superseded => false,
    }
}

fn goes_back(rollout: &Rollout) -> bool {
    rollout.kind == RolloutKind::Rollback || rollout.state == RolloutState::Aborted
}

/// How changes of a service roll, or where the rollout goes back how they roll back.
pub(super) fn policy<'s>(spec: &'s ServiceSpec, rollout: Option<&Arc<Rollout>>) -> &'s UpdatePolicy {
    let backwards = rollout.is_some_and(|rollout| goes_back(rollout));
    spec.rollback.as_ref().filter(|_| backwards).unwrap_or(&spec.update)
}

/// Whether more steps failed, of so many, than a policy tolerates.
pub(super) fn too_many(policy: &UpdatePolicy, failed: usize, total: usize) -> bool {
    let ratio = u128::from(policy.max_failure_ratio_millionths);
    failed as u128 * 1_000_000 > ratio * total as u128
}

/// Says of every step under way whether it is done or has failed.
pub(super) fn judge(pass: &mut Pass<'_>, ask: &Ask) {
    let Some(part) = Part::of(pass.view, ask) else { return };
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(slots::given_up).collect();
    let mut verdicts = Vec::new();
    let mut wakes = Vec::new();
    let known = pass.view.group(ask.group);
    for slot in known.wanted_slots().filter(|slot| part.outcome(slot) == Some(StepOutcome::UnderWay)) {
        let Some(replica) = slot.current().filter(|replica| !slots::is_outdated(ask, replica)) else { continue };
        let given_up = given_up.contains(&slot.key) || replica.code == Some(RuntimeCode::RestartExhausted);
        let failed = given_up.then_some(StepFailure::RestartExhausted);
        match verdict(pass, &part, ask, replica, failed) {
            Verdict::Ended(outcome) => verdicts.push(part.step(&slot.key, outcome)),
            Verdict::Then(at) => wakes.push(at),
            Verdict::Open => {}
        }
    }
    pass.items.extend(verdicts);
    for at in wakes {
        pass.wake(at);
    }
}

/// What can be said of a step.
enum Verdict {
    Ended(StepOutcome),
    /// Nothing before then, unless something happens.
    Then(Time),
    Open,
}

fn verdict(pass: &Pass<'_>, part: &Part, ask: &Ask, replica: &Replica, failed: Option<StepFailure>) -> Verdict {
    match proof(pass.view, replica, part.policy.monitor, pass.now) {
        Proof::Given => return Verdict::Ended(StepOutcome::Done),
        // The time a step has is to come to run in; what runs is let prove itself.
        Proof::At(at) => return Verdict::Then(at),
        Proof::Missing => {}
    }
    if let Some(code) = failed {
        return Verdict::Ended(StepOutcome::Failed(code));
    }
    // What is lost with its node gets another generation, and with it another clock.
    if pass.view.fleet.is_down(replica.node) || replica.state == ReplicaState::Running {
        return Verdict::Open;
    }
    let deadline = replica.placed_at.after(step_timeout(part, &ask.spec));
    if deadline <= pass.now {
        Verdict::Ended(StepOutcome::Failed(StepFailure::StepTimeout))
    } else {
        Verdict::Then(deadline)
    }
}

fn step_timeout(part: &Part, spec: &ServiceSpec) -> Duration {
    let check = spec.container.healthcheck.as_ref();
    let checked = check.map(|check| check.start_period.saturating_add(check.interval.saturating_mul(check.retries)));
    let asked = part.policy.step_timeout.or(spec.update.step_timeout);
    asked.unwrap_or_else(|| checked.unwrap_or_default().max(STEP_TIMEOUT))
}

/// Slots that were given another node or another spec although their turn had not come: they step with it. A change of where a
/// service may be is rolled too.
pub(super) fn moved(view: &View, ask: &Ask, placed: &[Placement]) -> Vec<PlanItem> {
    let Some(part) = Part::of(view, ask).filter(Part::may_step) else { return Vec::new() };
    let known = view.group(ask.group);
    let changes = |slot: &Slot| {
        let changed = slots::still_runs(view, slot).is_some() || known.rolling.held.is_some();
        changed && part.outcome(slot).is_none()
    };
    let is_step = |slot: &SlotKey| known.slot_at(slot).is_ok_and(|at| changes(&known.slots[at]));
    let moved = placed.iter().filter(|placement| is_step(&placement.slot));
    moved.map(|placement| part.step(&placement.slot, StepOutcome::UnderWay)).collect()
}

/// Goes back to an older generation of a slot that still runs and is what is wanted now: the newer ones are stopped.
pub(super) fn revive(pass: &mut Pass<'_>, ask: &Ask) {
    let Some(part) = Part::of(pass.view, ask).filter(Part::may_step) else { return };
    let mut items = Vec::new();
    let mut back = BTreeSet::new();
    for slot in pass.view.group(ask.group).wanted_slots() {
        if !slot.current().is_some_and(|replica| slots::is_outdated(ask, replica)) {
            continue;
        }
        let fits = |replica: &&Replica| {
            let runs = replica.wanted == Wanted::Run && is_seen_running(pass.view, replica);
            runs && !slots::is_outdated(ask, replica)
        };
        let Some(older) = slot.replicas.iter().rev().find(fits) else { continue };
        let newer = slot.replicas.iter().filter(|replica| replica.generation > older.generation);
        let newer = newer.filter(|replica| replica.wanted == Wanted::Run);
        items.extend(newer.map(|it| PlanItem::Stop { slot: slot.key.clone(), generation: it.generation }));
        items.push(part.step(&slot.key, StepOutcome::Done));
        back.insert(slot.key.clone());
    }
    // What goes is not started again first.
    pass.items.retain(|item| match item {
        PlanItem::Restart { slot, .. } | PlanItem::GiveUp { slot, .. } => !back.contains(slot),
        _ => true,
    });
    pass.items.extend(items);
}

/// Whether more of the group's steps have failed than are tolerated.
pub(super) fn is_broken(pass: &Pass<'_>, ask: &Ask, part: &Part, closed: &BTreeSet<SlotKey>) -> bool {
    Tally::of(pass, ask, part, closed).broken(ask, part, pass.now).is_some()
}

/// Notes how the group stands at the end of its turn.
pub(super) fn note_standing(pass: &mut Pass<'_>, ask: &Ask, closed: &BTreeSet<SlotKey>) {
    let standing = match Part::of(pass.view, ask) {
        Some(part) => standing(pass, ask, &part, closed),
        None => Standing::Finished,
    };
    pass.view.stand(&ask.key, ask.group, standing);
}

fn standing(pass: &mut Pass<'_>, ask: &Ask, part: &Part, closed: &BTreeSet<SlotKey>) -> Standing {
    let tally = Tally::of(pass, ask, part, closed);
    if let Some(broken) = tally.broken(ask, part, pass.now) {
        return broken;
    }
    if tally.under_way > 0 || tally.leaving > 0 {
        return Standing::Working;
    }
    match part.canary {
        Some(count) if tally.changed > 0 && (tally.changed >= count || tally.to_come == 0) => {
            match ask.spec.canary.promotion {
                Promotion::Manual => Standing::Holds,
                // What paused it may be that they failed; whoever lets it go on says that they may.
                Promotion::Automatic if !part.may_step() => Standing::Working,
                Promotion::Automatic => {
                    pass.items.push(PlanItem::Promote);
                    Standing::Working
                }
            }
        }
        Some(_) | None if tally.to_come > 0 => Standing::Working,
        Some(_) | None => Standing::Finished,
    }
}

/// A group's steps by how they go.
#[derive(Default)]
struct Tally {
    under_way: u32,
    done: u32,
    /// Those that change a slot, begun or ended.
    changed: u32,
    /// Failed, with the slot and when.
    failed: Vec<(SlotKey, StepFailure, Time)>,
    to_come: u32,
    /// Slots that run where they may not stay.
    leaving: usize,
}

impl Tally {
    fn of(pass: &Pass<'_>, ask: &Ask, part: &Part, closed: &BTreeSet<SlotKey>) -> Self {
        let mut tally = Self::default();
        let known = pass.view.group(ask.group);
        for slot in known.wanted_slots().filter(|slot| !closed.contains(&slot.key)) {
            let outcome = part.outcome_after(slot, &pass.items);
            match outcome {
                Some(StepOutcome::UnderWay) => tally.under_way += 1,
                Some(StepOutcome::Done) => tally.done += 1,
                Some(StepOutcome::Failed(code)) => {
                    let at = part.outcome(slot).filter(|said| Some(*said) == outcome).and(slot.step);
                    tally.failed.push((slot.key.clone(), code, at.map_or(pass.now, |step| step.at)));
                }
                None if slot.current().is_some_and(|replica| slots::is_outdated(ask, replica)) => tally.to_come += 1,
                // It has a step to come, also where another rollout opened it: until then that is not over.
                None if slot.current().is_none() && known.rolling.held.is_some() => tally.to_come += 1,
                None => continue,
            }
            let added = slot.step.is_some_and(|step| step.kind == StepKind::Added);
            tally.changed += u32::from(outcome.is_some() && !added);
        }
        let is_new = |slot: &SlotKey| known.slot_at(slot).is_err();
        let opened = pass.items.iter().filter(|item| match item {
            PlanItem::Open(slot) => is_new(slot),
            PlanItem::Place(placement) => is_new(&placement.slot),
            _ => false,
        });
        tally.under_way += u32::try_from(opened.count()).unwrap_or(u32::MAX);
        let leaving =
            slots::movers(pass.view, ask, pass.now).into_iter().filter(|vacancy| !closed.contains(&vacancy.slot));
        tally.leaving = leaving.count();
        tally
    }

    /// Whether more has failed than is tolerated, and something since the rollout was last let go on.
    fn broken(&self, ask: &Ask, part: &Part, now: Time) -> Option<Standing> {
        let (slot, code, _) = self.failed.first()?.clone();
        let total = self.failed.len() + (self.under_way + self.done + self.to_come) as usize;
        let too_many = too_many(&part.policy, self.failed.len(), total);
        let news = self.failed.iter().any(|(_, _, at)| *at > part.rollout.since || *at == now);
        let stops = match part.rollout.state {
            RolloutState::InProgress | RolloutState::AwaitingPromotion => {
                part.policy.failure_action != FailureAction::Continue
            }
            RolloutState::Paused
            | RolloutState::Completed
            | RolloutState::Aborted
            | RolloutState::RolledBack
            | RolloutState::Superseded => false,
        };
        let failure = RolloutFailure { service: ask.key.service.clone(), slot, code };
        (too_many && news && stops).then_some(Standing::Broken { failure, action: part.policy.failure_action })
    }
}

/// What becomes of the rollouts whose groups were asked.
pub(super) fn conclude(view: &mut View) -> Vec<DeploymentPlan> {
    let mut plans = Vec::new();
    for owner in std::mem::take(&mut view.rollouts_due) {
        let Some(known) = view.rollouts.get(&owner).filter(|known| known.rollout.is_live()) else { continue };
        let Some(change) = change(&known.rollout, &known.unfinished.values().collect::<Vec<_>>()) else { continue };
        let rollout = known.rollout.number;
        // Until it is committed it is due, or a plan that is never committed would be the last.
        view.rollouts_due.insert(owner.clone());
        plans.push(DeploymentPlan { namespace: owner.0, deployment: owner.1, rollout, change });
    }
    plans
}

fn change(rollout: &Rollout, unfinished: &[&Standing]) -> Option<RolloutChange> {
    let broken = unfinished.iter().find_map(|standing| match standing {
        Standing::Broken { failure, action } => Some((failure.clone(), *action)),
        Standing::Working | Standing::Holds | Standing::Finished => None,
    });
    match (rollout.state, broken) {
        (RolloutState::InProgress | RolloutState::AwaitingPromotion, Some((failure, action))) => match action {
            FailureAction::Rollback if rollout.can_go_back() => Some(RolloutChange::Abort(failure)),
            // There is nothing older to go back to, or this is the way back.
            FailureAction::Rollback | FailureAction::Pause => Some(RolloutChange::Pause(failure)),
            FailureAction::Continue => None,
        },
        (RolloutState::InProgress, None) if unfinished.is_empty() => Some(RolloutChange::Complete),
        (RolloutState::InProgress, None) => {
            let holds = unfinished.iter().all(|standing| **standing == Standing::Holds);
            holds.then_some(RolloutChange::AwaitPromotion)
        }
        (RolloutState::Aborted, _) if unfinished.is_empty() => Some(RolloutChange::RolledBack),
        (
            RolloutState::Aborted
            | RolloutState::AwaitingPromotion
            | RolloutState::Paused
            | RolloutState::Completed
            | RolloutState::RolledBack
            | RolloutState::Superseded,
            _,
        ) => None,
    }
}
