//! What an agent's drivers ask of the host side: the overlay of their node, and whether an address is in effect.
//!
//! Owns: the answer while it is not known yet. Must not touch: the kernel.
//! Invariant: an overlay is offered only after its bridge and its rules are in effect and the self-test passed.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use ipnet::{Ipv4Net, Ipv6Net};
use longshore_model::{AddressPlan, NodeName};
use tokio::sync::watch;

use crate::render::mac_of;

/// How long a start waits for the first state of the network, and for the rules of a new address.
const PATIENCE: Duration = Duration::from_secs(10);

/// The overlay of one node on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalOverlay {
    /// The bridge that replicas are attached to.
    pub bridge: String,
    /// The name of the engine's network over that bridge.
    pub engine_network: String,
    /// Where the addresses come from.
    pub addresses: AddressPlan,
    /// The node's IPv4 block.
    pub ipv4_block: Ipv4Net,
    /// The node's IPv6 block.
    pub ipv6_block: Ipv6Net,
    /// Its gateway and name server.
    pub ipv4_gateway: Ipv4Addr,
    /// Its gateway and name server.
    pub ipv6_gateway: Ipv6Addr,
    /// The MTU of every replica.
    pub mtu: u32,
}

impl LocalOverlay {
    /// The IPv4 address and the hardware address of a replica; `None` if the address is not one of this node's block,
    /// as that of a replica that was placed before the node got its block.
    pub fn port_of(&self, replica: Ipv6Addr) -> Option<(Ipv4Addr, [u8; 6])> {
        let ipv4 = self.addresses.ipv4_of(replica).filter(|ip| self.ipv4_block.contains(ip))?;
        Some((ipv4, mac_of(ipv4)))
    }
}

/// Whether the overlay can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Not known yet.
    Pending,
    /// It cannot.
    Declined,
    /// It can, on these nodes.
    Ready {
        nodes: BTreeMap<NodeName, LocalOverlay>,
        /// The replicas of this machine that rules exist for.
        replicas: BTreeSet<Ipv6Addr>,
    },
}

impl Offer {
    /// Declines what was not known yet. Returns whether it did; what is offered stays.
    pub(super) fn decline_if_pending(&mut self) -> bool {
        let is_pending = *self == Self::Pending;
        if is_pending {
            *self = Self::Declined;
        }
        is_pending
    }
}

/// Asks for the overlay of a node.
#[derive(Clone, Debug)]
pub struct OverlayHandle {
    offer: watch::Receiver<Offer>,
}

impl OverlayHandle {
    pub(super) fn new(offer: watch::Receiver<Offer>) -> Self {
        Self { offer }
    }

    /// A handle that offers this overlay and has rules for every address, for tests of drivers.
    pub fn fixed(node: NodeName, overlay: LocalOverlay, replicas: BTreeSet<Ipv6Addr>) -> Self {
        let (_, offer) = watch::channel(Offer::Ready { nodes: BTreeMap::from([(node, overlay)]), replicas });
        Self { offer }
    }

    /// The overlay of one of the machine's nodes, if any is offered.
    pub fn offered(&mut self) -> Option<LocalOverlay> {
        match &*self.offer.borrow_and_update() {
            Offer::Ready { nodes, .. } => nodes.values().next().cloned(),
            Offer::Pending | Offer::Declined => None,
        }
    }

    /// Waits for another offer than [`Self::offered`] saw. Returns `false` once there will be none.
    pub async fn changed(&mut self) -> bool {
        self.offer.changed().await.is_ok()
    }

    /// The overlay of a node as known now.
    pub fn current(&self, node: &NodeName) -> Option<LocalOverlay> {
        match &*self.offer.borrow() {
            Offer::Ready { nodes, .. } => nodes.get(node).cloned(),
            Offer::Pending | Offer::Declined => None,
        }
    }

    /// The overlay of a node; waits for a while if it is not known yet.
    pub async fn overlay(&self, node: &NodeName) -> Option<LocalOverlay> {
        let is_known = |offer: &Offer| *offer != Offer::Pending;
        let _ = tokio::time::timeout(PATIENCE, self.offer.clone().wait_for(is_known)).await;
        self.current(node)
    }

    /// Waits for a while until rules for the replica are in effect: its first packet would be dropped before.
    pub async fn wait_for(&self, replica: Ipv6Addr) {
        let is_there = |offer: &Offer| match offer {
            Offer::Ready { replicas, .. } => replicas.contains(&replica),
            Offer::Pending | Offer::Declined => false,
        };
        let _ = tokio::time::timeout(PATIENCE, self.offer.clone().wait_for(is_there)).await;
    }
}
