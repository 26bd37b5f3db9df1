//! Memory given out on a node never exceeds what it may give out.
//!
//! Everything counts that was not seen to have ended, overhead included. CPU is soft and has no such rule.

use longshore_model::{Node, units};

use super::Tenants;

pub(super) const NAME: &str = "memory";

pub(super) fn check(node: &Node, tenants: &Tenants) -> Vec<String> {
    let used = tenants.values().fold(0, |sum: u64, tenant| sum.saturating_add(tenant.terms.memory_total()));
    let room = node.allocatable_memory();
    if used <= room {
        return Vec::new();
    }
    vec![format!("{} gives out {} of {}", node.name, units::bytes(used), units::bytes(room))]
}
