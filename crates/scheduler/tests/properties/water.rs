//! A batch fills like water, from any start.
//!
//! Between sibling branches, and between nodes of one branch: what this batch put into the fuller one could not have
//! gone to the emptier one and left both more level. Nodes the service keeps failing on take only what no other can.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{Command, Event, Intent, Node, NodeName, ServiceSpec, Strategy as PlacementStrategy};
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};

use super::{
    ledger::{Ledger, terms},
    rules::{Question, attribute},
    services::{counted, group_key},
    shapes::{NODES, Terse, node, node_name, preferences},
    world::{World, placements},
};
use crate::cases::cases;

/// What a node has done to the service before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Sound,
    /// One failure short of faulty.
    Shaky,
    Faulty,
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![6 => Just(Record::Sound), 1 => Just(Record::Shaky), 2 => Just(Record::Faulty)]
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn a_batch_levels_branches_and_nodes_from_any_start(
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
        // What has data does not come in batches.
        Arc::make_mut(&mut spec.0).mounts.clear();
        Arc::make_mut(&mut spec.0).replicas = u32::try_from(start.len()).unwrap_or(0) + more;

        let mut world = World::default();
        let key = group_key("shop", "web");
        for (name, (node, _, _)) in &nodes {
            world.join(*name, &node.0);
        }
        world.apply("shop", &vec![(2, spec.clone())]);
        let start = possible_start(&world, &spec.0, &start);
        world.put_by_hand(&key, &Arc::new(terms(&spec.0, world.state.config())), &start);
        for (name, (_, record, paused)) in &nodes {
            let failures = match record { Record::Sound => 0, Record::Shaky => 4, Record::Faulty => 5 };
            for _ in 0..failures {
                world.view.apply(&Event::FailureCounted { group: key.clone(), node: node_name(*name), at: world.now });
            }
            if *paused {
                world.tell(Command::SetIntent { node: node_name(*name), intent: Intent::Paused, at: world.now });
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

/// The part of a wished start that the nodes could have come to carry.
fn possible_start(world: &World, spec: &ServiceSpec, wished: &[u8]) -> Vec<NodeName> {
    let key = group_key("shop", "web");
    let mut ledger = Ledger::of(&world.state, world.now);
    let terms = terms(spec, world.state.config());
    let mut start = Vec::new();
    for name in wished {
        let Some(node) = world.state.node(&node_name(*name)) else { continue };
        if (Question { state: &world.state, ledger: &ledger, key: &key, spec }).fits(node) {
            ledger.book(&key, &longshore_model::SlotKey::Node(node.name.clone()), node, &terms);
            start.push(node.name.clone());
        }
    }
    start
}

fn check(world: &World, spec: &ServiceSpec, batch: &BTreeMap<NodeName, u64>, faulty: &[NodeName]) {
    let key = group_key("shop", "web");
    let ledger = Ledger::of(&world.state, world.now);
    let question = Question { state: &world.state, ledger: &ledger, key: &key, spec };
    let open: Vec<&Node> = world
        .state
        .nodes()
        .map(|node| &**node)
        .filter(|node| !faulty.contains(&node.name) && question.fits(node))
        .collect();
    let forced = batch.keys().any(|node| faulty.contains(node));
    assert!(!forced || open.is_empty(), "a faulty node was used while others had room");

    let levels = &spec.placement.preferences;
    let path = |node: &Node| -> Vec<Option<String>> { levels.iter().map(|level| attribute(level, node)).collect() };
    for depth in 0..=levels.len() {
        // The last step down is from the innermost branch to the node itself.
        let branch = |node: &Node| match path(node) {
            whole if depth == levels.len() => (whole, Some(node.name.clone())),
            mut whole => {
                whole.truncate(depth + 1);
                (whole, None)
            }
        };
        let mut totals: BTreeMap<_, u64> = BTreeMap::new();
        for node in world.state.nodes() {
            *totals.entry(branch(node)).or_default() += ledger.slots(&key, &node.name);
        }
        let given = world.state.nodes().filter(|node| batch.contains_key(&node.name));
        for (fuller, emptier) in given.flat_map(|fuller| open.iter().map(move |emptier| (fuller, *emptier))) {
            let siblings = path(fuller)[..depth] == path(emptier)[..depth];
            let (full, empty) = (totals[&branch(fuller)], totals[&branch(emptier)]);
            assert!(
                !siblings || full <= empty + 1,
                "depth {depth}: {} has {full}, {} only {empty} and room",
                fuller.name,
                emptier.name
            );
        }
    }
}
