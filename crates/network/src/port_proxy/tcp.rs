//! Accepts TCP connections of one published port and relays each to an endpoint.
//!
//! Owns: the accept loop, and the options of both sockets.
//! Invariant: an accepted connection outlives its listener; it ends when one of its ends ends it.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};

use super::{budget::PortBudget, endpoint_set::EndpointSet};
use crate::{proxy_protocol::canonical, tcp_relay::relay};

/// A connection without traffic is probed after this time, so that a vanished peer is noticed. There is no other idle
/// limit: a database connection may rest for days.
const KEEPALIVE: Duration = Duration::from_mins(1);
/// Bytes that are not acknowledged for this time end a connection to another machine: it is gone.
const USER_TIMEOUT: Duration = Duration::from_mins(2);
/// Pause after a failed accept: without descriptors, the next one would fail at once, too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections for ever. While there is no room, clients wait in the kernel's queue.
pub(super) async fn accept(listener: Arc<TcpListener>, endpoints: Arc<EndpointSet>, budget: PortBudget) {
    loop {
        let Some(room) = budget.room().await else { return };
        match listener.accept().await {
            Ok((client, from)) => {
                let endpoints = Arc::clone(&endpoints);
                tokio::spawn(async move {
                    // How a connection ended is the concern of its two ends.
                    let _ = serve(&client, canonical(from), &endpoints).await;
                    drop(room);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(client: &TcpStream, from: SocketAddr, endpoints: &EndpointSet) -> io::Result<()> {
    let traffic = endpoints.traffic();
    let _open = traffic.begin();
    let Some((upstream, lease)) = endpoints.connect(from).await else {
        traffic.refused.add(1);
        return Ok(());
    };
    prepare(client)?;
    prepare(&upstream)?;
    if !lease.target().is_local() {
        sockopt::set_tcp_user_timeout(&upstream, u32::try_from(USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX))?;
    }
    relay(client, &upstream, &traffic.bytes_in, &traffic.bytes_out).await
}

/// Small messages leave at once, and a vanished peer is noticed.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE / 6)?;
    Ok(())
}
