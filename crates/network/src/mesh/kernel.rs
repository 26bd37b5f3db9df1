//! WireGuard of the kernel, by netlink.
//!
//! Owns: the link, its key, port and peers. Must not touch: its addresses and routes.
//! Invariant: the kernel's state outlives this process. One that starts again takes over the link as it is, and changes
//! only what differs, so sessions go on. The messages are tested; they were not run on a kernel with WireGuard.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
#[cfg(test)]
use netlink_packet_core::NetlinkMessage;
use netlink_packet_generic::{
    GenlMessage,
    ctrl::{GenlCtrl, GenlCtrlCmd, nlas::GenlCtrlAttrs},
};
use netlink_packet_route::link::{InfoKind, LinkInfo};
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAttribute, WireguardCmd,
    WireguardMessage, WireguardPeer, WireguardPeerAttribute, WireguardPeerFlags,
};
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;

use super::{
    key::{MeshKey, MeshPublicKey},
    netlink::{self, Answer},
    peers::{MeshPeer, MeshPeers, PeerChanges, changes},
    userspace::PeerStatus,
};
use crate::network_state::MeshIdentity;

/// Ports tried after the preferred one.
const FURTHER_PORTS: u16 = 64;
/// Peers per message: the kernel takes 64 KiB, and a peer with several nodes needs about 500 bytes.
const PEERS_PER_MESSAGE: usize = 32;

/// A link of the kernel's WireGuard.
pub(super) struct KernelMesh {
    device: String,
    family: u16,
    configured: MeshPeers,
    /// Peers that the link had when it was taken over.
    inherited: BTreeSet<MeshPublicKey>,
    identity: MeshIdentity,
    index: u32,
}

/// Whether an error says that this kernel has no WireGuard.
pub(super) fn is_absent(error: &io::Error) -> bool {
    let absent = [Errno::OPNOTSUPP, Errno::NOENT, Errno::PROTONOSUPPORT];
    absent.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl KernelMesh {
    /// Takes over the link, or creates it.
    pub(super) fn start(device: &str, port: u16, mtu: u32, key: &MeshKey) -> io::Result<Self> {
        let index = ensure_link(device)?;
        netlink::set_up(index, mtu)?;
        let family = family_id()?;
        let known = get(family, device)?;
        let inherited = known.iter().flat_map(peers_of).map(|(key, _)| key).collect();
        let port = set_port(family, device, listen_port(&known).unwrap_or(port), key)?;
        let identity = MeshIdentity { public_key: key.public().to_string(), port };
        Ok(Self { device: device.to_owned(), family, configured: MeshPeers::new(), inherited, identity, index })
    }

    pub(super) fn identity(&self) -> MeshIdentity {
        self.identity.clone()
    }

    pub(super) fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        netlink::set_up(self.index, mtu)
    }

    /// Replaces the peers. Peers that stay keep their sessions.
    pub(super) fn set_peers(&mut self, peers: MeshPeers) -> io::Result<()> {
        let mut changes = changes(&self.configured, &peers);
        changes.removed.extend(self.inherited.iter().filter(|key| !peers.contains_key(key)));
        for message in messages(&self.device, &changes, &self.configured) {
            set(self.family, message)?;
        }
        (self.configured, self.inherited) = (peers, BTreeSet::new());
        Ok(())
    }

    pub(super) fn status(&self) -> io::Result<Vec<(MeshPublicKey, PeerStatus)>> {
        Ok(get(self.family, &self.device)?.iter().flat_map(peers_of).collect())
    }
}

/// The index of the link, which is created if there is none, and replaced if it is of another kind.
fn ensure_link(device: &str) -> io::Result<u32> {
    let create = || netlink::create_link(device, vec![LinkInfo::Kind(InfoKind::Wireguard)], Vec::new());
    match netlink::link(device)? {
        Some(link) if link.kind == Some(InfoKind::Wireguard) => return Ok(link.index),
        Some(_) => {
            // A kernel without WireGuard must not lose what it has: the new link is tried under another name first.
            let probe = format!("{}x", &device[..device.len().min(14)]);
            netlink::create_link(&probe, vec![LinkInfo::Kind(InfoKind::Wireguard)], Vec::new())?;
            netlink::delete_link(&probe)?;
            netlink::delete_link(device)?;
            create()?;
        }
        None => create()?,
    }
    netlink::link(device)?.map(|link| link.index).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Sets key and port; the next free port if it is in use.
fn set_port(family: u16, device: &str, preferred: u16, key: &MeshKey) -> io::Result<u16> {
    let mut outcome = Err(io::ErrorKind::AddrInUse.into());
    for port in preferred..=preferred.saturating_add(FURTHER_PORTS) {
        let name = WireguardAttribute::IfName(device.to_owned());
        let attributes = vec![name, WireguardAttribute::PrivateKey(key.bytes()), WireguardAttribute::ListenPort(port)];
        outcome = set(family, WireguardMessage { cmd: WireguardCmd::SetDevice, attributes }).map(|()| port);
        if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
            break;
        }
    }
    outcome
}

