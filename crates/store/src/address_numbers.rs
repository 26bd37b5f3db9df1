//! Numbers that addresses are computed from: a block for each node, a VIP for each service.
//!
//! Owns: when a number is given out and released. Must not touch: the addresses; see
//! [`AddressPlan`](longshore_model::AddressPlan).
//! Invariant: nodes and services of a state that was written before numbers were given out keep the addresses they had.

use std::sync::Arc;

use longshore_model::{
    Node,
    address_plan::{LARGEST_IPV4_HOST, is_block},
};

use crate::{State, state::Group};

impl State {
    /// The block of a joining node: the lowest free one. A node whose joining time is unknown joined under the rule of
    /// before, or is simulated: its number is its block.
    pub(crate) fn take_block(&mut self, node: &Node) -> u32 {
        let (blocks, number) = (Arc::make_mut(&mut self.blocks), node.number.0);
        match node.joined_at {
            None if is_block(number) && blocks.take(number) => number,
            Some(_) | None => blocks.take_lowest(self.latest, is_block),
        }
    }

    /// Releases the block of a node that is removed.
    pub(crate) fn release_block(&mut self, node: &Node, at: longshore_model::Time) {
        Arc::make_mut(&mut self.blocks).release(node.address_block(), at);
    }

    /// How many addresses a node has for replicas. A node without an IPv4 block has no limit.
    pub(crate) fn address_limit(&self, node: &Node) -> Option<u64> {
        self.config.address_plan().ipv4_block(node.address_block()).map(|_| LARGEST_IPV4_HOST)
    }

    /// Gives blocks and VIPs to the nodes and services of a state of before.
    #[cfg(feature = "replicated")]
    pub(crate) fn number_older_members(&mut self) {
        let mut unnumbered: Vec<Arc<Node>> = self.nodes.values().filter(|node| node.block.is_none()).cloned().collect();
        unnumbered.sort_by_key(|node| node.number);
        for node in unnumbered {
            let block = Some(self.take_block(&node));
            self.nodes.insert(node.name.clone(), Arc::new(Node { block, ..Node::clone(&node) }));
        }
        let (vips, latest) = (Arc::make_mut(&mut self.vips), self.latest);
        for group in self.groups.values_mut().filter(|group| wants_vip(group)) {
            group.vip = Some(vips.take_lowest(latest, |_| true));
        }
    }
}

/// Whether a service has networks and no VIP yet.
pub(crate) fn wants_vip(group: &Group) -> bool {
    group.vip.is_none() && group.spec.has_overlay_networks()
}
