//! Whatever the control plane believes: no named volume is mounted by processes of two generations on different
//! machines, and no slot with data has two processes at all.
//!
//! Asked of the machines themselves, cut off or not. This is what fencing is for.

use std::collections::BTreeMap;

use longshore_model::{GroupKey, NodeName, SlotKey, VolumeKey, replica::HeldVolume};
use longshore_store::State;

use crate::machine::{ContainerId, Machine};

pub(super) const NAME: &str = "fencing";

pub(super) fn check(state: &State, machines: &BTreeMap<NodeName, Machine>) -> Vec<String> {
    let mut mounts: BTreeMap<&VolumeKey, Vec<(&NodeName, String)>> = BTreeMap::new();
    let mut slots: BTreeMap<(&GroupKey, &SlotKey), Vec<String>> = BTreeMap::new();
    for (node, machine) in machines {
        for id in machine.processes() {
            let volumes = volumes_of(state, id);
            if volumes.is_empty() {
                continue;
            }
            let printed = format!("{} g{} on {node}", id.slot.printed(&id.group), id.generation);
            slots.entry((&id.group, &id.slot)).or_default().push(printed.clone());
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

/// The volumes a generation was promised; none of a service on every node, which has one on every node.
fn volumes_of<'s>(state: &'s State, id: &ContainerId) -> &'s [HeldVolume] {
    let slot = state.group(&id.group).and_then(|group| group.slots.get(&id.slot));
    let replica = slot.and_then(|slot| slot.replicas.iter().find(|replica| replica.generation == id.generation));
    replica.map_or(&[], |replica| &replica.assignment.terms.volumes)
}
