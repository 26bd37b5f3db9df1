//! A typed client: one method a question.
//!
//! Owns: connecting, sending, and telling a daemon that is away from one that says no.
//! Must not touch: words for people; the caller has those.
//! Invariant: a request that changes something has a key, under which the cluster carries it out once, however often its
//! members pass it on while they lose a leader.

mod sessions;

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, header, http::request};
use hyper_util::rt::TokioIo;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::ServerName;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    AppliedManifest, ApplyRequest, AuditEntry, Changed, ClusterStatus, Deployment, DrainRequest, Envelope, EvenOutMove,
    HistoryEntry, JoinTokenRequest, KeyRotated, LabelRequest, LoginLink, ManifestPlan, NamespaceRow, NewToken, Node,
    Pending, Quota, RemoveNode, Replica, RollbackRequest, ScaleRequest, SecretRequest, SecretRow, SecretStored, Status,
    Token, TokenRequest, TokenRow, VolumeRow, WhatIf, WhatIfRequest, Why, connection, tls,
};

pub use self::sessions::{LogLines, SessionInput, SessionOutput};

/// Where a daemon listens.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// On this machine; who asks is known by the socket.
    Unix(PathBuf),
    /// Elsewhere, with a token that also says whom to trust.
    Tls {
        /// Where: a host and a port.
        address: String,
        /// The proof.
        token: Token,
    },
}

// Never the token: this type ends up in errors.
impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tls { address, .. } => write!(f, "{address}"),
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("no daemon answers at `{endpoint}`")]
    Unreachable {
        /// Where.
        endpoint: Endpoint,
        /// Why not.
        #[source]
        cause: std::io::Error,
    },
    /// The connection broke, or took too long.
    #[error("the daemon at `{endpoint}` did not finish its answer: {cause}")]
    Broken {
        /// Where.
        endpoint: Endpoint,
        /// How.
        cause: String,
    },
    /// The answer is no.
    #[error("{0}")]
    Refused(Envelope),
    /// The answer makes no sense; most likely it is not a daemon of ours.
    #[error("the answer from `{endpoint}` is not understood: {cause}")]
    Garbled {
        /// Where.
        endpoint: Endpoint,
        /// How.
        cause: String,
    },
}

/// Answers larger than this are not read; a list of 100,000 replicas is a third of it.
const LARGEST_ANSWER: usize = 128 * 1024 * 1024;

/// Speaks with one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    patience: Duration,
}

/// No body.
const NOTHING: Option<&()> = None;

