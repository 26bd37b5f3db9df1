//! Numbers that addresses are computed from: a block for each node, a VIP for each service.
//!
//! Owns: when a number is given out and released. Must not touch: the addresses; see
//! [`AddressPlan`](longshore_model::AddressPlan).
//! Invariant: nothing is numbered before the first command of a version that knows of numbers, so every member numbers the
//! same state, whatever snapshot it started from; what exists by then keeps the addresses it has.

use std::sync::Arc;

use longshore_model::{
    Event, Node, Time,
    address_plan::{LARGEST_IPV4_HOST, is_block},
};

use crate::{State, state::Group};

impl State {
    /// Begins to give out numbers, and numbers what exists: nodes by their joining numbers, services by their keys.
    pub(crate) fn begin_numbering(&mut self, at: Time) -> Vec<Event> {
        if self.is_numbered {
            return Vec::new();
        }
        (self.is_numbered, self.latest) = (true, at);
        let blocks = Arc::make_mut(&mut self.blocks);
        for left in self.removed.values() {
            // Its addresses may still be in caches.
            if blocks.take(left.number.0) {
                blocks.release(left.number.0, left.removed_at.unwrap_or(at));
            }
        }
        let mut nodes: Vec<Arc<Node>> = self.nodes.values().cloned().collect();
        nodes.sort_by_key(|node| node.number);
        let mut events = Vec::new();
        for node in nodes {
            let block = self.take_block(&node);
            let node = Arc::new(Node { block, ..Node::clone(&node) });
            self.nodes.insert(node.name.clone(), Arc::clone(&node));
            events.push(Event::NodeChanged(node));
        }
        let vips = Arc::make_mut(&mut self.vips);
        for (key, group) in &mut self.groups {
            if wants_vip(group) {
                group.vip = Some(vips.take_lowest(at, |_| true));
                let (group, rollout_position) = (key.clone(), group.rollout_position.clone());
                events.push(Event::GroupRolloutChanged { group, rollout_position });
            }
        }
        events
    }

    /// The block of a joining node: the lowest free one. A node whose joining time is unknown joined under the rule of
    /// before, or is simulated: its number is its block.
    pub(crate) fn take_block(&mut self, node: &Node) -> Option<u32> {
        if !self.is_numbered {
            return None;
        }
        let (blocks, number) = (Arc::make_mut(&mut self.blocks), node.number.0);
        Some(match node.joined_at {
            None if is_block(number) && blocks.take(number) => number,
            Some(_) | None => blocks.take_lowest(self.latest, is_block),
        })
    }

    /// Releases the block of a node that is removed.
    pub(crate) fn release_block(&mut self, node: &Node, at: Time) {
        if let Some(block) = node.block {
            Arc::make_mut(&mut self.blocks).release(block, at);
        }
    }

    /// How many addresses a node has for replicas. A node without an IPv4 block has no limit.
    pub(crate) fn address_limit(&self, node: &Node) -> Option<u64> {
        self.config.address_plan().ipv4_block(node.address_block()).map(|_| LARGEST_IPV4_HOST)
    }
}

/// Whether a service has networks and no VIP yet.
pub(crate) fn wants_vip(group: &Group) -> bool {
    group.vip.is_none() && group.spec.has_overlay_networks()
}
