//! Rollouts: start, operator control, steps and end.
//!
//! Owns: the record of a deployment's only rollout, each group's position in it, and the count of steps.
//! Must not touch: when a step may start or has failed; the plan says so.
//! Invariant: a deployment has at most one live rollout; another change supersedes it.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    Assignment, DeploymentName, DeploymentPlan, Event, GroupKey, NamespaceName, ReplicaState, Reservation,
    RevisionNumber, Rollout, RolloutNumber, RolloutState, SecretName, ServiceName, ServiceSpec, SlotKey, Time,
    command::RolloutControl,
    replica::{DesiredState, Detail, Replica, Slot},
    restart_fingerprint::{RestartFingerprint, transitive_dependencies},
    rollout::{
        FailedReplica, PreviousSpec, RolloutChange, RolloutFailure, RolloutKind, RolloutPosition, Step, StepCount,
        StepKind, StepOutcome,
    },
};

use crate::{
    CommandError, State, conflicts,
    deployments::by_group_key,
    state::{Deployment, Group},
    status::is_live,
};

/// The revision a rollout starts from, and the one before it.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) from: RevisionNumber,
    pub(crate) before: Option<RevisionNumber>,
}

/// A deployment by namespace and name.
#[derive(Clone, Copy)]
pub(crate) struct DeploymentRef<'a> {
    pub(crate) namespace: &'a NamespaceName,
    pub(crate) name: &'a DeploymentName,
}

impl<'a> DeploymentRef<'a> {
    pub(crate) const fn new(namespace: &'a NamespaceName, name: &'a DeploymentName) -> Self {
        Self { namespace, name }
    }

    fn key(self) -> (NamespaceName, DeploymentName) {
        (self.namespace.clone(), self.name.clone())
    }
}

impl Deployment {
    /// Where the next rollout starts from: the revision in force, or the start of the current rollout while that may
    /// still go back.
    pub(crate) fn origin(&self) -> Origin {
        match self.rollout_forward() {
            Some(rollout) => Origin { from: rollout.from, before: rollout.prior_rollback_target },
            None => Origin { from: self.in_force, before: self.previous },
        }
    }

    /// The live rollout, if it is paused.
    pub(crate) fn paused_rollout(&self) -> Option<Arc<Rollout>> {
        self.rollout.clone().filter(|rollout| rollout.state == RolloutState::Paused)
    }

    /// The live rollout, if it may still have to go back.
    fn rollout_forward(&self) -> Option<&Rollout> {
        self.live_rollout().filter(|rollout| rollout.can_roll_back() && rollout.state != RolloutState::Aborted)
    }

    fn live_rollout(&self) -> Option<&Rollout> {
        self.rollout.as_deref().filter(|rollout| rollout.is_live())
    }
}

impl State {
    /// Starts a rollout to the revision in force, and supersedes the live one.
    pub(crate) fn begin_rollout(
        &mut self,
        owner: DeploymentRef<'_>,
        kind: RolloutKind,
        Origin { from, before }: Origin,
        since: Time,
        events: &mut Vec<Event>,
    ) {
        let key = owner.key();
        let known = self.deployments.get(&key);
        if known.is_some_and(|known| known.is_stopped() && known.live_rollout().is_none()) {
            return;
        }
        self.end_rollout(&key, events);
        let Some(known) = self.deployments.get_mut(&key) else { return };
        let number = RolloutNumber(known.rollout.as_ref().map_or(0, |last| last.number.0) + 1);
        let (to, state, failure) = (known.in_force, RolloutState::InProgress, None);
        known.rollout = Some(Arc::new(Rollout {
            number,
            from,
            to,
            state,
            kind,
            failure,
            since,
            prior_rollback_target: before,
            steps: BTreeMap::new(),
        }));
        events.extend(self.rollout_event(owner));
    }

    /// Supersedes the live rollout, because of another change or the removal of the deployment.
    pub(crate) fn end_rollout(&mut self, key: &(NamespaceName, DeploymentName), events: &mut Vec<Event>) {
        if self.deployments.get(key).and_then(Deployment::live_rollout).is_some() {
            self.set_rollout_state(DeploymentRef::new(&key.0, &key.1), RolloutState::Superseded, None, events);
        }
    }

