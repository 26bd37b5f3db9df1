//! A group's part in the rollout of its deployment: which spec a slot follows, and the outcome of its steps.
//!
//! ```text
//! step begins ─▶ runs for the monitor time ─▶ done
//!             └▶ given up, or not running in time ─▶ failed ─▶ too many? abort, or pause
//! every step done in every group ─▶ completed; back on the old manifest ─▶ rolled back
//! ```
//!
//! Owns: the outcome of a step and of the rollout. Must not touch: which slot steps next; that is [`super::steps`].
//! Invariant: a step is judged by the generation it created, never by an older one of the slot.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longshore_model::{
    DeploymentPlan, Placement, PlanItem, ReplicaState, Rollout, RolloutState, RuntimeCode, ServiceSpec, SlotKey, Time,
    replica::{DesiredState, Detail},
    rollout::{
        FailedReplica, PreviousSpec, RolloutChange, RolloutFailure, RolloutKind, Step, StepFailure, StepKind,
        StepOutcome,
    },
    service::{FailureAction, Promotion, UpdatePolicy},
};

use super::{
    GroupPass, jobs,
    readiness::{Readiness, is_seen_running, readiness},
    rollout_steps, slots,
    step_retry::{self, Retries},
};
use crate::{
    explain,
    request::PlacementRequest,
    view::{
        View,
        groups::{Group, Replica, Slot},
        rollouts::GroupProgress,
    },
};

/// The time a step may take, unless the service sets one or its health check takes longer.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

/// A group's part in a live rollout.
pub(super) struct GroupRollout {
    pub(super) rollout: Arc<Rollout>,
    pub(super) policy: UpdatePolicy,
    /// How many slots change first and then wait for promotion; `None` where there are none, or they were promoted.
    pub(super) canary: Option<u32>,
}

/// Which spec a slot follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowedSpec {
    /// The group's current spec.
    Target,
    /// The spec before the rollout: the slot's step has not come.
    Previous,
}

impl GroupRollout {
    /// `None` where no rollout is live or the group is a job: jobs are not rolled, new runs use the new spec.
    pub(super) fn of(view: &View, request: &PlacementRequest) -> Option<Self> {
        let rollout = Arc::clone(view.rollout_of(&request.key).filter(|_| !request.spec.kind.is_job())?);
        let policy = policy(&request.spec, Some(&rollout)).clone();
        let group = view.group(request.group);
        let held_back =
            !is_rolling_back(&rollout) && group.rollout_position.previous.is_some() && !group.rollout_position.promoted;
        let canary = Some(request.spec.canary.count).filter(|count| held_back && *count > 0);
        Some(Self { rollout, policy, canary })
    }

    /// Whether new steps may begin.
    pub(super) fn may_step(&self) -> bool {
        may_step(&self.rollout)
    }

    /// Whether the rollout leads to an older revision.
    pub(super) fn is_rolling_back(&self) -> bool {
        is_rolling_back(&self.rollout)
    }

    /// Whether only parallelism and delay limit the steps: the rollout is neither paused nor held for canaries.
    pub(super) fn is_free(&self) -> bool {
        self.may_step() && self.canary.is_none()
    }

    /// The outcome of a slot's step in this rollout; `None` before it begins.
    pub(super) fn outcome(&self, slot: &Slot) -> Option<StepOutcome> {
        rollout_steps::outcome_in(&self.rollout, slot)
    }

    /// Whether the rollout went back after it had changed a slot. One that was stopped for its step and that no node took
    /// is back only when it runs again.
    fn must_bring_back(&self, slot: &Slot) -> bool {
        let is_last = |step: &Step| step.rollout.0 + 1 == self.rollout.number.0 && step.kind == StepKind::Changed;
        self.rollout.state == RolloutState::Aborted && slot.step.as_ref().is_some_and(is_last)
    }

    pub(super) fn step(&self, slot: &SlotKey, outcome: StepOutcome) -> PlanItem {
        PlanItem::Step { slot: slot.clone(), rollout: self.rollout.number, outcome }
    }

