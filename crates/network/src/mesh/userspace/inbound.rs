//! From the peers to the device: receives datagrams, decrypts them, hands them to the device in as few writes as possible.
//!
//! Owns: the loop of one thread and its buffers, and answers to handshakes. Must not touch: what the device gives out.
//! Invariant: a packet reaches the device only if it is authentic and its source belongs to its sender, in the order of
//! arrival; a datagram that is not authentic changes nothing.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use boringtun::noise::{Packet, Tunn, TunnResult, handshake::parse_handshake_anon};
use tun_rs::{GROTable, VIRTIO_NET_HDR_LEN};

use super::{
    Shared,
    outbound::is_device_gone,
    peer_table::{Peer, PeerTable},
};
use crate::mesh::key::MeshPublicKey;

/// The most bytes that one call receives.
const MAX_RECEIVED: usize = 65_536;
/// The longest answer: a handshake message, or a packet that waited for the handshake.
const ANSWER_ROOM: usize = 65_536;

/// Decrypted packets that wait to be written to the device.
struct Decrypted {
    packets: Vec<Vec<u8>>,
    count: usize,
    merged: GROTable,
    answer: Vec<u8>,
}

impl Decrypted {
    fn new() -> Self {
        Self { packets: Vec::new(), count: 0, merged: GROTable::new(), answer: vec![0; ANSWER_ROOM] }
    }

    /// Writes them out. Consecutive segments of one flow become one packet.
    fn flush(&mut self, shared: &Shared) -> io::Result<()> {
        let packets = &mut self.packets[..std::mem::take(&mut self.count)];
        match shared.device.send_multiple(&mut self.merged, packets, VIRTIO_NET_HDR_LEN) {
            Err(error) if is_device_gone(&error) => Err(error),
            // The device is down, or the kernel finds fault with a packet.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Decrypts a datagram of a peer into the next free packet.
    fn decrypt(&mut self, shared: &Shared, sender: &Sender<'_>, tunnel: &mut Tunn, datagram: &[u8]) {
        if self.count == self.packets.len() {
            self.packets.push(Vec::with_capacity(MERGED_ROOM));
        }
        let packet = &mut self.packets[self.count];
        packet.resize(VIRTIO_NET_HDR_LEN + datagram.len().max(ANSWER_ROOM_OF_HANDSHAKE), 0);
        let from = sender.from;
        let (source, length) = match tunnel.decapsulate(Some(from.ip()), datagram, &mut packet[VIRTIO_NET_HDR_LEN..]) {
            TunnResult::WriteToTunnelV4(plain, _) => (source_ipv4(plain), plain.len()),
            TunnResult::WriteToTunnelV6(plain, _) => (source_ipv6(plain), plain.len()),
            TunnResult::WriteToNetwork(answer) => {
                shared.socket.send(answer, from);
                sender.peer.set_endpoint(from);
                self.send_queued(shared, tunnel, from);
                return;
            }
            TunnResult::Done => return sender.peer.set_endpoint(from),
            TunnResult::Err(_) => return,
        };
        sender.peer.set_endpoint(from);
        if source.is_some_and(|source| sender.may_speak_for(source)) {
            packet.truncate(VIRTIO_NET_HDR_LEN + length);
            self.count += 1;
        }
    }

    /// Sends what waited for the handshake.
    fn send_queued(&mut self, shared: &Shared, tunnel: &mut Tunn, to: SocketAddr) {
        while let TunnResult::WriteToNetwork(datagram) = tunnel.decapsulate(None, &[], &mut self.answer) {
            shared.socket.send(datagram, to);
        }
    }
}

/// Room of every packet: others are merged into it only as far as they fit. Memory that is not touched costs nothing.
const MERGED_ROOM: usize = VIRTIO_NET_HDR_LEN + 65_535;
/// Room for an answer to a handshake message.
const ANSWER_ROOM_OF_HANDSHAKE: usize = 256;

/// Where a datagram comes from.
struct Sender<'t> {
    peer: &'t Arc<Peer>,
    table: &'t PeerTable,
    from: SocketAddr,
}

impl Sender<'_> {
    fn may_speak_for(&self, source: IpAddr) -> bool {
        self.table.by_address(source).is_some_and(|owner| Arc::ptr_eq(owner, self.peer))
    }
}

