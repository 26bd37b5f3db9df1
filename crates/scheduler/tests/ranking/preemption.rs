//! Preemption: a service of higher priority displaces replicas of lower priority.

use longshore_model::{
    Command, PlacementSpec, PlanItem, ServiceKind, ServiceSpec, SlotKey, Strategy,
    service::{Batching, Companion, Strength},
};

use super::cluster::{Cluster, key, node, of_priority, service, with_data};

fn plain(replicas: u32, memory: u64) -> ServiceSpec {
    service(replicas, 0, memory, PlacementSpec::default())
}

fn placed(replicas: u32, memory: u64, placement: PlacementSpec) -> ServiceSpec {
    service(replicas, 0, memory, placement)
}

/// Nodes with this memory each, named a, b, …
fn cluster(memory: &[u64]) -> Cluster {
    let names = ["a", "b", "c", "d"];
    let mut cluster = Cluster::of(memory.iter().zip(names).map(|(memory, name)| node(name, 4000, *memory, &[])));
    cluster.allow_preemption();
    cluster
}

fn stops(plan: &longshore_model::Plan) -> usize {
    let items = plan.groups.iter().flat_map(|group| &group.items);
    items.filter(|item| matches!(item, PlanItem::Stop(_) | PlanItem::Close(_))).count()
}

#[test]
fn without_the_setting_nothing_is_displaced() {
    let mut cluster = Cluster::of([node("a", 4000, 1000, &[])]);
    cluster.apply(&[("low", of_priority(0, plain(1, 1000)))]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(100, plain(1, 1000))), ("low", of_priority(0, plain(1, 1000)))]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("low"), ["a"]);
    assert_eq!(cluster.waiting("high"), ["1 wait: no_capacity_memory"]);
}

#[test]
fn a_higher_priority_takes_the_node_and_the_displaced_replica_waits_with_a_reason() {
    let mut cluster = cluster(&[1000]);
    cluster.apply(&[("low", of_priority(40, plain(1, 1000)))]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(50, plain(1, 1000))), ("low", of_priority(40, plain(1, 1000)))]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("high"), ["a"]);
    assert_eq!(cluster.nodes_of("low"), [""; 0]);
    assert_eq!(cluster.waiting("low"), ["1 wait: no_capacity_memory"]);
}

#[test]
fn a_displaced_replica_moves_to_a_node_with_capacity() {
    let mut cluster = cluster(&[1000, 400]);
    cluster.apply(&[("low", of_priority(0, plain(1, 400)))]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(50, plain(1, 1000))), ("low", of_priority(0, plain(1, 400)))]);
    cluster.settle();
    assert_eq!((cluster.nodes_of("high"), cluster.nodes_of("low")), (vec!["a".to_owned()], vec!["b".to_owned()]));
}

#[test]
fn a_priority_difference_of_nine_is_not_enough() {
    let mut cluster = cluster(&[1000]);
    cluster.apply(&[("low", of_priority(41, plain(1, 1000)))]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(50, plain(1, 1000))), ("low", of_priority(41, plain(1, 1000)))]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("low"), ["a"]);
}

#[test]
fn a_stateful_replica_is_never_displaced() {
    let mut cluster = cluster(&[1000]);
    cluster.apply(&[("low", with_data(of_priority(0, plain(1, 1000))))]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(100, plain(1, 1000))), ("low", with_data(of_priority(0, plain(1, 1000))))]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("low"), ["a"]);
}

#[test]
fn one_large_victim_is_preferred_to_two_small_ones() {
    let mut cluster = cluster(&[1000, 1000]);
    let small = || of_priority(0, plain(2, 500));
    let large = || of_priority(9, plain(1, 1000));
    cluster.apply(&[("large", large()), ("small", small())]);
    cluster.put("large", &["b"]);
    cluster.put("small", &["a", "a"]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(50, plain(1, 800))), ("large", large()), ("small", small())]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("small"), ["a", "a"]);
    assert_eq!(cluster.nodes_of("high"), ["b"]);
}