    /// A service's position at the start of its deployment's rollout.
    pub(crate) fn rollout_position_of(&self, key: &GroupKey, spec: &ServiceSpec) -> RolloutPosition {
        let known = self.deployment(&key.namespace, &key.deployment);
        let held = known.and_then(|known| {
            let revision = known.revision(known.rollout_forward()?.from)?;
            let held = revision.spec.services.get(&key.service)?;
            let destructive = !held.is_same_program(spec) && !spec.kind.is_job();
            destructive.then(|| PreviousSpec { revision: revision.number, spec: Arc::clone(held) })
        });
        RolloutPosition { previous: held, ..RolloutPosition::default() }
    }

    pub(crate) fn set_previous(
        &mut self,
        namespace: &NamespaceName,
        name: &DeploymentName,
        previous: Option<RevisionNumber>,
    ) {
        if let Some(known) = self.deployments.get_mut(&(namespace.clone(), name.clone())) {
            known.previous = previous;
        }
    }

    pub(crate) fn roll_back(
        &mut self,
        namespace: &NamespaceName,
        name: &DeploymentName,
        to: Option<RevisionNumber>,
        at: Time,
    ) -> Result<Vec<Event>, CommandError> {
        let known = self.desired_deployment(namespace, name)?;
        let asked = to.or_else(|| known.live_rollout().filter(|it| it.from != it.to).map(|it| it.from));
        let number = asked.filter(|number| *number != known.in_force || to.is_some()).or(known.previous);
        let number = number.ok_or_else(|| CommandError::NoPreviousRevision(name.clone()))?;
        let revision = known
            .revision(number)
            .ok_or_else(|| CommandError::UnknownRevision { deployment: name.clone(), revision: number })?;
        let (left, has_live_rollout) = (known.in_force, known.live_rollout().is_some());
        let changes = has_live_rollout || revision.spec != known.current().spec;
        if number == left && !has_live_rollout {
            return Ok(Vec::new());
        }
        let groups = by_group_key(namespace, name, &revision.spec);
        conflicts::check_ingress_ports_free(self, &groups)?;
        conflicts::check_replica_ids_unique(self, &groups)?;
        let mut events = Vec::new();
        if let Some(known) = self.deployments.get_mut(&(namespace.clone(), name.clone())) {
            known.in_force = number;
        }
        if changes {
            let origin = Origin { from: left, before: None };
            self.begin_rollout(DeploymentRef::new(namespace, name), RolloutKind::Rollback, origin, at, &mut events);
        }
        self.set_previous(namespace, name, Some(left).filter(|left| *left != number));
        self.bring_in_force(namespace, name, &mut events);
        self.reset_failures(namespace, name, &mut events);
        Ok(events)
    }

    pub(crate) fn control_rollout(
        &mut self,
        namespace: &NamespaceName,
        name: &DeploymentName,
        control: RolloutControl,
        at: Time,
    ) -> Result<Vec<Event>, CommandError> {
        let known = self.desired_deployment(namespace, name)?;
        let state = known.live_rollout().map(|rollout| rollout.state).filter(|state| *state != RolloutState::Aborted);
        let state = state.ok_or_else(|| CommandError::NoRollout(name.clone()))?;
        let mut events = Vec::new();
        if control == RolloutControl::Promote {
            self.promote_all(DeploymentRef::new(namespace, name), &mut events);
        }
        let next = match (control, state) {
            (RolloutControl::Pause, _) => RolloutState::Paused,
            (RolloutControl::Promote, RolloutState::AwaitingPromotion)
            | (RolloutControl::Resume, RolloutState::Paused) => RolloutState::InProgress,
            (RolloutControl::Promote | RolloutControl::Resume, _) => state,
        };
        if next != state {
            self.set_rollout_state(DeploymentRef::new(namespace, name), next, Some(at), &mut events);
        }
        Ok(events)
    }

    /// Pauses a rollout that has just begun again, with the failure it was paused for.
    pub(crate) fn pause_again(
        &mut self,
        owner: DeploymentRef<'_>,
        failure: Option<RolloutFailure>,
        at: Time,
        events: &mut Vec<Event>,
    ) {
        if let Some(failure) = failure {
            self.note_failure(owner, failure);
        }
        self.set_rollout_state(owner, RolloutState::Paused, Some(at), events);
    }

