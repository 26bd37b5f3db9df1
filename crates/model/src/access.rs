//! Membership of nodes and access of API callers.
//!
//! Owns: node memberships, join tokens, operators' access tokens, and the commands that change them.
//! Must not touch: secrets themselves. A token is stored as a digest, a key is stored sealed.
//! Invariant: a node without a membership is not authenticated, whatever certificate it shows; a join token admits one
//! node, once.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{DeploymentName, MemberId, NamespaceName, NamespacePolicy, NodeName, SecretName, Time, ids::name_ids};

name_ids! {
    /// The public part of a token.
    TokenId;
    /// SHA-256 of a secret or of a certificate, in hexadecimal.
    Digest;
}

/// The cluster's certificate authority, which signs the certificate of every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
    /// Its private key, sealed with the cluster's key.
    pub key: Sealed,
}

/// A secret encrypted with one of the cluster's keys; the keys themselves are never replicated.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Number of the cluster key that decrypts it.
    pub key: u32,
    /// Nonce and ciphertext.
    pub bytes: Vec<u8>,
}

// Ciphertext does not belong in logs either.
impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed(key {}, {} bytes)", self.key, self.bytes.len())
    }
}

/// Names a sealed value, for re-encryption after a key rotation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SealedItem {
    /// The certificate authority's private key.
    Authority,
    /// A version of a secret.
    Secret {
        /// The namespace.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
        /// Its version.
        version: u64,
    },
}

/// A node that was admitted to the cluster, with the one certificate it is authenticated by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMembership {
    /// Its member id in the control plane, should it ever vote.
    pub member: MemberId,
    /// Address other members reach it at.
    pub address: String,
    /// The certificate issued to it, DER.
    pub certificate: Vec<u8>,
    /// Digest of that certificate; the node is authenticated by no other.
    pub fingerprint: Digest,
    /// Digest of the public key in that certificate.
    pub key: Digest,
    /// Whether it may vote.
    #[serde(rename = "part")]
    pub role: NodeRole,
    /// The join token it was admitted with; `None` for the node that bootstrapped the cluster.
    pub token: Option<TokenId>,
    /// Digest of that token's secret part: a repeated join request must show the same secret to get the same answer.
    #[serde(default, rename = "proof")]
    pub token_digest: Option<Digest>,
    /// When it was admitted.
    pub since: Time,
}

/// What a node may become in the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// May become a voter, and then holds all state and keys.
    #[default]
    Server,
    /// Runs replicas, and receives only what they need.
    Worker,
}

impl NodeRole {
    /// The name in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Worker => "worker",
        }
    }
}

/// An unused join token; it admits one node, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinGrant {
    /// Digest of the token's secret part.
    pub digest: Digest,
    /// What the node may become.
    #[serde(rename = "part")]
    pub role: NodeRole,
    /// Time from which it admits nobody.
    pub expires_at: Time,
}

/// An API token of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessToken {
    /// Its name, also in audit records.
    pub name: String,
    /// Digest of its secret part.
    pub digest: Digest,
    /// What its holder may do.
    #[serde(rename = "power")]
    pub role: TokenRole,
    /// Namespace and deployment it is limited to.
    pub scope: TokenScope,
    /// Time from which it is refused; `None` never expires.
    pub expires_at: Option<Time>,
    /// When it was issued.
    pub since: Time,
}

/// What a caller may do; each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    /// Read only.
    View,
    /// Change deployments.
    Deploy,
    /// Change nodes, tokens, secrets and settings.
    Admin,
}

impl TokenRole {
    /// Every variant, in order.
    pub const ALL: &[Self] = &[Self::View, Self::Deploy, Self::Admin];

    /// The name in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Deploy => "deploy",
            Self::Admin => "admin",
        }
    }
}

/// What a token is limited to; with neither part given it is valid for the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenScope {
    /// Only in this namespace.
    pub namespace: Option<NamespaceName>,
    /// Only for this deployment of the namespace.
    pub deployment: Option<DeploymentName>,
}