    /// The outcome of a slot's step, including what this turn decided.
    pub(super) fn outcome_after(&self, slot: &Slot, items: &[PlanItem]) -> Option<StepOutcome> {
        let said = items.iter().rev().find_map(|item| match item {
            PlanItem::Step { slot: other, outcome, .. } if *other == slot.key => Some(*outcome),
            _ => None,
        });
        said.or_else(|| self.outcome(slot))
    }
}

/// Which spec a slot follows: the group's, unless its step in a live rollout has not come.
///
/// Some slots follow the group's spec before their step: one without a generation, where only pace limits the rollout
/// or the previous spec was a job (jobs are not rolled, and the next run uses the new spec); one that already matches
/// the target through an earlier rollout; one whose key belongs to the other mode (global or counted); and one that an
/// earlier rollout added beyond the previous spec's count. The first and the last do not while the rollout is held.
pub(crate) fn followed_spec(view: &View, request: &PlacementRequest, slot: &Slot) -> FollowedSpec {
    let Some(rollout) = view.rollout_of(&request.key) else { return FollowedSpec::Target };
    let rollout_position = &view.group(request.group).rollout_position;
    let stepped = slot.step.is_some_and(|step| step.rollout == rollout.number);
    let was_job = rollout_position.previous.as_ref().is_some_and(|previous| previous.spec.kind.is_job());
    let free =
        slot.current().is_none() && (was_job || GroupRollout::of(view, request).is_some_and(|part| part.is_free()));
    let is_there = slot.current().is_some_and(|replica| !slots::is_outdated(request, replica));
    let was_so = |previous: &PreviousSpec| previous.spec.kind.is_per_node() == request.spec.kind.is_per_node();
    let previous = rollout_position.previous.as_ref().is_some_and(was_so);
    let is_new = || slot.newest.0 == 0 || was_added(view.group(request.group), slot);
    let on_target = !previous || stepped || is_there || free || (is_new() && !holds_growth(view, request));
    if on_target { FollowedSpec::Target } else { FollowedSpec::Previous }
}

/// Whether slots that are opened now get the previous spec: the rollout is paused, or its canaries are not promoted.
pub(super) fn holds_growth(view: &View, request: &PlacementRequest) -> bool {
    let held = |rollout: &Arc<Rollout>| {
        view.group(request.group).rollout_position.holds_growth(rollout, &request.spec) && !request.spec.kind.is_job()
    };
    view.rollout_of(&request.key).is_some_and(held)
}

/// Canaries of a service per node that went with their nodes while a promotion is awaited. Slots that are opened then take
/// their places.
pub(super) fn lost_canaries(view: &View, request: &PlacementRequest) -> usize {
    let awaits = |rollout: &&Arc<Rollout>| rollout.state == RolloutState::AwaitingPromotion;
    let Some(rollout) = view.rollout_of(&request.key).filter(awaits) else { return 0 };
    let slots = view.group(request.group).desired_slots();
    let left = slots.filter(|slot| rollout_steps::outcome_in(rollout, slot).is_some()).count();
    (request.spec.canary.count as usize).saturating_sub(left)
}

/// Whether a slot is beyond the previous spec's count and has no generation of it: a later revision added it.
fn was_added(group: &Group, slot: &Slot) -> bool {
    let Some(previous) = group.rollout_position.previous.as_ref().filter(|previous| !previous.spec.kind.is_per_node())
    else {
        return false;
    };
    let made = |replica: &Replica| previous.spec.made(&replica.reservation);
    if slot.replicas.iter().any(made) {
        return false;
    }
    let before = group.desired_slots().take_while(|other| other.key < slot.key).count();
    before >= previous.spec.replicas as usize
}

/// The spec a slot follows.
pub(super) fn spec_of<'v>(view: &'v View, request: &PlacementRequest, slot: &Slot) -> &'v Arc<ServiceSpec> {
    let group = view.group(request.group);
    match (followed_spec(view, request, slot), &group.rollout_position.previous) {
        (FollowedSpec::Previous, Some(previous)) => &previous.spec,
        (FollowedSpec::Previous, None) | (FollowedSpec::Target, _) => &group.spec,
    }
}

/// How long a new generation of a group must run before it is ready.
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

fn is_rolling_back(rollout: &Rollout) -> bool {
    rollout.kind == RolloutKind::Rollback || rollout.state == RolloutState::Aborted
}

