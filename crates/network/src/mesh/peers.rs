//! Which machines are peers of this one, computed from the network state.
//!
//! Owns: the peers, the networks each of them may speak for, and the difference of two sets of peers.
//! Must not touch: sockets and the kernel. Invariant: equal states give equal peers; no network belongs to two peers, and
//! a node that is not in the state is part of no peer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use ipnet::{IpNet, Ipv6Net};
use longshore_model::{AddressPlan, NodeName};

use super::key::MeshPublicKey;
use crate::network_state::{NetworkNode, NetworkState};

/// Another machine in the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshPeer {
    /// Where its packets are sent; `None` until it is heard from.
    pub endpoint: Option<SocketAddr>,
    /// The networks it may speak for: packets to them go to it, and packets from it must come from them.
    pub allowed: BTreeSet<IpNet>,
    /// Its nodes with their own addresses in the mesh.
    pub nodes: BTreeMap<NodeName, Ipv6Addr>,
}

/// The peers of a machine, by public key.
pub type MeshPeers = BTreeMap<MeshPublicKey, MeshPeer>;

/// How one set of peers becomes another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerChanges {
    /// Peers that are no longer any.
    pub removed: Vec<MeshPublicKey>,
    /// Peers that are new or different.
    pub set: MeshPeers,
}

/// The peers of a machine with these nodes and this key.
pub fn peers(state: &NetworkState, local_nodes: &BTreeSet<NodeName>, own: MeshPublicKey) -> MeshPeers {
    let Some(settings) = state.settings() else { return MeshPeers::new() };
    let mut peers = MeshPeers::new();
    let mut taken = BTreeSet::new();
    for node in state.nodes().filter(|node| !local_nodes.contains(&node.name)) {
        let Some((key, block, port)) = identity(node).filter(|(key, ..)| *key != own) else { continue };
        // Two nodes with one block would be a fault of the servers. The first one keeps it, so that the answer does not
        // depend on the order in which an implementation of WireGuard is told.
        if !taken.insert(block) {
            continue;
        }
        let address = settings.addresses.node_ipv6(block);
        let endpoint = node.ip.map(|ip| SocketAddr::new(ip, port));
        let new = || MeshPeer { endpoint, allowed: BTreeSet::new(), nodes: BTreeMap::new() };
        let peer = peers.entry(key).or_insert_with(new);
        peer.endpoint = peer.endpoint.or(endpoint);
        peer.allowed.extend(allowed(&settings.addresses, block));
        peer.nodes.insert(node.name.clone(), address);
    }
    peers
}

/// Key, block and port of a node that takes part in the mesh.
fn identity(node: &NetworkNode) -> Option<(MeshPublicKey, u32, u16)> {
    let mesh = node.mesh.as_ref()?;
    Some((MeshPublicKey::parse(&mesh.public_key)?, node.block?, mesh.port))
}

/// The networks of a node: its two blocks and its own address.
fn allowed(plan: &AddressPlan, block: u32) -> impl Iterator<Item = IpNet> {
    let own = IpNet::V6(Ipv6Net::from(plan.node_ipv6(block)));
    plan.blocks(block).into_iter().chain([own])
}

/// What has to be done so that `before` becomes `after`.
pub fn changes(before: &MeshPeers, after: &MeshPeers) -> PeerChanges {
    let removed = before.keys().filter(|key| !after.contains_key(key)).copied().collect();
    let set = after.iter().filter(|(key, peer)| before.get(key) != Some(*peer));
    PeerChanges { removed, set: set.map(|(key, peer)| (*key, peer.clone())).collect() }
}

impl MeshPeer {
    /// Whether a packet from this address may come from the peer.
    pub fn allows(&self, source: IpAddr) -> bool {
        self.allowed.iter().any(|network| network.contains(&source))
    }

    /// The addresses that routes to the peer may name as next hop: the last ones of its blocks, and its nodes' own.
    pub(super) fn next_hops(&self) -> BTreeSet<IpAddr> {
        let gateway = |network: &IpNet| match network {
            IpNet::V4(block) => IpAddr::V4(Ipv4Addr::from(u32::from(block.broadcast()).saturating_sub(1))),
            IpNet::V6(block) => IpAddr::V6(Ipv6Addr::from(u128::from(block.broadcast()).saturating_sub(1))),
        };
        let blocks = self.allowed.iter().filter(|network| network.prefix_len() < network.max_prefix_len());
        blocks.map(gateway).chain(self.nodes.values().copied().map(IpAddr::V6)).collect()
    }

