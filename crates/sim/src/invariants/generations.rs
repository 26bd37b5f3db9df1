//! A slot has at most two generations that should run, in ascending order.
//!
//! Two is what an update without a gap needs: the new one beside the old one. A generation on a down node is not counted,
//! whether it ran there or had failed.

use longshore_model::{GroupKey, Health, SlotKey, replica::Replica};
use longshore_store::{State, is_live};

pub(super) const NAME: &str = "generations";

pub(super) fn check(state: &State, group: &GroupKey, slot: &SlotKey) -> Vec<String> {
    let Some(known) = state.group(group).and_then(|group| group.slots.get(slot)) else { return Vec::new() };
    let mut messages = Vec::new();
    let is_up = |replica: &&Replica| {
        let node = state.node(&replica.assignment.node);
        is_live(replica) && node.is_none_or(|node| node.health != Health::Down)
    };
    let live = known.replicas.iter().filter(is_up).count();
    if live > 2 {
        messages.push(format!("{} has {live} generations that should run", slot.replica_id(group)));
    }
    if !known.replicas.is_sorted_by(|a, b| a.generation < b.generation) {
        messages.push(format!("{} has generations out of order", slot.replica_id(group)));
    }
    messages
}