/// The update policy of a service, or its rollback policy where the rollout goes back.
pub(super) fn policy<'s>(spec: &'s ServiceSpec, rollout: Option<&Arc<Rollout>>) -> &'s UpdatePolicy {
    let backwards = rollout.is_some_and(|rollout| is_rolling_back(rollout));
    spec.rollback.as_ref().filter(|_| backwards).unwrap_or(&spec.update)
}

/// Whether more of the steps failed than a policy tolerates.
pub(super) fn too_many(policy: &UpdatePolicy, failed: usize, total: usize) -> bool {
    let ratio = u128::from(policy.max_failure_ratio_millionths);
    failed as u128 * 1_000_000 > ratio * total as u128
}

/// Decides for every step under way whether it is done or has failed.
pub(super) fn judge_steps(pass: &mut GroupPass<'_>, request: &PlacementRequest) {
    let Some(part) = GroupRollout::of(pass.view, request) else { return };
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(slots::given_up).collect();
    let mut verdicts = Vec::new();
    let mut wakes = Vec::new();
    let group = pass.view.group(request.group);
    for slot in group.desired_slots().filter(|slot| part.outcome(slot) == Some(StepOutcome::UnderWay)) {
        let Some(replica) = slot.current().filter(|replica| !slots::is_outdated(request, replica)) else { continue };
        let given_up = given_up.contains(&slot.key) || replica.code == Some(RuntimeCode::RestartExhausted);
        let failed = match replica.state {
            _ if replica.pull_refused => Some(StepFailure::ImageRefused),
            _ if given_up => Some(StepFailure::RestartExhausted),
            // A service that runs once has failed the rollout only if the rollout changed it.
            ReplicaState::Failed if jobs::has_ended(group, replica) => {
                let changed = group.rollout_position.previous.is_some() || rollout_steps::is_added(slot);
                if !changed {
                    verdicts.push(part.step(&slot.key, StepOutcome::Done));
                    continue;
                }
                Some(StepFailure::Exited)
            }
            _ => None,
        };
        match verdict(pass, &part, request, replica, failed) {
            Verdict::Ended(outcome) => verdicts.push(part.step(&slot.key, outcome)),
            Verdict::Then(at) => wakes.push(at),
            Verdict::Open => {}
        }
    }
    verdicts.extend(failed_again(pass, request, &part));
    pass.items.extend(verdicts);
    for at in wakes {
        pass.wake(at);
    }
    step_retry::wake(pass, request, &part);
}

/// Slots whose step was done and whose new generation has failed since. They fail the rollout for as long as it lasts: a
/// version that outlives its monitor time is not proven by that. Where the rollout only adds slots of a program that
/// ran before, they are left to the restart policy.
fn failed_again(pass: &GroupPass<'_>, request: &PlacementRequest, part: &GroupRollout) -> Vec<PlanItem> {
    let group = pass.view.group(request.group);
    let is_program_new =
        group.rollout_position.previous.is_some() || group.desired_slots().all(rollout_steps::is_added);
    let failed = |slot: &&Slot| {
        let replica = slot.current().filter(|replica| !slots::is_outdated(request, replica));
        // A service that runs once has failed the rollout only if the rollout changed it.
        let replica = replica.filter(|replica| is_program_new || !jobs::has_ended(group, replica));
        replica.is_some_and(|replica| has_failed_by_itself(pass.view, group, replica))
    };
    let done = group.desired_slots().filter(|slot| part.outcome(slot) == Some(StepOutcome::Done));
    let judged = done.filter(|slot| is_program_new || !rollout_steps::is_added(slot)).filter(failed);
    let outcome = StepOutcome::Failed(StepFailure::FailedAgain);
    // Nothing is gained by it on the way back.
    let judged = judged.filter(|_| part.rollout.state != RolloutState::Aborted);
    judged.map(|slot| part.step(&slot.key, outcome)).collect()
}

/// Whether a generation is not running for a reason of its own.
fn has_failed_by_itself(view: &View, group: &Group, replica: &Replica) -> bool {
    let own = replica.code.is_none_or(RuntimeCode::is_own_fault) && !view.nodes.is_down(replica.node);
    match replica.state {
        ReplicaState::Failed | ReplicaState::Degraded => own,
        ReplicaState::Completed => !group.spec.restart.may_complete(),
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => false,
    }
}