/// The messages that put changes of peers into effect. `before` are the peers as they were configured.
fn messages(device: &str, changes: &PeerChanges, before: &MeshPeers) -> Vec<WireguardMessage> {
    let removed = changes.removed.iter().map(|key| {
        let flags = WireguardPeerAttribute::Flags(WireguardPeerFlags::RemoveMe);
        WireguardPeer(vec![WireguardPeerAttribute::PublicKey(key.0), flags])
    });
    let set = changes.set.iter().map(|(key, peer)| peer_message(*key, peer, before.get(key)));
    let peers: Vec<WireguardPeer> = removed.chain(set).collect();
    let message = |peers: &[WireguardPeer]| {
        let name = WireguardAttribute::IfName(device.to_owned());
        let attributes = vec![name, WireguardAttribute::Peers(peers.to_vec())];
        WireguardMessage { cmd: WireguardCmd::SetDevice, attributes }
    };
    peers.chunks(PEERS_PER_MESSAGE).map(message).collect()
}

/// A peer as it shall be. An endpoint that was configured before is left alone: the peer may have moved.
fn peer_message(key: MeshPublicKey, peer: &MeshPeer, before: Option<&MeshPeer>) -> WireguardPeer {
    let mut attributes = vec![
        WireguardPeerAttribute::PublicKey(key.0),
        WireguardPeerAttribute::Flags(WireguardPeerFlags::ReplaceAllowedIps),
    ];
    let is_moved = before.is_none_or(|before| before.endpoint != peer.endpoint);
    attributes.extend(peer.endpoint.filter(|_| is_moved).map(WireguardPeerAttribute::Endpoint));
    attributes.push(WireguardPeerAttribute::AllowedIps(peer.allowed.iter().map(allowed_ip).collect()));
    WireguardPeer(attributes)
}

fn allowed_ip(network: &IpNet) -> WireguardAllowedIp {
    let family = match network {
        IpNet::V4(_) => WireguardAddressFamily::Ipv4,
        IpNet::V6(_) => WireguardAddressFamily::Ipv6,
    };
    WireguardAllowedIp(vec![
        WireguardAllowedIpAttr::Family(family),
        WireguardAllowedIpAttr::IpAddr(network.network()),
        WireguardAllowedIpAttr::Cidr(network.prefix_len()),
    ])
}

/// The number of the kernel's interface for WireGuard.
fn family_id() -> io::Result<u16> {
    let nlas = vec![GenlCtrlAttrs::FamilyName("wireguard".to_owned())];
    let mut message = GenlMessage::from_payload(GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas });
    message.finalize();
    let answers = netlink::request(NETLINK_GENERIC, message, 0, Answer::One)?;
    let id = answers.iter().flat_map(|answer| &answer.payload.nlas).find_map(|attribute| match attribute {
        GenlCtrlAttrs::FamilyId(id) => Some(*id),
        _ => None,
    });
    id.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn set(family: u16, message: WireguardMessage) -> io::Result<()> {
    netlink::request(NETLINK_GENERIC, addressed(family, message), 0, Answer::Ack).map(drop)
}

fn get(family: u16, device: &str) -> io::Result<Vec<WireguardMessage>> {
    let attributes = vec![WireguardAttribute::IfName(device.to_owned())];
    let message = addressed(family, WireguardMessage { cmd: WireguardCmd::GetDevice, attributes });
    let answers = netlink::request(NETLINK_GENERIC, message, 0, Answer::Dump)?;
    Ok(answers.into_iter().map(|answer| answer.payload).collect())
}

fn addressed(family: u16, message: WireguardMessage) -> GenlMessage<WireguardMessage> {
    let mut message = GenlMessage::from_payload(message);
    message.set_resolved_family_id(family);
    message.finalize();
    message
}

fn listen_port(messages: &[WireguardMessage]) -> Option<u16> {
    let mut attributes = messages.iter().flat_map(|message| &message.attributes);
    attributes.find_map(|attribute| match attribute {
        WireguardAttribute::ListenPort(port) => Some(*port).filter(|port| *port != 0),
        _ => None,
    })
}

