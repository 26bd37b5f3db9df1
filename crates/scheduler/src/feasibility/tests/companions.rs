//! `near` and `away_from` other services of the deployment.

use longshore_model::{
    PlacementSpec,
    service::{Companion, Strength},
};

use super::World;

const THREE: &[(&str, &str)] = &[("a", ""), ("b", ""), ("c", "")];

fn companion(service: &str, strength: Strength) -> Vec<Companion> {
    vec![Companion { service: service.into(), strength }]
}

fn near(service: &str, strength: Strength) -> PlacementSpec {
    PlacementSpec { near: companion(service, strength), ..PlacementSpec::default() }
}

fn away_from(service: &str, strength: Strength) -> PlacementSpec {
    PlacementSpec { away_from: companion(service, strength), ..PlacementSpec::default() }
}

#[test]
fn a_service_is_placed_with_the_one_it_must_be_near_in_the_same_pass() {
    let mut world = World::with_racks(THREE);
    // By name the cache would be placed first; it is placed after the database all the same.
    world.apply(&[("cache", 3, near("db", Strength::Hard)), ("db", 1, PlacementSpec::default())]);
    assert_eq!(world.nodes_of("db"), ["a"]);
    assert_eq!(world.nodes_of("cache"), ["a", "a", "a"]);
}

#[test]
fn a_service_waits_until_the_one_it_must_be_near_is_placed() {
    let mut world = World::with_racks(THREE);
    world.apply(&[("cache", 1, near("db", Strength::Hard)), ("db", 0, PlacementSpec::default())]);
    let why = "1 wait: affinity_unsatisfied; a has no replica of service db";
    assert_eq!(world.waiting("cache"), [why]);
    world.scale("db", 1);
    assert_eq!(world.nodes_of("cache"), world.nodes_of("db"));
}

#[test]
fn a_service_is_kept_away_from_another_placed_in_the_same_pass() {
    let mut world = World::with_racks(THREE);
    world.apply(&[("api", 4, away_from("db", Strength::Hard)), ("db", 2, PlacementSpec::default())]);
    assert_eq!(world.nodes_of("db"), ["a", "b"]);
    assert_eq!(world.nodes_of("api"), ["c"; 4]);
}

#[test]
fn a_service_that_must_keep_away_is_placed_once_the_other_is_gone() {
    let mut world = World::with_racks(THREE);
    world.apply(&[("api", 1, away_from("db", Strength::Hard)), ("db", 3, PlacementSpec::default())]);
    assert_eq!(world.nodes_of("api"), [""; 0]);
    world.scale("db", 2);
    assert_eq!(world.nodes_of("api"), ["c"]);
    world.apply(&[("api", 3, away_from("db", Strength::Hard))]);
    assert_eq!(world.nodes_of("api"), ["a", "b", "c"]);
}

#[test]
fn only_the_service_that_declares_away_from_is_kept_away() {
    let mut world = World::with_racks(&[("a", "")]);
    world.apply(&[("api", 1, away_from("db", Strength::Hard)), ("db", 0, PlacementSpec::default())]);
    world.scale("db", 1);
    assert_eq!((world.nodes_of("api"), world.nodes_of("db")), (vec!["a".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn two_services_that_keep_away_from_each_other_are_both_placed() {
    let mut world = World::with_racks(THREE);
    world.apply(&[("blue", 1, away_from("green", Strength::Hard)), ("green", 2, away_from("blue", Strength::Hard))]);
    assert_eq!(world.nodes_of("blue"), ["a"]);
    assert_eq!(world.nodes_of("green"), ["b", "c"]);
}

#[test]
fn a_preference_only_decides_between_nodes_that_rank_equal_otherwise() {
    let mut world = World::with_racks(THREE);
    world.apply(&[
        ("db", 1, PlacementSpec::default()),
        ("log", 1, near("db", Strength::Preferred(50))),
        ("web", 3, away_from("db", Strength::Preferred(50))),
    ]);
    assert_eq!(world.nodes_of("log"), world.nodes_of("db"));
    // Three replicas are still spread over three nodes, including the one with the database.
    assert_eq!(world.nodes_of("web"), ["a", "b", "c"]);
    world.apply(&[("db", 1, PlacementSpec::default()), ("one", 1, away_from("db", Strength::Preferred(1)))]);
    assert_eq!(world.nodes_of("one"), ["b"]);
}

#[test]
fn a_replica_whose_companion_is_gone_stays() {
    let mut world = World::with_racks(THREE);
    world.apply(&[("cache", 1, near("db", Strength::Hard)), ("db", 1, PlacementSpec::default())]);
    world.scale("db", 0);
    world.finish_stopping();
    assert_eq!(world.nodes_of("cache"), ["a"]);
}

#[test]
fn a_service_that_names_itself_is_still_placed() {
    let mut world = World::with_racks(THREE);
    let mut placement = near("web", Strength::Hard);
    placement.away_from = companion("web", Strength::Hard);
    world.apply(&[("web", 4, placement)]);
    assert_eq!(world.nodes_of("web"), ["a", "b", "c"]);
    assert_eq!(world.waiting("web").len(), 1);
}
