//! Rollouts begin, are steered, and end as a plan says.
//!
//! Owns: the record of the one rollout a deployment has, what each group follows meanwhile, and the count of steps.
//! Must not touch: when a step may begin or has failed; that is in the plan.
//! Invariant: a deployment has at most one rollout that is live; another change supersedes it.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    DeploymentName, DeploymentPlan, Event, GroupKey, NamespaceName, RevisionNumber, Rollout, RolloutNumber,
    RolloutState, SecretName, ServiceName, ServiceSpec, SlotKey, Terms, Time,
    command::Steering,
    making::{Making, comes_after},
    replica::{Replica, Slot, Wanted},
    rollout::{
        Held, Promoted, Rolling, RolloutChange, RolloutFailure, RolloutKind, Step, StepCount, StepKind, StepOutcome,
    },
};

use crate::{
    CommandError, State, conflicts,
    deployments::keyed,
    state::{Deployment, Group},
    status::is_live,
};

/// What a rollout leaves, and what was before that.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) from: RevisionNumber,
    pub(crate) before: Option<RevisionNumber>,
}

/// A deployment by its names.
type Owner<'a> = (&'a NamespaceName, &'a DeploymentName);

impl Deployment {
    /// The manifest that the next change leaves: the one in force, or where a change to it is still on its way, the one that
    /// change came from.
    pub(crate) fn origin(&self) -> Origin {
        match self.rollout_forward() {
            Some(rollout) => Origin { from: rollout.from, before: rollout.before },
            None => Origin { from: self.in_force, before: self.previous },
        }
    }

    /// The rollout under way that may still have to go back.
    fn rollout_forward(&self) -> Option<&Rollout> {
        self.live_rollout().filter(|rollout| rollout.can_go_back() && rollout.state != RolloutState::Aborted)
    }

    fn live_rollout(&self) -> Option<&Rollout> {
        self.rollout.as_deref().filter(|rollout| rollout.is_live())
    }
}

impl State {
    /// Begins a rollout to the manifest in force. What is live is superseded.
    pub(crate) fn begin_rollout(
        &mut self,
        owner: Owner<'_>,
        kind: RolloutKind,
        Origin { from, before }: Origin,
        since: Time,
        events: &mut Vec<Event>,
    ) {
        let key = (owner.0.clone(), owner.1.clone());
        self.end_rollout(&key, events);
        let Some(known) = self.deployments.get_mut(&key) else { return };
        let number = RolloutNumber(known.rollout.as_ref().map_or(0, |last| last.number.0) + 1);
        let (to, state, failure) = (known.in_force, RolloutState::InProgress, None);
        known.rollout =
            Some(Arc::new(Rollout { number, from, to, state, kind, failure, since, before, steps: BTreeMap::new() }));
        events.extend(self.rollout_event(owner));
    }

    /// Another change came, or the deployment goes: the rollout under way is over.
    pub(crate) fn end_rollout(&mut self, key: &(NamespaceName, DeploymentName), events: &mut Vec<Event>) {
        if self.deployments.get(key).and_then(Deployment::live_rollout).is_some() {
            self.turn((&key.0, &key.1), RolloutState::Superseded, None, events);
        }
    }

    /// How a service stands at the beginning of whatever rollout its deployment has.
    pub(crate) fn rolling_of(&self, key: &GroupKey, spec: &ServiceSpec) -> Rolling {
        let known = self.deployment(&key.namespace, &key.deployment);
        let held = known.and_then(|known| {
            let revision = known.revision(known.rollout_forward()?.from)?;
            let held = revision.spec.services.get(&key.service)?;
            let destructive = !held.is_same_program(spec) && !spec.kind.is_job();
            destructive.then(|| Held { revision: revision.number, spec: Arc::clone(held) })
        });
        Rolling { held, ..Rolling::default() }
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
        let known = self.wanted_deployment(namespace, name)?;
        let asked = to.or_else(|| known.live_rollout().filter(|it| it.from != it.to).map(|it| it.from));
        let number = asked.filter(|number| *number != known.in_force || to.is_some()).or(known.previous);
        let number = number.ok_or_else(|| CommandError::NoPreviousRevision(name.clone()))?;
        let revision = known
            .revision(number)
            .ok_or_else(|| CommandError::UnknownRevision { deployment: name.clone(), revision: number })?;
        let (left, rolls) = (known.in_force, known.live_rollout().is_some());
        let changes = rolls || revision.spec != known.current().spec;
        if number == left && !rolls {
            return Ok(Vec::new());
        }
        let groups = keyed(namespace, name, &revision.spec);
        conflicts::ingress_ports_are_free(self, &groups)?;
        conflicts::printed_ids_stay_apart(self, &groups)?;
        let mut events = Vec::new();
        if let Some(known) = self.deployments.get_mut(&(namespace.clone(), name.clone())) {
            known.in_force = number;
        }
        if changes {
            let origin = Origin { from: left, before: None };
            self.begin_rollout((namespace, name), RolloutKind::Rollback, origin, at, &mut events);
        }
        self.set_previous(namespace, name, Some(left).filter(|left| *left != number));
        self.bring_in_force(namespace, name, &mut events);
        self.forgive(namespace, name, &mut events);
        Ok(events)
    }

