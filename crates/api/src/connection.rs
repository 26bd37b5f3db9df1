//! Client connections: TCP with keepalive, TLS pinned to one cluster, and the HTTP/1 handshake on top.
//!
//! Owns: how a connection is made, when its other end counts as gone, and reading an answer of limited size.
//! Must not touch: what is sent on it.
//! Invariant: a peer that disappears without closing the connection is noticed, even while nothing is sent.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    Request, StatusCode,
    body::{Body, Incoming},
    client::conn::http1::SendRequest,
};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, ToSocketAddrs},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{Pin, tls};

/// Idle time before the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered probes before the connection is dropped: half a minute in all, which is longer than a switch takes to
/// restart a port, and short enough that abandoned `exec` sessions do not pile up.
const KEEPALIVE_PROBES: u32 = 3;

/// Turns keepalive probes on and Nagle's algorithm off.
///
/// The kernels probe each other, so a client that reads slowly, or is paused in a pager, stays connected. With data that
/// is not acknowledged the kernel gives up after about a quarter of an hour; `TCP_USER_TIMEOUT` would shorten that and
/// was refused, because it would disconnect slow readers as well.
pub fn enable_keepalive(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(set_socket_keepalive(stream, true)?)
}

/// A TCP connection with keepalive.
pub async fn connect_tcp(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    enable_keepalive(&stream)?;
    Ok(stream)
}

/// A TLS connection to the cluster whose authority has this pin, and to no other.
pub async fn connect_pinned(address: impl ToSocketAddrs, pin: Pin) -> io::Result<TlsStream<TcpStream>> {
    let stream = connect_tcp(address).await?;
    let config = tls::pinned(pin).map_err(io::Error::other)?;
    let name = ServerName::try_from(tls::CLUSTER_NAME).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Prepares a connection for HTTP/1 requests. It may be upgraded, and closes when the sender is dropped.
pub async fn handshake<B>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<B>, hyper::Error>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    Ok(sender)
}

/// Sends one request on a new connection and reads the whole answer; an answer of more than `max_bytes` is an error.
pub async fn exchange<B>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<B>,
    max_bytes: usize,
) -> io::Result<(StatusCode, Bytes)>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut sender = handshake(stream).await.map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    Ok((status, read_body(response.into_body(), max_bytes).await?))
}

/// The whole body of an answer; one of more than `max_bytes` is an error.
pub async fn read_body(body: Incoming, max_bytes: usize) -> io::Result<Bytes> {
    let body = Limited::new(body, max_bytes).collect().await.map_err(io::Error::other)?;
    Ok(body.to_bytes())
}
