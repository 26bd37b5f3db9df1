//! Explanations against the reference filters: the primary reason, the refusals of each filter over all nodes, and the
//! nearest miss.

use std::collections::BTreeMap;

use longshore_model::{
    Command, Explanation, GroupKey, NamespaceName, Node, Reason, SlotKey, Strategy as PlacementStrategy,
    command::Quota, units::MIB,
};
use proptest::{option, prelude::*, sample::select};

use super::{
    reference_filters::ReferenceFilters,
    reference_ranking::{FreshCluster, fresh},
    reference_usage::ReferenceUsage,
    world::World,
};
use crate::proptest_config::cases;

fn quota() -> impl Strategy<Value = Quota> {
    let rarely = |most: Vec<u64>| option::weighted(0.2, select(most));
    (rarely(vec![0, 1, 4]), rarely(vec![0, 100 * MIB, 700 * MIB]), rarely(vec![0, 500, 2000]))
        .prop_map(|(replicas, memory_bytes, cpu_millis)| Quota { replicas, memory_bytes, cpu_millis })
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn unplaced_slots_are_explained_as_specified(fresh in fresh(), quota in quota()) {
        let mut world = after_first_decision(&fresh, quota);
        let groups: Vec<GroupKey> = world.state.groups().map(|(key, _)| key.clone()).collect();
        for key in groups {
            for (slots, given) in world.explain(&key) {
                let usage = ReferenceUsage::of(&world.state, world.now);
                let spec = &world.state.group(&key).expect("it has slots").spec;
                let reference = ReferenceFilters { state: &world.state, usage: &usage, key: &key, spec };
                match &given.gate {
                    Some(gate) if gate.reason() != Reason::BatchIncomplete => {
                        prop_assert_eq!(given.reason, gate.reason());
                        prop_assert!(given.refused.is_empty() && given.nearest.is_none());
                        if given.reason != Reason::QuotaExceeded {
                            let limits = [quota.replicas, quota.memory_bytes, quota.cpu_millis];
                            prop_assert_eq!(reference.gate(limits), Some(given.reason));
                        }
                    }
                    Some(_) | None => compare(&reference, &given),
                }
                recorded_reason_matches(&world, &key, &slots, &given);
            }
        }
    }

    #[test]
    fn a_quota_is_never_exceeded_by_new_placements(fresh in fresh(), quota in quota()) {
        let world = after_first_decision(&fresh, quota);
        let used = ReferenceUsage::of(&world.state, world.now).usage;
        let before = ReferenceUsage::of(&fresh.world().state, world.now).usage;
        for (at, limit) in [quota.replicas, quota.memory_bytes, quota.cpu_millis].into_iter().enumerate() {
            // Replicas placed before the quota was set stay.
            prop_assert!(limit.is_none_or(|limit| used[at] <= limit.max(before[at])), "{used:?} of {quota:?}");
        }
    }
}

fn after_first_decision(fresh: &FreshCluster, quota: Quota) -> World {
    let mut world = fresh.world();
    world.run(Command::SetQuota { namespace: NamespaceName::default_namespace(), quota });
    world.decide();
    world
}

fn compare(reference: &ReferenceFilters<'_>, given: &Explanation) {
    let nodes: Vec<&Node> = reference.state.nodes().map(|node| &**node).collect();
    let refusals: Vec<Vec<(Reason, u64)>> = nodes.iter().map(|node| reference.refusals(node)).collect();
    assert_eq!(given.nodes as usize, nodes.len());

    let mut refused: BTreeMap<Reason, u32> = BTreeMap::new();
    for (reason, _) in refusals.iter().flatten() {
        *refused.entry(*reason).or_default() += 1;
    }
    assert_eq!(given.refused, refused, "{}", reference.key);

    // The first reason such that every node has been refused by it or by an earlier one.
    let emptied = |reason: &&Reason| refusals.iter().all(|of_node| of_node.iter().any(|(why, _)| why <= reason));
    let primary = match Reason::ALL.iter().find(emptied) {
        _ if nodes.is_empty() => Reason::NoNodesActive,
        Some(reason) => *reason,
        None if reference.spec.placement.strategy == PlacementStrategy::Hosts => Reason::CannotSatisfyHostPlacement,
        None => panic!("{} fits and yet has no node", reference.key),
    };
    assert_eq!(given.reason, primary, "{}", reference.key);

    let misses = nodes.iter().zip(&refusals).filter(|(_, lacks)| !lacks.is_empty());
    let nearest = misses.min_by_key(|(node, lacks)| {
        (lacks.len(), lacks.iter().map(|(_, shortfall)| shortfall).sum::<u64>(), node.name.clone())
    });
    let nearest = nearest.map(|(node, lacks)| (node.name.clone(), lacks.clone()));
    let said = given.nearest.as_ref().map(|miss| {
        let lacks = miss.lacks.iter().map(|lack| (lack.reason(), lack.shortfall())).collect();
        (miss.node.clone(), lacks)
    });
    assert_eq!(said, nearest, "{}", reference.key);
}

/// The reason recorded in the slot equals the explained one.
fn recorded_reason_matches(world: &World, key: &GroupKey, slots: &[SlotKey], given: &Explanation) {
    let group = world.state.group(key).expect("it has slots");
    for slot in slots {
        assert_eq!(group.slots[slot].waiting, Some(given.reason), "{}", slot.replica_id(key));
    }
}