/// The judgement of a step.
enum Verdict {
    Ended(StepOutcome),
    /// Undecided until then, unless an event happens.
    Then(Time),
    Open,
}

fn verdict(
    pass: &GroupPass<'_>,
    part: &GroupRollout,
    request: &PlacementRequest,
    replica: &Replica,
    failed: Option<StepFailure>,
) -> Verdict {
    match readiness(pass.view, replica, part.policy.monitor, pass.now) {
        Readiness::Ready => return Verdict::Ended(StepOutcome::Done),
        // The step timeout limits the time until it runs; one that runs gets the monitor time.
        Readiness::ReadyAt(at) => return Verdict::Then(at),
        Readiness::NotReady => {}
    }
    if let Some(code) = failed {
        return Verdict::Ended(StepOutcome::Failed(code));
    }
    // A replica lost with its node gets another generation, and with it another timeout.
    if pass.view.nodes.is_down(replica.node) || replica.state == ReplicaState::Running {
        return Verdict::Open;
    }
    let deadline = replica.placed_at.after(step_timeout(part, &request.spec));
    if deadline <= pass.now {
        Verdict::Ended(StepOutcome::Failed(StepFailure::StepTimeout))
    } else {
        Verdict::Then(deadline)
    }
}

pub(super) fn step_timeout(part: &GroupRollout, spec: &ServiceSpec) -> Duration {
    let check = spec.container.healthcheck.as_ref();
    let checked = check.map(|check| check.start_period.saturating_add(check.interval.saturating_mul(check.retries)));
    let asked = part.policy.step_timeout.or(spec.update.step_timeout);
    asked.unwrap_or_else(|| checked.unwrap_or_default().max(STEP_TIMEOUT))
}

/// Begins the steps of slots that were placed with another node or spec before their turn. A change of placement rules
/// is rolled too.
pub(super) fn moved(view: &View, request: &PlacementRequest, placed: &[Placement]) -> Vec<PlanItem> {
    let Some(part) = GroupRollout::of(view, request).filter(GroupRollout::may_step) else { return Vec::new() };
    let group = view.group(request.group);
    let changes = |slot: &Slot| {
        let changed = slots::usable_replica(view, slot).is_some()
            || group.rollout_position.previous.is_some()
            || part.must_bring_back(slot);
        changed && part.outcome(slot).is_none()
    };
    let is_step = |slot: &SlotKey| group.slot_at(slot).is_ok_and(|at| changes(&group.slots[at]));
    let moved = placed.iter().filter(|placement| is_step(&placement.key.slot));
    moved.map(|placement| part.step(&placement.key.slot, StepOutcome::UnderWay)).collect()
}

/// Returns to an older generation of a slot that is still running and matches the current spec: the newer ones are
/// stopped.
pub(super) fn return_to_older(pass: &mut GroupPass<'_>, request: &PlacementRequest) {
    let Some(part) = GroupRollout::of(pass.view, request).filter(GroupRollout::may_step) else { return };
    let mut items = Vec::new();
    let mut back = BTreeSet::new();
    for slot in pass.view.group(request.group).desired_slots() {
        if !slot.current().is_some_and(|replica| slots::is_outdated(request, replica)) {
            continue;
        }
        let fits = |replica: &&Replica| {
            let runs = replica.desired == DesiredState::Run && is_seen_running(pass.view, replica);
            runs && !slots::is_outdated(request, replica)
        };
        let Some(older) = slot.replicas.iter().rev().find(fits) else { continue };
        let newer = slot.replicas.iter().filter(|replica| replica.generation > older.generation);
        let newer = newer.filter(|replica| replica.desired == DesiredState::Run);
        items.extend(newer.map(|it| PlanItem::Stop(slot.key.generation(it.generation))));
        items.push(part.step(&slot.key, StepOutcome::Done));
        back.insert(slot.key.clone());
    }
    // A generation that is stopped is not restarted first.
    pass.items.retain(|item| match item {
        PlanItem::Restart { key, .. } | PlanItem::GiveUp { key, .. } => !back.contains(&key.slot),
        _ => true,
    });
    pass.items.extend(items);
}

