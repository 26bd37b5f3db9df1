//! Whatever the state says: no named volume is mounted by processes on two nodes, and no slot with data has two
//! processes.
//!
//! Checked on the nodes themselves, also while they are cut off. This is what fencing is for.

use std::collections::BTreeMap;

use longshore_model::{GroupKey, NodeName, ReplicaKey, SlotKey, VolumeKey, replica::HeldVolume};
use longshore_store::State;

use crate::virtual_node::VirtualNode;

pub(super) const NAME: &str = "fencing";

pub(super) fn check(state: &State, virtual_nodes: &BTreeMap<NodeName, VirtualNode>) -> Vec<String> {
    let mut mounts: BTreeMap<&VolumeKey, Vec<(&NodeName, String)>> = BTreeMap::new();
    let mut slots: BTreeMap<(&GroupKey, &SlotKey), Vec<String>> = BTreeMap::new();
    for (node, virtual_node) in virtual_nodes {
        for key in virtual_node.processes() {
            let volumes = volumes_of(state, key);
            if volumes.is_empty() {
                continue;
            }
            let printed = format!("{key} on {node}");
            slots.entry((&key.group, &key.slot)).or_default().push(printed.clone());
            for held in volumes {
                mounts.entry(&held.key).or_default().push((node, printed.clone()));
            }
        }
    }
    let twice = slots.into_values().filter(|processes| processes.len() > 1);
    let twice = twice.map(|processes| format!("{} run at once", processes.join(" and ")));
    let apart = mounts.into_iter().filter(|(_, holders)| holders.iter().any(|(node, _)| *node != holders[0].0));
    let apart = apart.map(|(volume, holders)| {
        let names: Vec<String> = holders.into_iter().map(|(_, printed)| printed).collect();
        format!("{volume} is mounted by {}", names.join(" and "))
    });
    twice.chain(apart).collect()
}

/// The volumes in a generation's reservation. A service that runs on every node has none there: each node has its own.
fn volumes_of<'s>(state: &'s State, key: &ReplicaKey) -> &'s [HeldVolume] {
    state.replica(key).map_or(&[], |replica| &replica.assignment.reservation.volumes)
}
