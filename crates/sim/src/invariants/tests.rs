//! Breaks each rule on purpose: a rule that never fires protects nothing.

use std::{net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Command, Generation, GroupPlan, Health, NamespaceName, Placement, Plan, PlanItem, Reservation, SlotIndex, SlotKey,
    Time, VolumeKey,
    device::TakenDevices,
    replica::{HeldVolume, HostPort},
    service::Protocol,
    volume::Sharing,
};

use super::*;
use crate::scenario::Scenario;

mod rollouts;
mod virtual_nodes;
mod work;

const CLUSTER: &str = r#"
nodes:
  - { name: a, cpu: 4, memory: 1GiB, disk: 8GiB, devices: { gpu: 1 }, addresses: 1 }
  - { name: b, cpu: 4, memory: 1GiB }
deployments:
  shop: |
    services:
      web: { image: "web:1", deploy: { replicas: 2, placement: { max_replicas_per_node: 1 } } }
"#;

/// The violations of a plan, on a small cluster.
fn violations_of(plan: Plan) -> Vec<(&'static str, String)> {
    let scenario = Scenario::parse("x.yaml", CLUSTER).unwrap();
    let mut state = State::default();
    let mut shadow = ShadowState::default();
    let mut violations = Violations::default();
    let mut commands: Vec<Command> = scenario.nodes.iter().map(|node| Command::Join(Box::new(node.clone()))).collect();
    for step in &scenario.steps {
        if let crate::scenario::Action::Command(command) = &step.action {
            commands.push(Command::clone(command));
        }
    }
    commands.push(Command::Commit(Box::new(plan)));
    for command in commands {
        for event in state.apply(command).unwrap() {
            shadow.apply(&event, &state);
        }
        shadow.check(&state, Time(50), &mut violations);
    }
    violations.into_list().into_iter().map(|broken| (broken.invariant, broken.message)).collect()
}

fn plan(reservation: Reservation, addresses: [u16; 2]) -> Plan {
    plan_taking(&TakenDevices::new(), reservation, addresses)
}

fn plan_taking(groups: &TakenDevices, reservation: Reservation, addresses: [u16; 2]) -> Plan {
    let group =
        longshore_model::GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
    let place = |index: u32, last: u16| {
        PlanItem::Place(Placement {
            key: SlotKey::Index(SlotIndex(index)).generation(Generation(1)),
            node: "a".into(),
            address: Ipv6Addr::new(0xfd4c, 0x6f6e, 0x6773, 1, 0, 0, 0, last),
            new_volumes: Vec::new(),
            devices: groups.clone(),
            reservation: None,
            moved: None,
        })
    };
    let items = vec![place(0, addresses[0]), place(1, addresses[1])];
    Plan { groups: vec![GroupPlan { group, reservation: Arc::new(reservation), items }], ..Plan::default() }
}

