//! From the device to the peers: reads packets, encrypts them for the peer of their destination, sends them.
//!
//! Owns: the loop of one thread and its buffers. Must not touch: what arrives from peers.
//! Invariant: packets of one peer leave in the order in which the device gave them.

use std::{io, net::IpAddr, sync::Arc};

use boringtun::noise::{Tunn, TunnResult};
use rustix::io::Errno;
use tun_rs::VIRTIO_NET_HDR_LEN;

use super::{Shared, peer_table::Peer};

/// The largest packet that the device hands over, before it is split.
const MAX_PACKET: usize = 65_535;
/// Room for one packet after splitting: jumbo frames.
const PACKET_ROOM: usize = 9_216;
/// The most packets that one can be split into: the smallest segment of TCP is 48 bytes.
const MAX_SPLIT: usize = MAX_PACKET / 48 + 1;
/// Bytes encrypted before they are sent. More would let the peer wait, less would cost more system calls.
const BATCH_BYTES: usize = 128 << 10;
/// What encryption adds, generously: a handshake message is longer than the smallest packet.
const OVERHEAD: usize = 160;

/// Encrypted packets of one peer that wait to be sent.
struct Batch {
    buffer: Vec<u8>,
    used: usize,
    sizes: Vec<usize>,
    peer: Option<Arc<Peer>>,
}

impl Batch {
    fn new() -> Self {
        Self { buffer: vec![0; BATCH_BYTES + PACKET_ROOM + OVERHEAD], used: 0, sizes: Vec::new(), peer: None }
    }

    fn flush(&mut self, shared: &Shared) {
        if let Some(endpoint) = self.peer.as_ref().and_then(|peer| peer.endpoint()) {
            shared.socket.send_all(&self.buffer[..self.used], &self.sizes, endpoint);
        }
        (self.used, self.peer) = (0, None);
        self.sizes.clear();
    }

    /// Sends what is for another peer, so that the batch is of `peer` alone.
    fn turn_to(&mut self, peer: &Arc<Peer>, shared: &Shared) {
        if self.peer.as_ref().is_some_and(|current| !Arc::ptr_eq(current, peer)) {
            self.flush(shared);
        }
        self.peer = Some(Arc::clone(peer));
    }

    fn encrypt(&mut self, tunnel: &mut Tunn, packet: &[u8]) {
        match tunnel.encapsulate(packet, &mut self.buffer[self.used..]) {
            TunnResult::WriteToNetwork(datagram) => {
                self.sizes.push(datagram.len());
                self.used += datagram.len();
            }
            // Without a session the packet waits inside of the tunnel until the handshake is done.
            TunnResult::Done
            | TunnResult::Err(_)
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..) => {}
        }
    }
}

/// Runs until the mesh stops; an error if the device is gone.
pub(super) fn run(shared: &Shared) -> io::Result<()> {
    let mut whole = vec![0; VIRTIO_NET_HDR_LEN + MAX_PACKET];
    let mut room = vec![0; MAX_SPLIT * PACKET_ROOM];
    let mut packets: Vec<&mut [u8]> = room.chunks_mut(PACKET_ROOM).collect();
    let mut sizes = vec![0; MAX_SPLIT];
    let mut batch = Batch::new();
    loop {
        match shared.device.recv_multiple(&mut whole, &mut packets, &mut sizes, 0) {
            Ok(count) => encrypt(shared, &mut batch, packets.iter().zip(&sizes[..count])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                batch.flush(shared);
                if shared.stop.wait(&shared.device, None)? {
                    return Ok(());
                }
            }
            Err(error) if is_device_gone(&error) => return Err(error),
            // A packet that cannot be split is dropped.
            Err(error) => tracing::debug!(%error, "a packet of the mesh device was dropped"),
        }
    }
}

/// Encrypts the packets of one read. They were one packet before, so they have one destination.
fn encrypt<'p>(
    shared: &Shared,
    batch: &mut Batch,
    packets: impl Iterator<Item = (&'p &'p mut [u8], &'p usize)> + Clone,
) {
    let Some((first, _)) = packets.clone().next() else { return };
    let table = shared.table();
    let Some(peer) = destination(first).and_then(|address| table.by_address(address)) else { return };
    batch.turn_to(peer, shared);
    let mut tunnel = peer.tunnel();
    for (packet, size) in packets {
        if batch.used > BATCH_BYTES {
            // Sending takes longer than encrypting; the other thread may use the session meanwhile.
            drop(tunnel);
            batch.flush(shared);
            batch.turn_to(peer, shared);
            tunnel = peer.tunnel();
        }
        batch.encrypt(&mut tunnel, &packet[..*size]);
    }
}

/// The destination of a packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    Tunn::dst_address(packet)
}

/// Whether the device was deleted, or taken from this process.
pub(super) fn is_device_gone(error: &io::Error) -> bool {
    let gone = [Errno::BADFD, Errno::BADF, Errno::NODEV, Errno::NXIO];
    gone.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