fn peers_of(message: &WireguardMessage) -> BTreeMap<MeshPublicKey, PeerStatus> {
    let peers = message.attributes.iter().filter_map(|attribute| match attribute {
        WireguardAttribute::Peers(peers) => Some(peers),
        _ => None,
    });
    peers.flatten().filter_map(status_of).collect()
}

fn status_of(peer: &WireguardPeer) -> Option<(MeshPublicKey, PeerStatus)> {
    let mut key = None;
    let mut status = PeerStatus { endpoint: None, last_handshake: None, sent_bytes: 0, received_bytes: 0 };
    for attribute in &peer.0 {
        match attribute {
            WireguardPeerAttribute::PublicKey(bytes) => key = Some(MeshPublicKey(*bytes)),
            WireguardPeerAttribute::Endpoint(endpoint) => status.endpoint = Some(canonical(*endpoint)),
            WireguardPeerAttribute::LastHandshake(at) => status.last_handshake = elapsed_since(at.seconds),
            WireguardPeerAttribute::RxBytes(bytes) => status.received_bytes = *bytes,
            WireguardPeerAttribute::TxBytes(bytes) => status.sent_bytes = *bytes,
            _ => {}
        }
    }
    Some((key?, status))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Time since a moment of the wall clock; `None` for zero, which stands for never.
fn elapsed_since(seconds: i64) -> Option<Duration> {
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
    let moment = UNIX_EPOCH + Duration::from_secs(seconds);
    Some(SystemTime::now().duration_since(moment).unwrap_or_default())
}

/// The bytes of a message, as they go to the kernel.
#[cfg(test)]
fn bytes(family: u16, message: WireguardMessage) -> Vec<u8> {
    let mut message = NetlinkMessage::from(addressed(family, message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(endpoint: &str, networks: &[&str]) -> MeshPeer {
        let allowed = networks.iter().map(|network| network.parse().unwrap()).collect();
        MeshPeer { endpoint: endpoint.parse().ok(), allowed, nodes: BTreeMap::new() }
    }

    #[test]
    fn a_peer_is_set_with_its_networks_and_a_gone_one_is_removed() {
        let (a, b) = (MeshPublicKey([1; 32]), MeshPublicKey([2; 32]));
        let set = MeshPeers::from([(a, peer("10.0.0.1:51820", &["10.128.4.0/22", "fd00::1/128"]))]);
        let changes = PeerChanges { removed: vec![b], set };
        let messages = messages("lsm0", &changes, &MeshPeers::new());
        assert_eq!(messages.len(), 1);
        let decoded = NetlinkMessage::<GenlMessage<WireguardMessage>>::deserialize(&bytes(33, messages[0].clone()));
        let netlink_packet_core::NetlinkPayload::InnerMessage(decoded) = decoded.unwrap().payload else {
            panic!("an inner message was written");
        };
        assert_eq!(decoded.payload, messages[0]);
        let WireguardAttribute::Peers(peers) = &messages[0].attributes[1] else { panic!("peers come second") };
        assert!(peers[0].0.contains(&WireguardPeerAttribute::Flags(WireguardPeerFlags::RemoveMe)));
        assert!(peers[1].0.contains(&WireguardPeerAttribute::Endpoint("10.0.0.1:51820".parse().unwrap())));
        assert!(peers[1].0.contains(&WireguardPeerAttribute::Flags(WireguardPeerFlags::ReplaceAllowedIps)));
        assert_eq!(peers_of(&messages[0]).keys().copied().collect::<Vec<_>>(), [a, b]);
    }

    #[test]
    fn an_endpoint_that_did_not_change_is_not_set_again() {
        let a = MeshPublicKey([1; 32]);
        let (before, after) = (peer("10.0.0.1:1", &[]), peer("10.0.0.1:1", &["10.1.0.0/22"]));
        let has_endpoint = |before: Option<&MeshPeer>| {
            let message = peer_message(a, &after, before);
            message.0.iter().any(|attribute| matches!(attribute, WireguardPeerAttribute::Endpoint(_)))
        };
        assert!(!has_endpoint(Some(&before)) && has_endpoint(None));
    }

    #[test]
    fn many_peers_are_several_messages() {
        let set = (0..100_u8).map(|number| (MeshPublicKey([number; 32]), peer("10.0.0.1:1", &[]))).collect();
        let messages = messages("lsm0", &PeerChanges { removed: Vec::new(), set }, &MeshPeers::new());
        assert_eq!(messages.len(), 4);
    }

    #[test]
    fn a_kernel_without_wireguard_is_told_from_other_trouble() {
        assert!(is_absent(&io::Error::from_raw_os_error(Errno::OPNOTSUPP.raw_os_error())));
        assert!(!is_absent(&io::Error::from_raw_os_error(Errno::PERM.raw_os_error())));
    }
}
