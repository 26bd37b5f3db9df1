//! Tokens, secrets and members, as clients see them.

use longshore_model::access::Power;
use serde::{Deserialize, Serialize};

use crate::bytes;

/// A token is wanted that lets one node in.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JoinTokenRequest {
    /// The node shall never vote.
    pub worker: bool,
    /// How long the token is good for; an hour unless given.
    pub valid_secs: Option<u64>,
}

/// A token is wanted for an operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What it shall be called.
    pub name: String,
    /// What it shall be good for.
    pub role: Power,
    /// Only in this namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Only for this deployment.
    #[serde(default)]
    pub deployment: Option<String>,
    /// How long; for ever unless given.
    #[serde(default)]
    pub valid_secs: Option<u64>,
}

/// A token, shown this once.
#[derive(Clone, Serialize, Deserialize)]
pub struct NewToken {
    /// The part that may be seen.
    pub id: String,
    /// All of it.
    pub token: String,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewToken({})", self.id)
    }
}

/// A token of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// The part that may be seen.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// `view`, `deploy` or `admin`.
    pub role: String,
    /// Only in this namespace.
    pub namespace: Option<String>,
    /// Only for this deployment.
    pub deployment: Option<String>,
    /// Until when, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// What a secret shall hold: text or any bytes, one of the two.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    /// What is in it, where that is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
    /// What is in it, in base64 with padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents_base64: Option<String>,
    /// The only deployment that may use it; every one of the namespace unless named.
    #[serde(default)]
    pub deployment: Option<String>,
}

impl std::fmt::Debug for SecretRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let given = self.contents.as_ref().or(self.contents_base64.as_ref());
        write!(f, "SecretRequest({} characters)", given.map_or(0, String::len))
    }
}

/// A request for a secret that says nothing, or twice, or no base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret has either `contents`, which is text, or `contents_base64`, which is base64 with padding")]
pub struct ContentsUnclear;

impl SecretRequest {
    /// A request for these bytes. Text is sent as such, which daemons that know of nothing else understand.
    pub fn new(bytes: Vec<u8>, deployment: Option<String>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self { contents: Some(text), contents_base64: None, deployment },
            Err(other) => Self { contents: None, contents_base64: Some(bytes::to_text(other.as_bytes())), deployment },
        }
    }

    /// The bytes that are meant.
    pub fn bytes(&self) -> Result<Vec<u8>, ContentsUnclear> {
        match (&self.contents, &self.contents_base64) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(encoded)) => bytes::of_text(encoded).map_err(|_| ContentsUnclear),
            (None, None) | (Some(_), Some(_)) => Err(ContentsUnclear),
        }
    }
}

/// A secret has a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretStored {
    /// Which.
    pub version: u64,
}

/// A secret, as much of it as may be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRow {
    /// Scope.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its newest version.
    pub version: u64,
    /// The only deployment that may use it, where there is one.
    pub deployment: Option<String>,
    /// Services that need it, each as `deployment/service`.
    pub used_by: Vec<String>,
}

/// Another of the cluster's keys seals from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRotated {
    /// Its number.
    pub key: u32,
}

/// The control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its id.
    pub cluster: String,
    /// Who answers.
    pub this_node: String,
    /// Whether who answers leads.
    pub leading_here: bool,
    /// Grows with every election.
    pub term: u64,
    /// Commands that have changed anything.
    pub index: u64,
    /// Last entry of the log of who answers.
    pub log_entry: u64,
    /// Every node with a seat.
    pub members: Vec<MemberRow>,
}

/// A node's part in the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// The node.
    pub node: String,
    /// Its number as a member.
    pub member: u64,
    /// Where others reach it.
    pub address: String,
    /// `server` or `worker`.
    pub part: String,
    /// Whether it keeps the log.
    pub keeps_log: bool,
    /// Whether it votes.
    pub votes: bool,
    /// Whether it leads.
    pub leads: bool,
}

/// Somebody logs in to the dashboard.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// Their token.
    pub token: String,
}

/// Who asks, and how far they may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoAsks {
    /// Their token's name, or their user on the daemon's machine.
    pub name: String,
    /// `view`, `deploy` or `admin`.
    pub role: String,
    /// Only in this namespace.
    pub namespace: Option<String>,
    /// Only for this deployment.
    pub deployment: Option<String>,
}

/// A link that logs in once.
#[derive(Clone, Serialize, Deserialize)]
pub struct LoginLink {
    /// Where, at any address of the daemon.
    pub path: String,
    /// The same with the address for browsers of the daemon's machine, where there is one.
    pub url: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_secret_and_text_is_sent_as_before() {
        let text = SecretRequest::new(b"hunter2".to_vec(), None);
        assert_eq!(serde_json::to_string(&text).unwrap(), r#"{"contents":"hunter2","deployment":null}"#);
        for bytes in [vec![], vec![0, 159, 146, 150], (0..=255).collect::<Vec<u8>>()] {
            assert_eq!(SecretRequest::new(bytes.clone(), None).bytes(), Ok(bytes));
        }
        for unclear in ["{}", r#"{"contents":"a","contents_base64":"YQ=="}"#, r#"{"contents_base64":"Y"}"#] {
            let request: SecretRequest = serde_json::from_str(unclear).unwrap();
            assert_eq!(request.bytes(), Err(ContentsUnclear), "{unclear}");
        }
    }
}