    fn promote_all(&mut self, owner: DeploymentRef<'_>, events: &mut Vec<Event>) {
        let groups: Vec<GroupKey> = self.groups_of(owner.namespace, owner.name).map(|(key, _)| key.clone()).collect();
        for key in groups {
            self.promote(&key, events);
        }
    }

    pub(crate) fn restart_service(&mut self, key: &GroupKey, at: Time) -> Result<Vec<Event>, CommandError> {
        let (namespace, name) = (&key.namespace, &key.deployment);
        self.desired_deployment(namespace, name)?;
        let group = self.groups.get_mut(key).filter(|group| group.desired == DesiredState::Run);
        let group = group
            .ok_or_else(|| CommandError::UnknownService { deployment: name.clone(), service: key.service.clone() })?;
        group.restart_epoch += 1;
        let mut events = Vec::new();
        self.restart_rollout(DeploymentRef::new(namespace, name), at, &mut events);
        self.clear_stop(namespace, name, &mut events);
        Ok(events)
    }

    /// A secret has a new version: the services that use it are rolled.
    pub(crate) fn roll_secret_users(&mut self, namespace: &NamespaceName, name: &SecretName, events: &mut Vec<Event>) {
        let mut owners: Vec<DeploymentName> = self
            .groups
            .iter()
            .filter(|(key, group)| key.namespace == *namespace && group.desired == DesiredState::Run)
            .filter(|(_, group)| group.spec.secrets_required.contains(name) && !group.spec.kind.is_job())
            .map(|(key, _)| key.deployment.clone())
            .collect();
        owners.dedup();
        for owner in owners {
            self.restart_rollout(DeploymentRef::new(namespace, &owner), Time::default(), events);
        }
    }

    /// Starts a rollout to the revision that is already in force.
    pub(crate) fn restart_rollout(&mut self, owner: DeploymentRef<'_>, at: Time, events: &mut Vec<Event>) {
        let Some(known) = self.deployment(owner.namespace, owner.name) else { return };
        let (origin, paused) = (known.origin(), known.paused_rollout());
        self.begin_rollout(owner, RolloutKind::Forward, origin, at, events);
        self.bring_in_force(owner.namespace, owner.name, events);
        if let Some(paused) = paused {
            self.pause_again(owner, paused.failure.clone(), at, events);
        }
    }

    pub(crate) fn desired_deployment(
        &self,
        namespace: &NamespaceName,
        name: &DeploymentName,
    ) -> Result<&Deployment, CommandError> {
        self.deployment(namespace, name)
            .filter(|known| known.desired == DesiredState::Run)
            .ok_or_else(|| CommandError::UnknownDeployment(name.clone()))
    }

    /// Applies a planned change to the rollout it was made for. Dropped if another rollout is live by now.
    pub(crate) fn commit_rollout(&mut self, plan: DeploymentPlan, at: Time, events: &mut Vec<Event>) {
        let DeploymentPlan { namespace, deployment, rollout, change } = plan;
        let owner = DeploymentRef::new(&namespace, &deployment);
        let state = self
            .deployment(owner.namespace, owner.name)
            .and_then(Deployment::live_rollout)
            .map(|it| (it.number, it.state));
        let Some((number, state)) = state else { return };
        let stopped = self.deployment(owner.namespace, owner.name).is_some_and(Deployment::is_stopped);
        if number != rollout || stopped {
            return;
        }
        match (change, state) {
            (RolloutChange::Complete, RolloutState::InProgress) => {
                self.set_rollout_state(owner, RolloutState::Completed, Some(at), events);
                self.clear_rollout_positions(owner, events);
            }
            (RolloutChange::AwaitPromotion, RolloutState::InProgress) => {
                self.set_rollout_state(owner, RolloutState::AwaitingPromotion, Some(at), events);
            }
            (RolloutChange::Pause(failure), RolloutState::InProgress | RolloutState::AwaitingPromotion) => {
                self.note_failure(owner, failure);
                self.set_rollout_state(owner, RolloutState::Paused, Some(at), events);
            }
            (RolloutChange::Abort(failure), RolloutState::InProgress | RolloutState::AwaitingPromotion) => {
                self.note_failure(owner, failure);
                self.abort(owner, at, events);
            }
            (RolloutChange::RolledBack, RolloutState::Aborted) => {
                self.set_rollout_state(owner, RolloutState::RolledBack, Some(at), events);
                self.clear_rollout_positions(owner, events);
            }
            (
                RolloutChange::Complete
                | RolloutChange::AwaitPromotion
                | RolloutChange::Pause(_)
                | RolloutChange::Abort(_)
                | RolloutChange::RolledBack,
                _,
            ) => {}
        }
    }

