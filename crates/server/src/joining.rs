//! A node joins a cluster: a token becomes a certificate and a place.
//!
//! Owns: the newcomer's side. Invariant: a folder that belongs to a cluster already is left as it is.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use longshore_api::{Envelope, Token, tls};
use longshore_model::NodeName;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    folder::{Folder, FolderError},
    identity::{IdentityError, NodeKey},
    peer::{Admitted, Coming, PROTOCOL, PROTOCOL_HEADER, pack, unpack},
    place::{Place, Serving},
};

/// How a node joins.
#[derive(Clone, Debug)]
pub struct JoinConfig {
    /// Its folder.
    pub data_dir: PathBuf,
    /// The node it shall be.
    pub node: NodeName,
    /// Where others shall reach it.
    pub address: String,
    /// A server of the cluster.
    pub server: String,
    /// What lets it in, and whom to trust.
    pub token: Token,
}

/// A node that has joined.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The cluster.
    pub cluster: String,
    /// Where its servers are.
    pub servers: Vec<String>,
}

/// Why a node did not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// It is part of a cluster already.
    #[error("the folder belongs to node `{node}` of cluster {cluster} already")]
    Taken {
        /// The node.
        node: NodeName,
        /// The cluster.
        cluster: String,
    },
    /// No key could be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Nobody answers, or not the cluster that the token names.
    #[error("`{server}` could not be asked, or is not of the cluster the token names")]
    Unreachable {
        /// Whom.
        server: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The answer is no.
    #[error("{0}")]
    Refused(Envelope),
}

/// Time everything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Largest answer that is read.
const LARGEST_ANSWER: usize = 1024 * 1024;

/// Joins a cluster. The daemon does the rest when it starts.
pub async fn join(config: JoinConfig) -> Result<Joined, JoinError> {
    let folder = Folder::take(&config.data_dir)?;
    if let Some(Place { node, cluster, .. }) = folder.place()? {
        return Err(JoinError::Taken { node, cluster });
    }
    // Kept before anybody is asked: should the answer be lost, the same node asks again with the same key.
    let key = match folder.coming_key()? {
        Some(kept) => NodeKey::open(&kept)?,
        None => NodeKey::new()?,
    };
    folder.keep_coming_key(key.bytes())?;
    let coming = Coming::new(&config.token, config.node.clone(), config.address.clone(), key.public());
    let asked = tokio::time::timeout(PATIENCE, ask(&config, &coming)).await;
    let unreachable = |cause| JoinError::Unreachable { server: config.server.clone(), cause };
    let admitted = asked.unwrap_or_else(|_| Err(unreachable(io::ErrorKind::TimedOut.into())))?;
    let Admitted { cluster, member, part, authority, certificate, servers } = admitted;
    folder.keep_identity(&authority, &certificate, &key)?;
    let joined =
        Joined { cluster: cluster.clone(), servers: servers.iter().map(|server| server.address.clone()).collect() };
    let (node, address) = (config.node, Some(config.address));
    folder.keep_place(&Place { cluster, node, member, part, address, serving: Serving::No, servers })?;
    folder.forget_coming_key()?;
    Ok(joined)
}

async fn ask(config: &JoinConfig, coming: &Coming) -> Result<Admitted, JoinError> {
    let unreachable = |cause| JoinError::Unreachable { server: config.server.clone(), cause };
    let (status, answer) = exchange(config, coming).await.map_err(unreachable)?;
    if status.is_success() {
        return unpack(&answer).map_err(|error| unreachable(io::Error::other(error)));
    }
    let refused = serde_json::from_slice(&answer);
    Err(refused.map_or_else(|_| unreachable(io::Error::other(format!("it answers {status}"))), JoinError::Refused))
}

async fn exchange(config: &JoinConfig, coming: &Coming) -> io::Result<(hyper::StatusCode, Bytes)> {
    let stream = TcpStream::connect(&config.server).await?;
    let tls_config = tls::pinned(config.token.pin).map_err(io::Error::other)?;
    let name = ServerName::try_from(tls::CLUSTER_NAME).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::new(tls_config)).connect(name, stream).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let message = pack(coming).map_err(io::Error::other)?;
    let request = Request::builder().method(Method::POST).uri("/join").header(header::HOST, &config.server);
    let request = request.header(PROTOCOL_HEADER, PROTOCOL);
    let request = request.body(Full::new(Bytes::from(message))).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await.map_err(io::Error::other)?;
    connection.abort();
    Ok((status, body.to_bytes()))
}
