//! Every replica has an address of its own, from its node's /64, and a node holds no more than it can.

use std::net::Ipv6Addr;

use longshore_model::{Node, ReplicaKey};

use super::shadow_state::ShadowState;

pub(super) const NAME: &str = "address";

pub(super) fn check_node(
    node: &Node,
    addresses: impl ExactSizeIterator<Item = Ipv6Addr>,
    cluster: Ipv6Addr,
) -> Vec<String> {
    let mut messages = Vec::new();
    if let Some(limit) = node.capacity.addresses
        && addresses.len() as u64 > limit
    {
        messages.push(format!("{} holds {} of {limit} addresses", node.name, addresses.len()));
    }
    let prefix = (u128::from(cluster) >> 80 << 16 | u128::from(node.number.0 & 0xffff)) << 64;
    for address in addresses.filter(|address| u128::from(*address) >> 64 << 64 != prefix) {
        messages.push(format!("{address} on {} is not from its range {}/64", node.name, Ipv6Addr::from(prefix)));
    }
    messages
}

pub(super) fn check_unique(shadow: &ShadowState, address: Ipv6Addr) -> Option<String> {
    let owners: Vec<String> = shadow.address_owners(address).map(ReplicaKey::to_string).collect();
    (owners.len() > 1).then(|| format!("{address} belongs to {}", owners.join(" and ")))
}