    fn note_failure(&mut self, owner: DeploymentRef<'_>, failure: RolloutFailure) {
        // The plan knows why a step could not begin; the state why a generation failed.
        let observed = self.failed_replica(owner, &failure);
        if let Some(rollout) = self.rollout_mut(owner) {
            rollout.failure = Some(RolloutFailure { observed: observed.or(failure.observed.clone()), ..failure });
        }
    }

    /// The last observation of the slot that failed a rollout. It is kept with the rollout, because the way back stops
    /// the generation and removes it.
    fn failed_replica(&self, owner: DeploymentRef<'_>, failure: &RolloutFailure) -> Option<FailedReplica> {
        let to = self.deployment(owner.namespace, owner.name)?.rollout.as_ref()?.to;
        let key = GroupKey {
            namespace: owner.namespace.clone(),
            deployment: owner.name.clone(),
            service: failure.service.clone(),
        };
        let slot = self.group(&key)?.slots.get(&failure.slot)?;
        let of_rollout = |replica: &&Replica| replica.assignment.reservation.revision == to;
        if let Some(replica) = slot.replicas.iter().rev().find(of_rollout) {
            return Some(FailedReplica {
                generation: replica.generation,
                node: Some(replica.assignment.node.clone()),
                state: replica.state,
                code: replica.code,
                details: replica.details.clone(),
            });
        }
        let mut details = slot.waiting_details.clone();
        details.insert("reason".to_owned(), Detail::Text(slot.waiting?.code().to_owned()));
        Some(FailedReplica { generation: slot.newest, node: None, state: ReplicaState::Pending, code: None, details })
    }

    /// Puts the revision the rollout started from in force again. The way back counts as a rollout with its own number.
    fn abort(&mut self, owner: DeploymentRef<'_>, at: Time, events: &mut Vec<Event>) {
        self.set_rollout_state(owner, RolloutState::Aborted, Some(at), events);
        let Some(known) = self.deployments.get_mut(&owner.key()) else { return };
        if let Some(rollout) = &known.rollout {
            (known.in_force, known.previous) = (rollout.from, rollout.prior_rollback_target);
        }
        self.bring_in_force(owner.namespace, owner.name, events);
    }

    /// Sets the state of the deployment's rollout. If no further step will count for this number, the counts become
    /// final.
    fn set_rollout_state(
        &mut self,
        owner: DeploymentRef<'_>,
        state: RolloutState,
        at: Option<Time>,
        events: &mut Vec<Event>,
    ) {
        let counted = match state {
            RolloutState::Completed | RolloutState::Aborted | RolloutState::Superseded => {
                self.deployment(owner.namespace, owner.name).and_then(|known| self.step_counts(owner, known))
            }
            RolloutState::InProgress
            | RolloutState::Paused
            | RolloutState::AwaitingPromotion
            | RolloutState::RolledBack => None,
        };
        let Some(rollout) = self.rollout_mut(owner) else { return };
        rollout.state = state;
        rollout.since = at.unwrap_or(rollout.since);
        rollout.steps = counted.unwrap_or_else(|| std::mem::take(&mut rollout.steps));
        if state == RolloutState::Aborted {
            rollout.number = RolloutNumber(rollout.number.0 + 1);
        }
        events.extend(self.rollout_event(owner));
    }

    fn rollout_mut(&mut self, owner: DeploymentRef<'_>) -> Option<&mut Rollout> {
        let known = self.deployments.get_mut(&owner.key())?;
        known.rollout.as_mut().map(Arc::make_mut)
    }

    fn rollout_event(&self, owner: DeploymentRef<'_>) -> Option<Event> {
        let rollout = Arc::clone(self.deployment(owner.namespace, owner.name)?.rollout.as_ref()?);
        Some(Event::RolloutChanged { namespace: owner.namespace.clone(), deployment: owner.name.clone(), rollout })
    }