    /// The address that probes of the peer go to.
    pub fn probe_address(&self) -> Option<Ipv6Addr> {
        self.nodes.values().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::{Cursor, StateIndex};

    use super::*;
    use crate::network_state::{MeshIdentity, MeshMode, NetworkFeed, NetworkSettings};

    fn key(number: u8) -> MeshPublicKey {
        MeshPublicKey([number; 32])
    }

    fn node(name: &str, block: u32, ip: &str, number: u8) -> NetworkNode {
        let mesh = Some(MeshIdentity { public_key: key(number).to_string(), port: 51820 });
        NetworkNode { name: name.into(), block: Some(block), ip: ip.parse().ok(), mesh, is_up: true }
    }

    fn settings() -> NetworkSettings {
        let addresses = AddressPlan {
            prefix: Ipv6Addr::new(0xfd4c, 0x6f6e, 0x6773, 0, 0, 0, 0, 0),
            pool: "10.128.0.0/10".parse().unwrap(),
        };
        NetworkSettings { cluster: "c".to_owned(), addresses, mesh: MeshMode::Auto, mesh_port: 51820 }
    }

    fn state(nodes: Vec<NetworkNode>) -> NetworkState {
        let settings = settings();
        let cursor = Cursor { incarnation: 0, index: StateIndex(1) };
        let mut state = NetworkState::default();
        state.apply(NetworkFeed::Snapshot { cursor, services: Vec::new(), nodes, settings: Some(settings) });
        state
    }

    fn of(nodes: Vec<NetworkNode>) -> MeshPeers {
        peers(&state(nodes), &BTreeSet::from(["a".into()]), key(1))
    }

    #[test]
    fn a_peer_speaks_for_its_blocks_and_its_own_address_alone() {
        let peers = of(vec![node("a", 1, "10.0.0.1", 1), node("b", 2, "10.0.0.2", 2)]);
        assert_eq!(peers.len(), 1);
        let peer = &peers[&key(2)];
        let allowed: Vec<String> = peer.allowed.iter().map(ToString::to_string).collect();
        assert_eq!(allowed, ["10.128.8.0/22", "fd4c:6f6e:6773::2/128", "fd4c:6f6e:6773:2::/64"]);
        assert_eq!(peer.endpoint, Some("10.0.0.2:51820".parse().unwrap()));
        let next_hops: Vec<IpAddr> = peer.next_hops().into_iter().collect();
        let plan = settings().addresses;
        assert_eq!(next_hops, [plan.gateways(2)[0], plan.node_ipv6(2).into(), plan.gateways(2)[1]]);
        assert!(peer.allows("10.128.8.7".parse().unwrap()) && peer.allows("fd4c:6f6e:6773:2::9".parse().unwrap()));
        assert!(!peer.allows("10.128.4.7".parse().unwrap()) && !peer.allows("fd4c:6f6e:6773::3".parse().unwrap()));
    }

    #[test]
    fn nodes_of_one_process_are_one_peer() {
        let peers = of(vec![node("b", 2, "10.0.0.2", 2), node("c", 3, "10.0.0.2", 2), node("d", 4, "fd00::4", 4)]);
        assert_eq!(peers.len(), 2);
        assert_eq!(peers[&key(2)].nodes.len(), 2);
        assert_eq!(peers[&key(2)].allowed.len(), 6);
        assert_eq!(peers[&key(4)].endpoint, Some("[fd00::4]:51820".parse().unwrap()));
    }

    #[test]
    fn siblings_of_this_machine_and_nodes_without_block_or_identity_are_no_peers() {
        let old = NetworkNode { mesh: None, ..node("old", 5, "10.0.0.5", 5) };
        let fresh = NetworkNode { block: None, ..node("fresh", 6, "10.0.0.6", 6) };
        let identity = MeshIdentity { public_key: "nonsense".to_owned(), port: 1 };
        let odd = NetworkNode { mesh: Some(identity), ..node("odd", 7, "10.0.0.7", 7) };
        let sibling = node("sibling", 8, "10.0.0.1", 1);
        assert_eq!(of(vec![old, fresh, odd, sibling]), MeshPeers::new());
    }

    #[test]
    fn a_block_belongs_to_one_peer_only() {
        let peers = of(vec![node("b", 2, "10.0.0.2", 2), node("c", 2, "10.0.0.3", 3)]);
        assert_eq!(peers.keys().copied().collect::<Vec<_>>(), [key(2)]);
    }

    #[test]
    fn only_what_differs_is_changed_and_a_node_that_left_is_removed() {
        let before = of(vec![node("b", 2, "10.0.0.2", 2), node("c", 3, "10.0.0.3", 3), node("d", 4, "10.0.0.4", 4)]);
        let after = of(vec![node("b", 2, "10.0.0.2", 2), node("c", 3, "10.0.0.33", 3), node("e", 5, "10.0.0.5", 5)]);
        let changes = changes(&before, &after);
        assert_eq!(changes.removed, [key(4)]);
        assert_eq!(changes.set.keys().copied().collect::<Vec<_>>(), [key(3), key(5)]);
        assert_eq!(super::changes(&after, &after), PeerChanges::default());
    }
}
