//! Nothing shall run on a node that has left, and nothing is said to run on one that is down.
//!
//! What was on a lost node is lost until it is heard of again; a replica that looks alive there would be counted on.

use longshore_model::{
    Health, ReplicaState,
    replica::{Replica, Wanted},
};
use longshore_store::State;

pub(super) const NAME: &str = "tenure";

pub(super) fn check(state: &State) -> Vec<String> {
    let wanted = state.replicas().filter(|(_, _, replica)| replica.wanted == Wanted::Run);
    let bad = wanted.filter_map(|(group, slot, replica)| {
        let node = &replica.assignment.node;
        let complaint = match state.node(node) {
            None => "which has left",
            Some(known) if known.health == Health::Down && looks_alive(replica) => "which is down",
            Some(_) => return None,
        };
        Some(format!("{} g{} shall run on {node}, {complaint}", slot.key.printed(group), replica.generation))
    });
    bad.collect()
}

/// Seen starting or running, and not lost.
fn looks_alive(replica: &Replica) -> bool {
    match replica.state {
        ReplicaState::Pulling | ReplicaState::Starting | ReplicaState::Running | ReplicaState::Degraded => true,
        ReplicaState::Pending
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Failed
        | ReplicaState::Completed
        | ReplicaState::Lost => false,
    }
}