    /// Resets the rollout position of every group, so that all slots follow the group's spec.
    fn clear_rollout_positions(&mut self, owner: DeploymentRef<'_>, events: &mut Vec<Event>) {
        let keys: Vec<GroupKey> = self.groups_of(owner.namespace, owner.name).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.change_rollout_position(&key, events, |rollout_position| {
                *rollout_position = RolloutPosition::default();
            });
        }
    }

    fn change_rollout_position(
        &mut self,
        key: &GroupKey,
        events: &mut Vec<Event>,
        change: impl FnOnce(&mut RolloutPosition),
    ) {
        let Some(group) = self.groups.get_mut(key) else { return };
        let before = group.rollout_position.clone();
        change(&mut group.rollout_position);
        if group.rollout_position != before {
            events.push(Event::GroupRolloutChanged {
                group: key.clone(),
                rollout_position: group.rollout_position.clone(),
            });
        }
    }

    pub(crate) fn promote(&mut self, key: &GroupKey, events: &mut Vec<Event>) {
        if self.has_live_rollout(key) {
            self.change_rollout_position(key, events, |rollout_position| rollout_position.promoted = true);
        }
    }

    pub(crate) fn note_no_room(&mut self, key: &GroupKey, since: Time, events: &mut Vec<Event>) {
        if self.has_live_rollout(key) {
            self.change_rollout_position(key, events, |rollout_position| {
                rollout_position.no_room_since.get_or_insert(since);
            });
        }
    }

    pub(crate) fn note_blocked(&mut self, key: &GroupKey, since: Option<Time>, events: &mut Vec<Event>) {
        if self.has_live_rollout(key) {
            self.change_rollout_position(key, events, |rollout_position| rollout_position.blocked_since = since);
        }
    }

    fn has_live_rollout(&self, key: &GroupKey) -> bool {
        self.deployment(&key.namespace, &key.deployment).is_some_and(|known| known.live_rollout().is_some())
    }

    /// Records that a slot's step starts or ends. A step that has ended does not start again in the same rollout.
    pub(crate) fn step(
        &mut self,
        key: &GroupKey,
        slot: &SlotKey,
        rollout: RolloutNumber,
        outcome: StepOutcome,
        at: Time,
        events: &mut Vec<Event>,
    ) {
        let known = self.deployment(&key.namespace, &key.deployment).and_then(Deployment::live_rollout);
        if known.is_none_or(|known| known.number != rollout) {
            return;
        }
        let Some(slot) = self.groups.get_mut(key).and_then(|group| group.slots.get_mut(slot)) else { return };
        let earlier = slot.step.filter(|step| step.rollout == rollout);
        if slot.desired == DesiredState::Stop || earlier.is_some_and(|step| !step.outcome.may_become(outcome)) {
            return;
        }
        let kind = earlier.map_or(StepKind::Changed, |step| step.kind);
        record(key, slot, Step { rollout, kind, at, outcome }, events);
    }

    /// Records a slot opened during a live rollout as a step of it. `placed` is its first generation, if it has one.
    pub(crate) fn step_of_new_slot(
        &mut self,
        key: &GroupKey,
        slot: &SlotKey,
        placed: Option<&Assignment>,
        at: Time,
        events: &mut Vec<Event>,
    ) {
        let known = self.deployment(&key.namespace, &key.deployment).and_then(Deployment::live_rollout);
        let Some(rollout) = known.cloned() else { return };
        let Some(group) = self.groups.get_mut(key).filter(|group| !group.spec.kind.is_job()) else { return };
        // A slot of the previous spec is no step: its step comes when the rollout is no longer held.
        let is_held = group.rollout_position.holds_growth(&rollout, &group.spec);
        let is_canary =
            placed.is_some_and(|placed| group.spec.made(&placed.reservation)) && lacks_canary(group, &rollout);
        if is_held && !is_canary {
            return;
        }
        let rollout = rollout.number;
        let Some(slot) = group.slots.get_mut(slot).filter(|slot| slot.step.is_none()) else { return };
        let step = Step { rollout, kind: StepKind::Added, at, outcome: StepOutcome::UnderWay };
        record(key, slot, step, events);
    }

    /// Counts a slot closed during a rollout forward as a finished step of it.
    pub(crate) fn count_closed(&mut self, key: &GroupKey) {
        let forward = |rollout: &Rollout| rollout.is_live() && rollout.state != RolloutState::Aborted;
        if let Some(rollout) =
            self.rollout_mut(DeploymentRef::new(&key.namespace, &key.deployment)).filter(|it| forward(it))
        {
            let count = rollout.steps.entry(key.service.clone()).or_default();
            count.total += 1;
            count.done += 1;
        }
    }

    /// Steps of a deployment's latest rollout by service, or `None` if it never had one.
    pub fn rollout_steps(
        &self,
        namespace: &NamespaceName,
        name: &DeploymentName,
    ) -> Option<BTreeMap<ServiceName, StepCount>> {
        self.step_counts(DeploymentRef::new(namespace, name), self.deployment(namespace, name)?)
    }

    fn step_counts(&self, owner: DeploymentRef<'_>, known: &Deployment) -> Option<BTreeMap<ServiceName, StepCount>> {
        let rollout = known.rollout.as_deref()?;
        let mut counts = rollout.steps.clone();
        if !rollout.is_live() || rollout.state == RolloutState::Aborted {
            return Some(counts);
        }
        for (key, group) in self.groups_of(owner.namespace, owner.name) {
            let found = self.steps_of_group(key, group, rollout.number);
            if found != StepCount::default() {
                let count = counts.entry(key.service.clone()).or_default();
                count.total += found.total;
                count.done += found.done;
                count.failed += found.failed;
            }
        }
        Some(counts)
    }

    fn steps_of_group(&self, key: &GroupKey, group: &Group, number: RolloutNumber) -> StepCount {
        let mut count = StepCount::default();
        for slot in group.slots.values().filter(|slot| slot.desired == DesiredState::Run) {
            let step = slot.step.filter(|step| step.rollout == number);
            match step.map(|step| step.outcome) {
                Some(StepOutcome::UnderWay) => {}
                Some(StepOutcome::Done) => count.done += 1,
                Some(StepOutcome::Failed(_)) => count.failed += 1,
                None if self.is_outdated(key, group, slot) => {}
                None => continue,
            }
            count.total += 1;
        }
        count
    }

    /// Whether a slot's newest live generation differs from what its group would get now.
    fn is_outdated(&self, key: &GroupKey, group: &Group, slot: &Slot) -> bool {
        let newest = slot.replicas.iter().rev().find(|replica| is_live(replica));
        let differs = |replica: &Replica| {
            let reservation = &replica.assignment.reservation;
            let secret = |name: &SecretName| self.secrets.get(&(key.namespace.clone(), name.clone())).copied();
            let rotated = reservation
                .secret_versions
                .iter()
                .any(|(name, version)| group.spec.secrets_required.contains(name) && secret(name) != Some(*version));
            let restarted =
                reservation.restart_epoch != group.restart_epoch || !self.is_made_after(key, group, reservation);
            !group.spec.made(reservation) || rotated || restarted
        };
        group.desired == DesiredState::Run && !group.spec.kind.is_job() && newest.is_some_and(differs)
    }

    /// Whether the dependencies with `restart: true` are unchanged since the replica was created.
    fn is_made_after(&self, key: &GroupKey, group: &Group, reservation: &Reservation) -> bool {
        let find =
            |name: &ServiceName| self.groups.get(&key.sibling(name)).filter(|it| it.desired == DesiredState::Run);
        let before =
            transitive_dependencies(&group.spec, |name| Some(&*find(name)?.spec), |dependency| dependency.restart);
        let version = |secret: &SecretName| self.secrets.get(&(key.namespace.clone(), secret.clone())).copied();
        let made = |name: &ServiceName| {
            let other = find(name)?;
            Some((name.clone(), RestartFingerprint::of(&other.spec, other.restart_epoch, version)))
        };
        reservation.matches_dependencies(&before, &before.iter().filter_map(made).collect())
    }
}

/// Whether a service per node has lost a canary with its node while its promotion is awaited.
fn lacks_canary(group: &Group, rollout: &Rollout) -> bool {
    let is_canary = |slot: &&Slot| {
        slot.desired == DesiredState::Run && slot.step.is_some_and(|step| step.rollout == rollout.number)
    };
    let left = group.slots.values().filter(is_canary).count();
    let awaits = rollout.state == RolloutState::AwaitingPromotion && group.spec.kind.is_per_node();
    awaits && left < group.spec.canary.count as usize
}

fn record(key: &GroupKey, slot: &mut Slot, step: Step, events: &mut Vec<Event>) {
    slot.step = Some(step);
    events.push(Event::SlotStepped { group: key.clone(), slot: slot.key.clone(), step });
}
