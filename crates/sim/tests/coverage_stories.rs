//! Cases that a scenario file cannot express: forced placements, nodes that shrink, rebuilt views.
//!
//! Manifests and nodes are read from scenario text; further commands go to the state machine and the view directly.

use std::{collections::BTreeMap, net::Ipv6Addr};

use longshore_model::{
    Attempt, Command, Event, Generation, GroupKey, GroupPlan, Health, Intent, NamespaceName, Node, Observation,
    Placement, Plan, PlanItem, ReplicaState, SlotIndex, SlotKey, Time,
    replica::{DesiredState, Details},
    units::GIB,
};
use longshore_scheduler::{View, buckets, explain, plan};
use longshore_sim::{Scenario, scenario::Action};
use longshore_store::State;

/// The state machine and a view that follows its events.
#[derive(Default)]
struct World {
    state: State,
    view: View,
    now: Time,
}

impl World {
    /// A cluster after a scenario's nodes and steps were applied, with nothing placed.
    fn of(text: &str) -> Self {
        let scenario = Scenario::parse("story.yaml", text).expect("the scenario is well formed");
        let mut world = Self::default();
        for node in scenario.nodes {
            world.submit(Command::Join(Box::new(node)));
        }
        for step in scenario.steps {
            match step.action {
                Action::Command(command) => drop(world.submit(*command)),
                other => panic!("{other:?} needs a machine"),
            }
        }
        world
    }

    fn submit(&mut self, command: Command) -> Vec<Event> {
        let events = self.state.apply(command).expect("the command is accepted");
        for event in &events {
            self.view.apply(event);
        }
        events
    }

    fn plan(&mut self) -> Plan {
        plan(&mut self.view, self.state.index(), self.now)
    }

    fn decide(&mut self) {
        let decided = self.plan();
        self.submit(Command::Commit(Box::new(decided)));
    }

    fn observe(&mut self, group: &GroupKey, slot: &SlotKey, attempt: u32, state: ReplicaState) -> Vec<Event> {
        let (group, slot, at) = (group.clone(), slot.clone(), self.now);
        let (generation, attempt, details) = (Generation(1), Attempt(attempt), Details::new());
        self.submit(Command::Observe(Observation {
            key: group.replica(&slot, generation),
            attempt,
            placed_at: None,
            state,
            code: None,
            details,
            at,
        }))
    }

    fn node_of(&self, group: &GroupKey, slot: &SlotKey) -> Option<String> {
        let slot = self.state.group(group)?.slots.get(slot)?;
        let runs = slot.replicas.iter().find(|replica| replica.desired == DesiredState::Run)?;
        Some(runs.assignment.node.to_string())
    }
}

fn group(deployment: &str, service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: deployment.into(), service: service.into() }
}

fn index(number: u32) -> SlotKey {
    SlotKey::Index(SlotIndex(number))
}

/// Places the first replica of a service on node `a`, whatever the scheduler decides.
fn force(world: &mut World, key: &GroupKey, host: u16) {
    let decided = world.plan();
    let reservation =
        decided.groups.iter().find(|planned| planned.group == *key).map(|planned| planned.reservation.clone());
    let address = Ipv6Addr::new(0xfd4c, 0x6f6e, 0x6773, 1, 0, 0, 0, host);
    let (slot, generation, node, new_volumes) = (index(0), Generation(1), "a".into(), Vec::new());
    let place = PlanItem::Place(Placement {
        key: slot.generation(generation),
        node,
        address,
        new_volumes,
        devices: BTreeMap::new(),
        reservation: None,
        moved: None,
    });
    let groups =
        vec![GroupPlan { group: key.clone(), reservation: reservation.expect("something is due"), items: vec![place] }];
    world.submit(Command::Commit(Box::new(Plan { groups, ..Plan::default() })));
}

#[test]
fn a_port_two_replicas_hold_is_not_free_when_one_of_them_goes() {
    let mut world = World::of(
        "nodes: [ { name: a, cpu: 4, memory: 8GiB } ]
deployments:
  one: 'services: { web: { image: x, ports: [ { target: 80, published: 8080, mode: host } ] } }'
  two: 'services: { web: { image: x, ports: [ { target: 80, published: 8080, mode: host } ] } }'
  zoo: 'services: { web: { image: x, ports: [ { target: 80, published: 8080, mode: host } ] } }'",
    );
    let (one, two, zoo) = (group("one", "web"), group("two", "web"), group("zoo", "web"));
    force(&mut world, &one, 1);
    force(&mut world, &two, 2);
    world.submit(Command::Remove { namespace: NamespaceName::default_namespace(), deployment: "one".into() });
    world.decide();
    world.observe(&one, &index(0), 0, ReplicaState::Stopped);
    world.decide();
    assert_eq!(world.node_of(&two, &index(0)).as_deref(), Some("a"));
    assert_eq!(world.node_of(&zoo, &index(0)), None);
    let why = explain(&mut world.view, &zoo, world.now);
    assert_eq!(why[0].1.reason.code(), "host_port_in_use");
}

