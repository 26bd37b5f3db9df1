//! A cluster under test: the real state machine and the real view.
//!
//! Owns: the clock, and the translation of a [`Step`] to commands, events and plans.
//! Invariant: every event of the state is applied to the view, in order, and nothing else.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Assignment, Attempt, ClusterConfig, Command, DeploymentSpec, Event, Explanation, Generation, GroupKey, GroupPlan,
    Health, NamespaceName, Node, NodeName, Observation, Placement, Plan, PlanItem, ReplicaKey, ReplicaState,
    Reservation, RevisionNumber, RuntimeCode, ServiceName, ServiceSpec, SlotIndex, SlotKey, Time,
    node::UseDegraded,
    replica::{DesiredState, Details},
};
use longshore_scheduler::{View, explain, plan};
use longshore_store::State;

use super::{
    histories::{Manifest, Step, Target},
    random_nodes::node_name,
    random_services::{DEPLOYMENTS, SECRETS, SERVICES, group_key},
    reference_usage::ReferenceUsage,
};

/// State, view and clock.
#[derive(Default)]
pub(super) struct World {
    pub(super) state: State,
    pub(super) view: View,
    pub(super) now: Time,
}

impl World {
    /// A cluster after a history.
    pub(super) fn after(steps: &[Step]) -> Self {
        let mut world = Self::default();
        for step in steps {
            world.act(step);
        }
        world
    }

    /// Runs one step; returns the events.
    pub(super) fn act(&mut self, step: &Step) -> Vec<Event> {
        match step {
            Step::Settle => self.settle(),
            Step::Wait(time) => {
                self.now = self.now.after(*time);
                Vec::new()
            }
            Step::Decide => self.decide_all(),
            Step::Observe(which, state, target) => match self.observe(*which, *state, *target) {
                Some(observation) => self.run(Command::Observe(observation)),
                None => Vec::new(),
            },
            other => self.run(self.command(other)),
        }
    }

    /// Applies a command to the state and its events to the view; a refused command gives no events.
    pub(super) fn run(&mut self, command: Command) -> Vec<Event> {
        let events = self.state.apply(command).unwrap_or_default();
        for event in &events {
            self.view.apply(event);
        }
        events
    }

    /// The plan the scheduler would make now.
    pub(super) fn plan(&mut self) -> Plan {
        plan(&mut self.view, self.state.index(), self.now)
    }

    /// Plans and commits; returns the plan and the events.
    pub(super) fn decide(&mut self) -> (Plan, Vec<Event>) {
        let decided = self.plan();
        let events = self.run(Command::Commit(Box::new(decided.clone())));
        (decided, events)
    }

