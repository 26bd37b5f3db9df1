//! No replica is desired on a node that was removed, and none is recorded as running on one that is down.
//!
//! Replicas of a down node are `lost` until it reconnects; one recorded as running would be counted as serving.

use longshore_model::{
    Health, ReplicaState,
    replica::{DesiredState, Replica},
};
use longshore_store::State;

pub(super) const NAME: &str = "runs_on_lost_node";

pub(super) fn check(state: &State) -> Vec<String> {
    let desired = state.replicas().filter(|(_, _, replica)| replica.desired == DesiredState::Run);
    let violations = desired.filter_map(|(group, slot, replica)| {
        let node = &replica.assignment.node;
        let problem = match state.node(node) {
            None => "which was removed",
            Some(known) if known.health == Health::Down && looks_alive(replica) => "which is down",
            Some(_) => return None,
        };
        Some(format!("{} g{} should run on {node}, {problem}", slot.key.replica_id(group), replica.generation))
    });
    violations.collect()
}

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
