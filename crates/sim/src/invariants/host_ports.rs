//! A port of a node belongs to one replica.

use std::collections::BTreeMap;

use longshore_model::{Node, replica::HostPort};

use super::{Tenants, ledger::Tenant};

pub(super) const NAME: &str = "host_ports";

pub(super) fn check(node: &Node, tenants: &Tenants) -> Vec<String> {
    let mut holders: BTreeMap<HostPort, &Tenant> = BTreeMap::new();
    let mut messages = Vec::new();
    for (tenant, assignment) in tenants {
        for port in &assignment.terms.host_ports {
            if let Some(holder) = holders.insert(*port, tenant) {
                let (port, protocol) = (port.port, port.protocol.as_str());
                let (first, second) = (holder.printed(), tenant.printed());
                messages.push(format!("{} has port {port}/{protocol} taken by {first} and {second}", node.name));
            }
        }
    }
    messages
}
