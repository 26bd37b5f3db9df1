//! Deployments: manifests become revisions, and the revision in force sets the desired groups.
//!
//! Owns: revisions, slot counters of removed services, and the removal of a deployment.
//! Must not touch: slots. The scheduler opens and closes them. Here only the desired state changes, and an apply resets
//! the record of failures.
//! Invariant: a deployment is dropped only when none of its groups is left.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use longshore_model::{
    DeploymentName, DeploymentSpec, Event, GroupKey, Health, NamespaceName, ReplicaState, RevisionNumber, RuntimeCode,
    ServiceName, ServiceSpec, SlotIndex, Time, VolumeKey, VolumeName,
    command::Rerun,
    rebalance::SpreadRebalance,
    replica::{Collected, DesiredState, RestartHistory},
    rollout::{RolloutKind, RolloutPosition},
    service::{MAX_REPLICAS, VolumeSpec},
    volume::Volume,
};

use crate::{
    CommandError, State, address_numbers, conflicts, ended_replicas, reschedules,
    rollouts::DeploymentRef,
    state::{Deployment, Group, REVISIONS_KEPT, Revision},
    state_events::observed,
};

impl Deployment {
    /// Whether an apply of `spec` would change nothing: it is in force already and no rollout is live.
    fn is_unchanged_by(&self, spec: &DeploymentSpec) -> bool {
        let rolls = self.rollout.as_ref().is_some_and(|rollout| rollout.is_live());
        self.desired == DesiredState::Run && self.current().spec.is_same_manifest(spec) && !rolls
    }
}

impl State {
    pub(crate) fn apply_manifest(
        &mut self,
        namespace: &NamespaceName,
        deployment: &DeploymentName,
        spec: DeploymentSpec,
        rerun: Rerun,
    ) -> Result<Vec<Event>, CommandError> {
        let groups = by_group_key(namespace, deployment, &spec);
        for (key, service) in &groups {
            conflicts::check_volume_replicas(&key.service, service, service.replicas)?;
            let mut needed = service.secrets_required.iter();
            let of = service.secrets_deployment(deployment);
            if let Some(name) = needed.find(|name| !self.access().may_use(namespace, of, name)) {
                return Err(CommandError::SecretOutOfScope { name: name.clone(), deployment: deployment.clone() });
            }
        }
        conflicts::check_ingress_ports_free(self, &groups)?;
        conflicts::check_replica_ids_unique(self, &groups)?;
        let mut reruns = match rerun {
            Rerun::IfChanged => Vec::new(),
            Rerun::Always => self.rerun_ended(&groups),
        };
        let mut events = self.put_revision(namespace, deployment, spec);
        let rolls_anew = !events.is_empty();
        let started = self.clear_stop(namespace, deployment, &mut events);
        let owner = DeploymentRef::new(namespace, deployment);
        match (rolls_anew, started) {
            (false, _) if !reruns.is_empty() => self.restart_rollout(owner, Time::default(), &mut events),
            (false, true) => self.begin_rollout_again(owner, Time::default(), &mut events),
            (true, _) | (false, false) => {}
        }
        events.append(&mut reruns);
        self.reset_failures(namespace, deployment, &mut events);
        Ok(events)
    }

