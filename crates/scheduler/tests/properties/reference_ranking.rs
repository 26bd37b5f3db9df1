//! Reference ranking: replicas are placed one at a time, each on the node with the smallest tuple of the
//! specification's table, with every sum recomputed. The scheduler must place every slot on the same node.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    Command, Event, GroupKey, Intent, Node, NodeName, ServiceSpec, SlotIndex, SlotKey, Strategy as PlacementStrategy,
};
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};

use super::{
    random_nodes::{NODES, Terse, node, node_name},
    random_services::{DEPLOYMENTS, SERVICES, counted, group_key},
    reference_filters::{ReferenceFilters, attribute, holds},
    reference_usage::{ReferenceUsage, reservation},
    world::{World, placements},
};
use crate::proptest_config::cases;

/// A service, by position in [`DEPLOYMENTS`] and [`SERVICES`].
type Which = (usize, usize);

/// Nodes, services with their initial placements, and pairs of service and faulty node.
#[derive(Clone, Debug)]
pub(super) struct FreshCluster {
    nodes: BTreeMap<u8, (Terse<Box<Node>>, Intent)>,
    services: BTreeMap<Which, (Terse<Arc<ServiceSpec>>, Vec<u8>)>,
    faulty_pairs: Vec<(Which, u8)>,
}

/// A cluster whose services have all just been applied.
pub(super) fn fresh() -> impl Strategy<Value = FreshCluster> {
    let intent = prop_oneof![9 => Just(Intent::Active), 1 => Just(Intent::Paused)];
    let which = || (0..DEPLOYMENTS.len(), 0..SERVICES.len());
    let start = prop_oneof![3 => Just(Vec::new()), 1 => vec(0..NODES, 0..5)];
    let nodes = btree_map(0..NODES, (node().prop_map(Box::new).prop_map(Terse), intent), 0..9);
    let services = btree_map(which(), (counted().prop_map(Terse), start), 1..6);
    (nodes, services, vec((which(), 0..NODES), 0..4)).prop_map(|(nodes, services, faulty_pairs)| FreshCluster {
        nodes,
        services,
        faulty_pairs,
    })
}

impl FreshCluster {
    /// The cluster right before its first plan. Only services without volumes get initial placements.
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
            place_initial(&mut world, &key_of(*at), &spec.0, start);
        }
        for (name, (_, intent)) in &self.nodes {
            world.run(Command::SetIntent { node: node_name(*name), intent: *intent, at: world.now });
        }
        for (at, node) in &self.faulty_pairs {
            for _ in 0..5 {
                let (group, node) = (key_of(*at), node_name(*node));
                world.view.apply(&Event::FailureCounted { group, node, at: world.now });
            }
        }
        world
    }

    fn is_faulty(&self, key: &GroupKey, node: &NodeName) -> bool {
        self.faulty_pairs.iter().any(|(at, name)| key_of(*at) == *key && node_name(*name) == *node)
    }
}

/// Gives a stateless service those initial placements that fit their nodes.
fn place_initial(world: &mut World, key: &GroupKey, spec: &ServiceSpec, start: &[u8]) {
    if spec.is_stateful() || spec.placement.strategy == PlacementStrategy::Hosts {
        return;
    }
    let reservation = reservation(spec, world.state.config());
    let mut usage = ReferenceUsage::of(&world.state, world.now);
    let mut nodes = Vec::new();
    for name in start.iter().map(|name| node_name(*name)).take(spec.replicas as usize) {
        let Some(node) = world.state.node(&name) else { continue };
        if (ReferenceFilters { state: &world.state, usage: &usage, key, spec }).fits(node) {
            usage.book(key, &SlotKey::Node(name.clone()), node, &reservation);
            nodes.push(name);
        }
    }
    world.commit_placements(key, &Arc::new(reservation), &nodes);
}

fn key_of((deployment, service): Which) -> GroupKey {
    group_key(DEPLOYMENTS[deployment], SERVICES[service])
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn a_batch_is_placed_like_one_replica_at_a_time(fresh in fresh()) {
        let mut world = fresh.world();
        let expected = expected(&fresh, &world);
        let plan = world.plan();
        for key in fresh.services.keys().map(|at| key_of(*at)) {
            prop_assert_eq!(&placements(&plan, &key), &expected[&key], "{}", key);
        }
    }
}

