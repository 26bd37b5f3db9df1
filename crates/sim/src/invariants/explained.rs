//! After a pass, every desired slot has a generation that should run, or a reason why not.
//!
//! A stopping generation counts until it is gone: where two cannot coexist, the old one has to stop first.

use longshore_model::{
    GroupKey, Health, ReplicaState, Slot,
    replica::{DesiredState, Replica},
};
use longshore_store::{Group, State};

pub(super) const NAME: &str = "explained";

pub(super) fn check(state: &State, key: &GroupKey, group: &Group) -> Vec<String> {
    // A slot of a stopped deployment waits for the operator alone.
    if state.is_stopped(key) {
        return Vec::new();
    }
    let open = group.slots.values().filter(|slot| slot.desired == DesiredState::Run);
    open.filter(|slot| !has_answer(state, slot))
        .map(|slot| format!("{} has neither a node nor a reason", slot.key.replica_id(key)))
        .collect()
}

fn has_answer(state: &State, slot: &Slot) -> bool {
    // A lost replica on a node that has reconnected is being stopped.
    let is_lost = |replica: &Replica| {
        let down = state.node(&replica.assignment.node).is_none_or(|node| node.health == Health::Down);
        replica.state == ReplicaState::Lost && down
    };
    let answers = |replica: &Replica| replica.desired == DesiredState::Run || !is_lost(replica);
    slot.waiting.is_some() || slot.replicas.iter().any(answers)
}