    /// Marks the services whose replicas have all ended, and whose program `groups` does not change, to run again.
    fn rerun_ended(&mut self, groups: &BTreeMap<GroupKey, &ServiceSpec>) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, spec) in groups {
            let Some(group) = self.groups.get_mut(key) else { continue };
            let unchanged = group.desired == DesiredState::Run && group.spec.is_same_program(spec);
            if unchanged && ended_replicas::is_over(group, spec) {
                group.restart_epoch += 1;
                events.push(ended_replicas::forget_collected(key, group));
            }
        }
        events
    }

    /// Lets replicas that were given up run again, with their failures reset. An apply and a rollback do this.
    pub(crate) fn reset_failures(
        &mut self,
        namespace: &NamespaceName,
        deployment: &DeploymentName,
        events: &mut Vec<Event>,
    ) {
        let nodes = &self.nodes;
        let groups = self.groups.iter_mut().filter(|(key, group)| {
            (&key.namespace, &key.deployment) == (namespace, deployment) && group.desired == DesiredState::Run
        });
        let slots = groups.flat_map(|(key, group)| {
            reschedules::clear(key, group, events);
            events.extend(ended_replicas::reset_failed(key, group));
            group.slots.values_mut().map(move |slot| (key, slot))
        });
        for (key, slot) in slots.collect::<Vec<_>>() {
            for replica in &mut slot.replicas {
                if replica.desired == DesiredState::Run && replica.code == Some(RuntimeCode::RestartExhausted) {
                    let node = nodes.get(&replica.assignment.node);
                    let lost = node.is_none_or(|node| node.health == Health::Down);
                    replica.failures = 0;
                    replica.history = RestartHistory::default();
                    (replica.state, replica.code) = if lost && !ended_replicas::is_failed_job(replica) {
                        (ReplicaState::Lost, Some(RuntimeCode::NodeLost))
                    } else {
                        (ReplicaState::Failed, Some(RuntimeCode::Exited))
                    };
                    events.push(observed(key, &slot.key, replica));
                }
            }
        }
    }

    pub(crate) fn scale(&mut self, key: &GroupKey, replicas: u32) -> Result<Vec<Event>, CommandError> {
        let deployment = self
            .deployment(&key.namespace, &key.deployment)
            .filter(|deployment| deployment.desired == DesiredState::Run)
            .ok_or_else(|| CommandError::UnknownDeployment(key.deployment.clone()))?;
        let mut spec = deployment.current().spec.clone();
        let service = spec.services.get_mut(&key.service).ok_or_else(|| CommandError::UnknownService {
            deployment: key.deployment.clone(),
            service: key.service.clone(),
        })?;
        if conflicts::runs_per_node(service) {
            return Err(CommandError::CannotScaleGlobal(key.service.clone()));
        }
        if replicas > MAX_REPLICAS {
            return Err(CommandError::TooManyReplicas(replicas));
        }
        conflicts::check_volume_replicas(&key.service, service, replicas)?;
        if service.replicas == replicas {
            return Ok(Vec::new());
        }
        Arc::make_mut(service).replicas = replicas;
        Ok(self.put_revision(&key.namespace, &key.deployment, spec))
    }

    pub(crate) fn remove(
        &mut self,
        namespace: NamespaceName,
        name: DeploymentName,
    ) -> Result<Vec<Event>, CommandError> {
        let key = (namespace, name);
        match self.deployments.get_mut(&key) {
            Some(deployment) if deployment.desired == DesiredState::Run => deployment.desired = DesiredState::Stop,
            Some(_) | None => return Err(CommandError::UnknownDeployment(key.1)),
        }
        let groups: Vec<GroupKey> = self.groups_of(&key.0, &key.1).map(|(group, _)| group.clone()).collect();
        let mut events = Vec::new();
        for group in &groups {
            self.mark_removed(group, &mut events);
        }
        self.end_rollout(&key, &mut events);
        if groups.is_empty() {
            self.forget_deployment(&key, &mut events);
        }
        Ok(events)
    }

    fn put_revision(&mut self, namespace: &NamespaceName, name: &DeploymentName, spec: DeploymentSpec) -> Vec<Event> {
        let mut events = Vec::new();
        let known = self.deployment(namespace, name);
        if known.is_some_and(|known| known.is_unchanged_by(&spec)) {
            // The same manifest again makes no revision: each revision is something to roll back to.
            return events;
        }
        let origin = known.map(Deployment::origin);
        // A change of counts alone is no reason to go on with what an operator, or a failure, has paused.
        let paused = known.filter(|known| differs_in_counts_only(&known.current().spec, &spec));
        let paused = paused.and_then(Deployment::paused_rollout);
        self.record_adopted_volumes(namespace, name, &spec, &mut events);
        self.record_revision(namespace, name, spec);
        if let Some(origin) = origin {
            self.set_previous(namespace, name, Some(origin.from));
            let owner = DeploymentRef::new(namespace, name);
            self.begin_rollout(owner, RolloutKind::Forward, origin, Time::default(), &mut events);
        }
        self.trim_revisions(namespace, name);
        self.bring_in_force(namespace, name, &mut events);
        if let Some(paused) = paused {
            let owner = DeploymentRef::new(namespace, name);
            self.pause_again(owner, paused.failure.clone(), Time::default(), &mut events);
        }
        events
    }

    /// An adopted volume is at home on the node that has its data, before anything is placed.
    fn record_adopted_volumes(
        &mut self,
        namespace: &NamespaceName,
        name: &DeploymentName,
        spec: &DeploymentSpec,
        events: &mut Vec<Event>,
    ) {
        for (volume, VolumeSpec { engine_name, adopted_on, .. }) in &spec.volumes {
            let key = VolumeKey { namespace: namespace.clone(), name: VolumeName::from(volume.as_str()) };
            let Some(home) = adopted_on.clone().filter(|_| !self.volumes.contains_key(&key)) else { continue };
            let adopted = Volume { key: key.clone(), owner: name.clone(), home, engine_name: engine_name.clone() };
            self.volumes.insert(key, adopted.clone());
            events.push(Event::VolumeCreated(adopted));
        }
    }

    /// Sets the deployment's groups to the revision in force, and marks all others as removed.
    pub(crate) fn bring_in_force(&mut self, namespace: &NamespaceName, name: &DeploymentName, events: &mut Vec<Event>) {
        let Some(Revision { number, spec }) = self.deployment(namespace, name).map(|it| it.current().clone()) else {
            return;
        };
        let dropped: Vec<GroupKey> = self
            .groups_of(namespace, name)
            .filter(|(key, _)| !spec.services.contains_key(&key.service))
            .map(|(key, _)| key.clone())
            .collect();
        for group in &dropped {
            self.mark_removed(group, events);
        }
        for (service, spec) in spec.services {
            let key = GroupKey { namespace: namespace.clone(), deployment: name.clone(), service };
            self.put_group(key, number, spec, events);
        }
    }

    fn record_revision(&mut self, namespace: &NamespaceName, name: &DeploymentName, spec: DeploymentSpec) {
        let counters = self.counters_of_removed.remove(&(namespace.clone(), name.clone())).unwrap_or_default();
        let deployment = self.deployments.get_or_insert_with((namespace.clone(), name.clone()), || Deployment {
            revisions: VecDeque::new(),
            in_force: RevisionNumber(0),
            previous: None,
            rollout: None,
            desired: DesiredState::Run,
            retired_counters: counters,
            stopped_since: None,
        });
        let number = RevisionNumber(deployment.revisions.back().map_or(0, |last| last.number.0) + 1);
        deployment.desired = DesiredState::Run;
        deployment.in_force = number;
        deployment.revisions.push_back(Revision { number, spec });
    }

    fn put_group(&mut self, key: GroupKey, revision: RevisionNumber, spec: Arc<ServiceSpec>, events: &mut Vec<Event>) {
        let retired = self
            .deployments
            .get_mut(&(key.namespace.clone(), key.deployment.clone()))
            .and_then(|deployment| deployment.retired_counters.remove(&key.service));
        let mut rollout_position = self.rollout_position_of(&key, &spec);
        let group = self.groups.get_or_insert_with(key.clone(), || Group {
            spec: Arc::clone(&spec),
            revision,
            next_index: retired.unwrap_or(SlotIndex(0)),
            slots: BTreeMap::new(),
            desired: DesiredState::Run,
            reschedules: BTreeMap::new(),
            collected: Collected::default(),
            restart_epoch: 0,
            rollout_position: RolloutPosition::default(),
            failures: BTreeMap::new(),
            spread_rebalance: SpreadRebalance::Idle,
            vip: None,
        });
        // Failures of another program say nothing about this one.
        if !group.spec.has_same_code(&spec) {
            group.failures.clear();
        }
        // A rollout with the same start and target, as after a change of the count: a promotion stays valid.
        if rollout_position.previous == group.rollout_position.previous && group.spec.is_same_program(&spec) {
            rollout_position.promoted = group.rollout_position.promoted;
        }
        let reset_collected = ended_replicas::reset_collected(&key, group, &spec);
        group.spec = Arc::clone(&spec);
        group.revision = revision;
        group.desired = DesiredState::Run;
        if self.is_numbered && address_numbers::wants_vip(group) {
            group.vip = Some(Arc::make_mut(&mut self.vips).take_lowest(self.latest, |_| true));
        }
        group.rollout_position = rollout_position.clone();
        let (next_index, restart_epoch) = (group.next_index, group.restart_epoch);
        events.push(Event::GroupChanged { group: key, revision, spec, next_index, restart_epoch, rollout_position });
        events.extend(reset_collected);
    }

    fn mark_removed(&mut self, key: &GroupKey, events: &mut Vec<Event>) {
        if let Some(group) = self.groups.get_mut(key)
            && group.desired == DesiredState::Run
        {
            group.desired = DesiredState::Stop;
            events.push(Event::GroupRemoved(key.clone()));
        }
        self.forget_group_if_done(key, events);
    }

    /// Drops a removed group once its last slot is gone, and a removed deployment with its last group.
    pub(crate) fn forget_group_if_done(&mut self, key: &GroupKey, events: &mut Vec<Event>) {
        let done = |group: &Group| group.desired == DesiredState::Stop && group.slots.is_empty();
        let Some(group) = self.groups.get(key).filter(|group| done(group)) else {
            return;
        };
        let counter = group.next_index;
        if let Some(vip) = group.vip {
            Arc::make_mut(&mut self.vips).release(vip, self.latest);
        }
        self.groups.remove(key);
        events.push(Event::GroupGone(key.clone()));
        let owner = (key.namespace.clone(), key.deployment.clone());
        let last = self.groups_of(&owner.0, &owner.1).next().is_none();
        if let Some(deployment) = self.deployments.get_mut(&owner) {
            deployment.retired_counters.insert(key.service.clone(), counter);
            if last && deployment.desired == DesiredState::Stop {
                self.forget_deployment(&owner, events);
            }
        }
    }

    fn forget_deployment(&mut self, key: &(NamespaceName, DeploymentName), events: &mut Vec<Event>) {
        let counters = self.deployments.get(key).map(|gone| gone.retired_counters.clone()).unwrap_or_default();
        let counters: BTreeMap<ServiceName, SlotIndex> = counters.into_iter().filter(|(_, next)| next.0 > 0).collect();
        if !counters.is_empty() {
            self.counters_of_removed.insert(key.clone(), counters);
        }
        self.deployments.remove(key);
        events.push(Event::DeploymentGone { namespace: key.0.clone(), deployment: key.1.clone() });
    }

    fn trim_revisions(&mut self, namespace: &NamespaceName, name: &DeploymentName) {
        let Some(known) = self.deployments.get_mut(&(namespace.clone(), name.clone())) else { return };
        let rollout = known.rollout.iter().filter(|rollout| rollout.is_live());
        let needed: Vec<RevisionNumber> = rollout
            .flat_map(|rollout| [Some(rollout.from), rollout.prior_rollback_target])
            .chain([Some(known.in_force), known.previous])
            .flatten()
            .collect();
        while known.revisions.len() > REVISIONS_KEPT {
            let oldest = known.revisions.iter().position(|kept| !needed.contains(&kept.number));
            let Some(oldest) = oldest else { break };
            known.revisions.remove(oldest);
        }
    }
}

/// Whether two manifests differ in nothing but numbers of replicas.
fn differs_in_counts_only(before: &DeploymentSpec, after: &DeploymentSpec) -> bool {
    let mut recounted = after.clone();
    for (name, service) in &mut recounted.services {
        if let Some(known) = before.services.get(name).filter(|known| known.replicas != service.replicas) {
            Arc::make_mut(service).replicas = known.replicas;
        }
    }
    recounted == *before
}

pub(crate) fn by_group_key<'a>(
    namespace: &NamespaceName,
    deployment: &DeploymentName,
    spec: &'a DeploymentSpec,
) -> BTreeMap<GroupKey, &'a ServiceSpec> {
    let key = |service: &ServiceName| GroupKey {
        namespace: namespace.clone(),
        deployment: deployment.clone(),
        service: service.clone(),
    };
    spec.services.iter().map(|(service, spec)| (key(service), &**spec)).collect()
}
