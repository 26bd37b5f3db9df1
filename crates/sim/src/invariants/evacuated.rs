//! Once a node is down and its disconnect grace is over, each of its slots has a generation elsewhere, or a reason why not.
//!
//! Stateful slots have a reason. Nothing is demanded while evacuation is paused, nor of a slot whose spec still waits for the
//! node, nor of a job's slot while `max_concurrent` others come before it.

use longshore_model::{
    Evacuation, GroupKey, Health, Node, ReplicaState, ServiceSpec, Slot, Time,
    replica::{DesiredState, Replica},
    rollout::PreviousSpec,
    service::Replace,
};
use longshore_store::{Group, State, is_live};

pub(super) const NAME: &str = "evacuated";

pub(super) fn check(state: &State, now: Time) -> Vec<String> {
    if *state.evacuation() != Evacuation::Free {
        return Vec::new();
    }
    let mut messages = Vec::new();
    for (key, group) in
        state.groups().filter(|(key, group)| group.desired == DesiredState::Run && !state.is_stopped(key))
    {
        let slots = group.slots.values().filter(|slot| slot.desired == DesiredState::Run && slot.waiting.is_none());
        for slot in slots.filter(|slot| relies_on_lost_node(state, key, group, slot, now)) {
            if is_within_concurrency(state, group, slot) {
                messages.push(format!("{} relies on a node that is down", slot.key.replica_id(key)));
            }
        }
    }
    messages
}

fn relies_on_lost_node(state: &State, key: &GroupKey, group: &Group, slot: &Slot, now: Time) -> bool {
    // A replica that has ended is not lost, and an older generation that runs elsewhere keeps the slot alive.
    let Some(node) = lost_node_of(state, slot) else { return false };
    let spec = spec_in_force(state, key, group, slot);
    node.confirmed_lost.is_some() || !is_waited_for(spec, node, now)
}

/// The down node that the slot's newest replica was lost with, if no other replica of the slot is alive.
fn lost_node_of<'s>(state: &'s State, slot: &Slot) -> Option<&'s Node> {
    let newest = slot.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run)?;
    let node = state.node(&newest.assignment.node)?;
    let elsewhere = |replica: &Replica| {
        let up = state.node(&replica.assignment.node).is_some_and(|node| node.health != Health::Down);
        is_live(replica) && up
    };
    let lost = newest.state == ReplicaState::Lost && node.health == Health::Down;
    (lost && !slot.replicas.iter().any(elsewhere)).then_some(node)
}

/// The spec in force for a slot. Until the slot's rollout step has come that is the previous one, unless the slot already has
/// the new one, was added by an earlier rollout that this one superseded, or the service changed between global and counted.
fn spec_in_force<'s>(state: &'s State, key: &GroupKey, group: &'s Group, slot: &Slot) -> &'s ServiceSpec {
    let same_mode = |held: &&PreviousSpec| held.spec.kind.is_per_node() == group.spec.kind.is_per_node();
    let Some(held) = group.rollout_position.previous.as_ref().filter(same_mode) else { return &group.spec };
    let rollout = state.deployment(&key.namespace, &key.deployment).and_then(|known| known.rollout.as_ref());
    let stepped = slot.step.is_some_and(|step| rollout.is_some_and(|rollout| rollout.number == step.rollout));
    let newest = slot.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run);
    let is_updated = newest.map(|replica| &replica.assignment.reservation).is_some_and(|reservation| {
        (&reservation.spec_hash, reservation.restart_epoch) == (&group.spec.spec_hash, group.restart_epoch)
    });
    if stepped || is_updated || is_beyond_previous_count(group, held, slot) { &group.spec } else { &held.spec }
}

/// Whether a slot is beyond the previous manifest's count and has no replica made from it.
fn is_beyond_previous_count(group: &Group, held: &PreviousSpec, slot: &Slot) -> bool {
    let is_of_previous = |replica: &Replica| replica.assignment.reservation.spec_hash == held.spec.spec_hash;
    let before =
        group.slots.values().filter(|other| other.desired == DesiredState::Run && other.key < slot.key).count();
    let beyond = !held.spec.kind.is_per_node() && before >= held.spec.replicas as usize;
    beyond && !slot.replicas.iter().any(is_of_previous)
}

fn is_waited_for(spec: &ServiceSpec, node: &Node, now: Time) -> bool {
    let in_time = spec.disconnect.lost_after.map(|wait| now < node.health_since.after(wait));
    match (in_time, spec.disconnect.replace) {
        (Some(in_time), Replace::Never) => in_time,
        // A replica of a global service cannot be replaced on another node.
        (Some(in_time), Replace::WhenLost) => in_time && spec.kind.is_per_node(),
        (None, Replace::Never) => true,
        (None, Replace::WhenLost) => false,
    }
}

/// Whether fewer than `max_concurrent` other slots of a job are active or wait for a node. A slot whose replicas are all being
/// stopped counts as active: it is about to be placed. A failed one does not: it waits for its restart.
fn is_within_concurrency(state: &State, group: &Group, slot: &Slot) -> bool {
    let Some(most) = group.spec.max_concurrent.filter(|_| group.spec.kind.is_job()) else { return true };
    let unfinished = |other: &&Slot| {
        let newest = other.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run);
        let works =
            |replica: &Replica| replica.state != ReplicaState::Failed && !super::concurrency::has_ended(group, replica);
        let under_way = newest.map_or(!other.replicas.is_empty(), works);
        // Of several lost slots, the one with the lowest key goes first.
        let later = other.key >= slot.key && lost_node_of(state, other).is_some();
        other.key != slot.key && !later && (under_way || other.waiting.is_some())
    };
    let before = group.slots.values().filter(|other| other.desired == DesiredState::Run).filter(unfinished).count();
    before < most as usize
}
