//! The UDP socket of the mesh: many datagrams with one system call, in both directions.
//!
//! Owns: the socket, its port, and the segmentation offloads.
//! Must not touch: what the datagrams hold. Invariant: datagrams leave in the order in which they were given.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, bind,
        recvmsg, sendmsg, setsockopt, socket, sockopt,
    },
};

/// Ports tried after the preferred one. A machine with more meshes than this has none left for another.
const FURTHER_PORTS: u16 = 64;
/// Bytes that wait in the kernel, per direction: about 20 ms at 3 Gbit/s.
const SOCKET_BUFFER: usize = 8 << 20;
/// The kernel takes this many segments with one call.
const MAX_SEGMENTS: usize = 64;
/// The kernel takes this many bytes with one call, over IPv4 and IPv6.
const MAX_BYTES: usize = 65_000;

/// A bound socket.
pub(super) struct MeshSocket {
    socket: UdpSocket,
    port: u16,
    family: AddressFamily,
}

/// What one call received.
pub(super) struct Received {
    /// Bytes in the buffer.
    pub(super) len: usize,
    /// Length of every datagram in it but the last one, which may be shorter.
    pub(super) segment: usize,
    /// The sender.
    pub(super) from: SocketAddr,
}

impl MeshSocket {
    /// Binds the preferred port, or the next one that is free.
    pub(super) fn bind(preferred: u16) -> io::Result<Self> {
        let last = preferred.saturating_add(FURTHER_PORTS);
        let mut outcome = Err(io::Error::from(io::ErrorKind::AddrInUse));
        for port in preferred..=last {
            outcome = Self::bind_exactly(port);
            if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
                break;
            }
        }
        outcome
    }

    fn bind_exactly(port: u16) -> io::Result<Self> {
        match Self::bind_family(AddressFamily::Inet6, port) {
            // A kernel without IPv6 has no dual socket.
            Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => Ok(Self::bind_family(AddressFamily::Inet, port)?),
            outcome => Ok(outcome?),
        }
    }

    fn bind_family(family: AddressFamily, port: u16) -> nix::Result<Self> {
        let fd = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        let any: IpAddr = if family == AddressFamily::Inet6 {
            setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        bind(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(any, port)))?;
        // Without these the mesh works, slower.
        let _ = setsockopt(&fd, sockopt::UdpGroSegment, &true);
        let _ = setsockopt(&fd, sockopt::RcvBufForce, &SOCKET_BUFFER);
        let _ = setsockopt(&fd, sockopt::SndBufForce, &SOCKET_BUFFER);
        let socket = UdpSocket::from(fd);
        let port = socket.local_addr().map_or(port, |address| address.port());
        Ok(Self { socket, port, family })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Sends one datagram. What cannot be sent is dropped, as a network would.
    pub(super) fn send(&self, datagram: &[u8], to: SocketAddr) {
        let _ = self.sendmsg(datagram, &[], to);
    }

    /// Sends datagrams that stand one after the other in `buffer`.
    pub(super) fn send_all(&self, mut buffer: &[u8], mut sizes: &[usize], to: SocketAddr) {
        while !sizes.is_empty() {
            let count = run_length(sizes);
            let (run, rest) = buffer.split_at(sizes[..count].iter().sum());
            self.send_run(run, sizes[0], to);
            (buffer, sizes) = (rest, &sizes[count..]);
        }
    }

    /// Sends datagrams of one size, of which the last may be shorter.
    fn send_run(&self, run: &[u8], segment: usize, to: SocketAddr) {
        if run.len() > segment {
            let size = u16::try_from(segment).unwrap_or(u16::MAX);
            if self.sendmsg(run, &[ControlMessage::UdpGsoSegments(&size)], to).is_ok() {
                return;
            }
            // A path with a smaller MTU than the interface, or a kernel without the offload: the kernel fragments single
            // datagrams, but refuses to segment what does not fit.
        }
        for datagram in run.chunks(segment.max(1)) {
            self.send(datagram, to);
        }
    }

    fn sendmsg(&self, bytes: &[u8], control: &[ControlMessage<'_>], to: SocketAddr) -> nix::Result<usize> {
        let to = SockaddrStorage::from(self.address(to));
        let slices = [IoSlice::new(bytes)];
        sendmsg(self.socket.as_raw_fd(), &slices, control, MsgFlags::empty(), Some(&to))
    }

    /// Receives what is there; an error of kind `WouldBlock` if there is nothing.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut control = nix::cmsg_space!(i32);
        let mut slices = [IoSliceMut::new(buffer)];
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let message = recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut control), flags)?;
        let segment = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
            _ => None,
        });
        let from = message.address.as_ref().and_then(socket_address).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Received { len: message.bytes, segment: segment.unwrap_or(message.bytes).max(1), from })
    }

    /// An address as the socket's family writes it.
    fn address(&self, to: SocketAddr) -> SocketAddr {
        match to {
            SocketAddr::V4(v4) if self.family == AddressFamily::Inet6 => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            _ => to,
        }
    }
}

impl AsFd for MeshSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// How many datagrams from the front one call can take: equal sizes, and a shorter one ends it.
fn run_length(sizes: &[usize]) -> usize {
    let first = sizes[0];
    let (mut count, mut bytes) = (0, 0);
    for size in sizes.iter().take(MAX_SEGMENTS) {
        if *size > first || bytes + size > MAX_BYTES {
            break;
        }
        (count, bytes) = (count + 1, bytes + size);
        if *size < first {
            break;
        }
    }
    count.max(1)
}

/// The address with an IPv4 address as such.
fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = address.as_sockaddr_in6()?;
    match v6.ip().to_ipv4_mapped() {
        Some(v4) => Some(SocketAddr::new(v4.into(), v6.port())),
        None => Some(SocketAddr::V6((*v6).into())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_run_is_of_one_size_and_ends_with_a_shorter_one() {
        assert_eq!(run_length(&[100, 100, 60, 100]), 3);
        assert_eq!(run_length(&[100, 120]), 1);
        assert_eq!(run_length(&[1400; 100]), 46);
        assert_eq!(run_length(&[100; 100]), MAX_SEGMENTS);
    }

    #[test]
    fn a_taken_port_leads_to_the_next_and_datagrams_arrive_in_their_order() {
        let first = MeshSocket::bind(41_820).unwrap();
        let second = MeshSocket::bind(first.port()).unwrap();
        assert_ne!(first.port(), second.port());
        let sizes = [900, 900, 900, 17, 900, 1200];
        let sent: Vec<u8> = (0_u8..6).zip(sizes).flat_map(|(number, size)| vec![number; size]).collect();
        first.send_all(&sent, &sizes, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), second.port()));
        let (mut numbers, mut buffer, until) = (Vec::new(), vec![0; 65_535], Instant::now() + Duration::from_secs(10));
        while numbers.len() < sizes.len() && Instant::now() < until {
            let Ok(received) = second.receive(&mut buffer) else { continue };
            assert_eq!(received.from, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), first.port()));
            numbers
                .extend(buffer[..received.len].chunks(received.segment).map(|datagram| (datagram[0], datagram.len())));
        }
        assert_eq!(numbers, (0..6).zip(sizes).collect::<Vec<_>>());
    }
}
