//! Nothing is forgotten: after every decision each wanted slot has a node or says why not, there are as many slots as
//! were asked for, and no index is used twice.

use std::collections::BTreeSet;

use longshore_model::{
    Evacuation, Event, GroupKey, Health, ReplicaState, ServiceKind, Slot, SlotKey,
    replica::{Replica, Wanted},
};
use longshore_store::{Group, State, is_live};
use proptest::prelude::*;

use super::{
    histories::{Step, history},
    world::World,
};
use crate::cases::cases;

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn every_wanted_slot_has_a_node_or_a_reason(steps in history(60)) {
        let mut world = World::default();
        for step in &steps {
            world.act(step);
            if matches!(step, Step::Decide) {
                for (key, group) in world.state.groups() {
                    group_is_accounted_for(&world.state, key, group);
                }
            }
        }
    }

    #[test]
    fn an_index_is_used_once(steps in history(60)) {
        let mut world = World::default();
        let mut used: BTreeSet<(GroupKey, SlotKey)> = BTreeSet::new();
        for step in &steps {
            for event in world.act(step) {
                if let Event::SlotOpened { group, slot: slot @ SlotKey::Index(_), .. } = event {
                    prop_assert!(used.insert((group.clone(), slot.clone())), "{} again", slot.printed(&group));
                }
            }
            // A deployment that is gone takes its counters with it.
            used.retain(|(key, _)| world.state.deployment(&key.namespace, &key.deployment).is_some());
        }
    }
}

fn group_is_accounted_for(state: &State, key: &GroupKey, group: &Group) {
    let open: Vec<&Slot> = group.slots.values().filter(|slot| slot.wanted == Wanted::Run).collect();
    if group.wanted == Wanted::Stop {
        assert!(open.is_empty(), "{key} is not wanted and has open slots");
        return;
    }
    // What is named as before a change of mode serves while that is under way, and only then.
    let rollout = state.deployment(&key.namespace, &key.deployment).and_then(|owner| owner.rollout.as_ref());
    let renames = rollout.is_some_and(|rollout| rollout.is_live());
    let is_named = |slot: &&Slot| matches!(slot.key, SlotKey::Node(_)) == group.spec.kind.is_per_node();
    let open: Vec<&Slot> = open.into_iter().filter(|slot| is_named(slot) || !renames).collect();
    if group.spec.kind.is_per_node() {
        for slot in &open {
            let known = matches!(&slot.key, SlotKey::Node(name) if state.node(name).is_some());
            assert!(known, "{} has no node to be named after", slot.key.printed(key));
        }
    } else {
        let counted = open.iter().filter(|slot| matches!(slot.key, SlotKey::Index(_))).count();
        assert_eq!(counted, open.len(), "{key} counts and has slots named after nodes");
        // What is done and no longer shown needs no slot.
        let asked = group.spec.replicas.saturating_sub(group.collected.total()) as usize;
        // Work that takes turns has a slot once its turn has come.
        let turns = group.spec.max_concurrent.filter(|_| group.spec.kind == ServiceKind::Batch);
        let at_once = turns.map_or(asked, |most| asked.min(most as usize));
        assert!((at_once..=asked).contains(&counted), "{key} has {counted} slots, {asked} asked for");
    }
    for slot in open {
        slot_is_accounted_for(state, key, group, slot);
    }
}

fn slot_is_accounted_for(state: &State, key: &GroupKey, group: &Group, slot: &Slot) {
    let stands = slot.replicas.iter().any(|replica| {
        let there = state.node(&replica.assignment.node).is_some_and(|node| node.health != Health::Down);
        // What ended for good does so whatever becomes of its machine.
        let ended = matches!(replica.state, ReplicaState::Failed | ReplicaState::Completed);
        replica.wanted == Wanted::Run && (there || ended)
    });
    let leaving = slot.replicas.iter().any(|replica| replica.wanted == Wanted::Stop);
    // With more than half of the nodes gone, what is lost with them keeps its place and is not replaced.
    let paused = *state.evacuation() != Evacuation::Free;
    let held = paused && slot.replicas.iter().any(|replica| replica.wanted == Wanted::Run);
    // Work that takes turns is replaced when its turn comes; until then it is shown as lost.
    let takes_turns = group.spec.kind.is_job() && group.spec.max_concurrent.is_some();
    let lost = |replica: &Replica| replica.wanted == Wanted::Run && replica.state == ReplicaState::Lost;
    let in_line = takes_turns && slot.replicas.iter().any(lost);
    let printed = slot.key.printed(key);
    let answered = stands || leaving || held || in_line || slot.waiting.is_some();
    assert!(answered, "{printed} has neither node nor reason: {slot:?}");
    let live = slot.replicas.iter().any(is_live);
    assert!(!live || slot.waiting.is_none(), "{printed} is alive and says that it waits: {slot:?}");
}
