//! Who should run it, written a second time: replicas are placed one at a time, each on the node with the smallest
//! tuple of the specification's table, with every sum taken anew. The scheduler must agree to the last slot.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    Command, Event, GroupKey, Intent, Node, NodeName, ServiceSpec, SlotIndex, SlotKey, Strategy as PlacementStrategy,
};
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};

use super::{
    ledger::{Ledger, terms},
    rules::{Question, attribute, holds},
    services::{DEPLOYMENTS, SERVICES, counted, group_key},
    shapes::{NODES, Terse, node, node_name},
    world::{World, placements},
};
use crate::cases::cases;

/// A service, by position in [`DEPLOYMENTS`] and [`SERVICES`].
type Which = (usize, usize);

/// Machines, services with the start they are given by hand, and pairs of service and node that do not get along.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    nodes: BTreeMap<u8, (Terse<Box<Node>>, Intent)>,
    services: BTreeMap<Which, (Terse<Arc<ServiceSpec>>, Vec<u8>)>,
    feuds: Vec<(Which, u8)>,
}

/// A cluster whose services have all just been asked for.
pub(super) fn fresh() -> impl Strategy<Value = Fresh> {
    let intent = prop_oneof![9 => Just(Intent::Active), 1 => Just(Intent::Paused)];
    let which = || (0..DEPLOYMENTS.len(), 0..SERVICES.len());
    let start = prop_oneof![3 => Just(Vec::new()), 1 => vec(0..NODES, 0..5)];
    let nodes = btree_map(0..NODES, (node().prop_map(Box::new).prop_map(Terse), intent), 0..9);
    let services = btree_map(which(), (counted().prop_map(Terse), start), 1..6);
    (nodes, services, vec((which(), 0..NODES), 0..4)).prop_map(|(nodes, services, feuds)| Fresh {
        nodes,
        services,
        feuds,
    })
}

impl Fresh {
    /// The cluster, right before its first plan. Starts by hand are for services without volumes.
    pub(super) fn world(&self) -> World {
        let mut world = World::default();
        for (name, (node, _)) in &self.nodes {
            world.join(*name, &node.0);
        }
        for (at, deployment) in DEPLOYMENTS.iter().enumerate() {
            let services = self.services.iter().filter(|((of, _), _)| *of == at);
            let manifest = services.map(|((_, service), (spec, _))| (*service, spec.clone())).collect();
            world.apply(deployment, &manifest);
        }
        for (at, (spec, start)) in &self.services {
            start_by_hand(&mut world, &key_of(*at), &spec.0, start);
        }
        for (name, (_, intent)) in &self.nodes {
            world.tell(Command::SetIntent { node: node_name(*name), intent: *intent, at: world.now });
        }
        for (at, node) in &self.feuds {
            for _ in 0..5 {
                let (group, node) = (key_of(*at), node_name(*node));
                world.view.apply(&Event::FailureCounted { group, node, at: world.now });
            }
        }
        world
    }

    fn is_faulty(&self, key: &GroupKey, node: &NodeName) -> bool {
        self.feuds.iter().any(|(at, name)| key_of(*at) == *key && node_name(*name) == *node)
    }
}

/// Gives a service without data the part of a wished start that the nodes could have come to carry.
fn start_by_hand(world: &mut World, key: &GroupKey, spec: &ServiceSpec, start: &[u8]) {
    if spec.is_stateful() || spec.placement.strategy == PlacementStrategy::Hosts {
        return;
    }
    let terms = terms(spec, world.state.config());
    let mut ledger = Ledger::of(&world.state, world.now);
    let mut nodes = Vec::new();
    for name in start.iter().map(|name| node_name(*name)).take(spec.replicas as usize) {
        let Some(node) = world.state.node(&name) else { continue };
        if (Question { state: &world.state, ledger: &ledger, key, spec }).fits(node) {
            ledger.book(key, &SlotKey::Node(name.clone()), node, &terms);
            nodes.push(name);
        }
    }
    world.put_by_hand(key, &Arc::new(terms), &nodes);
}

fn key_of((deployment, service): Which) -> GroupKey {
    group_key(DEPLOYMENTS[deployment], SERVICES[service])
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn a_batch_lands_where_one_at_a_time_would(fresh in fresh()) {
        let mut world = fresh.world();
        let expected = expected(&fresh, &world);
        let plan = world.plan();
        for key in fresh.services.keys().map(|at| key_of(*at)) {
            prop_assert_eq!(&placements(&plan, &key), &expected[&key], "{}", key);
        }
    }
}

