//! Heartbeats of nodes, and the failure detector that reads them.
//!
//! Owns: detection, from missed heartbeats to `suspect` and `down`.
//! Must not touch: what a lost node leads to.
//! Invariant: all nodes send in phase, at whole multiples of the interval.

use longshore_model::{Command, Health, Node, NodeName};

use super::{Engine, Tick, network::Network};
use crate::virtual_node::{HeartbeatDelivery, Link};

impl Engine<'_> {
    pub(super) fn heartbeats(&mut self) {
        let every = self.state.config().heartbeat_interval_for(self.virtual_nodes.len());
        self.queue.push(self.now.after(every), Tick::Heartbeat);
        let (suspect, down) = (self.state.config().suspect_after_missed, self.state.config().down_after_missed);
        let mut changes: Vec<(NodeName, Health)> = Vec::new();
        let mut returning: Vec<NodeName> = Vec::new();
        for (name, virtual_node) in &mut self.virtual_nodes {
            let delivery = self.network.as_mut().map_or(HeartbeatDelivery::Received, Network::heartbeat);
            let missed = virtual_node.heartbeat(delivery);
            let known = self.state.node(name).map(|node| node.health);
            let health = match known {
                // Marked down because its heartbeats were lost on the way. Its replicas may be placed elsewhere by now.
                Some(Health::Down) if missed == 0 && virtual_node.link() == Link::Up => {
                    returning.push(name.clone());
                    continue;
                }
                // A reconnecting node is set to ready by `ready_if_clean`, after it has stopped what it may no longer run.
                Some(Health::Suspect | Health::Down) if missed == 0 && virtual_node.link() == Link::Up => {
                    virtual_node.reported_health()
                }
                Some(Health::Ready | Health::Degraded) if missed >= suspect => Health::Suspect,
                Some(Health::Suspect) if missed >= down => Health::Down,
                Some(_) | None => continue,
            };
            changes.push((name.clone(), health));
        }
        for (node, health) in changes {
            self.set_health(node, health);
        }
        for node in returning {
            self.reconnect(&node);
        }
    }

    pub(super) fn set_health(&mut self, node: NodeName, health: Health) {
        self.submit(Command::SetHealth { node, health, at: self.clock() });
    }

    pub(super) fn power_off(&mut self, node: &NodeName) {
        if let Some(virtual_node) = self.virtual_nodes.get_mut(node).filter(|virtual_node| virtual_node.is_on()) {
            virtual_node.power_off();
        }
    }

    pub(super) fn degrade(&mut self, node: &NodeName) {
        let Some(virtual_node) = self.virtual_nodes.get_mut(node) else { return };
        virtual_node.degrade();
        // An unreachable node reports it when it reconnects, unless it has booted by then.
        if virtual_node.is_reachable() {
            self.set_health(node.clone(), Health::Degraded);
        }
    }

    /// Creates the node behind a node that joined.
    pub(super) fn add_virtual_node(&mut self, node: &Node) {
        let behaviours = std::sync::Arc::clone(&self.behaviours);
        self.virtual_nodes
            .entry(node.name.clone())
            .or_insert_with(|| crate::virtual_node::VirtualNode::new(node.name.clone(), behaviours));
    }
}