    pub(crate) fn steer(
        &mut self,
        namespace: &NamespaceName,
        name: &DeploymentName,
        word: Steering,
        at: Time,
    ) -> Result<Vec<Event>, CommandError> {
        let known = self.wanted_deployment(namespace, name)?;
        let state = known.live_rollout().map(|rollout| rollout.state).filter(|state| *state != RolloutState::Aborted);
        let state = state.ok_or_else(|| CommandError::NoRollout(name.clone()))?;
        let mut events = Vec::new();
        if word == Steering::Promote {
            self.promote_all((namespace, name), &mut events);
        }
        let next = match (word, state) {
            (Steering::Pause, _) => RolloutState::Paused,
            (Steering::Promote, RolloutState::AwaitingPromotion) | (Steering::Resume, RolloutState::Paused) => {
                RolloutState::InProgress
            }
            (Steering::Promote | Steering::Resume, _) => state,
        };
        if next != state {
            self.turn((namespace, name), next, Some(at), &mut events);
        }
        Ok(events)
    }

    fn promote_all(&mut self, owner: Owner<'_>, events: &mut Vec<Event>) {
        let groups: Vec<GroupKey> = self.groups_of(owner.0, owner.1).map(|(key, _)| key.clone()).collect();
        for key in groups {
            self.promote(&key, events);
        }
    }

    pub(crate) fn restart_service(&mut self, key: &GroupKey, at: Time) -> Result<Vec<Event>, CommandError> {
        let (namespace, name) = (&key.namespace, &key.deployment);
        self.wanted_deployment(namespace, name)?;
        let group = self.groups.get_mut(key).filter(|group| group.wanted == Wanted::Run);
        let group = group
            .ok_or_else(|| CommandError::UnknownService { deployment: name.clone(), service: key.service.clone() })?;
        group.restart_epoch += 1;
        let mut events = Vec::new();
        self.roll_again((namespace, name), at, &mut events);
        Ok(events)
    }

    /// A secret has another version: what was given the last one is made anew.
    pub(crate) fn roll_secret(&mut self, namespace: &NamespaceName, name: &SecretName, events: &mut Vec<Event>) {
        let mut owners: Vec<DeploymentName> = self
            .groups
            .iter()
            .filter(|(key, group)| key.namespace == *namespace && group.wanted == Wanted::Run)
            .filter(|(_, group)| group.spec.secrets_required.contains(name) && !group.spec.kind.is_job())
            .map(|(key, _)| key.deployment.clone())
            .collect();
        owners.dedup();
        for owner in owners {
            self.roll_again((namespace, &owner), Time::default(), events);
        }
    }

    /// Rolls to the manifest that is in force already.
    fn roll_again(&mut self, owner: Owner<'_>, at: Time, events: &mut Vec<Event>) {
        let Some(known) = self.deployment(owner.0, owner.1) else { return };
        let origin = known.origin();
        self.begin_rollout(owner, RolloutKind::Forward, origin, at, events);
        self.bring_in_force(owner.0, owner.1, events);
    }

    fn wanted_deployment(&self, namespace: &NamespaceName, name: &DeploymentName) -> Result<&Deployment, CommandError> {
        self.deployment(namespace, name)
            .filter(|known| known.wanted == Wanted::Run)
            .ok_or_else(|| CommandError::UnknownDeployment(name.clone()))
    }

