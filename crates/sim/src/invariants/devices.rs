//! No device of a node is given out twice.

use std::collections::BTreeMap;

use longshore_model::Node;

use super::Tenants;

pub(super) const NAME: &str = "devices";

pub(super) fn check(node: &Node, tenants: &Tenants) -> Vec<String> {
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, amount) in tenants.values().flat_map(|terms| &terms.devices) {
        let sum = used.entry(kind).or_default();
        *sum = sum.saturating_add(*amount);
    }
    let has = |kind: &str| node.capacity.devices.get(kind).copied().unwrap_or(0);
    used.into_iter()
        .filter(|(kind, used)| *used > has(kind))
        .map(|(kind, used)| format!("{} gives out {used} of {} {kind}", node.name, has(kind)))
        .collect()
}
