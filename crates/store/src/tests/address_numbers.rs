//! Blocks of nodes and VIPs of services: the lowest free number, an hour of rest, and older states as they were.

use longshore_model::{NodeNetwork, address_plan::LARGEST_IPV4_HOST, node::NodeFingerprint};

use super::*;

const HOUR: u64 = 3_600_000;

fn joining(name: &str, at: u64) -> Command {
    Command::Join(Box::new(Node { joined_at: Some(Time(at)), ..node(name) }))
}

fn leaving(name: &str, at: u64) -> Command {
    Command::SetIntent { node: name.into(), intent: Intent::Removed, at: Time(at) }
}

fn block(state: &State, name: &str) -> u32 {
    state.node(&name.into()).unwrap().address_block()
}

fn vip(state: &State, deployment: &str, service: &str) -> Option<u32> {
    state.group(&group(deployment, service)).unwrap().vip
}

#[test]
fn a_block_rests_for_an_hour_after_its_node_left() {
    let mut state = State::default();
    for name in ["a", "b", "c"] {
        state.apply(joining(name, 1)).unwrap();
    }
    assert_eq!(["a", "b", "c"].map(|name| block(&state, name)), [1, 2, 3]);
    state.apply(leaving("b", 1000)).unwrap();
    state.apply(joining("b", 2000)).unwrap();
    assert_eq!(block(&state, "b"), 4, "caches may still hold addresses of block 2");
    state.apply(joining("d", 1000 + HOUR)).unwrap();
    assert_eq!(block(&state, "d"), 2);
}

#[test]
fn a_node_that_returns_on_new_hardware_keeps_its_block() {
    let mut state = State::default();
    state.apply(joining("a", 1)).unwrap();
    state.apply(joining("b", 1)).unwrap();
    state.apply(Command::SetHealth { node: "a".into(), health: Health::Down, at: Time(5) }).unwrap();
    state.apply(joining("a", 9)).unwrap();
    assert_eq!(block(&state, "a"), 1);
}

#[test]
fn a_join_without_a_time_has_its_number_as_block() {
    let mut state = State::default();
    for name in ["a", "b"] {
        state.apply(Command::Join(Box::new(node(name)))).unwrap();
    }
    state.apply(leaving("a", 1000)).unwrap();
    state.apply(Command::Join(Box::new(node("c")))).unwrap();
    assert_eq!(["b", "c"].map(|name| block(&state, name)), [2, 3], "as replicas of before were placed");
}

#[test]
fn what_exists_is_numbered_once_a_node_joins_that_knows_of_blocks() {
    let mut state = State::default();
    for name in ["a", "b", "c"] {
        state.apply(Command::Join(Box::new(node(name)))).unwrap();
    }
    state.apply(leaving("b", 1000)).unwrap();
    state.apply(apply("shop", &[("web", replicas(1))])).unwrap();
    state.apply(apply("blog", &[("web", replicas(1))])).unwrap();
    assert_eq!(vip(&state, "shop", "web"), None);
    state.apply(joining("d", 2000)).unwrap();
    assert_eq!(["a", "c", "d"].map(|name| block(&state, name)), [1, 3, 4], "2 rests");
    assert_eq!([vip(&state, "blog", "web"), vip(&state, "shop", "web")], [Some(1), Some(2)]);
}

#[test]
fn a_node_with_an_ipv4_block_has_as_many_addresses_as_that() {
    let mut state = State::default();
    state.apply(joining("a", 1)).unwrap();
    assert_eq!(state.node(&"a".into()).unwrap().capacity.addresses, None, "its replicas have none yet");
    let survey = |gives_addresses| NodeFingerprint {
        platform: longshore_model::Platform::default(),
        capacity: longshore_model::Capacity::default(),
        drivers: std::collections::BTreeSet::new(),
        engine_labels: std::collections::BTreeMap::new(),
        plugins: std::collections::BTreeSet::new(),
        flags: longshore_model::NodeAttributes::default(),
        network: Some(NodeNetwork {
            gives_addresses,
            reach: longshore_model::node::Overlay::Unreachable,
            ..NodeNetwork::default()
        }),
    };
    let refresh = |gives| Command::Refresh { node: "a".into(), fingerprint: Box::new(survey(gives)) };
    state.apply(refresh(true)).unwrap();
    let known = state.node(&"a".into()).unwrap();
    assert_eq!(known.capacity.addresses, Some(LARGEST_IPV4_HOST));
    assert_eq!(known.overlay, longshore_model::node::Overlay::Unreachable);
    assert!(state.apply(refresh(true)).unwrap().is_empty(), "only a change is committed");
}

#[test]
fn a_service_keeps_its_vip_and_one_without_networks_has_none() {
    let mut state = State::default();
    state.apply(joining("n", 1)).unwrap();
    let mut host = replicas(1);
    host.container.namespaces.network = Some("host".to_owned());
    state.apply(apply("shop", &[("api", replicas(1)), ("probe", host), ("web", replicas(1))])).unwrap();
    assert_eq!(["api", "probe", "web"].map(|name| vip(&state, "shop", name)), [Some(1), None, Some(2)]);
    state.apply(apply("shop", &[("web", replicas(3))])).unwrap();
    assert_eq!(vip(&state, "shop", "web"), Some(2));
    state.apply(apply("blog", &[("web", replicas(1))])).unwrap();
    assert_eq!(vip(&state, "blog", "web"), Some(3), "1 rests");
    // Time passes with any command that has one.
    state.apply(joining("a", HOUR + 1)).unwrap();
    state.apply(apply("wiki", &[("web", replicas(1))])).unwrap();
    assert_eq!(vip(&state, "wiki", "web"), Some(1));
}
