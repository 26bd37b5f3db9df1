//! Manifests become revisions, and revisions become wanted groups.
//!
//! Owns: revisions, counters that outlive their service, and the end of a deployment.
//! Must not touch: slots. The scheduler opens and closes them; here only what is wanted changes, and an apply clears the
//! record of what was given up.
//! Invariant: a deployment is forgotten only when none of its groups is left.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use longshore_model::{
    DeploymentName, DeploymentSpec, Event, GroupKey, Health, NamespaceName, ReplicaState, RevisionNumber, RuntimeCode,
    ServiceName, ServiceSpec, SlotIndex, Time,
    rebalance::EveningOut,
    replica::{Collected, Wanted},
    rollout::{Rolling, RolloutKind},
    service::MAX_REPLICAS,
};

use crate::{
    CommandError, State, conflicts, finished,
    replay::observed,
    reschedules,
    rollouts::Origin,
    state::{Deployment, Group, REVISIONS_KEPT, Revision},
};

/// What an apply leaves behind.
struct Left {
    from: RevisionNumber,
    before: Option<RevisionNumber>,
    change: Change,
}

/// Whether an apply changes anything.
#[derive(PartialEq, Eq)]
enum Change {
    None,
    Some,
}

impl Left {
    fn by(known: &Deployment, spec: &DeploymentSpec) -> Self {
        let Origin { from, before } = known.origin();
        let rolls = known.rollout.as_ref().is_some_and(|rollout| rollout.is_live());
        let same = known.wanted == Wanted::Run && known.current().spec == *spec && !rolls;
        Self { from, before, change: if same { Change::None } else { Change::Some } }
    }
}

impl State {
    pub(crate) fn apply_manifest(
        &mut self,
        namespace: &NamespaceName,
        deployment: &DeploymentName,
        spec: DeploymentSpec,
    ) -> Result<Vec<Event>, CommandError> {
        let groups = keyed(namespace, deployment, &spec);
        for (key, service) in &groups {
            conflicts::volumes_allow(&key.service, service, service.replicas)?;
            let mut needed = service.secrets_required.iter();
            if let Some(name) = needed.find(|name| !self.access().may_use(namespace, deployment, name)) {
                return Err(CommandError::SecretNotYours { name: name.clone(), deployment: deployment.clone() });
            }
        }
        conflicts::ingress_ports_are_free(self, &groups)?;
        conflicts::printed_ids_stay_apart(self, &groups)?;
        let mut events = self.put_revision(namespace, deployment, spec);
        self.forgive(namespace, deployment, &mut events);
        Ok(events)
    }