/// Whether more of the group's steps have failed than its policy tolerates.
pub(super) fn has_too_many_failures(
    pass: &GroupPass<'_>,
    request: &PlacementRequest,
    part: &GroupRollout,
    closed: &BTreeSet<SlotKey>,
) -> bool {
    StepCounts::of(pass, request, part, closed).too_many_failures(request, part, pass.now).is_some()
}

/// Records the group's progress at the end of its turn.
pub(super) fn record_progress(pass: &mut GroupPass<'_>, request: &PlacementRequest, closed: &BTreeSet<SlotKey>) {
    let progress = match GroupRollout::of(pass.view, request) {
        Some(part) => progress(pass, request, &part, closed),
        None => GroupProgress::Finished,
    };
    pass.view.set_group_progress(&request.key, request.group, progress);
}

fn progress(
    pass: &mut GroupPass<'_>,
    request: &PlacementRequest,
    part: &GroupRollout,
    closed: &BTreeSet<SlotKey>,
) -> GroupProgress {
    let counts = StepCounts::of(pass, request, part, closed);
    if let Some(failure) = counts.too_many_failures(request, part, pass.now) {
        return blocked_failure(pass, request, failure);
    }
    if counts.under_way > 0 || counts.leaving > 0 || counts.retried > 0 {
        return GroupProgress::Working;
    }
    match part.canary {
        Some(count) if counts.changed > 0 && (counts.changed >= count || counts.to_come == 0) => {
            match request.spec.canary.promotion {
                Promotion::Manual => GroupProgress::AwaitsPromotion,
                // The rollout may be paused because canaries failed; only an operator who resumes it may promote them.
                Promotion::Automatic if !part.may_step() => GroupProgress::Working,
                Promotion::Automatic => {
                    pass.items.push(PlanItem::Promote);
                    GroupProgress::Working
                }
            }
        }
        Some(_) | None if counts.to_come > 0 => GroupProgress::Working,
        Some(_) | None => GroupProgress::Finished,
    }
}

/// Adds to a failure why its step could not begin, where no generation was placed that could tell.
fn blocked_failure(pass: &GroupPass<'_>, request: &PlacementRequest, progress: GroupProgress) -> GroupProgress {
    let GroupProgress::TooManyFailures { failure, action } = progress else { return progress };
    let group = pass.view.group(request.group);
    let slot = group.slot_at(&failure.slot).ok().map(|at| &group.slots[at]);
    let Some((why, slot)) = pass.blocked_by.as_ref().zip(slot) else {
        return GroupProgress::TooManyFailures { failure, action };
    };
    let mut details = explain::details(why);
    details.insert("reason".to_owned(), Detail::Text(why.reason.code().to_owned()));
    let (generation, state) = (slot.newest, ReplicaState::Pending);
    let observed = Some(FailedReplica { generation, node: None, state, code: None, details });
    GroupProgress::TooManyFailures { failure: RolloutFailure { observed, ..failure }, action }
}

/// A group's steps by outcome.
#[derive(Default)]
struct StepCounts {
    under_way: u32,
    done: u32,
    /// Steps that changed an existing slot, begun or ended.
    changed: u32,
    /// Failed steps with slot, cause and time.
    failed: Vec<(SlotKey, StepFailure, Time)>,
    /// Those of the failed ones that are stopped for another attempt.
    retried: u32,
    to_come: u32,
    /// Slots running on a node they may not stay on.
    leaving: usize,
}