    /// Decides until no plan changes a rollout: such a change alters the desired state, which only the next plan acts
    /// on.
    pub(super) fn decide_all(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            let (plan, events) = self.decide();
            all.extend(events);
            if plan.deployments.is_empty() {
                return all;
            }
        }
    }

    pub(super) fn explain(&mut self, group: &GroupKey) -> Vec<(Vec<SlotKey>, Explanation)> {
        explain(&mut self.view, group, self.now)
    }

    pub(super) fn explain_all(&mut self) -> BTreeMap<GroupKey, Vec<(Vec<SlotKey>, Explanation)>> {
        let keys: Vec<GroupKey> = self.state.groups().map(|(key, _)| key.clone()).collect();
        keys.into_iter().map(|key| (key.clone(), self.explain(&key))).collect()
    }

    /// A view built from the state's events.
    pub(super) fn rebuilt(&self) -> View {
        let mut view = View::new();
        for event in self.state.events() {
            view.apply(&event);
        }
        view
    }

    pub(super) fn join(&mut self, name: u8, node: &Node) {
        self.run(Command::Join(Box::new(Node { name: node_name(name), ..node.clone() })));
    }

    pub(super) fn apply(&mut self, deployment: &str, manifest: &Manifest) {
        self.run(apply(deployment, manifest));
    }

    fn settle(&mut self) -> Vec<Event> {
        let alive = |node: &NodeName| self.state.node(node).is_some_and(|node| node.health != Health::Down);
        let observations: Vec<Observation> = self
            .state
            .replicas()
            .filter(|(_, _, replica)| alive(&replica.assignment.node))
            .filter_map(|(group, slot, replica)| {
                let state = match (replica.desired, replica.state) {
                    (DesiredState::Stop, _) => ReplicaState::Stopped,
                    (DesiredState::Run, ReplicaState::Failed | ReplicaState::Completed) => return None,
                    (DesiredState::Run, _) => ReplicaState::Running,
                };
                Some(observation(group, &slot.key, replica.generation, replica.attempt, state, self.now))
            })
            .collect();
        observations.into_iter().flat_map(|seen| self.run(Command::Observe(seen))).collect()
    }

    fn observe(&self, which: u16, state: ReplicaState, target: Target) -> Option<Observation> {
        let all: Vec<_> = self.state.replicas().collect();
        let (group, slot, replica) = *all.get(usize::from(which).checked_rem(all.len())?)?;
        // A node that is down sends no observations.
        if self.state.node(&replica.assignment.node)?.health == Health::Down {
            return None;
        }
        let mut seen = observation(group, &slot.key, replica.generation, replica.attempt, state, self.now);
        match target {
            Target::Current => {}
            Target::OldAttempt => seen.attempt = Attempt(seen.attempt.0.checked_sub(1)?),
            Target::OldGeneration => seen.key.generation = Generation(seen.key.generation.0 - 1),
            Target::UnknownSlot => seen.key.slot = SlotKey::Index(SlotIndex(9999)),
            Target::UnknownGroup => seen.key.group = group_key("nobody", "nothing"),
        }
        Some(seen)
    }

    fn command(&self, step: &Step) -> Command {
        let namespace = NamespaceName::default_namespace();
        match step {
            Step::Join(name, node) => Command::Join(Box::new(Node { name: node_name(*name), ..Node::clone(&node.0) })),
            Step::Label(node, label, value) => {
                let labels = BTreeMap::from([((*label).to_owned(), (*value).to_owned())]);
                Command::Label { node: node_name(*node), labels }
            }
            Step::SetIntent(node, intent) => {
                Command::SetIntent { node: node_name(*node), intent: *intent, at: self.now }
            }
            Step::Health(node, health) => Command::SetHealth { node: node_name(*node), health: *health, at: self.now },
            Step::UseDegraded(node) => {
                Command::SetUseDegraded { node: node_name(*node), use_degraded: UseDegraded::Allowed }
            }
            Step::Configure { default_memory_bytes, cpu_overcommit_millionths, preemption } => {
                Command::Configure(ClusterConfig {
                    default_memory_bytes: *default_memory_bytes,
                    cpu_overcommit_millionths: *cpu_overcommit_millionths,
                    preemption: *preemption,
                    ..ClusterConfig::default()
                })
            }
            Step::Apply(deployment, manifest) => apply(DEPLOYMENTS[*deployment], manifest),
            Step::Scale(deployment, service, replicas) => {
                let group = group_key(DEPLOYMENTS[*deployment], SERVICES[*service]);
                Command::Scale { group, replicas: *replicas }
            }
            Step::Remove(deployment) => Command::Remove { namespace, deployment: DEPLOYMENTS[*deployment].into() },
            Step::Rollback(deployment, to) => Command::Rollback {
                namespace,
                deployment: DEPLOYMENTS[*deployment].into(),
                to: to.map(RevisionNumber),
                at: self.now,
            },
            Step::ControlRollout(deployment, word) => Command::ControlRollout {
                namespace,
                deployment: DEPLOYMENTS[*deployment].into(),
                control: *word,
                at: self.now,
            },
            Step::Restart(deployment, service) => {
                let group = group_key(DEPLOYMENTS[*deployment], SERVICES[*service]);
                Command::Restart { group, at: self.now }
            }
            Step::Stop(deployment) => {
                Command::Stop { namespace, deployment: DEPLOYMENTS[*deployment].into(), at: self.now }
            }
            Step::Start(deployment) => {
                Command::Start { namespace, deployment: DEPLOYMENTS[*deployment].into(), at: self.now }
            }
            Step::EvenOut => Command::EvenOut,
            Step::Secret(name, version) => {
                Command::PutSecret { namespace, name: SECRETS[*name].into(), version: *version }
            }
            Step::Quota(quota) => Command::SetQuota { namespace, quota: *quota },
            Step::Observe(..) | Step::Settle | Step::Wait(_) | Step::Decide => unreachable!("not a command"),
        }
    }

    /// Commits placements of a group on these nodes directly, bypassing the scheduler.
    pub(super) fn commit_placements(&mut self, group: &GroupKey, reservation: &Arc<Reservation>, nodes: &[NodeName]) {
        let mut taken: BTreeMap<NodeName, u64> = BTreeMap::new();
        for (_, _, replica) in self.state.replicas() {
            *taken.entry(replica.assignment.node.clone()).or_default() += 1;
        }
        let mut usage = ReferenceUsage::of(&self.state, self.now);
        let mut items = Vec::new();
        for (index, name) in (0..).zip(nodes) {
            let Some(node) = self.state.node(name) else { continue };
            let host = taken.entry(name.clone()).or_default();
            *host += 1;
            let prefix = u128::from(self.state.config().cluster_prefix);
            let slot = SlotKey::Index(SlotIndex(index));
            let devices = usage.book(group, &slot, node, reservation);
            items.push(PlanItem::Place(Placement {
                key: slot.generation(Generation(1)),
                node: name.clone(),
                address: Ipv6Addr::from(prefix | u128::from(node.number.0) << 64 | u128::from(*host)),
                new_volumes: Vec::new(),
                devices,
                reservation: None,
                moved: None,
            }));
        }
        let groups = vec![GroupPlan { group: group.clone(), reservation: Arc::clone(reservation), items }];
        self.run(Command::Commit(Box::new(Plan { groups, made_at: self.now, ..Plan::default() })));
    }
}

