//! A host port of a node belongs to one replica.

use std::collections::BTreeMap;

use longshore_model::{Node, ReplicaKey, replica::HostPort};

use super::Occupants;

pub(super) const NAME: &str = "host_ports";

pub(super) fn check(node: &Node, occupants: &Occupants) -> Vec<String> {
    let mut holders: BTreeMap<HostPort, &ReplicaKey> = BTreeMap::new();
    let mut messages = Vec::new();
    for (key, assignment) in occupants {
        for port in &assignment.reservation.host_ports {
            if let Some(holder) = holders.insert(*port, key) {
                let (port, protocol) = (port.port, port.protocol.as_str());
                messages.push(format!("{} has port {port}/{protocol} taken by {holder} and {key}", node.name));
            }
        }
    }
    messages
}
