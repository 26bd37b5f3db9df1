//! Never more than there is: memory, disk, devices, ports, volumes, addresses and slots per node.
//!
//! A machine may shrink under what it carries and a limit may be lowered, which evicts nothing. So limits are
//! demanded of every node that was given something, at the moment it was given; of devices only where some were given,
//! as a machine without cards that once had some still runs what needs none.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{Event, GroupKey, NodeName, Strategy};
use longshore_store::State;
use proptest::prelude::*;

use super::{
    histories::{Step, history},
    ledger::Ledger,
    world::{World, placed},
};
use crate::cases::cases;

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn nothing_is_ever_given_out_twice_or_beyond_its_limit(steps in history(60)) {
        let mut world = World::default();
        for step in &steps {
            let events = world.act(step);
            if matches!(step, Step::Decide) {
                check(&world.state, &Ledger::of(&world.state, world.now), &events);
            }
        }
    }
}

/// Checks every node that was given something by these events.
pub(super) fn check(state: &State, ledger: &Ledger, events: &[Event]) {
    let mut given: BTreeMap<&NodeName, BTreeSet<&str>> = BTreeMap::new();
    for (_, _, _, assignment) in placed(events) {
        let devices = assignment.devices.keys().chain(assignment.terms.devices.keys());
        given.entry(&assignment.node).or_default().extend(devices.map(String::as_str));
    }
    for (node, devices) in given {
        node_is_within_limits(state, ledger, node, &devices);
    }
    for (key, _, _, assignment) in placed(events) {
        // What is replaced as it was before a rollout keeps to the rules it had then.
        if state.group(key).is_some_and(|group| group.revision == assignment.terms.revision) {
            slots_are_within_limits(state, ledger, key, &assignment.node);
        }
        let asked: u64 = assignment.terms.device_requests.iter().map(|request| request.count).sum();
        assert_eq!(assignment.devices.values().sum::<u64>(), asked, "{key} was given the devices it asked for");
        let number = state.node(&assignment.node).expect("nothing is placed on an unknown node").number.0;
        let prefix = u128::from(state.config().cluster_prefix) >> 64 | u128::from(number);
        assert_eq!(u128::from(assignment.address) >> 64, prefix, "{} is of its node's range", assignment.address);
        assert_ne!(u128::from(assignment.address) << 64, 0, "the range's own address is nobody's");
    }
    addresses_are_unique(state);
    volumes_have_one_home(state, ledger, events);
}

fn node_is_within_limits(state: &State, ledger: &Ledger, name: &NodeName, given: &BTreeSet<&str>) {
    let node = state.node(name).expect("nothing is placed on an unknown node");
    let carried = ledger.on(name);
    let memory = node.capacity.memory_bytes.saturating_sub(node.reserved.memory_bytes);
    assert!(carried.memory_bytes <= memory, "{name}: memory {} of {memory}", carried.memory_bytes);
    if let Some(disk) = node.capacity.disk_bytes {
        assert!(carried.disk_bytes <= disk, "{name}: disk {} of {disk}", carried.disk_bytes);
    }
    for (kind, used) in carried.devices.iter().filter(|(kind, _)| given.contains(kind.as_str())) {
        let group = node.capacity.device_groups.iter().find(|group| group.id() == *kind).map(|group| group.count);
        let there = group.or_else(|| node.capacity.devices.get(kind).copied()).unwrap_or(0);
        assert!(*used <= there, "{name}: {kind} {used} of {there}");
    }
    let distinct: BTreeSet<_> = carried.ports.iter().collect();
    assert_eq!(distinct.len(), carried.ports.len(), "{name}: a port is given out twice");
    if let Some(limit) = node.capacity.addresses {
        assert!(carried.addresses <= limit, "{name}: {} addresses of {limit}", carried.addresses);
    }
}

fn slots_are_within_limits(state: &State, ledger: &Ledger, key: &GroupKey, node: &NodeName) {
    let placement = &state.group(key).expect("what is placed has a group").spec.placement;
    let most = match placement.strategy {
        Strategy::Hosts => Some(1),
        _ => placement.max_replicas_per_node.filter(|most| *most > 0),
    };
    let slots = ledger.slots(key, node);
    assert!(most.is_none_or(|most| slots <= u64::from(most)), "{key} has {slots} on {node}, {most:?} allowed");
}

/// No two generations share an address, and a resting one is nobody's.
fn addresses_are_unique(state: &State) {
    let mut seen = BTreeSet::new();
    for (key, slot, replica) in state.replicas() {
        let address = replica.assignment.address;
        assert!(seen.insert(address), "{} has an address of another", slot.key.printed(key));
    }
}

/// Whoever was given a volume is on its home, and holds it alone unless its owner's other services share it.
fn volumes_have_one_home(state: &State, ledger: &Ledger, events: &[Event]) {
    let mut given: BTreeMap<_, &GroupKey> = BTreeMap::new();
    for (key, _, _, assignment) in placed(events) {
        for held in &assignment.terms.volumes {
            given.insert(&held.key, key);
            let home = state.volume(&held.key).map(|volume| &volume.home);
            assert_eq!(home, Some(&assignment.node), "{key} was put where its volume {} is not", held.key);
        }
    }
    for (volume, key) in given {
        let shelf = &ledger.volumes[volume];
        let groups: BTreeSet<_> = shelf.holders.iter().map(|(group, _, _)| group).collect();
        let deployments: BTreeSet<_> = groups.iter().map(|group| Some(group.deployment.clone())).collect();
        let exclusive =
            shelf.holders.iter().any(|(_, _, sharing)| *sharing == longshore_model::volume::Sharing::Exclusive);
        let shared_well =
            !exclusive && groups.len() == shelf.holders.len() && deployments == BTreeSet::from([shelf.owner.clone()]);
        assert!(shelf.holders.len() == 1 || shared_well, "{key} was given {volume}: {shelf:?}");
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn an_address_rests_for_an_hour_before_it_is_given_out_again(steps in history(60)) {
        let mut world = World::default();
        let mut released: BTreeMap<_, _> = BTreeMap::new();
        for step in &steps {
            let held: BTreeMap<_, _> = world.state.replicas().map(|(key, slot, replica)| {
                ((key.clone(), slot.key.clone(), replica.generation), replica.assignment.address)
            }).collect();
            for event in world.act(step) {
                match event {
                    Event::Released { group, slot, generation, at } => {
                        released.insert(held[&(group, slot, generation)], at);
                    }
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
