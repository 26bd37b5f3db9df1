//! Scratch disk given out on a node that reports disk never exceeds what it may give out.

use longshore_model::{Node, units};

use super::Tenants;

pub(super) const NAME: &str = "disk";

pub(super) fn check(node: &Node, tenants: &Tenants) -> Vec<String> {
    let used = tenants.values().fold(0, |sum: u64, tenant| sum.saturating_add(tenant.terms.disk_bytes));
    match node.allocatable_disk() {
        Some(room) if used > room => {
            vec![format!("{} gives out {} of {} of disk", node.name, units::bytes(used), units::bytes(room))]
        }
        Some(_) | None => Vec::new(),
    }
}
