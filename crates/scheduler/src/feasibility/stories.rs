//! Filters told as stories, on the real state machine: what an operator asks for, and where it lands or why not.

mod company;
mod devices;
mod distinct;
mod mixed;

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    Capacity, Command, DeploymentSpec, Driver, Event, GroupKey, Health, Intent, NamespaceName, Node, NodeNumber,
    Observation, PlacementSpec, Platform, PoolName, ReplicaState, Role, ServiceName, ServiceSpec, Time,
    node::{Overlay, UseDegraded},
    replica::{Details, Wanted},
    units::GIB,
};
use longshore_store::State;

use crate::{View, explain, plan};

/// A cluster of one deployment, `shop`, in which every command is followed by passes until nothing is left to do.
#[derive(Default)]
struct World {
    state: State,
    view: View,
}

impl World {
    /// Nodes with their racks; an empty rack is none.
    fn with_racks(nodes: &[(&str, &str)]) -> Self {
        let mut world = Self::default();
        for (name, rack) in nodes {
            world.join(name, rack);
        }
        world
    }

    fn join(&mut self, name: &str, rack: &str) {
        self.tell(Command::Join(Box::new(node(name, rack))));
    }

    fn tell(&mut self, command: Command) {
        let events = self.state.apply(command).expect("the story asks for what is allowed");
        self.hear(&events);
        self.settle();
    }

    fn hear(&mut self, events: &[Event]) {
        for event in events {
            self.view.apply(event);
        }
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            let made = plan(&mut self.view, self.state.index(), Time(1000));
            if made.is_empty() {
                return;
            }
            let events = self.state.apply(Command::Commit(Box::new(made))).expect("a plan is never refused");
            self.hear(&events);
        }
        panic!("the cluster does not settle");
    }

    /// The whole manifest: each service with its count and placement.
    fn apply(&mut self, services: &[(&str, u32, PlacementSpec)]) {
        let service = |(name, replicas, placement): &(&str, u32, PlacementSpec)| {
            let spec = ServiceSpec { replicas: *replicas, placement: placement.clone(), ..ServiceSpec::default() };
            (ServiceName::from(*name), Arc::new(spec))
        };
        let spec = DeploymentSpec { services: services.iter().map(service).collect(), ..DeploymentSpec::default() };
        let (namespace, deployment) = (NamespaceName::default_namespace(), "shop".into());
        self.tell(Command::Apply { namespace, deployment, spec: Box::new(spec) });
    }

    fn scale(&mut self, service: &str, replicas: u32) {
        self.tell(Command::Scale { group: key(service), replicas });
    }

    /// Every replica told to stop is seen stopped.
    fn stop_what_shall_stop(&mut self) {
        let stopping: Vec<Observation> = self
            .state
            .replicas()
            .filter(|(_, _, replica)| replica.wanted == Wanted::Stop)
            .map(|(group, slot, replica)| Observation {
                group: group.clone(),
                slot: slot.key.clone(),
                generation: replica.generation,
                attempt: replica.attempt,
                placed_at: None,
                state: ReplicaState::Stopped,
                code: None,
                details: Details::new(),
                at: Time(1000),
            })
            .collect();
        for observation in stopping {
            self.tell(Command::Observe(observation));
        }
    }

    /// Nodes of the service's newest wanted generations, sorted.
    fn nodes_of(&self, service: &str) -> Vec<String> {
        let slots = self.state.group(&key(service)).into_iter().flat_map(|group| group.slots.values());
        let newest = slots.filter_map(|slot| slot.replicas.last()).filter(|replica| replica.wanted == Wanted::Run);
        let mut nodes: Vec<String> = newest.map(|replica| replica.assignment.node.to_string()).collect();
        nodes.sort();
        nodes
    }

    /// How many wait, why, and what the nearest node lacks.
    fn waiting(&mut self, service: &str) -> Vec<String> {
        let fates = explain(&mut self.view, &key(service), Time(1000));
        fates
            .iter()
            .map(|(slots, why)| {
                let near = why.nearest.iter().flat_map(|near| near.lacks.iter().map(|lack| lack.about(&near.node)));
                format!("{} wait: {}; {}", slots.len(), why.reason, near.collect::<Vec<_>>().join(", "))
            })
            .collect()
    }
}

fn key(service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: "shop".into(), service: service.into() }
}

fn node(name: &str, rack: &str) -> Node {
    let labels = (!rack.is_empty()).then(|| ("rack".to_owned(), rack.to_owned()));
    Node {
        name: name.into(),
        number: NodeNumber(0),
        ip: None,
        labels: labels.into_iter().collect(),
        engine_labels: BTreeMap::new(),
        role: Role::Worker,
        pool: PoolName::from("default"),
        platform: Platform::new("linux", "amd64"),
        drivers: [Driver::Docker].into(),
        plugins: std::collections::BTreeSet::new(),
        capacity: Capacity { cpu_millis: 4000, memory_bytes: 8 * GIB, ..Capacity::default() },
        reserved: Capacity::default(),
        intent: Intent::Active,
        health: Health::Ready,
        use_degraded: UseDegraded::No,
        overlay: Overlay::Reachable,
        health_since: Time::default(),
        confirmed_lost: None,
        drain: None,
        removed_at: None,
    }
}
