//! A cluster under test: the real state machine, the real view, and short helpers for the tests.
//!
//! Invariant: every event of the state is applied to the view, in order; only [`Cluster::fail`] adds events of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    sync::Arc,
};

use longshore_model::{
    Capacity, ClusterConfig, Command, DeploymentSpec, Driver, Event, Generation, GroupKey, GroupPlan, NamespaceName,
    Node, NodeName, Observation, Placement, PlacementSpec, Plan, PlanItem, ReplicaState, Reservation, ServiceSpec,
    SlotIndex, SlotKey, Time,
    replica::{DesiredState, Details, Replica},
    service::{Access, Mount, MountSource, Resources, SpecHash},
    settings::Preemption,
};
use longshore_scheduler::{View, explain, plan};
use longshore_store::State;

/// State, view and clock.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) state: State,
    pub(super) view: View,
    pub(super) now: Time,
}

impl Cluster {
    pub(super) fn of(nodes: impl IntoIterator<Item = Node>) -> Self {
        let mut cluster = Self { now: Time(1000), ..Self::default() };
        // No CPU overcommit: the tests compute shares by hand.
        cluster.configure(ClusterConfig { cpu_overcommit_millionths: 1_000_000, ..ClusterConfig::default() });
        for node in nodes {
            cluster.run(Command::Join(Box::new(node)));
        }
        cluster
    }

    pub(super) fn configure(&mut self, config: ClusterConfig) {
        self.run(Command::Configure(config));
    }

    pub(super) fn allow_preemption(&mut self) {
        let config = ClusterConfig { preemption: Preemption::On, ..self.state.config().clone() };
        self.configure(config);
    }

    /// Applies a command to the state and its events to the view; a refused command gives no events.
    pub(super) fn run(&mut self, command: Command) -> Vec<Event> {
        let events = self.state.apply(command).unwrap_or_default();
        for event in &events {
            self.view.apply(event);
        }
        events
    }

    /// Applies a manifest of the deployment `shop`.
    pub(super) fn apply(&mut self, services: &[(&str, ServiceSpec)]) {
        let service = |(name, spec): &(&str, ServiceSpec)| ((*name).into(), Arc::new(spec.clone()));
        let spec = DeploymentSpec { services: services.iter().map(service).collect(), ..DeploymentSpec::default() };
        let (namespace, deployment) = (NamespaceName::default_namespace(), "shop".into());
        self.run(Command::Apply {
            namespace,
            deployment,
            spec: Box::new(spec),
            rerun: longshore_model::command::Rerun::IfChanged,
        });
    }

    pub(super) fn plan(&mut self) -> Plan {
        plan(&mut self.view, self.state.index(), self.now)
    }

    /// Plans and commits, once.
    pub(super) fn decide(&mut self) -> Plan {
        let decided = self.plan();
        self.run(Command::Commit(Box::new(decided.clone())));
        decided
    }

    /// Decides until a plan is empty.
    pub(super) fn decide_all(&mut self) {
        for _ in 0..30 {
            if self.decide().is_empty() {
                return;
            }
        }
        panic!("the scheduler keeps planning");
    }

    /// Observes placed replicas as running and stopping ones as stopped, and decides, until nothing changes.
    pub(super) fn settle(&mut self) {
        for _ in 0..30 {
            self.decide_all();
            let seen = self.stop_all() + self.run_all();
            if seen == 0 {
                return;
            }
        }
        panic!("the cluster does not converge");
    }

    pub(super) fn run_all(&mut self) -> usize {
        self.observe(ReplicaState::Running, |replica| {
            replica.desired == DesiredState::Run && replica.state == ReplicaState::Pending
        })
    }

    pub(super) fn stop_all(&mut self) -> usize {
        self.observe(ReplicaState::Stopped, |replica| replica.desired == DesiredState::Stop)
    }

    fn observe(&mut self, state: ReplicaState, which: impl Fn(&Replica) -> bool) -> usize {
        let chosen = self.state.replicas().filter(|(_, _, replica)| which(replica));
        let seen: Vec<Observation> =
            chosen.map(|(group, slot, replica)| observation(group, &slot.key, replica, state, self.now)).collect();
        let number = seen.len();
        for one in seen {
            self.run(Command::Observe(one));
        }
        number
    }

    /// Observes one stopping replica, chosen by a number, as stopped; returns whether there was one.
    pub(super) fn stop_one(&mut self, which: usize) -> bool {
        let stopping: Vec<_> =
            self.state.replicas().filter(|(_, _, replica)| replica.desired == DesiredState::Stop).collect();
        let Some(at) = which.checked_rem(stopping.len()) else { return false };
        let (group, slot, replica) = stopping[at];
        let seen = observation(group, &slot.key, replica, ReplicaState::Stopped, self.now);
        self.run(Command::Observe(seen));
        true
    }

    /// Counts failures of the service on a node.
    pub(super) fn fail(&mut self, service: &str, node: &str, times: usize) {
        for _ in 0..times {
            self.view.apply(&Event::FailureCounted { group: key(service), node: node.into(), at: self.now });
        }
    }

