//! Every replica has an address of its own, from its node's block, and a node holds no more than it can.

use std::net::Ipv6Addr;

use longshore_model::{AddressPlan, Node, ReplicaKey};

use super::shadow_state::ShadowState;

pub(super) const NAME: &str = "address";

pub(super) fn check_node(
    node: &Node,
    addresses: impl ExactSizeIterator<Item = Ipv6Addr>,
    plan: AddressPlan,
) -> Vec<String> {
    let mut messages = Vec::new();
    if let Some(limit) = node.capacity.addresses
        && addresses.len() as u64 > limit
    {
        messages.push(format!("{} holds {} of {limit} addresses", node.name, addresses.len()));
    }
    let block = plan.ipv6_block(node.address_block());
    for address in addresses.filter(|address| !block.contains(address)) {
        messages.push(format!("{address} on {} is not from its range {block}", node.name));
    }
    messages
}

pub(super) fn check_unique(shadow: &ShadowState, address: Ipv6Addr) -> Option<String> {
    let owners: Vec<String> = shadow.address_owners(address).map(ReplicaKey::to_string).collect();
    (owners.len() > 1).then(|| format!("{address} belongs to {}", owners.join(" and ")))
}
