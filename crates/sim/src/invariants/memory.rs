//! Memory reserved on a node never exceeds what is allocatable.
//!
//! Every replica counts until it was observed to have ended, overhead included. CPU may be overcommitted and has no such rule.

use longshore_model::{Node, units};

use super::Occupants;

pub(super) const NAME: &str = "memory";

pub(super) fn check(node: &Node, occupants: &Occupants) -> Vec<String> {
    let used =
        occupants.values().fold(0, |sum: u64, assignment| sum.saturating_add(assignment.reservation.memory_total()));
    let allocatable = node.allocatable_memory();
    if used <= allocatable {
        return Vec::new();
    }
    vec![format!("{} gives out {} of {}", node.name, units::bytes(used), units::bytes(allocatable))]
}