impl Client {
    /// A client of the daemon there.
    pub const fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, patience: Duration::from_secs(30) }
    }

    /// Applies a manifest.
    pub async fn apply(&self, manifest: &ApplyRequest) -> Result<AppliedManifest, ClientError> {
        self.ask(Method::POST, "/v1/deployments", Some(manifest)).await
    }

    /// What applying a manifest would do.
    pub async fn plan(&self, manifest: &ApplyRequest) -> Result<ManifestPlan, ClientError> {
        self.ask(Method::POST, "/v1/plan", Some(manifest)).await
    }

    /// What would come of what is supposed.
    pub async fn what_if(&self, supposed: &WhatIfRequest) -> Result<WhatIf, ClientError> {
        self.ask(Method::POST, "/v1/whatif", Some(supposed)).await
    }

    /// All deployments.
    pub async fn deployments(&self) -> Result<Vec<Deployment>, ClientError> {
        self.ask(Method::GET, "/v1/deployments", NOTHING).await
    }

    /// One deployment.
    pub async fn deployment(&self, namespace: &str, name: &str) -> Result<Deployment, ClientError> {
        self.ask(Method::GET, &of_deployment(namespace, name, ""), NOTHING).await
    }

    /// All deployments and replicas, or one deployment and its own, as they were at one moment.
    pub async fn status(&self, namespace: &str, deployment: Option<&str>) -> Result<Status, ClientError> {
        let path = match deployment {
            Some(name) => format!("/v1/status?namespace={}&deployment={}", encoded(namespace), encoded(name)),
            None => "/v1/status".to_owned(),
        };
        self.ask(Method::GET, &path, NOTHING).await
    }

    /// Removes a deployment.
    pub async fn remove(&self, namespace: &str, name: &str) -> Result<Changed, ClientError> {
        self.ask(Method::DELETE, &of_deployment(namespace, name, ""), NOTHING).await
    }

    /// Sets a service's count.
    pub async fn scale(&self, namespace: &str, name: &str, service: &str, to: u32) -> Result<Changed, ClientError> {
        let path = of_deployment(namespace, name, &format!("/services/{}/scale", encoded(service)));
        self.ask(Method::POST, &path, Some(&ScaleRequest { replicas: to })).await
    }

    /// Replaces every replica of a service by another of the same.
    pub async fn restart(&self, namespace: &str, name: &str, service: &str) -> Result<Changed, ClientError> {
        let path = of_deployment(namespace, name, &format!("/services/{}/restart", encoded(service)));
        self.ask(Method::POST, &path, NOTHING).await
    }

    /// Puts an older manifest in force.
    pub async fn rollback(&self, namespace: &str, name: &str, to: Option<u64>) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &of_deployment(namespace, name, "/rollback"), Some(&RollbackRequest { to })).await
    }

    /// Says `pause`, `resume` or `promote` to a rollout.
    pub async fn steer(&self, namespace: &str, name: &str, word: &str) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &of_deployment(namespace, name, &format!("/{}", encoded(word))), NOTHING).await
    }

    /// All replicas.
    pub async fn replicas(&self) -> Result<Vec<Replica>, ClientError> {
        self.ask(Method::GET, "/v1/replicas", NOTHING).await
    }

    /// What happened to a replica, as far back as the server that is asked remembers; oldest first.
    pub async fn history(&self, replica: &str) -> Result<Vec<HistoryEntry>, ClientError> {
        self.ask(Method::GET, &format!("/v1/replicas/{}/history", encoded(replica)), NOTHING).await
    }

    /// What has no node.
    pub async fn pending(&self) -> Result<Vec<Pending>, ClientError> {
        self.ask(Method::GET, "/v1/pending", NOTHING).await
    }

    /// Why a replica is where it is, or what keeps those of `DEPLOYMENT/SERVICE` from having a node.
    pub async fn why(&self, namespace: &str, name: &str) -> Result<Why, ClientError> {
        self.ask(Method::GET, &format!("/v1/why/{}?namespace={}", encoded(name), encoded(namespace)), NOTHING).await
    }

    /// All nodes.
    pub async fn nodes(&self) -> Result<Vec<Node>, ClientError> {
        self.ask(Method::GET, "/v1/nodes", NOTHING).await
    }

    /// One node.
    pub async fn node(&self, name: &str) -> Result<Node, ClientError> {
        self.ask(Method::GET, &of_node(name, ""), NOTHING).await
    }

    /// Empties a node.
    pub async fn drain(&self, name: &str, request: DrainRequest) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &of_node(name, "/drain"), Some(&request)).await
    }

    /// Says `activate`, `pause` or `lost` of a node.
    pub async fn tell_node(&self, name: &str, word: &str) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &of_node(name, &format!("/{}", encoded(word))), NOTHING).await
    }

    /// Labels a node.
    pub async fn label(&self, name: &str, request: &LabelRequest) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &of_node(name, "/labels"), Some(request)).await
    }

    /// Takes a node out of the cluster.
    pub async fn remove_node(&self, name: &str, how: RemoveNode) -> Result<Changed, ClientError> {
        self.ask(Method::DELETE, &of_node(name, &format!("?how={}", how.as_str())), NOTHING).await
    }

    /// All namespaces.
    pub async fn namespaces(&self) -> Result<Vec<NamespaceRow>, ClientError> {
        self.ask(Method::GET, "/v1/namespaces", NOTHING).await
    }

    /// Sets all ceilings of a namespace.
    pub async fn set_quota(&self, namespace: &str, quota: &Quota) -> Result<Changed, ClientError> {
        self.ask(Method::PUT, &format!("/v1/namespaces/{}/quota", encoded(namespace)), Some(quota)).await
    }

    /// Every setting of the cluster by its name.
    pub async fn settings(&self) -> Result<BTreeMap<String, String>, ClientError> {
        self.ask(Method::GET, "/v1/cluster/settings", NOTHING).await
    }

    /// Changes some settings; the others stay.
    pub async fn set(&self, settings: &BTreeMap<String, String>) -> Result<Changed, ClientError> {
        self.ask(Method::POST, "/v1/cluster/settings", Some(settings)).await
    }

    /// All volumes.
    pub async fn volumes(&self) -> Result<Vec<VolumeRow>, ClientError> {
        self.ask(Method::GET, "/v1/volumes", NOTHING).await
    }

    /// The moves that evening out would make.
    pub async fn even_out_plan(&self) -> Result<Vec<EvenOutMove>, ClientError> {
        self.ask(Method::GET, "/v1/rebalance", NOTHING).await
    }

    /// Spreads replicas more evenly, one move at a time.
    pub async fn even_out(&self) -> Result<Changed, ClientError> {
        self.ask(Method::POST, "/v1/rebalance", NOTHING).await
    }

    /// The control plane.
    pub async fn cluster(&self) -> Result<ClusterStatus, ClientError> {
        self.ask(Method::GET, "/v1/cluster", NOTHING).await
    }

    /// A link that logs in to the dashboard, once.
    pub async fn login_link(&self) -> Result<LoginLink, ClientError> {
        self.ask(Method::POST, "/v1/login-links", NOTHING).await
    }

    /// A token that lets one node in.
    pub async fn join_token(&self, request: &JoinTokenRequest) -> Result<NewToken, ClientError> {
        self.ask(Method::POST, "/v1/join-tokens", Some(request)).await
    }

    /// A token for an operator.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<NewToken, ClientError> {
        self.ask(Method::POST, "/v1/tokens", Some(request)).await
    }

    /// All tokens of operators.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, ClientError> {
        self.ask(Method::GET, "/v1/tokens", NOTHING).await
    }

    /// A token shall open nothing any more.
    pub async fn revoke_token(&self, id: &str) -> Result<Changed, ClientError> {
        self.ask(Method::DELETE, &format!("/v1/tokens/{}", encoded(id)), NOTHING).await
    }

    /// A secret gets another version.
    pub async fn put_secret(
        &self,
        namespace: &str,
        name: &str,
        request: &SecretRequest,
    ) -> Result<SecretStored, ClientError> {
        let path = format!("/v1/secrets/{}?namespace={}", encoded(name), encoded(namespace));
        self.ask(Method::PUT, &path, Some(request)).await
    }

    /// All secrets, as much of them as may be seen.
    pub async fn secrets(&self) -> Result<Vec<SecretRow>, ClientError> {
        self.ask(Method::GET, "/v1/secrets", NOTHING).await
    }

    /// Removes a secret that nothing needs.
    pub async fn remove_secret(&self, namespace: &str, name: &str) -> Result<Changed, ClientError> {
        let path = format!("/v1/secrets/{}?namespace={}", encoded(name), encoded(namespace));
        self.ask(Method::DELETE, &path, NOTHING).await
    }

    /// Has another of the cluster's keys seal.
    pub async fn rotate_key(&self) -> Result<KeyRotated, ClientError> {
        self.ask(Method::POST, "/v1/cluster/rotate-key", NOTHING).await
    }

    /// Everything replicated, in bytes that a restore takes.
    pub async fn backup(&self) -> Result<Bytes, ClientError> {
        let (status, answer) = self.exchange(Method::GET, "/v1/backup", Bytes::new()).await?;
        if status.is_success() {
            return Ok(answer);
        }
        Err(ClientError::Refused(serde_json::from_slice(&answer).map_err(|cause| self.garbled(cause))?))
    }

    /// Records after a number, or the newest where none is given; oldest first.
    pub async fn audit(&self, after: Option<u64>, most: usize) -> Result<Vec<AuditEntry>, ClientError> {
        let after = after.map_or_else(String::new, |after| format!("after={after}&"));
        self.ask(Method::GET, &format!("/v1/audit?{after}most={most}"), NOTHING).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(|cause| self.garbled(cause))?,
            None => Vec::new(),
        };
        let sent = tokio::time::timeout(self.patience, self.exchange(method, path, body.into()));
        let (status, answer) = sent.await.map_err(|_| self.broken("it takes too long"))??;
        if status.is_success() {
            return serde_json::from_slice(&answer).map_err(|cause| self.garbled(cause));
        }
        let envelope = serde_json::from_slice(&answer).map_err(|cause| self.garbled(cause))?;
        Err(ClientError::Refused(envelope))
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), ClientError> {
        let unreachable = |cause| ClientError::Unreachable { endpoint: self.endpoint.clone(), cause };
        match &self.endpoint {
            Endpoint::Unix(socket) => {
                let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
                self.converse(stream, method, path, body).await
            }
            Endpoint::Tls { address, token } => {
                let stream = connect(address, token).await.map_err(unreachable)?;
                self.converse(stream, method, path, body).await
            }
        }
    }

    async fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let changes = method != Method::GET;
        let mut request = self.addressed(Request::builder().method(method).uri(path));
        request = request.header(header::CONTENT_TYPE, "application/json");
        if changes {
            request = request.header("idempotency-key", fresh_key().map_err(|cause| self.broken(cause))?);
        }
        let request = request.body(Full::new(body)).map_err(|cause| self.broken(cause))?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|cause| self.broken(cause))?;
        // The connection ends with the answer; how it ends is told by the answer.
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|cause| self.broken(cause))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        connection.abort();
        Ok((status, body.map_err(|cause| self.broken(cause))?.to_bytes()))
    }

    /// A request to whom it goes, with the proof that it may.
    fn addressed(&self, request: request::Builder) -> request::Builder {
        match &self.endpoint {
            Endpoint::Unix(_) => request.header(header::HOST, "localhost"),
            Endpoint::Tls { address, token } => request
                .header(header::HOST, address)
                .header(header::AUTHORIZATION, format!("Bearer {}", token.reveal())),
        }
    }

    fn broken(&self, cause: impl std::fmt::Display) -> ClientError {
        ClientError::Broken { endpoint: self.endpoint.clone(), cause: cause.to_string() }
    }

    fn garbled(&self, cause: impl std::fmt::Display) -> ClientError {
        ClientError::Garbled { endpoint: self.endpoint.clone(), cause: cause.to_string() }
    }
}