    /// An apply gives what was given up another chance, with a clean record.
    pub(crate) fn forgive(&mut self, namespace: &NamespaceName, deployment: &DeploymentName, events: &mut Vec<Event>) {
        let nodes = &self.nodes;
        let groups = self.groups.iter_mut().filter(|(key, group)| {
            (&key.namespace, &key.deployment) == (namespace, deployment) && group.wanted == Wanted::Run
        });
        let slots = groups.flat_map(|(key, group)| {
            reschedules::forgive(key, group, events);
            events.extend(finished::forgive(key, group));
            group.slots.values_mut().map(move |slot| (key, slot))
        });
        for (key, slot) in slots.collect::<Vec<_>>() {
            for replica in &mut slot.replicas {
                if replica.wanted == Wanted::Run && replica.code == Some(RuntimeCode::RestartExhausted) {
                    let node = nodes.get(&replica.assignment.node);
                    let lost = node.is_none_or(|node| node.health == Health::Down);
                    replica.failures = 0;
                    (replica.state, replica.code) = if lost && !finished::is_at_rest(replica) {
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
            .filter(|deployment| deployment.wanted == Wanted::Run)
            .ok_or_else(|| CommandError::UnknownDeployment(key.deployment.clone()))?;
        let mut spec = deployment.current().spec.clone();
        let service = spec.services.get_mut(&key.service).ok_or_else(|| CommandError::UnknownService {
            deployment: key.deployment.clone(),
            service: key.service.clone(),
        })?;
        if conflicts::runs_per_node(service) {
            return Err(CommandError::ScaleOfGlobal(key.service.clone()));
        }
        if replicas > MAX_REPLICAS {
            return Err(CommandError::TooManyReplicas(replicas));
        }
        conflicts::volumes_allow(&key.service, service, replicas)?;
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
            Some(deployment) if deployment.wanted == Wanted::Run => deployment.wanted = Wanted::Stop,
            Some(_) | None => return Err(CommandError::UnknownDeployment(key.1)),
        }
        let groups: Vec<GroupKey> = self.groups_of(&key.0, &key.1).map(|(group, _)| group.clone()).collect();
        let mut events = Vec::new();
        for group in &groups {
            self.unwant(group, &mut events);
        }
        self.end_rollout(&key, &mut events);
        if groups.is_empty() {
            self.forget_deployment(&key, &mut events);
        }
        Ok(events)
    }

    fn put_revision(&mut self, namespace: &NamespaceName, name: &DeploymentName, spec: DeploymentSpec) -> Vec<Event> {
        let mut events = Vec::new();
        let left = self.deployment(namespace, name).map(|known| Left::by(known, &spec));
        if left.as_ref().is_some_and(|left| left.change == Change::None) {
            // The same once more, perhaps with another comment: a revision is something one can go back to.
            return events;
        }
        self.record_revision(namespace, name, spec);
        if let Some(left) = left {
            let origin = Origin { from: left.from, before: left.before };
            self.set_previous(namespace, name, Some(left.from));
            self.begin_rollout((namespace, name), RolloutKind::Forward, origin, Time::default(), &mut events);
        }
        self.trim_revisions(namespace, name);
        self.bring_in_force(namespace, name, &mut events);
        events
    }

    /// Wants what the manifest in force says, and nothing else of the deployment.
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
            self.unwant(group, events);
        }
        for (service, spec) in spec.services {
            let key = GroupKey { namespace: namespace.clone(), deployment: name.clone(), service };
            self.want(key, number, spec, events);
        }
    }

    fn record_revision(&mut self, namespace: &NamespaceName, name: &DeploymentName, spec: DeploymentSpec) {
        let deployment = self.deployments.get_or_insert_with((namespace.clone(), name.clone()), || Deployment {
            revisions: VecDeque::new(),
            in_force: RevisionNumber(0),
            previous: None,
            rollout: None,
            wanted: Wanted::Run,
            retired_counters: BTreeMap::new(),
        });
        let number = RevisionNumber(deployment.revisions.back().map_or(0, |last| last.number.0) + 1);
        deployment.wanted = Wanted::Run;
        deployment.in_force = number;
        deployment.revisions.push_back(Revision { number, spec });
    }

    fn want(&mut self, key: GroupKey, revision: RevisionNumber, spec: Arc<ServiceSpec>, events: &mut Vec<Event>) {
        let retired = self
            .deployments
            .get_mut(&(key.namespace.clone(), key.deployment.clone()))
            .and_then(|deployment| deployment.retired_counters.remove(&key.service));
        let mut rolling = self.rolling_of(&key, &spec);
        let group = self.groups.get_or_insert_with(key.clone(), || Group {
            spec: Arc::clone(&spec),
            revision,
            next_index: retired.unwrap_or(SlotIndex(0)),
            slots: BTreeMap::new(),
            wanted: Wanted::Run,
            reschedules: BTreeMap::new(),
            collected: Collected::default(),
            restart_epoch: 0,
            rolling: Rolling::default(),
            failures: BTreeMap::new(),
            evening_out: EveningOut::Idle,
        });
        // Another program may well run where the last one failed.
        if group.spec.spec_hash != spec.spec_hash {
            group.failures.clear();
        }
        // Another rollout from the same to the same end, as after a change of the count: what was let go on goes on.
        if rolling.held == group.rolling.held && group.spec.is_same_program(&spec) {
            rolling.promotion = group.rolling.promotion;
        }
        let run_again = finished::run_again(&key, group, &spec);
        group.spec = Arc::clone(&spec);
        group.revision = revision;
        group.wanted = Wanted::Run;
        group.rolling = rolling.clone();
        let (next_index, restart_epoch) = (group.next_index, group.restart_epoch);
        events.push(Event::GroupChanged { group: key, revision, spec, next_index, restart_epoch, rolling });
        events.extend(run_again);
    }

    fn unwant(&mut self, key: &GroupKey, events: &mut Vec<Event>) {
        if let Some(group) = self.groups.get_mut(key)
            && group.wanted == Wanted::Run
        {
            group.wanted = Wanted::Stop;
            events.push(Event::GroupUnwanted(key.clone()));
        }
        self.forget_group_if_done(key, events);
    }

    /// Drops an unwanted group once its last slot is gone, and with the last group a removed deployment.
    pub(crate) fn forget_group_if_done(&mut self, key: &GroupKey, events: &mut Vec<Event>) {
        let done = |group: &Group| group.wanted == Wanted::Stop && group.slots.is_empty();
        let Some(group) = self.groups.get(key).filter(|group| done(group)) else {
            return;
        };
        let counter = group.next_index;
        self.groups.remove(key);
        events.push(Event::GroupGone(key.clone()));
        let owner = (key.namespace.clone(), key.deployment.clone());
        let last = self.groups_of(&owner.0, &owner.1).next().is_none();
        if let Some(deployment) = self.deployments.get_mut(&owner) {
            deployment.retired_counters.insert(key.service.clone(), counter);
            if last && deployment.wanted == Wanted::Stop {
                self.forget_deployment(&owner, events);
            }
        }
    }

    fn forget_deployment(&mut self, key: &(NamespaceName, DeploymentName), events: &mut Vec<Event>) {
        self.deployments.remove(key);
        events.push(Event::DeploymentGone { namespace: key.0.clone(), deployment: key.1.clone() });
    }

    fn trim_revisions(&mut self, namespace: &NamespaceName, name: &DeploymentName) {
        let Some(known) = self.deployments.get_mut(&(namespace.clone(), name.clone())) else { return };
        let rollout = known.rollout.iter().filter(|rollout| rollout.is_live());
        let needed: Vec<RevisionNumber> = rollout
            .flat_map(|rollout| [Some(rollout.from), rollout.before])
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

pub(crate) fn keyed<'a>(
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
