//! Opens the socket of a published port.
//!
//! Owns: which addresses that means, and what an error means to an operator.
//! Invariant: without a named address, a port is open on every address of both families, or on none.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
};

use longshore_model::service::Protocol;
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt},
};
use tokio::net::{TcpListener, UdpSocket};

use super::ListenKey;
use crate::socket_handover::NamedSocket;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// An open socket of a published port.
#[derive(Clone, Debug)]
pub(super) enum ListenSocket {
    Tcp(Arc<TcpListener>),
    Udp(Arc<UdpSocket>),
}

impl ListenSocket {
    /// The socket of a process before this one.
    pub(super) fn inherited(protocol: Protocol, socket: OwnedFd) -> io::Result<Self> {
        Ok(match protocol {
            Protocol::Tcp | Protocol::Sctp => Self::Tcp(Arc::new(TcpListener::from_std(socket.into())?)),
            Protocol::Udp => Self::Udp(Arc::new(UdpSocket::from_std(socket.into())?)),
        })
    }

    /// A second descriptor, for the process after this one.
    pub(super) fn named(&self, name: String) -> Option<NamedSocket> {
        match self {
            Self::Tcp(socket) => NamedSocket::of(name, socket.as_ref()),
            Self::Udp(socket) => NamedSocket::of(name, socket.as_ref()),
        }
    }
}

/// Why a published port is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListenError {
    /// Another program has it, or this one may not.
    Taken(String),
    /// The named address is not one of this machine.
    AddressElsewhere(IpAddr),
}

/// Opens the socket of a port.
pub(super) fn open(key: &ListenKey) -> Result<ListenSocket, ListenError> {
    let opened = match key.host_ip {
        Some(ip) => open_at(key.protocol, SocketAddr::new(ip, key.port)),
        None => open_everywhere(key.protocol, key.port),
    };
    opened.map_err(|error| explain(key, &error))
}

/// On `[::]`, which includes IPv4; on `0.0.0.0` where the machine has no IPv6.
fn open_everywhere(protocol: Protocol, port: u16) -> io::Result<ListenSocket> {
    match open_at(protocol, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
        Err(error) if is_without_ipv6(&error) => open_at(protocol, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)),
        opened => opened,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(|errno| Some(errno.raw_os_error())).contains(&error.raw_os_error())
}

fn open_at(protocol: Protocol, address: SocketAddr) -> io::Result<ListenSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let kind = match protocol {
        Protocol::Tcp => SocketType::STREAM,
        Protocol::Udp => SocketType::DGRAM,
        Protocol::Sctp => return Err(io::Error::other("published SCTP ports are not supported")),
    };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    if protocol == Protocol::Tcp {
        // Connections of an earlier daemon that are still closing do not keep the port. A second listener is refused.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    bind(&socket, &address)?;
    if protocol == Protocol::Udp {
        return Ok(ListenSocket::Udp(Arc::new(UdpSocket::from_std(socket.into())?)));
    }
    listen(&socket, BACKLOG)?;
    Ok(ListenSocket::Tcp(Arc::new(TcpListener::from_std(socket.into())?)))
}

fn explain(key: &ListenKey, error: &io::Error) -> ListenError {
    let ListenKey { protocol, port, host_ip } = key;
    let name = format!("port {port}/{}", protocol.as_str());
    match (error.kind(), host_ip) {
        (io::ErrorKind::AddrNotAvailable, Some(ip)) => ListenError::AddressElsewhere(*ip),
        (io::ErrorKind::AddrInUse, _) => ListenError::Taken(format!(
            "{name} is taken by another program of this machine; stop it (`ss -lnp 'sport = :{port}'` names it), or \
             publish another port"
        )),
        (io::ErrorKind::PermissionDenied, _) => ListenError::Taken(format!(
            "{name} needs a privilege that this daemon does not have; run it as root, or allow it with `setcap \
             cap_net_bind_service=+ep` on the `longshore` binary or `sysctl net.ipv4.ip_unprivileged_port_start={port}`"
        )),
        _ => ListenError::Taken(format!("{name} cannot be listened on: {error}")),
    }
}