#[test]
fn while_victims_stop_no_others_are_chosen() {
    let mut cluster = cluster(&[1000, 1000]);
    let low = || of_priority(0, plain(2, 1000));
    cluster.apply(&[("low", low())]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(50, plain(1, 1000))), ("low", low())]);
    assert_eq!(stops(&cluster.decide()), 1);
    for _ in 0..5 {
        assert_eq!(stops(&cluster.decide()), 0);
    }
    cluster.settle();
    assert_eq!((cluster.nodes_of("high").len(), cluster.nodes_of("low").len()), (1, 1));
}

#[test]
fn the_capacity_of_one_victim_is_reserved_until_the_other_has_stopped_too() {
    // The new service needs the capacity of both; if the first were given away again, it would never be placed.
    let mut cluster = cluster(&[1000]);
    let low = || of_priority(0, plain(2, 500));
    cluster.apply(&[("low", low())]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(50, plain(1, 1000))), ("low", low())]);
    cluster.decide_all();
    assert!(cluster.stop_one(0));
    cluster.decide_all();
    assert_eq!(cluster.nodes_of("low"), [""; 0]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("high"), ["a"]);
}

#[test]
fn capacity_reserved_for_a_removed_service_is_released() {
    let mut cluster = cluster(&[1000]);
    let low = || of_priority(0, plain(2, 500));
    cluster.apply(&[("low", low())]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(50, plain(1, 1000))), ("low", low())]);
    cluster.decide_all();
    assert!(cluster.stop_one(0));
    cluster.decide_all();
    cluster.apply(&[("low", low())]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("low"), ["a", "a"]);
}

#[test]
fn replicas_that_stop_anyway_are_used_before_victims_are_chosen() {
    let mut cluster = cluster(&[1000]);
    cluster.apply(&[("gone", of_priority(0, plain(1, 500))), ("low", of_priority(0, plain(1, 500)))]);
    cluster.settle();
    cluster.apply(&[("high", of_priority(50, plain(1, 500))), ("low", of_priority(0, plain(1, 500)))]);
    cluster.settle();
    assert_eq!((cluster.nodes_of("high").len(), cluster.nodes_of("low").len()), (1, 1));
}

#[test]
fn a_victim_that_would_not_help_is_not_chosen() {
    // The first replica of the new service takes the free half of b. Hosts must be distinct and a is full of a stateful
    // service, so displacing the replica on b would not help the second one.
    let mut cluster = cluster(&[1000, 1000]);
    let data = || with_data(of_priority(0, plain(1, 1000)));
    let low = || of_priority(0, plain(1, 500));
    cluster.apply(&[("data", data()), ("low", low())]);
    cluster.put("data", &["a"]);
    cluster.put("low", &["b"]);
    cluster.settle();
    let apart = PlacementSpec { distinct_hosts: true, ..PlacementSpec::default() };
    cluster.apply(&[("data", data()), ("high", of_priority(50, placed(2, 500, apart))), ("low", low())]);
    cluster.settle();
    assert_eq!((cluster.nodes_of("high"), cluster.nodes_of("low")), (vec!["b".to_owned()], vec!["b".to_owned()]));
}

#[test]
fn pinned_hosts_displace_nothing_unless_all_hosts_can_be_used() {
    let mut cluster = cluster(&[1000, 1000]);
    let low = || of_priority(0, plain(2, 1000));
    cluster.apply(&[("low", low())]);
    cluster.settle();
    let pinned = |hosts: &[&str]| PlacementSpec {
        strategy: Strategy::Hosts,
        hosts: hosts.iter().map(|host| (*host).into()).collect(),
        ..PlacementSpec::default()
    };
    cluster.apply(&[("high", of_priority(50, placed(2, 1000, pinned(&["a", "missing"])))), ("low", low())]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("low"), ["a", "b"]);
    cluster.apply(&[("high", of_priority(50, placed(2, 1000, pinned(&["a", "b"])))), ("low", low())]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("high"), ["a", "b"]);
}

#[test]
fn an_all_or_nothing_batch_displaces_only_if_all_of_it_fits() {
    let mut cluster = cluster(&[1000, 1000]);
    let low = || of_priority(0, plain(2, 1000));
    cluster.apply(&[("low", low())]);
    cluster.settle();
    let whole = || PlacementSpec { batching: Batching::AllOrNothing, ..PlacementSpec::default() };
    cluster.apply(&[("high", of_priority(50, placed(3, 1000, whole()))), ("low", low())]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("low"), ["a", "b"]);
    cluster.apply(&[("high", of_priority(50, placed(2, 1000, whole()))), ("low", low())]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("high"), ["a", "b"]);
}

