//! A typed client: one method per route.
//!
//! Owns: connecting, sending, and telling an unreachable daemon from one that refuses.
//! Must not touch: messages for people; the caller writes those.
//! Invariant: a request that changes something has an idempotency key, so the cluster executes it once, however often
//! its members retry it.

mod logs_exec;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, header, http::request};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;

use crate::{
    AppliedManifest, ApplyRequest, AuditEntry, Changed, ClusterStatus, Deployment, DrainRequest, Envelope, EvenOutMove,
    HistoryEntry, JoinTokenRequest, KeyRotated, LabelRequest, LoginLink, ManifestPlan, NamespaceRow, NetworkRow,
    NewToken, Node, NodeAttributesRequest, OneOffJob, Pending, Policy, PolicyRequest, PolicyTest, Quota, RemoveNode,
    Replica, RollbackRequest, RunRequest, ScaleRequest, SecretRequest, SecretRow, SecretStored, ServiceNetwork, Status,
    Token, TokenRequest, TokenRow, VolumeRow, WhatIf, WhatIfRequest, Why, connection,
};

pub use self::logs_exec::{Changes, LogLines, SessionInput, SessionOutput};

/// Where a daemon listens.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket on this machine; the kernel reports the caller's uid.
    Unix(PathBuf),
    /// A TLS address, with a token that also pins the cluster.
    Tls {
        /// Host and port.
        address: String,
        /// The credential.
        token: Token,
    },
}

// Never prints the token: this type ends up in errors.
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

/// Why a request has no successful answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens there.
    #[error("no daemon answers at `{endpoint}`")]
    Unreachable {
        /// The daemon.
        endpoint: Endpoint,
        /// The operating system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The connection broke, or timed out.
    #[error("the daemon at `{endpoint}` did not finish its answer: {cause}")]
    Broken {
        /// The daemon.
        endpoint: Endpoint,
        /// What failed.
        cause: String,
    },
    /// The daemon refused.
    #[error("{0}")]
    Refused(Envelope),
    /// The answer cannot be parsed; most likely it is no daemon of ours.
    #[error("the answer from `{endpoint}` cannot be parsed: {cause}")]
    Garbled {
        /// The daemon.
        endpoint: Endpoint,
        /// What is wrong with it.
        cause: String,
    },
}

/// Largest answer in bytes; a list of 100,000 replicas is a third of it.
const MAX_ANSWER: usize = 128 * 1024 * 1024;

/// A client of one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    timeout: Duration,
}

/// No body.
const NO_BODY: Option<&()> = None;

