//! No slot is lost: after every decision each desired slot has a node or a reason, the number of slots matches the
//! requested replicas, and no slot index is used twice.

use std::collections::BTreeSet;

use longshore_model::{
    Evacuation, Event, GroupKey, Health, ReplicaState, ServiceKind, Slot, SlotKey,
    replica::{DesiredState, Replica},
};
use longshore_store::{Group, State, is_live};
use proptest::prelude::*;

use super::{
    histories::{Step, history},
    world::World,
};
use crate::proptest_config::cases;

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn every_desired_slot_has_a_node_or_a_reason(steps in history(60)) {
        let mut world = World::default();
        for step in &steps {
            world.act(step);
            if matches!(step, Step::Decide) {
                for (key, group) in world.state.groups() {
                    check_group(&world.state, key, group);
                }
            }
        }
    }

    #[test]
    fn a_slot_index_is_used_once(steps in history(60)) {
        let mut world = World::default();
        let mut used: BTreeSet<(GroupKey, SlotKey)> = BTreeSet::new();
        for step in &steps {
            for event in world.act(step) {
                if let Event::SlotOpened { group, slot: slot @ SlotKey::Index(_), .. } = event {
                    prop_assert!(used.insert((group.clone(), slot.clone())), "{} again", slot.replica_id(&group));
                }
            }
            // The counters of a removed deployment start over.
            used.retain(|(key, _)| world.state.deployment(&key.namespace, &key.deployment).is_some());
        }
    }
}

fn check_group(state: &State, key: &GroupKey, group: &Group) {
    let open: Vec<&Slot> = group.slots.values().filter(|slot| slot.desired == DesiredState::Run).collect();
    if group.desired == DesiredState::Stop {
        assert!(open.is_empty(), "{key} shall stop and has open slots");
        return;
    }
    if state.is_stopped(key) {
        let runs = |replica: &Replica| replica.desired == DesiredState::Run && replica.state != ReplicaState::Completed;
        let running = open.iter().any(|slot| slot.replicas.iter().any(runs));
        assert!(!running, "{key} is stopped, and a replica of it shall run");
        return;
    }
    // Slots named for the previous mode stay open while a rollout changes the mode, and only then.
    let rollout = state.deployment(&key.namespace, &key.deployment).and_then(|owner| owner.rollout.as_ref());
    let renames = rollout.is_some_and(|rollout| rollout.is_live());
    let is_named = |slot: &&Slot| matches!(slot.key, SlotKey::Node(_)) == group.spec.kind.is_per_node();
    let open: Vec<&Slot> = open.into_iter().filter(|slot| is_named(slot) || !renames).collect();
    if group.spec.kind.is_per_node() {
        for slot in &open {
            let known = matches!(&slot.key, SlotKey::Node(name) if state.node(name).is_some());
            assert!(known, "{} has no node to be named after", slot.key.replica_id(key));
        }
    } else {
        let counted = open.iter().filter(|slot| matches!(slot.key, SlotKey::Index(_))).count();
        assert_eq!(counted, open.len(), "{key} is a counted service and has slots named after nodes");
        // Completed and garbage-collected replicas need no slot.
        let asked = group.spec.replicas.saturating_sub(group.collected.total()) as usize;
        // A job with `max_concurrent` opens a slot only when one may run.
        let turns = group.spec.max_concurrent.filter(|_| group.spec.kind == ServiceKind::Batch);
        let at_once = turns.map_or(asked, |most| asked.min(most as usize));
        assert!((at_once..=asked).contains(&counted), "{key} has {counted} slots, {asked} asked for");
    }
    for slot in open {
        check_slot(state, key, group, slot);
    }
}

fn check_slot(state: &State, key: &GroupKey, group: &Group, slot: &Slot) {
    let stands = slot.replicas.iter().any(|replica| {
        let there = state.node(&replica.assignment.node).is_some_and(|node| node.health != Health::Down);
        // A replica that ended stays ended whatever happens to its node.
        let ended = matches!(replica.state, ReplicaState::Failed | ReplicaState::Completed);
        replica.desired == DesiredState::Run && (there || ended)
    });
    let leaving = slot.replicas.iter().any(|replica| replica.desired == DesiredState::Stop);
    // With more than half of the nodes gone evacuation pauses: lost replicas keep their slots and are not replaced.
    let paused = *state.evacuation() != Evacuation::Free;
    let held = paused && slot.replicas.iter().any(|replica| replica.desired == DesiredState::Run);
    // A lost job replica with `max_concurrent` is replaced when one may run; until then it is shown as lost.
    let takes_turns = group.spec.kind.is_job() && group.spec.max_concurrent.is_some();
    let lost = |replica: &Replica| replica.desired == DesiredState::Run && replica.state == ReplicaState::Lost;
    let in_line = takes_turns && slot.replicas.iter().any(lost);
    let printed = slot.key.replica_id(key);
    let answered = stands || leaving || held || in_line || slot.waiting.is_some();
    assert!(answered, "{printed} has neither node nor reason: {slot:?}");
    let live = slot.replicas.iter().any(is_live);
    assert!(!live || slot.waiting.is_none(), "{printed} is live and has a waiting reason: {slot:?}");
}