/// Runs until the mesh stops; an error if the device is gone.
pub(super) fn run(shared: &Shared) -> io::Result<()> {
    let mut buffer = vec![0; MAX_RECEIVED];
    let mut decrypted = Decrypted::new();
    loop {
        match shared.socket.receive(&mut buffer) {
            Ok(received) => {
                let datagrams = buffer[..received.len].chunks(received.segment);
                receive(shared, &mut decrypted, datagrams, received.from);
                decrypted.flush(shared)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if shared.stop.wait(&shared.socket, None)? {
                    return Ok(());
                }
            }
            Err(error) => tracing::debug!(%error, "a datagram of the mesh could not be received"),
        }
    }
}

/// Decrypts datagrams from one address. The session of a peer is locked once for a run of its datagrams.
fn receive<'d>(
    shared: &Shared,
    decrypted: &mut Decrypted,
    datagrams: impl Iterator<Item = &'d [u8]>,
    from: SocketAddr,
) {
    let table = shared.table();
    let mut datagrams = datagrams.peekable();
    while let Some(datagram) = datagrams.next() {
        let Some(peer) = sender(shared, &table, datagram, from) else { continue };
        let sender = Sender { peer, table: &table, from };
        let mut tunnel = peer.tunnel();
        decrypted.decrypt(shared, &sender, &mut tunnel, datagram);
        while let Some(next) = datagrams.next_if(|next| is_data_of(&table, peer, next)) {
            decrypted.decrypt(shared, &sender, &mut tunnel, next);
        }
    }
}

fn is_data_of(table: &PeerTable, peer: &Arc<Peer>, datagram: &[u8]) -> bool {
    match Tunn::parse_incoming_packet(datagram) {
        Ok(Packet::PacketData(data)) => {
            table.by_receiver(data.receiver_idx).is_some_and(|owner| Arc::ptr_eq(owner, peer))
        }
        Ok(Packet::HandshakeInit(_) | Packet::HandshakeResponse(_) | Packet::PacketCookieReply(_)) | Err(_) => false,
    }
}

/// The peer that a datagram claims to be from; `None` for strangers.
fn sender<'t>(shared: &Shared, table: &'t PeerTable, datagram: &[u8], from: SocketAddr) -> Option<&'t Arc<Peer>> {
    match Tunn::parse_incoming_packet(datagram).ok()? {
        Packet::HandshakeInit(_) => initiator(shared, table, datagram, from),
        Packet::HandshakeResponse(packet) => table.by_receiver(packet.receiver_idx),
        Packet::PacketCookieReply(packet) => table.by_receiver(packet.receiver_idx),
        Packet::PacketData(packet) => table.by_receiver(packet.receiver_idx),
    }
}

/// The peer that begins a handshake. The message is checked, and under load answered with a cookie, before anything
/// expensive is computed for it.
fn initiator<'t>(shared: &Shared, table: &'t PeerTable, datagram: &[u8], from: SocketAddr) -> Option<&'t Arc<Peer>> {
    let mut cookie = [0; ANSWER_ROOM_OF_HANDSHAKE];
    match shared.limiter.verify_packet(Some(from.ip()), datagram, &mut cookie) {
        Ok(Packet::HandshakeInit(packet)) => {
            let half = parse_handshake_anon(&shared.secret, &shared.public, &packet).ok()?;
            table.by_key(&MeshPublicKey(half.peer_static_public))
        }
        Err(TunnResult::WriteToNetwork(cookie)) => {
            shared.socket.send(cookie, from);
            None
        }
        Ok(_) | Err(_) => None,
    }
}

fn source_ipv4(packet: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    Some(Ipv4Addr::from(octets).into())
}

fn source_ipv6(packet: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
    Some(Ipv6Addr::from(octets).into())
}
