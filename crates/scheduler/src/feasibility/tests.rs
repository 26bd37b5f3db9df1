//! Tests of the filters on the real state machine: what an operator requests, and where it is placed or why not.

mod companions;
mod devices;
mod distinct;
mod random_rules;

use std::sync::Arc;

use longshore_model::{
    Capacity, Command, DeploymentSpec, Driver, Event, GroupKey, NamespaceName, Node, Observation, PlacementSpec,
    Reason, ReplicaState, ServiceName, ServiceSpec, Time,
    replica::{DesiredState, Details},
    units::GIB,
};
use longshore_store::State;

use super::FILTERS;
use crate::{View, explain, plan};

/// A cluster of one deployment, `shop`; every command is followed by passes until a plan is empty.
#[derive(Default)]
struct World {
    state: State,
    view: View,
}

impl World {
    /// Nodes with their racks; an empty string is no rack.
    fn with_racks(nodes: &[(&str, &str)]) -> Self {
        let mut world = Self::default();
        for (name, rack) in nodes {
            world.join(name, rack);
        }
        world
    }

    fn join(&mut self, name: &str, rack: &str) {
        self.run(Command::Join(Box::new(node(name, rack))));
    }

    fn run(&mut self, command: Command) {
        let events = self.state.apply(command).expect("the tests send valid commands only");
        self.follow(&events);
        self.settle();
    }

    fn follow(&mut self, events: &[Event]) {
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
            self.follow(&events);
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
        self.run(Command::Apply {
            namespace,
            deployment,
            spec: Box::new(spec),
            rerun: longshore_model::command::Rerun::IfChanged,
        });
    }

    fn scale(&mut self, service: &str, replicas: u32) {
        self.run(Command::Scale { group: key(service), replicas });
    }

    /// Observes every stopping replica as stopped.
    fn finish_stopping(&mut self) {
        let stopping: Vec<Observation> = self
            .state
            .replicas()
            .filter(|(_, _, replica)| replica.desired == DesiredState::Stop)
            .map(|(group, slot, replica)| Observation {
                key: group.replica(&slot.key, replica.generation),
                attempt: replica.attempt,
                placed_at: None,
                state: ReplicaState::Stopped,
                code: None,
                details: Details::new(),
                at: Time(1000),
            })
            .collect();
        for observation in stopping {
            self.run(Command::Observe(observation));
        }
    }

    /// Nodes of the service's newest generations that shall run, sorted.
    fn nodes_of(&self, service: &str) -> Vec<String> {
        let slots = self.state.group(&key(service)).into_iter().flat_map(|group| group.slots.values());
        let newest =
            slots.filter_map(|slot| slot.replicas.last()).filter(|replica| replica.desired == DesiredState::Run);
        let mut nodes: Vec<String> = newest.map(|replica| replica.assignment.node.to_string()).collect();
        nodes.sort();
        nodes
    }

    /// How many slots wait, the reason, and what the nearest node lacks.
    fn waiting(&mut self, service: &str) -> Vec<String> {
        let explanations = explain(&mut self.view, &key(service), Time(1000));
        explanations
            .iter()
            .map(|(slots, why)| {
                let near =
                    why.nearest.iter().flat_map(|near| near.lacks.iter().map(|lack| lack.sentence_about(&near.node)));
                format!("{} wait: {}; {}", slots.len(), why.reason, near.collect::<Vec<_>>().join(", "))
            })
            .collect()
    }
}

#[test]
fn the_filters_are_in_the_order_of_their_reasons() {
    let reasons: Vec<Reason> = FILTERS.iter().map(|filter| filter.reason).collect();
    assert!(reasons.is_sorted_by(|a, b| a < b), "in order, and each reason once");
}

fn key(service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: "shop".into(), service: service.into() }
}

fn node(name: &str, rack: &str) -> Node {
    let labels = (!rack.is_empty()).then(|| ("rack".to_owned(), rack.to_owned()));
    Node {
        labels: labels.into_iter().collect(),
        drivers: [Driver::Docker].into(),
        capacity: Capacity { cpu_millis: 4000, memory_bytes: 8 * GIB, ..Capacity::default() },
        ..Node::new(name)
    }
}