/// All services in order of priority, then name; their missing slots one after the other.
fn expected(fresh: &Fresh, world: &World) -> BTreeMap<GroupKey, BTreeMap<SlotKey, NodeName>> {
    let mut groups: Vec<_> = world.state.groups().collect();
    groups.sort_by_key(|(key, group)| (u8::MAX - group.spec.priority, *key));
    let mut ledger = Ledger::of(&world.state, world.now);
    let mut landed = BTreeMap::new();
    for (key, group) in groups {
        let mut slots = BTreeMap::new();
        let missing: Vec<u32> = (group.next_index.0..).take(group.spec.replicas as usize - group.slots.len()).collect();
        if group.spec.placement.strategy == PlacementStrategy::Hosts
            && hosts_that_fit(world, &ledger, key).len() < missing.len()
        {
            landed.insert(key.clone(), slots);
            continue;
        }
        for index in missing {
            let slot = SlotKey::Index(SlotIndex(index));
            if let Some(node) = best(fresh, world, &ledger, key, &slot) {
                let known = world.state.node(&node).expect("only nodes that are there are best");
                ledger.book(key, &slot, known, &terms(&group.spec, world.state.config()));
                slots.insert(slot, node);
            }
        }
        landed.insert(key.clone(), slots);
    }
    landed
}

fn hosts_that_fit<'a>(world: &'a World, ledger: &Ledger, key: &GroupKey) -> Vec<&'a Node> {
    let spec = &world.state.group(key).expect("the group was applied").spec;
    let question = Question { state: &world.state, ledger, key, spec };
    world.state.nodes().map(|node| &**node).filter(|node| question.fits(node)).collect()
}

/// The node the next replica should be on.
fn best(fresh: &Fresh, world: &World, ledger: &Ledger, key: &GroupKey, slot: &SlotKey) -> Option<NodeName> {
    let spec = &world.state.group(key).expect("the group was applied").spec;
    if (Question { state: &world.state, ledger, key, spec }).gate([None; 3]).is_some() {
        return None;
    }
    let fitting = hosts_that_fit(world, ledger, key);
    if spec.placement.strategy == PlacementStrategy::Hash {
        let hash = slot
            .printed(key)
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        return Some(fitting.get((hash as usize).checked_rem(fitting.len())?)?.name.clone());
    }
    let tuple = |node: &&&Node| {
        let faulty = fresh.is_faulty(key, &node.name);
        (faulty, tuple(world, ledger, key, spec, node), node.name.clone())
    };
    fitting.iter().min_by_key(tuple).map(|node| node.name.clone())
}

/// What the strategy compares between not faulty and name.
fn tuple(world: &World, ledger: &Ledger, key: &GroupKey, spec: &ServiceSpec, node: &Node) -> Vec<i128> {
    let carried = ledger.on(&node.name);
    match spec.placement.strategy {
        PlacementStrategy::Pack => return vec![i128::from(carried.replicas)],
        PlacementStrategy::Hosts => return Vec::new(),
        PlacementStrategy::Spread => {}
        other => unreachable!("{other:?} is not compared"),
    }
    let levels = &spec.placement.preferences;
    let mut tuple = Vec::new();
    for depth in 1..=levels.len() {
        let path = |node: &Node| -> Vec<_> { levels[..depth].iter().map(|level| attribute(level, node)).collect() };
        let here = path(node);
        let below = world.state.nodes().filter(|other| path(other) == here);
        tuple.push(below.map(|other| i128::from(ledger.slots(key, &other.name))).sum());
    }
    let matching = spec.placement.affinities.iter().filter(|affinity| holds(&affinity.matches, node));
    let liking: i128 = matching.map(|affinity| i128::from(affinity.weight)).sum();
    let physical = node.capacity.cpu_millis.saturating_sub(node.reserved.cpu_millis);
    let allocatable = i128::from(physical) * i128::from(ledger.config.cpu_overcommit_millionths) / 1_000_000;
    let projected = i128::from(carried.cpu_millis) + i128::from(terms(spec, &ledger.config).cpu_millis);
    tuple.push(i128::from(ledger.slots(key, &node.name)));
    tuple.push(-liking);
    tuple.push(projected * 1_000_000 / allocatable.max(1));
    tuple.push(i128::from(carried.replicas));
    tuple
}