/// A key nobody else has.
fn fresh_key() -> Result<String, &'static str> {
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).map_err(|_| "this machine gives no randomness")?;
    Ok(format!("{:032x}", u128::from_be_bytes(random)))
}

/// A connection to the cluster that the token names, and to no other.
async fn connect(address: &str, token: &Token) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    connection::tend(&stream)?;
    let config = tls::pinned(token.pin).map_err(io::Error::other)?;
    let name = ServerName::try_from(tls::CLUSTER_NAME).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn of_deployment(namespace: &str, name: &str, rest: &str) -> String {
    format!("/v1/deployments/{}{rest}?namespace={}", encoded(name), encoded(namespace))
}

fn of_node(name: &str, rest: &str) -> String {
    format!("/v1/nodes/{}{rest}", encoded(name))
}

/// A name as a part of a path: whatever is in it, it stays one part.
fn encoded(name: &str) -> String {
    use std::fmt::Write as _;
    name.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_part_of_a_path() {
        assert_eq!(encoded("shop-web_1"), "shop-web_1");
        assert_eq!(encoded("../a?b"), "..%2Fa%3Fb");
    }

    #[test]
    fn a_token_is_never_printed() {
        let token = format!("longshore-operator-{}-{}-{}", "a".repeat(16), "5ec2e7".repeat(5), "0".repeat(32));
        let endpoint = Endpoint::Tls { address: "10.0.0.1:7474".to_owned(), token: token.parse().unwrap() };
        assert_eq!(format!("{endpoint} {endpoint:?}"), "10.0.0.1:7474 Endpoint(10.0.0.1:7474)");
    }
}
