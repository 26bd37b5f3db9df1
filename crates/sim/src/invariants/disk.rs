//! Scratch disk reserved on a node that reports its disk never exceeds what is allocatable.

use longshore_model::{Node, units};

use super::Occupants;

pub(super) const NAME: &str = "disk";

pub(super) fn check(node: &Node, occupants: &Occupants) -> Vec<String> {
    let used = occupants.values().fold(0, |sum: u64, assignment| sum.saturating_add(assignment.reservation.disk_bytes));
    match node.allocatable_disk() {
        Some(allocatable) if used > allocatable => {
            vec![format!("{} gives out {} of {} of disk", node.name, units::bytes(used), units::bytes(allocatable))]
        }
        Some(_) | None => Vec::new(),
    }
}
