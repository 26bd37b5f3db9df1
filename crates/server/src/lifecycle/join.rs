//! Join: a node exchanges a token for a certificate and a node record.
//!
//! Owns: the joining node's side. Invariant: a folder that belongs to a cluster already is not changed.

use std::{env, io, path::PathBuf, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, header};
use longshore_api::{Envelope, Token, connection};
use longshore_model::NodeName;

use crate::{
    lifecycle::{
        address_choice::{self, PoolClash},
        data_folder::{DataFolder, FolderError},
        node_record::{NodeRecord, RaftMembership},
    },
    node_rpc::{JoinAnswer, JoinRequest, PROTOCOL, PROTOCOL_HEADER, pack, unpack},
    security::identity::{IdentityError, NodeKey},
};

/// What a node joins with.
#[derive(Clone, Debug)]
pub struct JoinConfig {
    /// The data folder.
    pub data_dir: PathBuf,
    /// The node's name.
    pub node: NodeName,
    /// The address others will use.
    pub address: String,
    /// Address of a server of the cluster.
    pub server: String,
    /// The join token; it also pins the cluster's authority.
    pub token: Token,
}

/// The cluster a node has joined.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Its id.
    pub cluster: String,
    /// Addresses of its servers.
    pub servers: Vec<String>,
}

/// Why a node did not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The folder already belongs to a cluster.
    #[error("the folder belongs to node `{node}` of cluster {cluster} already")]
    Taken {
        /// The node.
        node: NodeName,
        /// The cluster.
        cluster: String,
    },
    /// The cluster's addresses are in use on this machine.
    #[error(transparent)]
    PoolClash(#[from] PoolClash),
    /// A key could not be created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The server does not answer, or is not of the cluster that the token pins.
    #[error("`{server}` does not answer, or is not a server of the cluster that the token names")]
    Unreachable {
        /// The server's address.
        server: String,
        /// What failed.
        #[source]
        cause: io::Error,
    },
    /// The server refused.
    #[error("{0}")]
    Refused(Envelope),
}

/// Time for the whole exchange.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest answer in bytes.
const MAX_ANSWER: usize = 1024 * 1024;

/// Joins a cluster. The daemon does the rest when it starts.
pub async fn join(config: JoinConfig) -> Result<Joined, JoinError> {
    let folder = DataFolder::take(&config.data_dir)?;
    if let Some(NodeRecord { node, cluster, .. }) = folder.record()? {
        return Err(JoinError::Taken { node, cluster });
    }
    // Saved before the request: if the answer is lost, the node asks again with the same key.
    let key = match folder.join_key()? {
        Some(kept) => NodeKey::open(&kept)?,
        None => NodeKey::new()?,
    };
    folder.save_join_key(key.bytes())?;
    let request = JoinRequest::new(&config.token, config.node.clone(), config.address.clone(), key.public());
    let answer = tokio::time::timeout(JOIN_TIMEOUT, request_admission(&config, &request)).await;
    let unreachable = |cause| JoinError::Unreachable { server: config.server.clone(), cause };
    let admitted = answer.unwrap_or_else(|_| Err(unreachable(io::ErrorKind::TimedOut.into())))?;
    let JoinAnswer { cluster, member, role, authority, certificate, servers, ipv4_pool } = admitted;
    if let Some(pool) = ipv4_pool.filter(|_| uses_overlay()) {
        address_choice::check_join(pool)?;
    }
    folder.save_identity(&authority, &certificate, &key)?;
    let joined =
        Joined { cluster: cluster.clone(), servers: servers.iter().map(|server| server.address.clone()).collect() };
    let (node, address) = (config.node, Some(config.address));
    folder.save_record(&NodeRecord {
        cluster,
        node,
        member,
        role,
        address,
        raft: RaftMembership::NonMember,
        servers,
        has_store: false,
        new_addresses: None,
    })?;
    folder.delete_join_key()?;
    Ok(joined)
}

/// Whether a daemon with the same environment would take part in the overlay.
fn uses_overlay() -> bool {
    env::var("LONGSHORE_OVERLAY").is_ok_and(|chosen| chosen != "off")
}

async fn request_admission(config: &JoinConfig, request: &JoinRequest) -> Result<JoinAnswer, JoinError> {
    let unreachable = |cause| JoinError::Unreachable { server: config.server.clone(), cause };
    let (status, answer) = send_join_request(config, request).await.map_err(unreachable)?;
    if status.is_success() {
        return unpack(&answer).map_err(|error| unreachable(io::Error::other(error)));
    }
    let refused = serde_json::from_slice(&answer);
    Err(refused.map_or_else(|_| unreachable(io::Error::other(format!("it answers {status}"))), JoinError::Refused))
}

async fn send_join_request(config: &JoinConfig, join: &JoinRequest) -> io::Result<(StatusCode, Bytes)> {
    let stream = connection::connect_pinned(&config.server, config.token.pin).await?;
    let message = pack(join).map_err(io::Error::other)?;
    let request = Request::builder().method(Method::POST).uri("/join").header(header::HOST, &config.server);
    let request = request.header(PROTOCOL_HEADER, PROTOCOL);
    let request = request.body(Full::new(Bytes::from(message))).map_err(io::Error::other)?;
    connection::exchange(stream, request, MAX_ANSWER).await
}
