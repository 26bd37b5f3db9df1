//! Connects to a replica of this machine from the client's own address.
//!
//! Owns: the socket, and the kernel's rule that brings replies to it back.
//! Invariant: where the address cannot be the client's, the caller is told and connects from this machine's own.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
};

use futures_util::TryStreamExt as _;
use netlink_packet_route::{
    route::{RouteScope, RouteType},
    rule::{RuleAction, RuleAttribute},
};
use nix::sys::socket::{setsockopt, sockopt::IpTransparent};
use rtnetlink::{IpVersion, RouteMessageBuilder};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt},
};
use tokio::net::{TcpSocket, TcpStream};

use crate::render::TRANSPARENT_MARK;

/// Whether a connection from a client's address gets its replies.
#[derive(Debug, Default)]
pub(crate) struct Transparency(AtomicBool);

impl Transparency {
    pub(crate) fn is_available(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Looks whether this process may use foreign addresses and makes the kernel deliver the replies here: without that,
    /// they would leave for the client and the connection would hang. The nftables table marks them.
    pub(super) async fn check(&self) {
        let is_available = may_bind_foreign() && ensure_delivery().await.is_ok();
        if self.0.swap(is_available, Ordering::Relaxed) != is_available {
            tracing::info!(is_available, "replicas see the addresses of their clients");
        }
    }
}

fn may_bind_foreign() -> bool {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    socket.is_ok_and(|socket| setsockopt(&socket, IpTransparent, &true).is_ok())
}

/// A rule for marked packets and a table that delivers everything locally, for both families.
async fn ensure_delivery() -> Result<(), rtnetlink::Error> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(|_| rtnetlink::Error::RequestFailed)?;
    let connection = tokio::spawn(connection);
    let ensured = async {
        let loopback = handle.link().get().match_name("lo".to_owned()).execute().try_next().await?;
        let loopback = loopback.map_or(1, |link| link.header.index);
        let v4 = RouteMessageBuilder::<Ipv4Addr>::new().output_interface(loopback).table_id(TRANSPARENT_MARK);
        let v6 = RouteMessageBuilder::<Ipv6Addr>::new().output_interface(loopback).table_id(TRANSPARENT_MARK);
        for mut route in [v4.build(), v6.build()] {
            (route.header.kind, route.header.scope) = (RouteType::Local, RouteScope::Host);
            handle.route().add(route).replace().execute().await?;
        }
        for family in [IpVersion::V4, IpVersion::V6] {
            ensure_rule(&handle, family).await?;
        }
        Ok(())
    };
    let ensured = ensured.await;
    connection.abort();
    ensured
}

async fn ensure_rule(handle: &rtnetlink::Handle, family: IpVersion) -> Result<(), rtnetlink::Error> {
    let is_v4 = matches!(family, IpVersion::V4);
    let rules: Vec<_> = handle.rule().get(family).execute().try_collect().await?;
    let is_ours = |attribute: &RuleAttribute| matches!(attribute, RuleAttribute::FwMark(TRANSPARENT_MARK));
    if rules.iter().any(|rule| rule.attributes.iter().any(is_ours)) {
        return Ok(());
    }
    let rule = handle.rule().add().fw_mark(TRANSPARENT_MARK).table_id(TRANSPARENT_MARK).action(RuleAction::ToTable);
    if is_v4 { rule.v4().execute().await } else { rule.v6().execute().await }
}

/// Whether a connection to `to` can come from this client's address.
pub(crate) fn suits(client: IpAddr, to: SocketAddr) -> bool {
    client.is_ipv4() == to.is_ipv4() && !client.is_loopback() && !client.is_unspecified() && !client.is_multicast()
}

/// Connects from the client's address and port; from another port of the address where that one is taken.
pub(crate) async fn connect_as(client: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    match connect_from(client, to).await {
        Err(error) if is_taken(&error) => connect_from(SocketAddr::new(client.ip(), 0), to).await,
        connected => connected,
    }
}

fn is_taken(error: &io::Error) -> bool {
    [Errno::ADDRINUSE, Errno::ADDRNOTAVAIL].map(|errno| Some(errno.raw_os_error())).contains(&error.raw_os_error())
}

async fn connect_from(source: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if source.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    setsockopt(&socket, IpTransparent, &true)?;
    // One client port may lead to several replicas, through several nodes.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &source)?;
    TcpSocket::from_std_stream(socket.into()).connect(to).await
}
