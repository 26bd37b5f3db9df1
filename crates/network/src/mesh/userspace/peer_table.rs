//! The peers of our own WireGuard, found by key, by index in a packet, and by address.
//!
//! Owns: a peer's session, its current endpoint, and the lookup tables.
//! Must not touch: sockets. Invariant: a table never changes; threads take the current one for each batch, so a removed
//! peer is gone with the next packet. A peer that stays keeps its session.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use boringtun::{
    noise::{Tunn, TunnResult, rate_limiter::RateLimiter},
    x25519::PublicKey,
};
use ipnet::IpNet;

use crate::mesh::{
    key::{MeshKey, MeshPublicKey},
    peers::MeshPeers,
};

/// A peer with its session.
pub(super) struct Peer {
    pub(super) key: MeshPublicKey,
    tunnel: Mutex<Tunn>,
    endpoint: Mutex<Option<SocketAddr>>,
}

/// What is known of a peer at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Where its packets are sent.
    pub endpoint: Option<SocketAddr>,
    /// Time since the last completed handshake.
    pub last_handshake: Option<Duration>,
    /// Bytes sent to it, without what encryption adds.
    pub sent_bytes: u64,
    /// Bytes received from it.
    pub received_bytes: u64,
}

impl Peer {
    pub(super) fn tunnel(&self) -> MutexGuard<'_, Tunn> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn endpoint(&self) -> Option<SocketAddr> {
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a peer to where its last authentic packet came from.
    pub(super) fn set_endpoint(&self, endpoint: SocketAddr) {
        let mut current = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != Some(endpoint) {
            if let Some(before) = *current {
                tracing::info!(peer = %self.key, %before, now = %endpoint, "a mesh peer moved to another endpoint");
            }
            *current = Some(endpoint);
        }
    }

    pub(super) fn status(&self) -> PeerStatus {
        let (last_handshake, sent, received, ..) = self.tunnel().stats();
        PeerStatus {
            endpoint: self.endpoint(),
            last_handshake,
            sent_bytes: u64::try_from(sent).unwrap_or(u64::MAX),
            received_bytes: u64::try_from(received).unwrap_or(u64::MAX),
        }
    }

    /// The first message of a handshake, unless one is under way.
    pub(super) fn initiate<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b mut [u8]> {
        match self.tunnel().format_handshake_initiation(buffer, false) {
            TunnResult::WriteToNetwork(packet) => Some(packet),
            TunnResult::Done
            | TunnResult::Err(_)
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..) => None,
        }
    }
}

/// The peers of one moment.
#[derive(Default)]
pub(super) struct PeerTable {
    by_key: BTreeMap<MeshPublicKey, Arc<Peer>>,
    by_index: HashMap<u32, Arc<Peer>>,
    indices: BTreeMap<MeshPublicKey, u32>,
    networks: HashMap<IpNet, Arc<Peer>>,
    /// Lengths of the networks above, longest first, IPv4 and IPv6.
    ipv4_lengths: Vec<u8>,
    ipv6_lengths: Vec<u8>,
}

/// What new peers are made with.
pub(super) struct PeerMaker {
    key: MeshKey,
    limiter: Arc<RateLimiter>,
    next_index: AtomicU32,
}

impl PeerMaker {
    pub(super) fn new(key: MeshKey, limiter: Arc<RateLimiter>) -> Self {
        Self { key, limiter, next_index: AtomicU32::new(1) }
    }

    fn make(&self, key: MeshPublicKey) -> (u32, Arc<Peer>) {
        // The number of a session needs the lower eight bits.
        let index = self.next_index.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff;
        let public = PublicKey::from(key.0);
        let tunnel = Tunn::new(self.key.secret(), public, None, None, index, Some(Arc::clone(&self.limiter)));
        (index, Arc::new(Peer { key, tunnel: Mutex::new(tunnel), endpoint: Mutex::new(None) }))
    }
}

