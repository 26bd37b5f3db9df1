//! Nothing is overcommitted: memory, disk, devices, ports, volumes, addresses and slots per node.
//!
//! A node may shrink below its usage and a limit may be lowered; neither evicts anything. So limits are checked for
//! every node that received a placement, at that moment; device limits only for the devices it received, because a node
//! that lost devices still takes replicas that need none.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{Event, GroupKey, NodeName, ReplicaKey, Strategy};
use longshore_store::State;
use proptest::prelude::*;

use super::{
    histories::{Step, history},
    reference_usage::ReferenceUsage,
    world::{World, placed},
};
use crate::proptest_config::cases;

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn no_placement_exceeds_a_limit_or_shares_an_exclusive_resource(steps in history(60)) {
        let mut world = World::default();
        for step in &steps {
            let events = world.act(step);
            if matches!(step, Step::Decide) {
                check(&world.state, &ReferenceUsage::of(&world.state, world.now), &events);
            }
        }
    }
}

/// Checks every node that received a placement by these events.
pub(super) fn check(state: &State, usage: &ReferenceUsage, events: &[Event]) {
    let mut given: BTreeMap<&NodeName, BTreeSet<&str>> = BTreeMap::new();
    for (_, assignment) in placed(events) {
        let devices = assignment.devices.keys().chain(assignment.reservation.devices.keys());
        given.entry(&assignment.node).or_default().extend(devices.map(String::as_str));
    }
    for (node, devices) in given {
        node_is_within_limits(state, usage, node, &devices);
    }
    for (ReplicaKey { group: key, .. }, assignment) in placed(events) {
        // A replacement with the spec from before a rollout follows the old spec's rules.
        if state.group(key).is_some_and(|group| group.revision == assignment.reservation.revision) {
            slots_are_within_limits(state, usage, key, &assignment.node);
        }
        let asked: u64 = assignment.reservation.device_requests.iter().map(|request| request.count).sum();
        assert_eq!(assignment.devices.values().sum::<u64>(), asked, "{key} received the devices it requested");
        let number = state.node(&assignment.node).expect("nothing is placed on an unknown node").number.0;
        let prefix = u128::from(state.config().cluster_prefix) >> 64 | u128::from(number);
        assert_eq!(u128::from(assignment.address) >> 64, prefix, "{} is in its node's prefix", assignment.address);
        assert_ne!(u128::from(assignment.address) << 64, 0, "the prefix's own address is never assigned");
    }
    addresses_are_unique(state);
    volumes_have_one_home(state, usage, events);
}

fn node_is_within_limits(state: &State, usage: &ReferenceUsage, name: &NodeName, given: &BTreeSet<&str>) {
    let node = state.node(name).expect("nothing is placed on an unknown node");
    let used_here = usage.on(name);
    let memory = node.capacity.memory_bytes.saturating_sub(node.reserved.memory_bytes);
    assert!(used_here.memory_bytes <= memory, "{name}: memory {} of {memory}", used_here.memory_bytes);
    if let Some(disk) = node.capacity.disk_bytes {
        assert!(used_here.disk_bytes <= disk, "{name}: disk {} of {disk}", used_here.disk_bytes);
    }
    for (kind, used) in used_here.devices.iter().filter(|(kind, _)| given.contains(kind.as_str())) {
        let group = node.capacity.device_groups.iter().find(|group| group.id() == *kind).map(|group| group.count);
        let there = group.or_else(|| node.capacity.devices.get(kind).copied()).unwrap_or(0);
        assert!(*used <= there, "{name}: {kind} {used} of {there}");
    }
    let distinct: BTreeSet<_> = used_here.ports.iter().collect();
    assert_eq!(distinct.len(), used_here.ports.len(), "{name}: a port is assigned twice");
    if let Some(limit) = node.capacity.addresses {
        assert!(used_here.addresses <= limit, "{name}: {} addresses of {limit}", used_here.addresses);
    }
}

fn slots_are_within_limits(state: &State, usage: &ReferenceUsage, key: &GroupKey, node: &NodeName) {
    let placement = &state.group(key).expect("what is placed has a group").spec.placement;
    let most = match placement.strategy {
        Strategy::Hosts => Some(1),
        _ => placement.max_replicas_per_node.filter(|most| *most > 0),
    };
    let slots = usage.slots(key, node);
    assert!(most.is_none_or(|most| slots <= u64::from(most)), "{key} has {slots} on {node}, {most:?} allowed");
}

/// No two generations share an address.
fn addresses_are_unique(state: &State) {
    let mut seen = BTreeSet::new();
    for (key, slot, replica) in state.replicas() {
        let address = replica.assignment.address;
        assert!(seen.insert(address), "{} has the address of another replica", slot.key.replica_id(key));
    }
}

/// A placed replica is on the home node of its volume, and holds it alone unless services of the owning deployment
/// share it.
fn volumes_have_one_home(state: &State, usage: &ReferenceUsage, events: &[Event]) {
    let mut given: BTreeMap<_, &GroupKey> = BTreeMap::new();
    for (ReplicaKey { group: key, .. }, assignment) in placed(events) {
        for held in &assignment.reservation.volumes {
            given.insert(&held.key, key);
            let home = state.volume(&held.key).map(|volume| &volume.home);
            assert_eq!(home, Some(&assignment.node), "{key} was placed away from its volume {}", held.key);
        }
    }
    for (volume, key) in given {
        let volume_use = &usage.volumes[volume];
        let groups: BTreeSet<_> = volume_use.holders.iter().map(|(group, _, _)| group).collect();
        let deployments: BTreeSet<_> = groups.iter().map(|group| Some(group.deployment.clone())).collect();
        let exclusive =
            volume_use.holders.iter().any(|(_, _, sharing)| *sharing == longshore_model::volume::Sharing::Exclusive);
        let may_share = !exclusive
            && groups.len() == volume_use.holders.len()
            && deployments == BTreeSet::from([volume_use.owner.clone()]);
        assert!(volume_use.holders.len() == 1 || may_share, "{key} was placed with {volume}: {volume_use:?}");
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn an_address_is_reused_only_after_its_cooldown(steps in history(60)) {
        let mut world = World::default();
        let mut released: BTreeMap<_, _> = BTreeMap::new();
        for step in &steps {
            let held: BTreeMap<_, _> = world.state.replicas().map(|(key, slot, replica)| {
                (key.replica(&slot.key, replica.generation), replica.assignment.address)
            }).collect();
            for event in world.act(step) {
                match event {
                    Event::Released { key, at } => _ = released.insert(held[&key], at),
                    Event::Placed { assignment, .. } => {
                        let since = released.get(&assignment.address).copied();
                        let rested = since.map(|since| world.now.since(since));
                        prop_assert!(rested.is_none_or(|rested| rested >= world.state.config().address_cooldown));
                    }
                    _ => {}
                }
            }
        }
    }
}
