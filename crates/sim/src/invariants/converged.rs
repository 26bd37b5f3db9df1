//! Once the cluster has come to rest, the nodes run what the state says and nothing else.
//!
//! A replica that cannot start (its image cannot be pulled, its restarts are exhausted) is at rest too: it has a reason.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    Health, NodeName, ReplicaKey, ReplicaState, RuntimeCode,
    replica::{DesiredState, Replica},
};
use longshore_store::State;

use super::quiet::is_restarted_without_end;
use crate::virtual_node::{ContainerState, VirtualNode};

pub(super) const NAME: &str = "converged";

pub(super) fn check(state: &State, virtual_nodes: &BTreeMap<NodeName, VirtualNode>) -> Vec<String> {
    let mut messages = Vec::new();
    for node in state.nodes().filter(|node| matches!(node.health, Health::Suspect | Health::Down)) {
        messages.push(format!("{} is {:?} although its machine is on", node.name, node.health));
    }
    let mut restarting: BTreeSet<ReplicaKey> = BTreeSet::new();
    let mut expected: BTreeMap<(&NodeName, ReplicaKey), &Replica> = BTreeMap::new();
    for (group, slot, replica) in state.replicas() {
        let key = group.replica(&slot.key, replica.generation);
        // What is started again without end is never at rest.
        let spec = state.group(group).map(|group| &group.spec);
        if replica.restarts > 0 && spec.is_some_and(|spec| is_restarted_without_end(spec)) {
            restarting.insert(key);
            continue;
        }
        if let Some(problem) = problem_of(state, replica) {
            messages.push(format!("{key} {problem}"));
        }
        expected.insert((&replica.assignment.node, key), replica);
    }
    for (node, virtual_node) in virtual_nodes {
        for (key, attempt, container) in virtual_node.containers() {
            if restarting.contains(key) {
                continue;
            }
            let replica = expected.remove(&(node, key.clone()));
            if replica.is_none() && container == ContainerState::Exited {
                // The agent's garbage collection removes exited containers that no replica refers to.
                continue;
            }
            let known = replica.filter(|replica| replica.attempt == attempt && agrees(replica, container));
            if known.is_none() {
                let recorded = replica.map(|replica| (replica.attempt, replica.state));
                messages
                    .push(format!("{node} has {key} ({container:?}, attempt {attempt}), the state says {recorded:?}"));
            }
        }
    }
    for ((node, key), replica) in expected {
        if !matches!(replica.state, ReplicaState::Failed | ReplicaState::Completed) {
            messages.push(format!("{key} is {} on {node}, which has no such container", replica.state.as_str()));
        }
    }
    messages
}

/// Why a generation is not at rest, if it is not.
fn problem_of(state: &State, replica: &Replica) -> Option<String> {
    let node = &replica.assignment.node;
    if state.node(node).is_none() {
        return Some(format!("is on {node}, which is gone"));
    }
    if replica.desired == DesiredState::Stop {
        return Some(format!("should have stopped on {node} and did not"));
    }
    match replica.state {
        // A degraded replica stays as it is where its restart policy does not restart it.
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

fn agrees(replica: &Replica, container: ContainerState) -> bool {
    match container {
        // A replica given up because of its health check keeps its process, for debugging.
        ContainerState::Running => {
            matches!(replica.state, ReplicaState::Running | ReplicaState::Degraded | ReplicaState::Failed)
        }
        ContainerState::Exited => matches!(replica.state, ReplicaState::Failed | ReplicaState::Completed),
        // A failing pull is retried for ever.
        ContainerState::Starting => replica.state == ReplicaState::Pending,
        ContainerState::Stopping => false,
    }
}