impl PeerTable {
    /// The table of these peers. `before` are the peers that `self` was made of: a peer whose configured endpoint stays the
    /// same keeps the one it moved to.
    pub(super) fn next(&self, before: &MeshPeers, peers: &MeshPeers, maker: &PeerMaker) -> Self {
        let mut table = Self::default();
        for (key, configured) in peers {
            let known = self.by_key.get(key).zip(self.indices.get(key));
            let (index, peer) = known.map_or_else(|| maker.make(*key), |(peer, index)| (*index, Arc::clone(peer)));
            let is_moved = before.get(key).is_none_or(|before| before.endpoint != configured.endpoint);
            if let Some(endpoint) = configured.endpoint.filter(|_| is_moved) {
                peer.set_endpoint(endpoint);
            }
            table.networks.extend(configured.allowed.iter().map(|network| (network.trunc(), Arc::clone(&peer))));
            table.by_index.insert(index, Arc::clone(&peer));
            table.indices.insert(*key, index);
            table.by_key.insert(*key, peer);
        }
        let lengths = |is_ipv4: bool| -> Vec<u8> {
            let networks = table.networks.keys().filter(|network| matches!(network, IpNet::V4(_)) == is_ipv4);
            networks.map(IpNet::prefix_len).collect::<BTreeSet<_>>().into_iter().rev().collect()
        };
        let (ipv4_lengths, ipv6_lengths) = (lengths(true), lengths(false));
        Self { ipv4_lengths, ipv6_lengths, ..table }
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.by_key.values()
    }

    pub(super) fn by_key(&self, key: &MeshPublicKey) -> Option<&Arc<Peer>> {
        self.by_key.get(key)
    }

    /// The peer that a receiver index of a packet names.
    pub(super) fn by_receiver(&self, receiver: u32) -> Option<&Arc<Peer>> {
        self.by_index.get(&(receiver >> 8))
    }

    /// The peer that an address belongs to, by the longest network.
    pub(super) fn by_address(&self, address: IpAddr) -> Option<&Arc<Peer>> {
        let lengths = match address {
            IpAddr::V4(_) => &self.ipv4_lengths,
            IpAddr::V6(_) => &self.ipv6_lengths,
        };
        let network = |length: &u8| IpNet::new(address, *length).ok().map(|network| network.trunc());
        lengths.iter().filter_map(network).find_map(|network| self.networks.get(&network))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::peers::MeshPeer;

    fn peer(endpoint: &str, networks: &[&str]) -> MeshPeer {
        let allowed = networks.iter().map(|network| network.parse().unwrap()).collect();
        MeshPeer { endpoint: endpoint.parse().ok(), allowed, nodes: BTreeMap::new() }
    }

    fn maker() -> PeerMaker {
        let key = MeshKey::generate().unwrap();
        let limiter = Arc::new(RateLimiter::new(&PublicKey::from(key.public().0), 100));
        PeerMaker::new(key, limiter)
    }

    #[test]
    fn the_longest_network_that_holds_an_address_decides() {
        let (a, b) = (MeshPublicKey([1; 32]), MeshPublicKey([2; 32]));
        let wide = peer("10.0.0.1:1", &["10.128.0.0/16", "fd00::/48"]);
        let narrow = peer("10.0.0.2:1", &["10.128.4.0/22", "fd00::2/128"]);
        let peers = MeshPeers::from([(a, wide), (b, narrow)]);
        let table = PeerTable::default().next(&MeshPeers::new(), &peers, &maker());
        let at = |address: &str| table.by_address(address.parse().unwrap()).map(|peer| peer.key);
        assert_eq!((at("10.128.5.1"), at("10.128.8.1"), at("10.129.0.1")), (Some(b), Some(a), None));
        assert_eq!((at("fd00::2"), at("fd00::3"), at("fd01::1")), (Some(b), Some(a), None));
    }

    #[test]
    fn a_peer_that_stays_keeps_its_session_and_the_endpoint_it_moved_to() {
        let (a, b) = (MeshPublicKey([1; 32]), MeshPublicKey([2; 32]));
        let (maker, none) = (maker(), MeshPeers::new());
        let before = MeshPeers::from([(a, peer("10.0.0.1:1", &["10.1.0.0/22"])), (b, peer("10.0.0.2:1", &[]))]);
        let table = PeerTable::default().next(&none, &before, &maker);
        let first = Arc::clone(table.by_key(&a).unwrap());
        first.set_endpoint("10.0.0.9:7".parse().unwrap());
        let after = MeshPeers::from([(a, peer("10.0.0.1:1", &["10.1.0.0/22", "10.2.0.0/22"]))]);
        let next = table.next(&before, &after, &maker);
        assert!(Arc::ptr_eq(next.by_key(&a).unwrap(), &first));
        assert_eq!(first.endpoint(), Some("10.0.0.9:7".parse().unwrap()));
        assert!(next.by_key(&b).is_none() && next.by_receiver(2 << 8).is_none());
        assert!(next.by_address("10.2.0.1".parse().unwrap()).is_some());
        let moved = MeshPeers::from([(a, peer("10.0.0.3:1", &[]))]);
        next.next(&after, &moved, &maker);
        assert_eq!(first.endpoint(), Some("10.0.0.3:1".parse().unwrap()));
    }
}