    /// Carries out what a plan says about a rollout, unless it has become another one meanwhile.
    pub(crate) fn commit_rollout(&mut self, plan: DeploymentPlan, at: Time, events: &mut Vec<Event>) {
        let DeploymentPlan { namespace, deployment, rollout, change } = plan;
        let owner = (&namespace, &deployment);
        let state =
            self.deployment(owner.0, owner.1).and_then(Deployment::live_rollout).map(|it| (it.number, it.state));
        let Some((number, state)) = state else { return };
        if number != rollout {
            return;
        }
        match (change, state) {
            (RolloutChange::Complete, RolloutState::InProgress) => {
                self.turn(owner, RolloutState::Completed, Some(at), events);
                self.let_go(owner, events);
            }
            (RolloutChange::AwaitPromotion, RolloutState::InProgress) => {
                self.turn(owner, RolloutState::AwaitingPromotion, Some(at), events);
            }
            (RolloutChange::Pause(failure), RolloutState::InProgress | RolloutState::AwaitingPromotion) => {
                self.note_failure(owner, failure);
                self.turn(owner, RolloutState::Paused, Some(at), events);
            }
            (RolloutChange::Abort(failure), RolloutState::InProgress | RolloutState::AwaitingPromotion) => {
                self.note_failure(owner, failure);
                self.abort(owner, at, events);
            }
            (RolloutChange::RolledBack, RolloutState::Aborted) => {
                self.turn(owner, RolloutState::RolledBack, Some(at), events);
                self.let_go(owner, events);
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

    fn note_failure(&mut self, owner: Owner<'_>, failure: RolloutFailure) {
        if let Some(rollout) = self.rollout_mut(owner) {
            rollout.failure = Some(failure);
        }
    }

    /// The manifest the rollout came from is in force again, and the way back is a rollout of its own number.
    fn abort(&mut self, owner: Owner<'_>, at: Time, events: &mut Vec<Event>) {
        self.turn(owner, RolloutState::Aborted, Some(at), events);
        let Some(known) = self.deployments.get_mut(&(owner.0.clone(), owner.1.clone())) else { return };
        if let Some(rollout) = &known.rollout {
            (known.in_force, known.previous) = (rollout.from, rollout.before);
        }
        self.bring_in_force(owner.0, owner.1, events);
    }

    /// Puts the live rollout into another state. Where no slot will step for it under this number again, its steps are counted
    /// for good.
    fn turn(&mut self, owner: Owner<'_>, state: RolloutState, at: Option<Time>, events: &mut Vec<Event>) {
        let counted = match state {
            RolloutState::Completed | RolloutState::Aborted | RolloutState::Superseded => {
                self.deployment(owner.0, owner.1).and_then(|known| self.step_counts(owner, known))
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

    fn rollout_mut(&mut self, owner: Owner<'_>) -> Option<&mut Rollout> {
        let known = self.deployments.get_mut(&(owner.0.clone(), owner.1.clone()))?;
        known.rollout.as_mut().map(Arc::make_mut)
    }

    fn rollout_event(&self, owner: Owner<'_>) -> Option<Event> {
        let rollout = Arc::clone(self.deployment(owner.0, owner.1)?.rollout.as_ref()?);
        Some(Event::RolloutChanged { namespace: owner.0.clone(), deployment: owner.1.clone(), rollout })
    }

    /// No slot follows anything but its group's spec any more.
    fn let_go(&mut self, owner: Owner<'_>, events: &mut Vec<Event>) {
        let keys: Vec<GroupKey> = self.groups_of(owner.0, owner.1).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.change_rolling(&key, events, |rolling| *rolling = Rolling::default());
        }
    }

    fn change_rolling(&mut self, key: &GroupKey, events: &mut Vec<Event>, change: impl FnOnce(&mut Rolling)) {
        let Some(group) = self.groups.get_mut(key) else { return };
        let before = group.rolling.clone();
        change(&mut group.rolling);
        if group.rolling != before {
            events.push(Event::GroupRolls { group: key.clone(), rolling: group.rolling.clone() });
        }
    }

    pub(crate) fn promote(&mut self, key: &GroupKey, events: &mut Vec<Event>) {
        if self.rolls(key) {
            self.change_rolling(key, events, |rolling| rolling.promotion = Promoted::Yes);
        }
    }

    pub(crate) fn note_no_room(&mut self, key: &GroupKey, since: Time, events: &mut Vec<Event>) {
        if self.rolls(key) {
            self.change_rolling(key, events, |rolling| {
                rolling.no_room_since.get_or_insert(since);
            });
        }
    }

    fn rolls(&self, key: &GroupKey) -> bool {
        self.deployment(&key.namespace, &key.deployment).is_some_and(|known| known.live_rollout().is_some())
    }

    /// A slot's part begins or ends. One that has ended does not begin again under the same number.
    pub(crate) fn step(
        &mut self,
        key: &GroupKey,
        slot: &SlotKey,
        (rollout, outcome): (RolloutNumber, StepOutcome),
        at: Time,
        events: &mut Vec<Event>,
    ) {
        let known = self.deployment(&key.namespace, &key.deployment).and_then(Deployment::live_rollout);
        if known.is_none_or(|known| known.number != rollout) {
            return;
        }
        let Some(slot) = self.groups.get_mut(key).and_then(|group| group.slots.get_mut(slot)) else { return };
        let earlier = slot.step.filter(|step| step.rollout == rollout);
        if slot.wanted == Wanted::Stop || earlier.is_some_and(|step| step.outcome != StepOutcome::UnderWay) {
            return;
        }
        if earlier.is_some_and(|step| step.outcome == outcome) {
            return;
        }
        let kind = earlier.map_or(StepKind::Changed, |step| step.kind);
        record(key, slot, Step { rollout, kind, at, outcome }, events);
    }

    /// A slot made while a rollout is live is a step of it.
    pub(crate) fn step_of_new_slot(&mut self, key: &GroupKey, slot: &SlotKey, at: Time, events: &mut Vec<Event>) {
        let known = self.deployment(&key.namespace, &key.deployment).and_then(Deployment::live_rollout);
        let Some(rollout) = known.map(|known| known.number) else { return };
        let Some(group) = self.groups.get_mut(key).filter(|group| !group.spec.kind.is_job()) else { return };
        let Some(slot) = group.slots.get_mut(slot).filter(|slot| slot.step.is_none()) else { return };
        let step = Step { rollout, kind: StepKind::Added, at, outcome: StepOutcome::UnderWay };
        record(key, slot, step, events);
    }

    /// A slot taken away while a rollout is on its way forward is a step of it, and done with that.
    pub(crate) fn count_closed(&mut self, key: &GroupKey) {
        let forward = |rollout: &Rollout| rollout.is_live() && rollout.state != RolloutState::Aborted;
        if let Some(rollout) = self.rollout_mut((&key.namespace, &key.deployment)).filter(|it| forward(it)) {
            let count = rollout.steps.entry(key.service.clone()).or_default();
            count.total += 1;
            count.done += 1;
        }
    }

    /// Steps of a deployment's last rollout by service; `None` where it had none.
    pub fn rollout_steps(
        &self,
        namespace: &NamespaceName,
        name: &DeploymentName,
    ) -> Option<BTreeMap<ServiceName, StepCount>> {
        self.step_counts((namespace, name), self.deployment(namespace, name)?)
    }

    fn step_counts(&self, owner: Owner<'_>, known: &Deployment) -> Option<BTreeMap<ServiceName, StepCount>> {
        let rollout = known.rollout.as_deref()?;
        let mut counts = rollout.steps.clone();
        if !rollout.is_live() || rollout.state == RolloutState::Aborted {
            return Some(counts);
        }
        for (key, group) in self.groups_of(owner.0, owner.1) {
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
        for slot in group.slots.values().filter(|slot| slot.wanted == Wanted::Run) {
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

    /// Whether a slot's newest generation is another than its group would get now.
    fn is_outdated(&self, key: &GroupKey, group: &Group, slot: &Slot) -> bool {
        let newest = slot.replicas.iter().rev().find(|replica| is_live(replica));
        let differs = |replica: &Replica| {
            let terms = &replica.assignment.terms;
            let secret = |name: &SecretName| self.secrets.get(&(key.namespace.clone(), name.clone())).copied();
            let rotated = terms
                .secret_versions
                .iter()
                .any(|(name, version)| group.spec.secrets_required.contains(name) && secret(name) != Some(*version));
            let program = (&terms.spec_hash, terms.kind) == (&group.spec.spec_hash, group.spec.kind);
            let restarted = terms.restart_epoch != group.restart_epoch || !self.is_made_after(key, group, terms);
            !program || rotated || restarted
        };
        group.wanted == Wanted::Run && !group.spec.kind.is_job() && newest.is_some_and(differs)
    }

    /// Whether a replica was made when the services it is to be restarted after were what they are now.
    fn is_made_after(&self, key: &GroupKey, group: &Group, terms: &Terms) -> bool {
        let find = |name: &ServiceName| self.groups.get(&key.beside(name)).filter(|it| it.wanted == Wanted::Run);
        let before = comes_after(&group.spec, |name| Some(&*find(name)?.spec), |dependency| dependency.restart);
        let version = |secret: &SecretName| self.secrets.get(&(key.namespace.clone(), secret.clone())).copied();
        let made = |name: &ServiceName| {
            let other = find(name)?;
            Some((name.clone(), Making::of(&other.spec, other.restart_epoch, version)))
        };
        terms.was_made_after(&before, &before.iter().filter_map(made).collect())
    }
}

fn record(key: &GroupKey, slot: &mut Slot, step: Step, events: &mut Vec<Event>) {
    slot.step = Some(step);
    events.push(Event::SlotStepped { group: key.clone(), slot: slot.key.clone(), step });
}