#[test]
fn a_node_that_shrank_evicts_nobody_and_takes_nobody() {
    let mut world = World::of(
        "nodes: [ { name: a, cpu: 4, memory: 8GiB } ]
deployments:
  shop: |
    services: { web: { image: x, deploy: { replicas: 2, resources: { limits: { memory: 3GiB } } } } }",
    );
    let web = group("shop", "web");
    world.decide();
    for slot in [index(0), index(1)] {
        world.observe(&web, &slot, 0, ReplicaState::Running);
    }
    let mut node = Node::clone(world.state.node(&"a".into()).expect("a is there"));
    node.capacity.memory_bytes = 4 * GIB;
    world.view.apply(&Event::NodeChanged(node.into()));
    assert!(world.plan().is_empty());
    world.submit(Command::Scale { group: web.clone(), replicas: 3 });
    world.decide();
    assert_eq!(world.node_of(&web, &index(1)).as_deref(), Some("a"));
    assert_eq!(world.node_of(&web, &index(2)), None);
}

#[test]
fn failures_of_a_global_replica_are_held_against_no_node() {
    let mut world = World::of(
        "nodes: [ { name: a, cpu: 4, memory: 8GiB } ]
deployments:
  ops: 'services: { agent: { image: x, deploy: { mode: global } } }'
  shop: 'services: { web: { image: x } }'",
    );
    world.decide();
    let of_global = world.observe(&group("ops", "agent"), &SlotKey::Node("a".into()), 0, ReplicaState::Failed);
    let of_counted = world.observe(&group("shop", "web"), &index(0), 0, ReplicaState::Failed);
    let counted = |events: &[Event]| events.iter().any(|event| matches!(event, Event::FailureCounted { .. }));
    assert!(!counted(&of_global));
    assert!(counted(&of_counted));
}

#[test]
fn a_new_leader_books_the_same_devices_and_decides_the_same() {
    let mut world = World::of(
        "nodes:
  - { name: a, cpu: 4, memory: 8GiB, devices: { gpu: 2 } }
  - { name: b, cpu: 4, memory: 8GiB, devices: { gpu: 1 } }
deployments:
  ml: |
    services:
      train:
        image: x
        deploy:
          replicas: 2
          resources: { reservations: { generic_resources: [ { discrete_resource_spec: { kind: gpu, value: 1 } } ] } }",
    );
    world.decide();
    world.submit(Command::Scale { group: group("ml", "train"), replicas: 5 });
    let decided = world.plan();
    let mut fresh = View::new();
    for event in world.state.events() {
        fresh.apply(&event);
    }
    assert_eq!(decided.placements(), 1);
    assert_eq!(plan(&mut fresh, world.state.index(), world.now).groups, decided.groups);
}

/// The bucket of the one replica of a service.
fn bucket(world: &mut World, service: &str) -> &'static str {
    let sorted = buckets(&mut world.view, &group("shop", service), world.now);
    let sorted: Vec<_> =
        sorted.iter().flat_map(|(bucket, replicas)| replicas.iter().map(|_| bucket.as_str())).collect();
    let [bucket] = sorted.as_slice() else { panic!("{service} has one replica, not {sorted:?}") };
    bucket
}

#[test]
fn every_replica_is_in_the_bucket_its_node_and_its_service_put_it_in() {
    let on = |service: &str, node: &str, more: &str| {
        format!(
            "      {service}: {{ image: x, deploy: {{ placement: {{ constraints: [ \"node.hostname == {node}\" ] }}{more} }}\n"
        )
    };
    let services = [
        on("well", "a", " }"),
        on("leaves", "b", " }"),
        on("lost", "c", " }"),
        on("away", "c", " }, x-longshore: { disconnect: { lost_after: 5m } }"),
        on("done", "a", ", mode: replicated-job }"),
        on(
            "flaky",
            "a",
            ", restart_policy: { condition: none } }, x-longshore: { reschedule: { delay: 30s, unlimited: true } }",
        ),
    ];
    let names = ["well", "leaves", "lost", "away", "done", "flaky"];
    let nodes = ["a", "b", "c", "d"].map(|name| format!("  - {{ name: {name}, cpu: 8, memory: 16GiB }}\n"));
    let (nodes, services) = (nodes.concat(), services.concat());
    let mut world = World::of(&format!("nodes:\n{nodes}deployments:\n  shop: |\n    services:\n{services}"));
    world.decide();
    for service in names {
        let state = match service {
            "done" => ReplicaState::Completed,
            "flaky" => ReplicaState::Failed,
            _ => ReplicaState::Running,
        };
        world.observe(&group("shop", service), &index(0), 0, state);
    }
    world.now = Time(10_000);
    let (drain, down) = ((Intent::Draining, "b".into()), (Health::Down, "c".into()));
    world.submit(Command::SetIntent { node: drain.1, intent: drain.0, at: world.now });
    world.submit(Command::SetHealth { node: down.1, health: down.0, at: world.now });
    let found = names.map(|service| bucket(&mut world, service));
    assert_eq!(found, ["untainted", "migrating", "lost", "disconnecting", "ignored", "reschedule_later"]);
    world.now = Time(311_000);
    assert_eq!(["away", "flaky"].map(|service| bucket(&mut world, service)), ["expiring", "reschedule_now"]);
    world.submit(Command::SetHealth { node: "c".into(), health: Health::Ready, at: world.now });
    assert_eq!(["away", "lost"].map(|service| bucket(&mut world, service)), ["reconnecting", "reconnecting"]);
}