impl TokenScope {
    /// Whether it is limited to nothing.
    pub const fn is_cluster_wide(&self) -> bool {
        self.namespace.is_none() && self.deployment.is_none()
    }

    /// Whether it includes the deployment. A deployment without a namespace is one of `default`: its name in another
    /// namespace is another deployment.
    pub fn covers(&self, namespace: &NamespaceName, deployment: &DeploymentName) -> bool {
        let is_own_namespace = match (&self.namespace, &self.deployment) {
            (Some(own), _) => own == namespace,
            (None, Some(_)) => *namespace == NamespaceName::default_namespace(),
            (None, None) => true,
        };
        is_own_namespace && self.deployment.as_ref().is_none_or(|own| own == deployment)
    }
}

/// One change of memberships, tokens, secrets or keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessCommand {
    /// The first node creates the cluster; refused where there is one already.
    #[serde(rename = "found")]
    Bootstrap {
        /// The new cluster's certificate authority.
        authority: Authority,
        /// The first node.
        node: NodeName,
        /// Its membership.
        #[serde(rename = "seat")]
        membership: NodeMembership,
    },
    /// The cluster continues from a backup or from the disk of one member. That member becomes the only server, and the
    /// incarnation is raised, so that newer indices of the lost cluster count as older.
    #[serde(rename = "begin_again")]
    Recover {
        /// The remaining server.
        node: NodeName,
        /// Its membership.
        #[serde(rename = "seat")]
        membership: NodeMembership,
    },
    /// A join token is created.
    GrantJoin {
        /// The token's id.
        id: TokenId,
        /// The unused join token.
        grant: JoinGrant,
    },
    /// A node joins and uses up its join token. The same node may repeat the request with the same key and gets the same
    /// membership; for anybody else the token is used.
    Admit {
        /// The node.
        node: NodeName,
        /// The token.
        token: TokenId,
        /// Digest of the secret part the node showed.
        digest: Digest,
        /// Address it is reached at.
        address: String,
        /// The certificate issued to it, DER.
        certificate: Vec<u8>,
        /// Digest of that certificate.
        fingerprint: Digest,
        /// Digest of the public key in it.
        key: Digest,
        /// Time of the change.
        at: Time,
    },
    /// A node's address changes.
    Relocate {
        /// The node.
        node: NodeName,
        /// The new address.
        address: String,
    },
    /// An API token is issued to an operator.
    IssueToken {
        /// Its id.
        id: TokenId,
        /// The token.
        token: AccessToken,
    },
    /// A secret gets a new version with its encrypted contents.
    StoreSecret {
        /// The namespace.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
        /// Its version.
        version: u64,
        /// The encrypted contents.
        contents: Sealed,
        /// The only deployment that may use it; `None` is every one of the namespace.
        #[serde(default)]
        deployment: Option<DeploymentName>,
        /// Whether an operator says whom it is for. A manifest claims it for its deployment.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_operator: bool,
    },
    /// A secret and all its contents are removed.
    RemoveSecret {
        /// The namespace.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
    },
    /// This cluster key encrypts from now on. It is proposed only after every server has the key.
    UseKey {
        /// Its number.
        key: u32,
    },
    /// A value is re-encrypted with a newer key.
    Reseal {
        /// The value.
        what: SealedItem,
        /// The same contents, encrypted with the newer key.
        sealed: Sealed,
    },
    /// Sets what the manifests of a namespace may ask of the machines.
    SetPolicy {
        /// The namespace.
        namespace: NamespaceName,
        /// The whole policy.
        policy: Box<NamespacePolicy>,
    },
    /// From now on a new namespace may ask nothing until its policy is set. Namespaces that exist keep everything.
    EnforcePolicies,
    /// A token is revoked.
    RevokeToken {
        /// Its id.
        id: TokenId,
    },
}
