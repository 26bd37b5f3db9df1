//! Where the daemon listens: a socket for this machine, a loopback address for browsers, TLS for everybody else.
//!
//! Owns: accepting, and how long somebody may take to say what they want.
//! Must not touch: what they want. Invariant: a caller that dawdles costs one connection, for seconds, and nobody else
//! anything.

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
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::limit::Room;

/// Connections of one door at the same time.
const MOST_CONNECTIONS: usize = 4096;
/// Connections from one address at the same time: somebody who hoards them leaves three quarters to the others.
const MOST_FROM_ONE: usize = 1024;
/// Bytes of a request's head, and of its body that are read ahead. Strangers can have that much of our memory each.
const READ_AHEAD: usize = 64 * 1024;
/// Time to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time to send the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// Pause after a failure to accept, such as too many open files.
const BREATH: Duration = Duration::from_millis(100);

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A user of this machine; nobody where the kernel does not say.
    Local(Option<u32>),
    /// Somebody on this machine, who came over plain HTTP.
    Loopback,
    /// Somebody elsewhere, and the certificate they showed, if they did; it is one of this cluster's authority.
    Remote(Option<Arc<CertificateDer<'static>>>),
}

/// Serves callers of this machine.
pub(crate) fn local(path: &Path, router: Router, closing: watch::Receiver<bool>) -> io::Result<JoinHandle<()>> {
    let listener = listen_on(path)?;
    Ok(tokio::spawn(async move {
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        while let Some(permit) = free(&room, &closing).await {
            let mut ended = closing.clone();
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = told(&mut ended) => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let peer = Peer::Local(stream.peer_cred().ok().map(|credentials| credentials.uid()));
                    tokio::spawn(attend(stream, peer, router.clone(), closing.clone(), permit));
                }
                Err(error) => complain(&error).await,
            }
        }
    }))
}

/// Serves callers over TCP: plainly where there are no settings, which is for loopback only.
pub(crate) fn remote(
    listener: TcpListener,
    tls: Option<ServerConfig>,
    router: Router,
    closing: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
    tokio::spawn(async move {
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let callers = Room::new(MOST_FROM_ONE, MOST_CONNECTIONS);
        while let Some(permit) = free(&room, &closing).await {
            let mut ended = closing.clone();
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = told(&mut ended) => return,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    complain(&error).await;
                    continue;
                }
            };
            let Some(inside) = callers.enter(&from.ip().to_string()) else { continue };
            let permit = (permit, inside);
            let _ = connection::tend(&stream);
            let (router, closing) = (router.clone(), closing.clone());
            match acceptor.clone() {
                None => drop(tokio::spawn(attend(stream, Peer::Loopback, router, closing, permit))),
                Some(acceptor) => drop(tokio::spawn(async move {
                    // Strangers that cannot agree on keys are not worth a word.
                    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
                    let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
                    let certificate = shown.map(|shown| Arc::new(shown.clone().into_owned()));
                    attend(stream, Peer::Remote(certificate), router, closing, permit).await;
                })),
            }
        }
    })
}

async fn free(room: &Arc<Semaphore>, closing: &watch::Receiver<bool>) -> Option<OwnedSemaphorePermit> {
    let mut closing = closing.clone();
    tokio::select! {
        permit = Arc::clone(room).acquire_owned() => permit.ok(),
        () = told(&mut closing) => None,
    }
}

async fn attend(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    mut closing: watch::Receiver<bool>,
    _permit: impl Send,
) {
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        hyper::service::Service::call(&inner, request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(READ_AHEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

async fn complain(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(BREATH).await;
}

async fn told(closing: &mut watch::Receiver<bool>) {
    // Whoever would say so is gone: that says it, too.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// A socket left by a daemon that was killed is nobody's: the folder's lock says that we are alone.
fn listen_on(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // Everybody may knock; who is let in is judged by the user the kernel names, and told why not.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}
