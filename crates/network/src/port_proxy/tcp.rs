//! Accepts TCP connections of one published port and relays each to an endpoint.
//!
//! Owns: the accept loop, and copying in both directions.
//! Invariant: an accepted connection outlives its listener; it ends when one of its ends ends it.

use std::{io, sync::Arc, time::Duration};

use rustix::net::sockopt;
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::endpoint_set::EndpointSet;

/// Both directions of a connection have a buffer of this size.
const BUFFER_BYTES: usize = 16 * 1024;
/// A connection without traffic is probed after this time, so that a vanished peer is noticed. There is no other idle
/// limit: a database connection may rest for days.
const KEEPALIVE: Duration = Duration::from_mins(1);
/// Pause after a failed accept: without descriptors, the next one would fail at once, too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections for ever. While no permit is left, clients wait in the kernel's queue.
pub(super) async fn accept(listener: TcpListener, endpoints: Arc<EndpointSet>, permits: Arc<Semaphore>) {
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                let endpoints = Arc::clone(&endpoints);
                tokio::spawn(async move {
                    // How a connection ended is the concern of its two ends.
                    let _ = relay(client, &endpoints).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn relay(mut client: TcpStream, endpoints: &EndpointSet) -> io::Result<()> {
    let Some((mut upstream, _lease)) = endpoints.connect().await else { return Ok(()) };
    prepare(&client)?;
    prepare(&upstream)?;
    copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER_BYTES, BUFFER_BYTES).await.map(drop)
}

/// Small messages leave at once, and a vanished peer is noticed.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE / 6)?;
    Ok(())
}
