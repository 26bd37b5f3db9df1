//! Tokens, secrets and the members of the control plane.

use longshore_model::access;
use serde::{Deserialize, Serialize};

use crate::{NodeRole, TokenRole, base64};

/// Asks for a token with which one node can join.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JoinTokenRequest {
    /// The node will be a worker, which never votes.
    pub worker: bool,
    /// Lifetime of the token in seconds; one hour unless given.
    pub valid_secs: Option<u64>,
}

/// Asks for an operator token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Name of the token, shown in lists and in the audit log.
    pub name: String,
    /// What its holder may do.
    pub role: access::TokenRole,
    /// Limits it to this namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Limits it to this deployment.
    #[serde(default)]
    pub deployment: Option<String>,
    /// Lifetime in seconds; unlimited unless given.
    #[serde(default)]
    pub valid_secs: Option<u64>,
}

/// A new token. It is returned only once.
#[derive(Clone, Serialize, Deserialize)]
pub struct NewToken {
    /// The public part.
    pub id: String,
    /// The whole token.
    pub token: String,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewToken({})", self.id)
    }
}

/// An operator token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// The public part.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What its holder may do.
    pub role: TokenRole,
    /// The namespace it is limited to.
    pub namespace: Option<String>,
    /// The deployment it is limited to.
    pub deployment: Option<String>,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// The contents of a secret: either text or base64.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    /// The contents as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
    /// The contents in base64 with padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents_base64: Option<String>,
    /// The only deployment that may use it; all of the namespace unless given.
    #[serde(default)]
    pub deployment: Option<String>,
}

impl std::fmt::Debug for SecretRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let given = self.contents.as_ref().or(self.contents_base64.as_ref());
        write!(f, "SecretRequest({} characters)", given.map_or(0, String::len))
    }
}

/// The request has neither or both kinds of contents, or invalid base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret has either `contents`, which is text, or `contents_base64`, which is base64 with padding")]
pub struct AmbiguousContents;

impl SecretRequest {
    /// A request for these bytes. Text is sent as text, for older daemons.
    pub fn new(bytes: Vec<u8>, deployment: Option<String>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self { contents: Some(text), contents_base64: None, deployment },
            Err(other) => Self { contents: None, contents_base64: Some(base64::encode(other.as_bytes())), deployment },
        }
    }

    /// The contents.
    pub fn bytes(&self) -> Result<Vec<u8>, AmbiguousContents> {
        match (&self.contents, &self.contents_base64) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(encoded)) => base64::decode(encoded).map_err(|_| AmbiguousContents),
            (None, None) | (Some(_), Some(_)) => Err(AmbiguousContents),
        }
    }
}

/// A stored secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretStored {
    /// The version it got.
    pub version: u64,
}

/// A secret, without its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its newest version.
    pub version: u64,
    /// The only deployment that may use it, if it is limited.
    pub deployment: Option<String>,
    /// Services that need it, each as `deployment/service`.
    pub used_by: Vec<String>,
}

/// The cluster has a new sealing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRotated {
    /// Its number.
    pub key: u32,
}

/// Status of the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The cluster's id.
    pub cluster: String,
    /// The node that answers.
    pub this_node: String,
    /// Whether that node leads.
    pub leading_here: bool,
    /// Raft term; grows with every election.
    pub term: u64,
    /// Index of the state: commands that changed something.
    pub index: u64,
    /// Last log entry of the node that answers.
    pub log_entry: u64,
    /// Every node of the cluster.
    pub members: Vec<MemberRow>,
    /// Whether a majority of the voters answers; without one nothing can be changed, and this is the last known state.
    #[serde(default)]
    pub has_quorum: bool,
    /// Number of voters.
    #[serde(default)]
    pub voters: u32,
    /// Voters that the node that answers can reach, itself included.
    #[serde(default)]
    pub reachable_voters: u32,
    /// How many more voters may be lost before nothing can be changed any more.
    #[serde(default)]
    pub survives_losses: u32,
    /// Namespaces that may ask everything of the machines, because no policy was set for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces_without_policy: Vec<String>,
}

/// A node's role in the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a column of its own on the wire, and independent of the others"
)]
pub struct MemberRow {
    /// The node.
    pub node: String,
    /// Its member id.
    pub member: u64,
    /// Address that others use.
    pub address: String,
    /// `server` or `worker`.
    pub role: NodeRole,
    /// The older name of `role`.
    pub part: NodeRole,
    /// Whether it has a replica of the log.
    pub keeps_log: bool,
    /// Whether it is a voter.
    pub votes: bool,
    /// Whether it is the leader.
    pub leads: bool,
    /// Whether the node that answers reaches it; for a worker, whether its heartbeats arrive.
    #[serde(default)]
    pub reachable: bool,
    /// Log entries it has yet to apply; absent if it keeps no log or did not answer.
    #[serde(default)]
    pub lag: Option<u64>,
    /// The version it runs; absent if it is a worker or did not answer.
    #[serde(default)]
    pub version: Option<String>,
}

/// A login to the dashboard.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// An operator token.
    pub token: String,
}

/// The caller's identity and rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoAmI {
    /// Name of the token, or the local user.
    pub name: String,
    /// What the caller may do.
    pub role: TokenRole,
    /// The namespace it is limited to.
    pub namespace: Option<String>,
    /// The deployment it is limited to.
    pub deployment: Option<String>,
}

/// A link that logs in to the dashboard once.
#[derive(Clone, Serialize, Deserialize)]
pub struct LoginLink {
    /// Path, valid at any address of the daemon.
    pub path: String,
    /// The whole URL for browsers of the daemon's machine, if it serves them.
    pub url: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_may_hold_any_bytes_and_text_is_sent_as_text() {
        let text = SecretRequest::new(b"hunter2".to_vec(), None);
        assert_eq!(serde_json::to_string(&text).unwrap(), r#"{"contents":"hunter2","deployment":null}"#);
        for bytes in [vec![], vec![0, 159, 146, 150], (0..=255).collect::<Vec<u8>>()] {
            assert_eq!(SecretRequest::new(bytes.clone(), None).bytes(), Ok(bytes));
        }
        for unclear in ["{}", r#"{"contents":"a","contents_base64":"YQ=="}"#, r#"{"contents_base64":"Y"}"#] {
            let request: SecretRequest = serde_json::from_str(unclear).unwrap();
            assert_eq!(request.bytes(), Err(AmbiguousContents), "{unclear}");
        }
    }
}