fn apply(deployment: &str, manifest: &Manifest) -> Command {
    // A service depends only on services before it by name, because the manifest reader rejects cycles.
    let services = manifest.iter().map(|(service, spec)| {
        let (name, mut spec) = (ServiceName::from(SERVICES[*service]), ServiceSpec::clone(&spec.0));
        spec.depends_on.retain(|other, _| *other < name);
        (name, Arc::new(spec))
    });
    let services = services.collect();
    Command::Apply {
        namespace: NamespaceName::default_namespace(),
        deployment: deployment.into(),
        spec: Box::new(DeploymentSpec { services, ..DeploymentSpec::default() }),
        rerun: longshore_model::command::Rerun::IfChanged,
    }
}

fn observation(
    group: &GroupKey,
    slot: &SlotKey,
    generation: Generation,
    attempt: Attempt,
    state: ReplicaState,
    at: Time,
) -> Observation {
    let code = match state {
        ReplicaState::Failed | ReplicaState::Completed => Some(RuntimeCode::Exited),
        ReplicaState::Degraded => Some(RuntimeCode::HealthcheckFailed),
        ReplicaState::Pulling => Some(RuntimeCode::Pulling),
        ReplicaState::Pending
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => None,
    };
    let key = group.replica(slot, generation);
    Observation { key, attempt, placed_at: None, state, code, details: Details::new(), at }
}

/// A plan without addresses, which depend on the order in which nodes joined.
pub(super) fn without_addresses(mut plan: Plan) -> Plan {
    for item in plan.groups.iter_mut().flat_map(|group| &mut group.items) {
        if let PlanItem::Place(placement) = item {
            placement.address = Ipv6Addr::UNSPECIFIED;
        }
    }
    plan
}

/// The changes of a plan, without waiting reasons.
pub(super) fn without_reasons(plan: &Plan) -> Vec<GroupPlan> {
    let mut groups = plan.groups.clone();
    for group in &mut groups {
        group.items.retain(|item| !matches!(item, PlanItem::Wait(_)));
    }
    groups.retain(|group| !group.items.is_empty());
    groups
}

/// The placements of a group in a plan.
pub(super) fn placements(plan: &Plan, group: &GroupKey) -> BTreeMap<SlotKey, NodeName> {
    let parts = plan.groups.iter().filter(|part| part.group == *group);
    let items = parts.flat_map(|part| &part.items);
    items
        .filter_map(|item| match item {
            PlanItem::Place(placement) => Some((placement.key.slot.clone(), placement.node.clone())),
            PlanItem::Open(_)
            | PlanItem::Wait(_)
            | PlanItem::Stop(_)
            | PlanItem::Close(_)
            | PlanItem::Restart { .. }
            | PlanItem::Reschedule { .. }
            | PlanItem::Collect(_)
            | PlanItem::Step { .. }
            | PlanItem::NoRoom { .. }
            | PlanItem::Blocked { .. }
            | PlanItem::Promote
            | PlanItem::GiveUp { .. }
            | PlanItem::EvenOutDone => None,
        })
        .collect()
}

/// The assignments in a list of events.
pub(super) fn placed(events: &[Event]) -> impl Iterator<Item = (&ReplicaKey, &Assignment)> {
    events.iter().filter_map(|event| match event {
        Event::Placed { key, assignment } => Some((key, assignment)),
        _ => None,
    })
}