impl StepCounts {
    fn of(pass: &GroupPass<'_>, request: &PlacementRequest, part: &GroupRollout, closed: &BTreeSet<SlotKey>) -> Self {
        let mut counts = Self::default();
        let retries = Retries::new(pass, request, part);
        let group = pass.view.group(request.group);
        for slot in group.desired_slots().filter(|slot| !closed.contains(&slot.key)) {
            let outcome = part.outcome_after(slot, &pass.items);
            match outcome {
                Some(StepOutcome::UnderWay) => counts.under_way += 1,
                Some(StepOutcome::Done) => counts.done += 1,
                Some(StepOutcome::Failed(code)) => {
                    let at = part.outcome(slot).filter(|said| Some(*said) == outcome).and(slot.step);
                    counts.failed.push((slot.key.clone(), code, at.map_or(pass.now, |step| step.at)));
                    counts.retried += u32::from(retries.is_under_way(slot));
                }
                None if slot.current().is_some_and(|replica| slots::is_outdated(request, replica)) => {
                    counts.to_come += 1;
                }
                // Its step is still to come, also where an earlier rollout opened the slot: this rollout is not
                // finished before.
                None if slot.current().is_none()
                    && (group.rollout_position.previous.is_some() || part.must_bring_back(slot)) =>
                {
                    counts.to_come += 1;
                }
                None => continue,
            }
            let added = slot.step.is_some_and(|step| step.kind == StepKind::Added);
            counts.changed += u32::from(outcome.is_some() && !added);
        }
        let is_new = |slot: &SlotKey| group.slot_at(slot).is_err();
        let opened = pass.items.iter().filter(|item| match item {
            PlanItem::Open(slot) => is_new(slot),
            PlanItem::Place(placement) => is_new(&placement.key.slot),
            _ => false,
        });
        let opened = u32::try_from(opened.count()).unwrap_or(u32::MAX);
        // A slot that is opened with the previous spec has its step still to come.
        *(if holds_growth(pass.view, request) { &mut counts.to_come } else { &mut counts.under_way }) += opened;
        let leaving = slots::slots_to_move(pass.view, request, pass.now)
            .into_iter()
            .filter(|pending| !closed.contains(&pending.slot));
        counts.leaving = leaving.count();
        counts
    }

    /// The progress where more steps failed than tolerated, and at least one since the rollout was started or resumed.
    fn too_many_failures(&self, request: &PlacementRequest, part: &GroupRollout, now: Time) -> Option<GroupProgress> {
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
        let failure = RolloutFailure { service: request.key.service.clone(), slot, code, observed: None };
        (too_many && news && stops)
            .then_some(GroupProgress::TooManyFailures { failure, action: part.policy.failure_action })
    }
}

/// The changes of the rollouts whose groups were decided.
pub(super) fn conclude(view: &mut View) -> Vec<DeploymentPlan> {
    let mut plans = Vec::new();
    for owner in std::mem::take(&mut view.rollouts_due) {
        let Some(group) = view.rollouts.get(&owner).filter(|group| group.rollout.is_live()) else { continue };
        // The rollout of a stopped deployment begins again when the deployment is started.
        if view.stopped.contains(&owner) {
            continue;
        }
        let Some(change) = change(&group.rollout, &group.unfinished.values().collect::<Vec<_>>()) else { continue };
        let rollout = group.rollout.number;
        // It stays due until committed, or a plan that is never committed would be the last.
        view.rollouts_due.insert(owner.clone());
        plans.push(DeploymentPlan { namespace: owner.0, deployment: owner.1, rollout, change });
    }
    plans
}

fn change(rollout: &Rollout, unfinished: &[&GroupProgress]) -> Option<RolloutChange> {
    let failures = unfinished.iter().filter_map(|progress| match progress {
        GroupProgress::TooManyFailures { failure, action } => Some((failure.clone(), *action)),
        GroupProgress::Working | GroupProgress::AwaitsPromotion | GroupProgress::Finished => None,
    });
    // By name: in which order the groups became known differs from leader to leader.
    let failure = failures.min_by(|(a, _), (b, _)| a.service.cmp(&b.service));
    match (rollout.state, failure) {
        (RolloutState::InProgress | RolloutState::AwaitingPromotion, Some((failure, action))) => match action {
            FailureAction::Rollback if rollout.can_roll_back() => Some(RolloutChange::Abort(failure)),
            // There is no older revision to go back to, or this is the rollback already.
            FailureAction::Rollback | FailureAction::Pause => Some(RolloutChange::Pause(failure)),
            FailureAction::Continue => None,
        },
        (RolloutState::InProgress, None) if unfinished.is_empty() => Some(RolloutChange::Complete),
        (RolloutState::InProgress, None) => {
            let holds = unfinished.iter().all(|progress| **progress == GroupProgress::AwaitsPromotion);
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