/// The expected placements: all services in order of priority, then name; their missing slots one after the other.
fn expected(fresh: &FreshCluster, world: &World) -> BTreeMap<GroupKey, BTreeMap<SlotKey, NodeName>> {
    let mut groups: Vec<_> = world.state.groups().collect();
    groups.sort_by_key(|(key, group)| (u8::MAX - group.spec.priority, *key));
    let mut usage = ReferenceUsage::of(&world.state, world.now);
    let mut landed = BTreeMap::new();
    for (key, group) in groups {
        let mut slots = BTreeMap::new();
        let missing: Vec<u32> = (group.next_index.0..).take(group.spec.replicas as usize - group.slots.len()).collect();
        if group.spec.placement.strategy == PlacementStrategy::Hosts
            && hosts_that_fit(world, &usage, key).len() < missing.len()
        {
            landed.insert(key.clone(), slots);
            continue;
        }
        for index in missing {
            let slot = SlotKey::Index(SlotIndex(index));
            if let Some(node) = best(fresh, world, &usage, key, &slot) {
                let known = world.state.node(&node).expect("the best node exists");
                usage.book(key, &slot, known, &reservation(&group.spec, world.state.config()));
                slots.insert(slot, node);
            }
        }
        landed.insert(key.clone(), slots);
    }
    landed
}

fn hosts_that_fit<'a>(world: &'a World, usage: &ReferenceUsage, key: &GroupKey) -> Vec<&'a Node> {
    let spec = &world.state.group(key).expect("the group was applied").spec;
    let reference = ReferenceFilters { state: &world.state, usage, key, spec };
    world.state.nodes().map(|node| &**node).filter(|node| reference.fits(node)).collect()
}

/// The expected node of the next replica.
fn best(
    fresh: &FreshCluster,
    world: &World,
    usage: &ReferenceUsage,
    key: &GroupKey,
    slot: &SlotKey,
) -> Option<NodeName> {
    let spec = &world.state.group(key).expect("the group was applied").spec;
    if (ReferenceFilters { state: &world.state, usage, key, spec }).gate([None; 3]).is_some() {
        return None;
    }
    let fitting = hosts_that_fit(world, usage, key);
    if spec.placement.strategy == PlacementStrategy::Hash {
        let hash = slot
            .replica_id(key)
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        return Some(fitting.get((hash as usize).checked_rem(fitting.len())?)?.name.clone());
    }
    let tuple = |node: &&&Node| {
        let faulty = fresh.is_faulty(key, &node.name);
        (faulty, tuple(world, usage, key, spec, node), node.name.clone())
    };
    fitting.iter().min_by_key(tuple).map(|node| node.name.clone())
}

/// The strategy's ranking keys between "not faulty" and the name.
fn tuple(world: &World, usage: &ReferenceUsage, key: &GroupKey, spec: &ServiceSpec, node: &Node) -> Vec<i128> {
    let used_here = usage.on(&node.name);
    match spec.placement.strategy {
        PlacementStrategy::LeastLoaded => return vec![i128::from(used_here.replicas)],
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
        tuple.push(below.map(|other| i128::from(usage.slots(key, &other.name))).sum());
    }
    let matching = spec.placement.affinities.iter().filter(|affinity| holds(&affinity.matches, node));
    let liking: i128 = matching.map(|affinity| i128::from(affinity.weight)).sum();
    let physical = node.capacity.cpu_millis.saturating_sub(node.reserved.cpu_millis);
    let allocatable = i128::from(physical) * i128::from(usage.config.cpu_overcommit_millionths) / 1_000_000;
    let projected = i128::from(used_here.cpu_millis) + i128::from(reservation(spec, &usage.config).cpu_millis);
    tuple.push(i128::from(usage.slots(key, &node.name)));
    tuple.push(-liking);
    tuple.push(projected * 1_000_000 / allocatable.max(1));
    tuple.push(i128::from(used_here.replicas));
    tuple
}