#[test]
fn a_service_does_not_displace_the_companion_it_must_be_near() {
    let mut cluster = cluster(&[1000]);
    let low = || of_priority(0, plain(1, 1000));
    cluster.apply(&[("low", low())]);
    cluster.settle();
    let near = vec![Companion { service: "low".into(), strength: Strength::Hard }];
    let beside = PlacementSpec { near, ..PlacementSpec::default() };
    cluster.apply(&[("high", of_priority(50, placed(1, 500, beside))), ("low", low())]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("low"), ["a"]);
}

#[test]
fn victims_are_chosen_only_where_the_skew_allows_a_placement() {
    let nodes = [("a", "1", 1000), ("b", "2", 1000)];
    let mut cluster = Cluster::of(nodes.map(|(name, zone, memory)| node(name, 4000, memory, &[("zone", zone)])));
    cluster.allow_preemption();
    let data = || with_data(of_priority(0, plain(1, 1000)));
    let low = || of_priority(0, plain(1, 500));
    cluster.apply(&[("data", data()), ("low", low())]);
    cluster.put("data", &["a"]);
    cluster.put("low", &["b"]);
    cluster.settle();
    // Zone 1 stays full of a stateful service, so zone 2 may have only one; displacing others there would not help.
    let level = PlacementSpec {
        preferences: vec![longshore_model::Attribute::Label("zone".to_owned())],
        max_skew: Some(1),
        ..PlacementSpec::default()
    };
    cluster.apply(&[("data", data()), ("high", of_priority(50, placed(2, 500, level))), ("low", low())]);
    cluster.settle();
    assert_eq!((cluster.nodes_of("high"), cluster.nodes_of("low")), (vec!["b".to_owned()], vec!["b".to_owned()]));
    assert_eq!(cluster.waiting("high"), ["1 wait: no_capacity_memory"]);
}

#[test]
fn a_global_replica_displaces_lower_priorities_on_its_own_node_only() {
    let mut cluster = cluster(&[1000, 1000, 1000]);
    let low = of_priority(0, placed(2, 800, PlacementSpec { distinct_hosts: true, ..PlacementSpec::default() }));
    cluster.apply(&[("low", low.clone())]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("low"), ["a", "b"]);
    let global = PlacementSpec { strategy: Strategy::Global, ..PlacementSpec::default() };
    let agent = ServiceSpec { kind: ServiceKind::System, ..of_priority(50, placed(1, 300, global)) };
    cluster.apply(&[("agent", agent), ("low", low)]);
    let plan = cluster.decide();
    assert_eq!(stops(&plan), 2, "one on a and one on b: {plan:#?}");
    cluster.settle();
    assert_eq!(cluster.nodes_of("agent"), ["a", "b", "c"]);
    assert_eq!(cluster.nodes_of("low"), [""; 0], "no node has 800 beside 300");
    assert_eq!(cluster.waiting("low"), ["2 wait: no_capacity_memory"]);
    let at_home = |slot: &longshore_model::Slot| {
        slot.replicas.iter().all(|replica| slot.key == SlotKey::Node(replica.assignment.node.clone()))
    };
    assert!(cluster.state.group(&key("agent")).expect("it was applied").slots.values().all(at_home));
}

#[test]
fn a_service_beyond_its_quota_displaces_nothing() {
    let mut cluster = cluster(&[1000]);
    let low = || of_priority(0, plain(1, 1000));
    cluster.apply(&[("low", low())]);
    cluster.settle();
    let quota = longshore_model::command::Quota { replicas: Some(1), ..Default::default() };
    cluster.run(Command::SetQuota { namespace: key("low").namespace, quota });
    cluster.apply(&[("high", of_priority(50, plain(1, 1000))), ("low", low())]);
    cluster.settle();
    assert_eq!(cluster.nodes_of("low"), ["a"]);
}
