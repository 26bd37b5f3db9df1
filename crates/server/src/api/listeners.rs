//! Listeners: a Unix socket for this machine, a loopback address for browsers, TLS for everything else.
//!
//! Owns: accepting connections, the limits on their number and on slow clients, and the descriptors they may take.
//! Must not touch: requests. Invariant: a slow client costs one connection for a few seconds and delays nobody else.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use longshore_api::connection;
use rustix::process::{Resource, getrlimit};
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::security::rate_limit::ConcurrencyLimit;

/// Open connections of one listener.
const MAX_CONNECTIONS: usize = 4096;
/// Open connections of one address: a client that hoards them leaves three quarters to the others.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 1024;
/// Bytes buffered per connection, head included. An unauthenticated client can occupy that much memory.
const MAX_BUFFER: usize = 64 * 1024;
/// Time for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failure to accept, such as too many open files.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Descriptors that connections of the network never take: the log, the engine, agents and the local socket need them.
const RESERVED_DESCRIPTORS: u64 = 128;

/// Connections of one listener of the network for which there are descriptors: half of what is not reserved, because
/// there are two such listeners.
fn connections_with_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let half = usize::try_from(limit.saturating_sub(RESERVED_DESCRIPTORS) / 2).unwrap_or(usize::MAX);
    half.clamp(8, MAX_CONNECTIONS)
}

/// The remote end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A local user by uid; `None` where the kernel does not say.
    Local(Option<u32>),
    /// A local client over plain HTTP.
    Loopback,
    /// A TLS client, with its certificate if it showed one; the certificate was issued by this cluster's authority.
    Remote(Option<Arc<CertificateDer<'static>>>),
}

/// Serves the Unix socket.
pub(crate) fn serve_unix(path: &Path, router: Router, shutdown: watch::Receiver<bool>) -> io::Result<JoinHandle<()>> {
    let listener = bind_unix(path)?;
    Ok(tokio::spawn(async move {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while let Some(permit) = free_slot(&slots, &shutdown).await {
            let mut ended = shutdown.clone();
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown_requested(&mut ended) => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let peer = Peer::Local(stream.peer_cred().ok().map(|credentials| credentials.uid()));
                    tokio::spawn(serve_connection(stream, peer, router.clone(), shutdown.clone(), permit));
                }
                Err(error) => log_accept_error(&error).await,
            }
        }
    }))
}

/// Serves TCP; without TLS settings in plain text, which is for loopback only.
pub(crate) fn serve_tcp(
    listener: TcpListener,
    tls: Option<ServerConfig>,
    router: Router,
    shutdown: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
    tokio::spawn(async move {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let per_address = ConcurrencyLimit::new(MAX_CONNECTIONS_PER_ADDRESS, MAX_CONNECTIONS);
        while let Some(permit) = free_slot(&slots, &shutdown).await {
            let mut ended = shutdown.clone();
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown_requested(&mut ended) => return,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    log_accept_error(&error).await;
                    continue;
                }
            };
            let (open, most) = (MAX_CONNECTIONS - slots.available_permits(), connections_with_descriptors());
            let address = from.ip().to_string();
            if open > most || per_address.held_by(&address) >= most.div_ceil(4) {
                // Closed at once: it has shown no identity yet, and its descriptor may be the one the log needs.
                continue;
            }
            let Some(inside) = per_address.acquire(&address) else { continue };
            let permit = (permit, inside);
            let _ = connection::enable_keepalive(&stream);
            let (router, shutdown) = (router.clone(), shutdown.clone());
            match acceptor.clone() {
                None => drop(tokio::spawn(serve_connection(stream, Peer::Loopback, router, shutdown, permit))),
                Some(acceptor) => drop(tokio::spawn(async move {
                    // A failed handshake is not worth a log line.
                    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else {
                        return;
                    };
                    let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
                    let certificate = shown.map(|shown| Arc::new(shown.clone().into_owned()));
                    serve_connection(stream, Peer::Remote(certificate), router, shutdown, permit).await;
                })),
            }
        }
    })
}

async fn free_slot(slots: &Arc<Semaphore>, shutdown: &watch::Receiver<bool>) -> Option<OwnedSemaphorePermit> {
    let mut shutdown = shutdown.clone();
    tokio::select! {
        permit = Arc::clone(slots).acquire_owned() => permit.ok(),
        () = shutdown_requested(&mut shutdown) => None,
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    mut shutdown: watch::Receiver<bool>,
    _permit: impl Send,
) {
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        hyper::service::Service::call(&inner, request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown_requested(&mut shutdown) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

async fn log_accept_error(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
}

async fn shutdown_requested(shutdown: &mut watch::Receiver<bool>) {
    // A dropped sender means shutdown, too.
    let _ = shutdown.wait_for(|shutdown| *shutdown).await;
}

/// Replaces a socket file that a killed daemon left: the folder's lock proves that no other daemon uses it.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // Anyone may connect; the uid that the kernel reports decides, and the refusal says why.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}