#[test]
fn two_replicas_too_many_break_every_rule_of_a_node() {
    let port = HostPort { protocol: Protocol::Tcp, port: 80 };
    let key = VolumeKey { namespace: NamespaceName::default_namespace(), name: "data".into() };
    let reservation = Reservation {
        memory_bytes: 600 << 20,
        disk_bytes: 5 << 30,
        devices: [("gpu".to_owned(), 1)].into(),
        host_ports: vec![port],
        volumes: vec![HeldVolume { key, sharing: Sharing::Exclusive }],
        ..Reservation::default()
    };
    let messages: Vec<String> =
        violations_of(plan(reservation, [1, 1])).iter().map(|(rule, message)| format!("{rule}: {message}")).collect();
    insta::assert_snapshot!(messages.join("\n"), @r"
    memory: a gives out 1200 MiB of 1 GiB
    disk: a gives out 10 GiB of 8 GiB of disk
    devices: a gives out 2 of 1 gpu
    host_ports: a has port 80/tcp taken by shop-web-0 g1 and shop-web-1 g1
    address: fd4c:6f6e:6773:1::1 belongs to shop-web-0 g1 and shop-web-1 g1
    volumes: shop-web-0 g1 holds data, which does not exist
    volumes: shop-web-1 g1 holds data, which does not exist
    volumes: data is held by shop-web-0 g1 and shop-web-1 g1
    max_per_node: a has 2 of shop-web, at most 1 are allowed
    ");
}

#[test]
fn more_addresses_than_a_node_holds_are_noticed() {
    let messages: Vec<String> = violations_of(plan(Reservation::default(), [1, 2]))
        .iter()
        .map(|(rule, message)| format!("{rule}: {message}"))
        .collect();
    insta::assert_snapshot!(messages.join("\n"), @r"
    address: a holds 2 of 1 addresses
    max_per_node: a has 2 of shop-web, at most 1 are allowed
    ");
}

#[test]
fn a_device_of_a_group_the_node_does_not_have_is_noticed() {
    let groups = TakenDevices::from([("acme/gpu/x".to_owned(), 1)]);
    let messages = violations_of(plan_taking(&groups, Reservation::default(), [1, 1]));
    assert!(messages.contains(&("devices", "a gives out 2 of 0 acme/gpu/x".to_owned())), "{messages:?}");
}

#[test]
fn a_placement_on_a_node_that_takes_no_work_is_noticed() {
    let scenario = Scenario::parse("x.yaml", CLUSTER).unwrap();
    let mut state = State::default();
    for node in &scenario.nodes {
        state.apply(Command::Join(Box::new(node.clone()))).unwrap();
    }
    assert_eq!(eligible::check(&state, &plan(Reservation::default(), [1, 2])), Vec::<String>::new());
    state.apply(Command::SetHealth { node: "a".into(), health: Health::Suspect, at: Time(1) }).unwrap();
    assert_eq!(eligible::check(&state, &plan(Reservation::default(), [1, 2])).len(), 2);
}

#[test]
fn a_service_that_nobody_decided_about_is_noticed() {
    let scenario = Scenario::parse("x.yaml", CLUSTER).unwrap();
    let mut state = State::default();
    for step in &scenario.steps {
        if let crate::scenario::Action::Command(command) = &step.action {
            state.apply(Command::clone(command)).unwrap();
        }
    }
    let mut violations = Violations::default();
    check_settled(&state, Time(1), &mut violations);
    let mut opened = plan(Reservation::default(), [1, 2]);
    opened.groups[0].items = vec![PlanItem::Open(SlotKey::Index(SlotIndex(0)))];
    state.apply(Command::Commit(Box::new(opened))).unwrap();
    check_settled(&state, Time(2), &mut violations);
    let messages: Vec<String> = violations.into_list().into_iter().map(|broken| broken.message).collect();
    insta::assert_snapshot!(messages.join("\n"), @r"
    shop-web has 0 slots, 2 are desired
    shop-web-0 has neither a node nor a reason
    shop-web has 1 slots, 2 are desired
    ");
}

#[test]
fn an_index_used_twice_is_noticed() {
    let group =
        longshore_model::GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
    let slot = SlotKey::Index(SlotIndex(3));
    assert_eq!(slot_index_unique::check(Some(&SlotIndex(2)), &group, &slot, SlotIndex(3)), None);
    insta::assert_snapshot!(slot_index_unique::check(Some(&SlotIndex(3)), &group, &slot, SlotIndex(3)).unwrap(), @"shop-web-3 is opened although index 3 was used before");
}

/// The state after the nodes and manifests of a scenario were applied, with nothing placed.
fn applied(text: &str) -> State {
    let scenario = Scenario::parse("x.yaml", text).unwrap();
    let mut state = State::default();
    for node in &scenario.nodes {
        state.apply(Command::Join(Box::new(node.clone()))).unwrap();
    }
    for step in &scenario.steps {
        if let crate::scenario::Action::Command(command) = &step.action {
            state.apply(Command::clone(command)).unwrap();
        }
    }
    state
}

/// Both replicas of the shop run on `a`.
fn running() -> State {
    let mut state = applied(CLUSTER);
    let spec_hash = state.groups().next().unwrap().1.spec.spec_hash.clone();
    state.apply(Command::Commit(Box::new(plan(Reservation { spec_hash, ..Reservation::default() }, [1, 2])))).unwrap();
    for index in [0, 1] {
        state.apply(seen_running(index)).unwrap();
    }
    state
}

fn seen_running(index: u32) -> Command {
    let group =
        longshore_model::GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
    Command::Observe(longshore_model::Observation {
        key: group.replica(&SlotKey::Index(SlotIndex(index)), Generation(1)),
        attempt: longshore_model::Attempt(0),
        placed_at: None,
        state: longshore_model::ReplicaState::Running,
        code: None,
        details: longshore_model::replica::Details::new(),
        at: Time(60),
    })
}

#[test]
fn a_drain_that_stops_what_nothing_replaces_is_noticed() {
    let mut state = running();
    let mut stop = plan(Reservation::default(), [1, 2]);
    stop.groups[0].items = vec![PlanItem::Stop(SlotKey::Index(SlotIndex(0)).generation(Generation(1)))];
    assert_eq!(drained::check(&state, &stop), Vec::<String>::new());
    let intent = longshore_model::Intent::Draining;
    state.apply(Command::SetIntent { node: "a".into(), intent, at: Time(70) }).unwrap();
    assert_eq!(drained::check(&state, &stop), ["shop-web-0 g1 is drained although nothing else of it runs"]);
}

#[test]
fn what_counts_on_a_lost_node_or_looks_alive_there_is_noticed() {
    let mut state = running();
    assert_eq!(evacuated::check(&state, Time(70)), Vec::<String>::new());
    state.apply(Command::SetHealth { node: "a".into(), health: Health::Down, at: Time(70) }).unwrap();
    let counted = ["shop-web-0 relies on a node that is down", "shop-web-1 relies on a node that is down"];
    assert_eq!(evacuated::check(&state, Time(70)), counted);
    assert_eq!(runs_on_lost_node::check(&state), Vec::<String>::new());
    state.apply(seen_running(0)).unwrap();
    assert_eq!(runs_on_lost_node::check(&state), ["shop-web-0 g1 should run on a, which is down"]);
}
