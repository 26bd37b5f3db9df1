//! `distinct_hosts` and `distinct_property`.

use longshore_model::{Attribute, Constraint, Operator, PlacementSpec, Strategy, service::DistinctProperty};

use super::World;

fn racks(limit: u32) -> PlacementSpec {
    let attribute = Attribute::Label("rack".to_owned());
    PlacementSpec { distinct_property: vec![DistinctProperty { attribute, limit }], ..PlacementSpec::default() }
}

const FIVE: &[(&str, &str)] = &[("a1", "r1"), ("a2", "r1"), ("b1", "r2"), ("b2", "r2"), ("c", "")];

#[test]
fn one_more_replica_than_hosts_waits() {
    let mut world = World::with_racks(&[("a", ""), ("b", "")]);
    let placement = PlacementSpec { distinct_hosts: true, ..PlacementSpec::default() };
    world.apply(&[("web", 3, placement)]);
    assert_eq!(world.nodes_of("web"), ["a", "b"]);
    assert_eq!(world.waiting("web"), ["1 wait: distinct_hosts; a has one already"]);
    world.join("c", "");
    assert_eq!(world.nodes_of("web"), ["a", "b", "c"]);
}

#[test]
fn distinct_hosts_ignores_replicas_of_other_services() {
    let mut world = World::with_racks(&[("a", ""), ("b", "")]);
    let placement = PlacementSpec { distinct_hosts: true, ..PlacementSpec::default() };
    world.apply(&[("api", 4, PlacementSpec::default()), ("web", 2, placement)]);
    assert_eq!(world.nodes_of("web"), ["a", "b"]);
}

#[test]
fn a_rack_takes_its_limit_and_a_node_without_a_rack_takes_none() {
    let mut world = World::with_racks(FIVE);
    world.apply(&[("web", 3, racks(1))]);
    assert_eq!(world.nodes_of("web"), ["a1", "b1"]);
    let why = "1 wait: distinct_property; a1 has node.labels.rack r1, already used 1 times";
    assert_eq!(world.waiting("web"), [why]);
}

#[test]
fn the_limit_counts_the_batch_and_existing_replicas() {
    for strategy in [Strategy::Spread, Strategy::LeastLoaded, Strategy::Binpack, Strategy::Hash] {
        let mut world = World::with_racks(FIVE);
        let placement = PlacementSpec { strategy, ..racks(2) };
        world.apply(&[("web", 3, placement)]);
        world.scale("web", 6);
        let nodes = world.nodes_of("web");
        let on = |rack: char| nodes.iter().filter(|node| node.starts_with(rack)).count();
        assert_eq!((on('a'), on('b'), on('c')), (2, 2, 0), "{}: {nodes:?}", strategy.as_str());
    }
}

#[test]
fn pinned_hosts_place_all_or_nothing_within_the_limit_too() {
    let mut world = World::with_racks(FIVE);
    let hosts = ["a1", "a2", "b1"].into_iter().map(Into::into).collect();
    let placement = PlacementSpec { strategy: Strategy::Hosts, hosts, ..racks(1) };
    world.apply(&[("web", 2, placement.clone())]);
    assert_eq!(world.nodes_of("web"), ["a1", "b1"]);
    let mut world = World::with_racks(FIVE);
    world.apply(&[("web", 3, placement)]);
    assert_eq!(world.nodes_of("web"), [""; 0]);
}

#[test]
fn a_stopping_slot_frees_its_value_at_once() {
    let mut world = World::with_racks(&[("a", "r1"), ("b", "r2")]);
    world.apply(&[("web", 2, racks(1))]);
    // One of two stops and the other must leave its rack: it takes the rack of the stopping one, which still runs
    // there.
    let mut second_rack = racks(1);
    second_rack.constraints = vec![Constraint {
        attribute: Attribute::Label("rack".to_owned()),
        operator: Operator::Equal,
        value: "r2".to_owned(),
    }];
    world.apply(&[("web", 1, second_rack)]);
    assert_eq!(world.nodes_of("web"), ["b"]);
}
