//! VXLAN between machines: fast, and readable by everybody in between. Used only where a setting names it.
//!
//! Owns: the link, and one static neighbour and forwarding entry per peer. Must not touch: its addresses and routes.
//! Invariant: nothing is learnt from packets; a machine that is no peer is neither sent to nor resolved.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::{
    key::{MeshKey, MeshPublicKey},
    netlink::{self, Answer},
    peers::{MeshPeer, MeshPeers, changes},
};
use crate::network_state::MeshIdentity;

/// The number of the virtual network. Clusters on one underlay differ in their port.
const NETWORK_ID: u32 = 0x6c73;

/// A link of the kernel's VXLAN.
pub(super) struct VxlanMesh {
    index: u32,
    configured: MeshPeers,
    identity: MeshIdentity,
}

impl VxlanMesh {
    /// Creates the link anew: its neighbours are few and static.
    pub(super) fn start(device: &str, port: u16, mtu: u32, underlay: &[IpAddr], key: &MeshKey) -> io::Result<Self> {
        netlink::delete_link(device)?;
        let mut data = vec![InfoVxlan::Id(NETWORK_ID), InfoVxlan::Learning(false), InfoVxlan::Port(port)];
        data.extend(underlay.first().map(|ip| match ip {
            IpAddr::V4(ip) => InfoVxlan::Local(*ip),
            IpAddr::V6(ip) => InfoVxlan::Local6(*ip),
        }));
        let info = vec![LinkInfo::Kind(InfoKind::Vxlan), LinkInfo::Data(InfoData::Vxlan(data))];
        netlink::create_link(device, info, vec![LinkAttribute::Address(hardware_address(key.public()).to_vec())])?;
        let link = netlink::link(device)?.ok_or(io::ErrorKind::NotFound)?;
        netlink::set_up(link.index, mtu)?;
        let identity = MeshIdentity { public_key: key.public().to_string(), port };
        Ok(Self { index: link.index, configured: MeshPeers::new(), identity })
    }

    pub(super) fn identity(&self) -> MeshIdentity {
        self.identity.clone()
    }

    pub(super) fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        netlink::set_up(self.index, mtu)
    }

    /// Why it does not run any more: somebody deleted the link.
    pub(super) fn failure(&self) -> Option<String> {
        let is_there = netlink::links().is_ok_and(|links| links.iter().any(|link| link.index == self.index));
        (!is_there).then(|| "the link is gone".to_owned())
    }

    pub(super) fn set_peers(&mut self, peers: MeshPeers) -> io::Result<()> {
        let changes = changes(&self.configured, &peers);
        let removed = changes.removed.iter().filter_map(|key| self.configured.get_key_value(key));
        let moved = changes.set.keys().filter_map(|key| self.configured.get_key_value(key));
        for entry in removed.chain(moved).flat_map(|(key, peer)| entries(self.index, *key, peer)) {
            // It may be gone already, with the address it belonged to.
            let _ = netlink::request(NETLINK_ROUTE, RouteNetlinkMessage::DelNeighbour(entry), 0, Answer::Ack);
        }
        for entry in changes.set.iter().flat_map(|(key, peer)| entries(self.index, *key, peer)) {
            let flags = NLM_F_CREATE | NLM_F_REPLACE;
            netlink::request(NETLINK_ROUTE, RouteNetlinkMessage::NewNeighbour(entry), flags, Answer::Ack)?;
        }
        self.configured = peers;
        Ok(())
    }
}

/// The hardware address of a machine, which every other can compute.
fn hardware_address(key: MeshPublicKey) -> [u8; 6] {
    let mut address = [0; 6];
    address.copy_from_slice(&key.0[..6]);
    // Locally administered, one machine.
    address[0] = 0x02;
    address
}

/// How a peer is reached: its gateways have its hardware address, which is at its endpoint.
fn entries(index: u32, key: MeshPublicKey, peer: &MeshPeer) -> Vec<NeighbourMessage> {
    let hardware = hardware_address(key).to_vec();
    let forwarding = peer.endpoint.map(|endpoint| forwarding_entry(index, hardware.clone(), endpoint));
    let next_hops = peer.next_hops();
    forwarding.into_iter().chain(next_hops.into_iter().map(|ip| neighbour(index, hardware.clone(), ip))).collect()
}

fn neighbour(index: u32, hardware: Vec<u8>, ip: IpAddr) -> NeighbourMessage {
    let (family, address) = match ip {
        IpAddr::V4(ip) => (AddressFamily::Inet, NeighbourAddress::Inet(ip)),
        IpAddr::V6(ip) => (AddressFamily::Inet6, NeighbourAddress::Inet6(ip)),
    };
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![NeighbourAttribute::Destination(address), NeighbourAttribute::LinkLayerAddress(hardware)];
    message
}

fn forwarding_entry(index: u32, hardware: Vec<u8>, endpoint: SocketAddr) -> NeighbourMessage {
    let address = match endpoint.ip() {
        IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
        IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
    };
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.flags = NeighbourFlags::Own;
    message.attributes = vec![
        NeighbourAttribute::LinkLayerAddress(hardware),
        NeighbourAttribute::Destination(address),
        NeighbourAttribute::Port(endpoint.port()),
    ];
    message
}
