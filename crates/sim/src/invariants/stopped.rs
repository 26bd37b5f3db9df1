//! After a pass, no generation of a stopped deployment shall run; a job that has completed is left alone.

use longshore_model::{
    GroupKey, ReplicaState,
    replica::{DesiredState, Replica},
};
use longshore_store::{Group, State};

pub(super) const NAME: &str = "stopped";

pub(super) fn check(state: &State, key: &GroupKey, group: &Group) -> Vec<String> {
    if !state.is_stopped(key) {
        return Vec::new();
    }
    let runs = |replica: &&Replica| replica.desired == DesiredState::Run && replica.state != ReplicaState::Completed;
    let slots = group.slots.values();
    let running = slots.filter_map(|slot| Some((slot, slot.replicas.iter().find(runs)?)));
    running
        .map(|(slot, replica)| {
            format!("{} g{} shall run, but it is stopped", slot.key.replica_id(key), replica.generation)
        })
        .collect()
}
