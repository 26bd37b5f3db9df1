//! Distinct hosts and distinct properties.

use longshore_model::{
    Attribute, Constraint, Operator, PlacementSpec, Strategy,
    service::{DistinctHosts, DistinctProperty},
};

use super::World;

fn racks(limit: u32) -> PlacementSpec {
    let attribute = Attribute::Label("rack".to_owned());
    PlacementSpec { distinct_property: vec![DistinctProperty { attribute, limit }], ..PlacementSpec::default() }
}

const FIVE: &[(&str, &str)] = &[("a1", "r1"), ("a2", "r1"), ("b1", "r2"), ("b2", "r2"), ("c", "")];

#[test]
fn one_more_replica_than_hosts_waits() {
    let mut world = World::with_racks(&[("a", ""), ("b", "")]);
    let placement = PlacementSpec { distinct_hosts: DistinctHosts::Yes, ..PlacementSpec::default() };
    world.apply(&[("web", 3, placement)]);
    assert_eq!(world.nodes_of("web"), ["a", "b"]);
    assert_eq!(world.waiting("web"), ["1 wait: distinct_hosts; a has one already"]);
    world.join("c", "");
    assert_eq!(world.nodes_of("web"), ["a", "b", "c"]);
}

#[test]
fn replicas_of_other_services_do_not_make_a_host_less_distinct() {
    let mut world = World::with_racks(&[("a", ""), ("b", "")]);
    let placement = PlacementSpec { distinct_hosts: DistinctHosts::Yes, ..PlacementSpec::default() };
    world.apply(&[("api", 4, PlacementSpec::default()), ("web", 2, placement)]);
    assert_eq!(world.nodes_of("web"), ["a", "b"]);
}

#[test]
fn a_rack_takes_so_many_and_a_node_without_a_rack_takes_none() {
    let mut world = World::with_racks(FIVE);
    world.apply(&[("web", 3, racks(1))]);
    assert_eq!(world.nodes_of("web"), ["a1", "b1"]);
    let why = "1 wait: distinct_property; a1 has node.labels.rack r1, already used 1 times";
    assert_eq!(world.waiting("web"), [why]);
}

#[test]
fn the_limit_counts_the_batch_and_what_was_there_before() {
    for strategy in [Strategy::Spread, Strategy::Pack, Strategy::Binpack, Strategy::Hash] {
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
fn pinned_hosts_are_placed_whole_or_not_at_all_within_the_limit_too() {
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
fn a_slot_that_is_leaving_frees_its_value_at_once() {
    let mut world = World::with_racks(&[("a", "r1"), ("b", "r2")]);
    world.apply(&[("web", 2, racks(1))]);
    // One of two goes and the other must leave its rack: it takes the rack of the one that goes, which still runs there.
    let mut second_rack = racks(1);
    second_rack.constraints = vec![Constraint {
        attribute: Attribute::Label("rack".to_owned()),
        operator: Operator::Equal,
        value: "r2".to_owned(),
    }];
    world.apply(&[("web", 1, second_rack)]);
    assert_eq!(world.nodes_of("web"), ["b"]);
}
