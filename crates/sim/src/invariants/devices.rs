//! No device of a node is given out twice, whether counted by kind or by group.

use std::collections::BTreeMap;

use longshore_model::Node;

use super::Occupants;

pub(super) const NAME: &str = "devices";

pub(super) fn check(node: &Node, occupants: &Occupants) -> Vec<String> {
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    let given =
        occupants.values().flat_map(|assignment| assignment.reservation.devices.iter().chain(&assignment.devices));
    for (kind, amount) in given {
        let sum = used.entry(kind).or_default();
        *sum = sum.saturating_add(*amount);
    }
    let groups = node.allocatable_groups();
    let has = |kind: &str| {
        let counted = node.capacity.devices.get(kind).copied();
        counted.or_else(|| groups.get(kind).map(|(_, count)| *count)).unwrap_or(0)
    };
    used.into_iter()
        .filter(|(kind, used)| *used > has(kind))
        .map(|(kind, used)| format!("{} gives out {used} of {} {kind}", node.name, has(kind)))
        .collect()
}