    /// Commits placements on these nodes directly, bypassing the scheduler.
    pub(super) fn put(&mut self, service: &str, nodes: &[&str]) {
        let group = self.state.group(&key(service)).expect("the service was applied");
        let reservation = Arc::new(reservation(&group.spec));
        let mut taken: BTreeMap<NodeName, u64> = BTreeMap::new();
        for (_, _, replica) in self.state.replicas() {
            *taken.entry(replica.assignment.node.clone()).or_default() += 1;
        }
        let first = group.next_index.0;
        let mut items = Vec::new();
        for (index, name) in (first..).zip(nodes) {
            let node = self.state.node(&NodeName::from(*name)).expect("the node joined");
            let host = taken.entry(node.name.clone()).or_default();
            *host += 1;
            let prefix = u128::from(self.state.config().cluster_prefix);
            items.push(PlanItem::Place(Placement {
                key: SlotKey::Index(SlotIndex(index)).generation(Generation(1)),
                node: node.name.clone(),
                address: Ipv6Addr::from(prefix | u128::from(node.number.0) << 64 | u128::from(*host)),
                new_volumes: Vec::new(),
                devices: BTreeMap::new(),
                reservation: None,
                moved: None,
            }));
        }
        let groups = vec![GroupPlan { group: key(service), reservation, items }];
        self.run(Command::Commit(Box::new(Plan { groups, made_at: self.now, ..Plan::default() })));
    }

    /// Nodes of the service's newest generations that shall run, sorted.
    pub(super) fn nodes_of(&self, service: &str) -> Vec<String> {
        let slots = self.state.group(&key(service)).into_iter().flat_map(|group| group.slots.values());
        let newest =
            slots.filter_map(|slot| slot.replicas.last()).filter(|replica| replica.desired == DesiredState::Run);
        let mut nodes: Vec<String> = newest.map(|replica| replica.assignment.node.to_string()).collect();
        nodes.sort();
        nodes
    }

    /// How many of the service's slots wait, with the reason.
    pub(super) fn waiting(&mut self, service: &str) -> Vec<String> {
        let explanations = explain(&mut self.view, &key(service), self.now);
        explanations.iter().map(|(slots, why)| format!("{} wait: {}", slots.len(), why.reason)).collect()
    }

    /// Memory reserved on each node, by every generation not yet stopped.
    pub(super) fn memory_used(&self) -> BTreeMap<NodeName, u64> {
        let mut used = BTreeMap::new();
        for (_, _, replica) in self.state.replicas() {
            *used.entry(replica.assignment.node.clone()).or_default() += replica.assignment.reservation.memory_total();
        }
        used
    }

    /// A view built from the state's events.
    pub(super) fn rebuilt(&self) -> View {
        let mut view = View::new();
        for event in self.state.events() {
            view.apply(&event);
        }
        view
    }
}

pub(super) fn key(service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: "shop".into(), service: service.into() }
}

fn observation(group: &GroupKey, slot: &SlotKey, replica: &Replica, state: ReplicaState, at: Time) -> Observation {
    Observation {
        key: group.replica(slot, replica.generation),
        attempt: replica.attempt,
        placed_at: None,
        state,
        code: None,
        details: Details::new(),
        at,
    }
}

/// The reservation of a replica of a plain service.
pub(super) fn reservation(spec: &ServiceSpec) -> Reservation {
    Reservation {
        spec_hash: spec.spec_hash.clone(),
        kind: spec.kind,
        cpu_millis: spec.resources.cpu_request_millis(),
        memory_bytes: spec.resources.memory_limit_bytes.unwrap_or(0),
        devices: spec.resources.devices.clone(),
        ..Reservation::default()
    }
}

/// A node with this capacity and these labels.
pub(super) fn node(name: &str, cpu_millis: u64, memory_bytes: u64, labels: &[(&str, &str)]) -> Node {
    Node {
        labels: labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect(),
        drivers: BTreeSet::from([Driver::Docker]),
        capacity: Capacity { cpu_millis, memory_bytes, ..Capacity::default() },
        ..Node::new(name)
    }
}

/// A service with these replicas and resources per replica.
pub(super) fn service(replicas: u32, cpu_millis: u64, memory_bytes: u64, placement: PlacementSpec) -> ServiceSpec {
    ServiceSpec {
        replicas,
        resources: Resources {
            cpu_reservation_millis: Some(cpu_millis),
            memory_limit_bytes: Some(memory_bytes),
            ..Resources::default()
        },
        placement,
        spec_hash: SpecHash("v1".into()),
        ..ServiceSpec::default()
    }
}

/// The same service with another priority.
pub(super) fn of_priority(priority: u8, spec: ServiceSpec) -> ServiceSpec {
    ServiceSpec { priority, ..spec }
}

/// The same service with a bind mount, which makes it stateful.
pub(super) fn with_data(mut spec: ServiceSpec) -> ServiceSpec {
    spec.mounts.push(Mount {
        source: MountSource::Bind("/srv".to_owned()),
        target: "/data".to_owned(),
        access: Access::ReadWrite,
        options: BTreeMap::new(),
    });
    spec
}
