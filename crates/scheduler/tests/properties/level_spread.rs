//! A batch levels the spread tree, from any initial placement.
//!
//! Between sibling branches, and between nodes of one branch: no replica of the batch could have gone to the emptier
//! one and left the two more even. Faulty nodes receive only replicas that no other node can take.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{Command, Event, Intent, Node, NodeName, ServiceSpec, Strategy as PlacementStrategy};
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};

use super::{
    random_nodes::{NODES, Terse, node, node_name, preferences},
    random_services::{counted, group_key},
    reference_filters::{ReferenceFilters, attribute},
    reference_usage::{ReferenceUsage, reservation},
    world::{World, placements},
};
use crate::proptest_config::cases;

/// How often the service failed on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Healthy,
    /// One failure short of faulty.
    AlmostFaulty,
    Faulty,
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![6 => Just(Record::Healthy), 1 => Just(Record::AlmostFaulty), 2 => Just(Record::Faulty)]
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn a_batch_levels_branches_and_nodes_from_any_initial_placement(
        nodes in btree_map(0..NODES, (node().prop_map(Box::new).prop_map(Terse), record(), prop::bool::weighted(0.15)), 1..9),
        spec in counted().prop_map(Terse),
        levels in preferences(),
        start in vec(0..NODES, 0..12),
        more in 0_u32..16,
    ) {
        let mut spec = spec;
        let placement = &mut Arc::make_mut(&mut spec.0).placement;
        placement.strategy = PlacementStrategy::Spread;
        placement.preferences = levels;
        // A service with data has one replica, so mounts are dropped.
        Arc::make_mut(&mut spec.0).mounts.clear();
        Arc::make_mut(&mut spec.0).replicas = u32::try_from(start.len()).unwrap_or(0) + more;

        let mut world = World::default();
        let key = group_key("shop", "web");
        for (name, (node, _, _)) in &nodes {
            world.join(*name, &node.0);
        }
        world.apply("shop", &vec![(2, spec.clone())]);
        let start = fitting_start(&world, &spec.0, &start);
        world.commit_placements(&key, &Arc::new(reservation(&spec.0, world.state.config())), &start);
        for (name, (_, record, paused)) in &nodes {
            let failures = match record { Record::Healthy => 0, Record::AlmostFaulty => 4, Record::Faulty => 5 };
            for _ in 0..failures {
                world.view.apply(&Event::FailureCounted { group: key.clone(), node: node_name(*name), at: world.now });
            }
            if *paused {
                world.run(Command::SetIntent { node: node_name(*name), intent: Intent::Paused, at: world.now });
            }
        }
        let (plan, _) = world.decide();
        let mut batch: BTreeMap<NodeName, u64> = BTreeMap::new();
        for node in placements(&plan, &key).into_values() {
            *batch.entry(node).or_default() += 1;
        }
        let faulty = nodes.iter().filter(|(_, (_, record, _))| *record == Record::Faulty);
        let faulty: Vec<NodeName> = faulty.map(|(name, _)| node_name(*name)).collect();
        check(&world, &spec.0, &batch, &faulty);
    }
}

/// Those initial placements that fit their nodes.
fn fitting_start(world: &World, spec: &ServiceSpec, requested: &[u8]) -> Vec<NodeName> {
    let key = group_key("shop", "web");
    let mut usage = ReferenceUsage::of(&world.state, world.now);
    let reservation = reservation(spec, world.state.config());
    let mut start = Vec::new();
    for name in requested {
        let Some(node) = world.state.node(&node_name(*name)) else { continue };
        if (ReferenceFilters { state: &world.state, usage: &usage, key: &key, spec }).fits(node) {
            usage.book(&key, &longshore_model::SlotKey::Node(node.name.clone()), node, &reservation);
            start.push(node.name.clone());
        }
    }
    start
}

fn check(world: &World, spec: &ServiceSpec, batch: &BTreeMap<NodeName, u64>, faulty: &[NodeName]) {
    let key = group_key("shop", "web");
    let usage = ReferenceUsage::of(&world.state, world.now);
    let reference = ReferenceFilters { state: &world.state, usage: &usage, key: &key, spec };
    let open: Vec<&Node> = world
        .state
        .nodes()
        .map(|node| &**node)
        .filter(|node| !faulty.contains(&node.name) && reference.fits(node))
        .collect();
    let forced = batch.keys().any(|node| faulty.contains(node));
    assert!(!forced || open.is_empty(), "a faulty node was used while others had capacity");

    let levels = &spec.placement.preferences;
    let path = |node: &Node| -> Vec<Option<String>> { levels.iter().map(|level| attribute(level, node)).collect() };
    for depth in 0..=levels.len() {
        // The last level is the node itself.
        let branch = |node: &Node| match path(node) {
            whole if depth == levels.len() => (whole, Some(node.name.clone())),
            mut whole => {
                whole.truncate(depth + 1);
                (whole, None)
            }
        };
        let mut totals: BTreeMap<_, u64> = BTreeMap::new();
        for node in world.state.nodes() {
            *totals.entry(branch(node)).or_default() += usage.slots(&key, &node.name);
        }
        let given = world.state.nodes().filter(|node| batch.contains_key(&node.name));
        for (fuller, emptier) in given.flat_map(|fuller| open.iter().map(move |emptier| (fuller, *emptier))) {
            let siblings = path(fuller)[..depth] == path(emptier)[..depth];
            let (full, empty) = (totals[&branch(fuller)], totals[&branch(emptier)]);
            assert!(
                !siblings || full <= empty + 1,
                "depth {depth}: {} has {full}, {} only {empty} and capacity",
                fuller.name,
                emptier.name
            );
        }
    }
}
