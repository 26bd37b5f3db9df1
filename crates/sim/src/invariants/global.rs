//! A replica of a global service is on the node its slot is named after, in every generation.

use longshore_model::{GroupKey, SlotKey};
use longshore_store::State;

pub(super) const NAME: &str = "global";

pub(super) fn check(state: &State, group: &GroupKey, slot: &SlotKey) -> Vec<String> {
    let SlotKey::Node(own) = slot else { return Vec::new() };
    let Some(known) = state.group(group).and_then(|group| group.slots.get(slot)) else { return Vec::new() };
    let misplaced = known.replicas.iter().filter(|replica| replica.assignment.node != *own);
    misplaced
        .map(|replica| format!("{} g{} is on {}", slot.replica_id(group), replica.generation, replica.assignment.node))
        .collect()
}
