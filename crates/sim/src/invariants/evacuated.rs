//! Once a node is down and nobody is told to wait for it, no slot counts on it: it has another generation, or says why
//! not.
//!
//! Stateful slots say why not. Under the brake nothing is demanded, nor of a slot for as long as what it follows waits for its
//! node, nor of a job's slot while as many others as may be at once are before it.

use longshore_model::{
    Evacuation, GroupKey, Health, Node, ReplicaState, ServiceSpec, Slot, Time,
    replica::{Replica, Wanted},
    rollout::Held,
    service::Replace,
};
use longshore_store::{Group, State, is_live};

pub(super) const NAME: &str = "evacuated";

pub(super) fn check(state: &State, now: Time) -> Vec<String> {
    if *state.evacuation() != Evacuation::Free {
        return Vec::new();
    }
    let mut messages = Vec::new();
    for (key, group) in state.groups().filter(|(_, group)| group.wanted == Wanted::Run) {
        let slots = group.slots.values().filter(|slot| slot.wanted == Wanted::Run && slot.waiting.is_none());
        for slot in slots.filter(|slot| counts_on_the_lost(state, key, group, slot, now)) {
            if has_its_turn(state, group, slot) {
                messages.push(format!("{} counts on a node that is down", slot.key.printed(key)));
            }
        }
    }
    messages
}

fn counts_on_the_lost(state: &State, key: &GroupKey, group: &Group, slot: &Slot, now: Time) -> bool {
    // One that ended, well or for good, stays ended; and an older one that goes on elsewhere keeps the slot alive.
    let Some(node) = lost_with(state, slot) else { return false };
    let spec = followed(state, key, group, slot);
    node.confirmed_lost.is_some() || !is_waited_for(spec, node, now)
}

/// The node a slot was lost with, if nothing of it is anywhere else.
fn lost_with<'s>(state: &'s State, slot: &Slot) -> Option<&'s Node> {
    let newest = slot.replicas.iter().rev().find(|replica| replica.wanted == Wanted::Run)?;
    let node = state.node(&newest.assignment.node)?;
    let elsewhere = |replica: &Replica| {
        let up = state.node(&replica.assignment.node).is_some_and(|node| node.health != Health::Down);
        is_live(replica) && up
    };
    let lost = newest.state == ReplicaState::Lost && node.health == Health::Down;
    (lost && !slot.replicas.iter().any(elsewhere)).then_some(node)
}

/// The spec a slot follows: until its step has come, the one before the rollout, unless it is what it shall become already, was
/// added by an earlier rollout that this one superseded, or the service ran one on every node then and has a count now, or the other way round.
fn followed<'s>(state: &'s State, key: &GroupKey, group: &'s Group, slot: &Slot) -> &'s ServiceSpec {
    let was_so = |held: &&Held| held.spec.kind.is_per_node() == group.spec.kind.is_per_node();
    let Some(held) = group.rolling.held.as_ref().filter(was_so) else { return &group.spec };
    let rollout = state.deployment(&key.namespace, &key.deployment).and_then(|known| known.rollout.as_ref());
    let stepped = slot.step.is_some_and(|step| rollout.is_some_and(|rollout| rollout.number == step.rollout));
    let newest = slot.replicas.iter().rev().find(|replica| replica.wanted == Wanted::Run);
    let is_there = newest
        .map(|replica| &replica.assignment.terms)
        .is_some_and(|terms| (&terms.spec_hash, terms.restart_epoch) == (&group.spec.spec_hash, group.restart_epoch));
    if stepped || is_there || was_added(group, held, slot) { &group.spec } else { &held.spec }
}

/// Whether a slot is beyond the count of the manifest that is left and has nothing of it.
fn was_added(group: &Group, held: &Held, slot: &Slot) -> bool {
    let made = |replica: &Replica| replica.assignment.terms.spec_hash == held.spec.spec_hash;
    let before = group.slots.values().filter(|other| other.wanted == Wanted::Run && other.key < slot.key).count();
    let beyond = !held.spec.kind.is_per_node() && before >= held.spec.replicas as usize;
    beyond && !slot.replicas.iter().any(made)
}

fn is_waited_for(spec: &ServiceSpec, node: &Node, now: Time) -> bool {
    let in_time = spec.disconnect.lost_after.map(|wait| now < node.health_since.after(wait));
    match (in_time, spec.disconnect.replace) {
        (Some(in_time), Replace::No) => in_time,
        // A replica that is its node's own cannot be replaced meanwhile.
        (Some(in_time), Replace::Yes) => in_time && spec.kind.is_per_node(),
        (None, Replace::No) => true,
        (None, Replace::Yes) => false,
    }
}

/// Whether fewer others of a job are at work, or wait for a node, than may be at once. One that has none that shall run is about
/// to be: it waits for what was told to stop. One that failed rests.
fn has_its_turn(state: &State, group: &Group, slot: &Slot) -> bool {
    let Some(most) = group.spec.max_concurrent.filter(|_| group.spec.kind.is_job()) else { return true };
    let unfinished = |other: &&Slot| {
        let newest = other.replicas.iter().rev().find(|replica| replica.wanted == Wanted::Run);
        let works =
            |replica: &Replica| replica.state != ReplicaState::Failed && !super::concurrency::has_ended(group, replica);
        let under_way = newest.map_or(!other.replicas.is_empty(), works);
        // Of several that were lost, the first comes first.
        let later = other.key >= slot.key && lost_with(state, other).is_some();
        other.key != slot.key && !later && (under_way || other.waiting.is_some())
    };
    let before = group.slots.values().filter(|other| other.wanted == Wanted::Run).filter(unfinished).count();
    before < most as usize
}
