//! Once all is mended and quiet, the cluster is what its state says: every replica is where it should be and does what it
//! can, and no machine runs anything else.
//!
//! What cannot come up (an image that cannot be pulled, a process that was given up) is at rest too: it is explained.

use std::collections::BTreeMap;

use longshore_model::{
    Health, NodeName, ReplicaState, RuntimeCode,
    replica::{Replica, Wanted},
};
use longshore_store::State;

use crate::machine::{Condition, ContainerId, Machine};

pub(super) const NAME: &str = "rest";

pub(super) fn check(state: &State, machines: &BTreeMap<NodeName, Machine>) -> Vec<String> {
    let mut messages = Vec::new();
    for node in state.nodes().filter(|node| matches!(node.health, Health::Suspect | Health::Down)) {
        messages.push(format!("{} is {:?} although its machine is on", node.name, node.health));
    }
    let mut expected: BTreeMap<(&NodeName, ContainerId), &Replica> = BTreeMap::new();
    for (group, slot, replica) in state.replicas() {
        let id = ContainerId { group: group.clone(), slot: slot.key.clone(), generation: replica.generation };
        if let Some(problem) = unrest(state, replica) {
            messages.push(format!("{} {problem}", name(&id)));
        }
        expected.insert((&replica.assignment.node, id), replica);
    }
    for (node, machine) in machines {
        for (id, attempt, condition) in machine.audit() {
            let replica = expected.remove(&(node, id.clone()));
            if replica.is_none() && condition == Condition::Ended {
                // What has no process and is nobody's any more is the agent's to sweep up.
                continue;
            }
            let known = replica.filter(|replica| replica.attempt == attempt && agrees(replica, condition));
            if known.is_none() {
                let (name, said) = (name(id), replica.map(|replica| (replica.attempt, replica.state)));
                messages.push(format!("{node} has {name} ({condition:?}, attempt {attempt}), the state says {said:?}"));
            }
        }
    }
    for ((node, id), replica) in expected {
        if !matches!(replica.state, ReplicaState::Failed | ReplicaState::Completed) {
            messages.push(format!("{} is {} on {node}, which knows nothing of it", name(&id), replica.state.as_str()));
        }
    }
    messages
}

fn name(id: &ContainerId) -> String {
    format!("{} g{}", id.slot.printed(&id.group), id.generation)
}

/// Why a generation is not at rest, if it is not.
fn unrest(state: &State, replica: &Replica) -> Option<String> {
    let node = &replica.assignment.node;
    if state.node(node).is_none() {
        return Some(format!("is on {node}, which is gone"));
    }
    if replica.wanted == Wanted::Stop {
        return Some(format!("was told to stop on {node} and never did"));
    }
    match replica.state {
        // One that is degraded is not restarted where its policy says so, and goes on as it is.
        ReplicaState::Running | ReplicaState::Failed | ReplicaState::Completed | ReplicaState::Degraded => None,
        ReplicaState::Pending if replica.code == Some(RuntimeCode::ImagePullFailed) => None,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => Some(format!("is still {} on {node}", replica.state.as_str())),
    }
}

fn agrees(replica: &Replica, condition: Condition) -> bool {
    match condition {
        // What was given up because of its check is left as it is, for whoever wants to look at it.
        Condition::Up => matches!(replica.state, ReplicaState::Running | ReplicaState::Degraded | ReplicaState::Failed),
        Condition::Ended => matches!(replica.state, ReplicaState::Failed | ReplicaState::Completed),
        // An image that cannot be pulled is tried for ever.
        Condition::Coming => replica.state == ReplicaState::Pending,
        Condition::Leaving => false,
    }
}