impl Client {
    /// A client with a timeout of 30 seconds per request.
    pub const fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, timeout: Duration::from_secs(30) }
    }

    /// Applies a manifest.
    pub async fn apply(&self, manifest: &ApplyRequest) -> Result<AppliedManifest, ClientError> {
        self.ask(Method::POST, "/v1/deployments", Some(manifest)).await
    }

    /// A dry run of applying a manifest.
    pub async fn plan(&self, manifest: &ApplyRequest) -> Result<ManifestPlan, ClientError> {
        self.ask(Method::POST, "/v1/plan", Some(manifest)).await
    }

    /// A dry run under the given assumptions.
    pub async fn what_if(&self, supposed: &WhatIfRequest) -> Result<WhatIf, ClientError> {
        self.ask(Method::POST, "/v1/whatif", Some(supposed)).await
    }

    /// All deployments.
    pub async fn deployments(&self) -> Result<Vec<Deployment>, ClientError> {
        self.ask(Method::GET, "/v1/deployments", NO_BODY).await
    }

    /// One deployment.
    pub async fn deployment(&self, namespace: &str, name: &str) -> Result<Deployment, ClientError> {
        self.ask(Method::GET, &deployment_path(namespace, name, ""), NO_BODY).await
    }

    /// All deployments and replicas, or those of one deployment, from one state.
    pub async fn status(&self, namespace: &str, deployment: Option<&str>) -> Result<Status, ClientError> {
        let path = match deployment {
            Some(name) => format!("/v1/status?namespace={}&deployment={}", encoded(namespace), encoded(name)),
            None => "/v1/status".to_owned(),
        };
        self.ask(Method::GET, &path, NO_BODY).await
    }

    /// Removes a deployment.
    pub async fn remove(&self, namespace: &str, name: &str) -> Result<Changed, ClientError> {
        self.ask(Method::DELETE, &deployment_path(namespace, name, ""), NO_BODY).await
    }

    /// Sets the number of replicas of a service.
    pub async fn scale(&self, namespace: &str, name: &str, service: &str, to: u32) -> Result<Changed, ClientError> {
        let path = deployment_path(namespace, name, &format!("/services/{}/scale", encoded(service)));
        self.ask(Method::POST, &path, Some(&ScaleRequest { replicas: to })).await
    }

    /// Replaces every replica of a service.
    pub async fn restart(&self, namespace: &str, name: &str, service: &str) -> Result<Changed, ClientError> {
        let path = deployment_path(namespace, name, &format!("/services/{}/restart", encoded(service)));
        self.ask(Method::POST, &path, NO_BODY).await
    }

    /// Runs a command once, as a job of its own made from a service.
    pub async fn run(
        &self,
        namespace: &str,
        name: &str,
        service: &str,
        request: &RunRequest,
    ) -> Result<OneOffJob, ClientError> {
        let path = deployment_path(namespace, name, &format!("/services/{}/run", encoded(service)));
        self.ask(Method::POST, &path, Some(request)).await
    }

    /// Resolves the images of a deployment again, and rolls what changed.
    pub async fn pull(&self, namespace: &str, name: &str) -> Result<AppliedManifest, ClientError> {
        self.ask(Method::POST, &deployment_path(namespace, name, "/pull"), NO_BODY).await
    }

    /// Rolls back to an older revision.
    pub async fn rollback(&self, namespace: &str, name: &str, to: Option<u64>) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &deployment_path(namespace, name, "/rollback"), Some(&RollbackRequest { to })).await
    }

    /// Takes one of the actions `pause`, `resume` and `promote` on a rollout.
    pub async fn control_rollout(&self, namespace: &str, name: &str, word: &str) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &deployment_path(namespace, name, &format!("/{}", encoded(word))), NO_BODY).await
    }

    /// Stops every replica of a deployment; its revisions and volumes stay.
    pub async fn stop(&self, namespace: &str, name: &str) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &deployment_path(namespace, name, "/stop"), NO_BODY).await
    }

    /// Starts a stopped deployment.
    pub async fn start(&self, namespace: &str, name: &str) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &deployment_path(namespace, name, "/start"), NO_BODY).await
    }

    /// All replicas.
    pub async fn replicas(&self) -> Result<Vec<Replica>, ClientError> {
        self.ask(Method::GET, "/v1/replicas", NO_BODY).await
    }

    /// The history of a replica, as far back as the server remembers; oldest first.
    pub async fn history(&self, replica: &str) -> Result<Vec<HistoryEntry>, ClientError> {
        self.ask(Method::GET, &format!("/v1/replicas/{}/history", encoded(replica)), NO_BODY).await
    }

    /// Replicas without a node.
    pub async fn pending(&self) -> Result<Vec<Pending>, ClientError> {
        self.ask(Method::GET, "/v1/pending", NO_BODY).await
    }

    /// Why a replica is on its node, or what blocks the replicas of `DEPLOYMENT/SERVICE`.
    pub async fn why(&self, namespace: &str, name: &str) -> Result<Why, ClientError> {
        self.ask(Method::GET, &format!("/v1/why/{}?namespace={}", encoded(name), encoded(namespace)), NO_BODY).await
    }

    /// All nodes.
    pub async fn nodes(&self) -> Result<Vec<Node>, ClientError> {
        self.ask(Method::GET, "/v1/nodes", NO_BODY).await
    }

    /// One node.
    pub async fn node(&self, name: &str) -> Result<Node, ClientError> {
        self.ask(Method::GET, &node_path(name, ""), NO_BODY).await
    }

    /// Drains a node.
    pub async fn drain(&self, name: &str, request: DrainRequest) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &node_path(name, "/drain"), Some(&request)).await
    }

    /// Takes an action on a node, for example `activate`, `pause` or `lost`.
    pub async fn node_action(&self, name: &str, word: &str) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &node_path(name, &format!("/{}", encoded(word))), NO_BODY).await
    }

    /// Labels a node.
    pub async fn label(&self, name: &str, request: &LabelRequest) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &node_path(name, "/labels"), Some(request)).await
    }

    /// Declares attributes of a node.
    pub async fn set_node_attributes(
        &self,
        name: &str,
        request: &NodeAttributesRequest,
    ) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &node_path(name, "/attributes"), Some(request)).await
    }

    /// Removes a node from the cluster.
    pub async fn remove_node(&self, name: &str, how: RemoveNode) -> Result<Changed, ClientError> {
        self.ask(Method::DELETE, &node_path(name, &format!("?how={}", how.as_str())), NO_BODY).await
    }

    /// All namespaces.
    pub async fn namespaces(&self) -> Result<Vec<NamespaceRow>, ClientError> {
        self.ask(Method::GET, "/v1/namespaces", NO_BODY).await
    }

    /// What the manifests of a namespace may ask.
    pub async fn policy(&self, namespace: &str) -> Result<Policy, ClientError> {
        self.ask(Method::GET, &format!("/v1/namespaces/{}/policy", encoded(namespace)), NO_BODY).await
    }

    /// Sets rules of a namespace's policy.
    pub async fn set_policy(&self, namespace: &str, request: &PolicyRequest) -> Result<Changed, ClientError> {
        self.ask(Method::PUT, &format!("/v1/namespaces/{}/policy", encoded(namespace)), Some(request)).await
    }

    /// What an apply of the manifest would be refused for by the policy.
    pub async fn test_policy(&self, manifest: &ApplyRequest) -> Result<PolicyTest, ClientError> {
        self.ask(Method::POST, "/v1/policy-test", Some(manifest)).await
    }

    /// Sets the whole quota of a namespace.
    pub async fn set_quota(&self, namespace: &str, quota: &Quota) -> Result<Changed, ClientError> {
        self.ask(Method::PUT, &format!("/v1/namespaces/{}/quota", encoded(namespace)), Some(quota)).await
    }

    /// Every setting of the cluster by name.
    pub async fn settings(&self) -> Result<BTreeMap<String, String>, ClientError> {
        self.ask(Method::GET, "/v1/cluster/settings", NO_BODY).await
    }

    /// Changes some settings; the others keep their values.
    pub async fn set(&self, settings: &BTreeMap<String, String>) -> Result<Changed, ClientError> {
        self.ask(Method::POST, "/v1/cluster/settings", Some(settings)).await
    }

    /// All volumes.
    pub async fn volumes(&self) -> Result<Vec<VolumeRow>, ClientError> {
        self.ask(Method::GET, "/v1/volumes", NO_BODY).await
    }

    /// Deletes a volume that nothing uses, with its data.
    pub async fn remove_volume(&self, namespace: &str, name: &str) -> Result<Changed, ClientError> {
        let path = format!("/v1/volumes/{}?namespace={}", encoded(name), encoded(namespace));
        self.ask(Method::DELETE, &path, NO_BODY).await
    }

    /// All networks that services are on.
    pub async fn networks(&self) -> Result<Vec<NetworkRow>, ClientError> {
        self.ask(Method::GET, "/v1/networks", NO_BODY).await
    }

    /// How a service is reached.
    pub async fn service_network(
        &self,
        namespace: &str,
        deployment: &str,
        service: &str,
    ) -> Result<ServiceNetwork, ClientError> {
        let path = deployment_path(namespace, deployment, &format!("/services/{}/network", encoded(service)));
        self.ask(Method::GET, &path, NO_BODY).await
    }

    /// The moves that evening out would make.
    pub async fn even_out_plan(&self) -> Result<Vec<EvenOutMove>, ClientError> {
        self.ask(Method::GET, "/v1/rebalance", NO_BODY).await
    }

    /// Spreads replicas more evenly, one move at a time.
    pub async fn even_out(&self) -> Result<Changed, ClientError> {
        self.ask(Method::POST, "/v1/rebalance", NO_BODY).await
    }

    /// Status of the control plane.
    pub async fn cluster(&self) -> Result<ClusterStatus, ClientError> {
        self.ask(Method::GET, "/v1/cluster", NO_BODY).await
    }

    /// Creates a link that logs in to the dashboard once.
    pub async fn login_link(&self) -> Result<LoginLink, ClientError> {
        self.ask(Method::POST, "/v1/login-links", NO_BODY).await
    }

    /// Creates a token with which one node can join.
    pub async fn join_token(&self, request: &JoinTokenRequest) -> Result<NewToken, ClientError> {
        self.ask(Method::POST, "/v1/join-tokens", Some(request)).await
    }

    /// Creates an operator token.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<NewToken, ClientError> {
        self.ask(Method::POST, "/v1/tokens", Some(request)).await
    }

    /// All operator tokens.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, ClientError> {
        self.ask(Method::GET, "/v1/tokens", NO_BODY).await
    }

    /// Revokes an operator token.
    pub async fn revoke_token(&self, id: &str) -> Result<Changed, ClientError> {
        self.ask(Method::DELETE, &format!("/v1/tokens/{}", encoded(id)), NO_BODY).await
    }

    /// Stores a new version of a secret.
    pub async fn put_secret(
        &self,
        namespace: &str,
        name: &str,
        request: &SecretRequest,
    ) -> Result<SecretStored, ClientError> {
        let path = format!("/v1/secrets/{}?namespace={}", encoded(name), encoded(namespace));
        self.ask(Method::PUT, &path, Some(request)).await
    }

    /// All secrets, without their contents.
    pub async fn secrets(&self) -> Result<Vec<SecretRow>, ClientError> {
        self.ask(Method::GET, "/v1/secrets", NO_BODY).await
    }

    /// Removes a secret that nothing needs.
    pub async fn remove_secret(&self, namespace: &str, name: &str) -> Result<Changed, ClientError> {
        let path = format!("/v1/secrets/{}?namespace={}", encoded(name), encoded(namespace));
        self.ask(Method::DELETE, &path, NO_BODY).await
    }

    /// Rotates the cluster's key.
    pub async fn rotate_key(&self) -> Result<KeyRotated, ClientError> {
        self.ask(Method::POST, "/v1/cluster/rotate-key", NO_BODY).await
    }

    /// The replicated state and the keys, in bytes that `restore` reads.
    pub async fn backup(&self) -> Result<Bytes, ClientError> {
        let (status, answer) = self.exchange(Method::GET, "/v1/backup", Bytes::new()).await?;
        if status.is_success() {
            return Ok(answer);
        }
        Err(ClientError::Refused(serde_json::from_slice(&answer).map_err(|cause| self.garbled(cause))?))
    }

    /// Audit records after a number, or the newest ones; oldest first.
    pub async fn audit(&self, after: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>, ClientError> {
        let after = after.map_or_else(String::new, |after| format!("after={after}&"));
        self.ask(Method::GET, &format!("/v1/audit?{after}limit={limit}"), NO_BODY).await
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
        let sent = tokio::time::timeout(self.timeout, self.exchange(method, path, body.into()));
        let (status, answer) = sent.await.map_err(|_| self.broken("it timed out"))??;
        if status.is_success() {
            return serde_json::from_slice(&answer).map_err(|cause| self.garbled(cause));
        }
        let envelope = serde_json::from_slice(&answer).map_err(|cause| self.garbled(cause))?;
        Err(ClientError::Refused(envelope))
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), ClientError> {
        let changes = method != Method::GET;
        let mut request = self.with_credentials(Request::builder().method(method).uri(path));
        request = request.header(header::CONTENT_TYPE, "application/json");
        if changes {
            request = request.header("idempotency-key", fresh_key().map_err(|cause| self.broken(cause))?);
        }
        let request = request.body(Full::new(body)).map_err(|cause| self.broken(cause))?;
        let unreachable = |cause| ClientError::Unreachable { endpoint: self.endpoint.clone(), cause };
        let answer = match &self.endpoint {
            Endpoint::Unix(socket) => {
                let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
                connection::exchange(stream, request, MAX_ANSWER).await
            }
            Endpoint::Tls { address, token } => {
                let stream = connection::connect_pinned(address, token.pin).await.map_err(unreachable)?;
                connection::exchange(stream, request, MAX_ANSWER).await
            }
        };
        answer.map_err(|cause| self.broken(cause))
    }

    /// Adds host and credentials.
    fn with_credentials(&self, request: request::Builder) -> request::Builder {
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

/// A random idempotency key.
fn fresh_key() -> Result<String, &'static str> {
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).map_err(|_| "this machine has no randomness")?;
    Ok(format!("{:032x}", u128::from_be_bytes(random)))
}

fn deployment_path(namespace: &str, name: &str, rest: &str) -> String {
    format!("/v1/deployments/{}{rest}?namespace={}", encoded(name), encoded(namespace))
}

fn node_path(name: &str, rest: &str) -> String {
    format!("/v1/nodes/{}{rest}", encoded(name))
}

/// A name percent-encoded as one path segment.
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
    fn a_name_stays_one_path_segment() {
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
