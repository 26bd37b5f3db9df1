//! Who belongs to the cluster, and who may ask it for something.
//!
//! Owns: seats of nodes, tokens that let nodes in, tokens of operators, and the commands that change them.
//! Must not touch: secrets themselves. What is kept of a token is a digest, what is kept of a key is sealed.
//! Invariant: a node without a seat is a stranger, whatever certificate it shows; a token lets in one node, once.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{DeploymentName, MemberId, NamespaceName, NodeName, SecretName, Time, ids::name_ids};

name_ids! {
    /// The part of a token that may be seen.
    TokenId;
    /// What is kept of something secret, or of a certificate: its SHA-256, in hexadecimal.
    Digest;
}

/// The cluster's own authority: it signs the certificate of every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
    /// Its key, sealed with the cluster's key.
    pub key: Sealed,
}

/// Something secret, unreadable without the cluster's key, which is never replicated.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Which of the cluster's keys opens it.
    pub key: u32,
    /// Nonce and ciphertext.
    pub bytes: Vec<u8>,
}

// Unreadable, and still nobody's business.
impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed(key {}, {} bytes)", self.key, self.bytes.len())
    }
}

/// What is sealed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SealedThing {
    /// The authority's key.
    Authority,
    /// A version of a secret.
    Secret {
        /// Scope.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
        /// Its version.
        version: u64,
    },
}

/// A node's place in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The member it is, should it ever vote.
    pub member: MemberId,
    /// Where other members reach it.
    pub address: String,
    /// The certificate it was given, DER.
    pub certificate: Vec<u8>,
    /// Digest of that certificate: the only one the node is known by.
    pub fingerprint: Digest,
    /// Of the key that certificate is for.
    pub key: Digest,
    /// Whether it may vote.
    pub part: SeatPart,
    /// The token that let it in; none for the founder.
    pub token: Option<TokenId>,
    /// Of that token's secret part: only who has it may ask for the answer once more.
    #[serde(default)]
    pub proof: Option<Digest>,
    /// Since when.
    pub since: Time,
}

/// What a node may become in the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeatPart {
    /// It may be made a voter, and is then trusted with everything.
    #[default]
    Server,
    /// It runs work, and knows no more than that takes.
    Worker,
}

impl SeatPart {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Worker => "worker",
        }
    }
}

/// Lets one node in, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinGrant {
    /// Of the token's secret part.
    pub digest: Digest,
    /// What the node may become.
    pub part: SeatPart,
    /// From then on it lets nobody in.
    pub expires_at: Time,
}

/// A token of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessToken {
    /// What people call it; the audit record does, too.
    pub name: String,
    /// Of its secret part.
    pub digest: Digest,
    /// What it may be used for.
    pub power: Power,
    /// Where.
    pub scope: TokenScope,
    /// From then on it opens nothing.
    pub expires_at: Option<Time>,
    /// Since when.
    pub since: Time,
}

/// What a caller may do; each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// Look.
    View,
    /// Change deployments.
    Deploy,
    /// Change nodes, tokens, secrets and settings.
    Admin,
}

impl Power {
    /// All of them.
    pub const ALL: &[Self] = &[Self::View, Self::Deploy, Self::Admin];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Deploy => "deploy",
            Self::Admin => "admin",
        }
    }
}

/// Where a token counts; nothing named is everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenScope {
    /// Only in this namespace.
    pub namespace: Option<NamespaceName>,
    /// Only for this deployment of it.
    pub deployment: Option<DeploymentName>,
}

impl TokenScope {
    /// Whether nothing is outside of it.
    pub const fn is_everywhere(&self) -> bool {
        self.namespace.is_none() && self.deployment.is_none()
    }

    /// Whether a deployment is inside of it.
    pub fn covers(&self, namespace: &NamespaceName, deployment: &DeploymentName) -> bool {
        self.namespace.as_ref().is_none_or(|own| own == namespace)
            && self.deployment.as_ref().is_none_or(|own| own == deployment)
    }
}

/// One change of who belongs to the cluster and who may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessCommand {
    /// The first node makes the cluster; on one that is made already it is refused.
    Found {
        /// Its authority.
        authority: Authority,
        /// The first node.
        node: NodeName,
        /// Its seat.
        seat: Seat,
    },
    /// A cluster goes on from a backup or from the disk of one member: that one is the only server, and what others have
    /// heard since counts as older.
    BeginAgain {
        /// The node.
        node: NodeName,
        /// Its seat.
        seat: Seat,
    },
    /// A node may join.
    GrantJoin {
        /// The token's id.
        id: TokenId,
        /// The grant.
        grant: JoinGrant,
    },
    /// A node takes its seat, and the token that lets it in is used up. The same node asking again with the same key
    /// finds itself seated; nobody else does.
    Admit {
        /// The node.
        node: NodeName,
        /// The token.
        token: TokenId,
        /// Of the token's secret part, as shown.
        digest: Digest,
        /// Where it is reached.
        address: String,
        /// The certificate made for it, DER.
        certificate: Vec<u8>,
        /// Of that certificate.
        fingerprint: Digest,
        /// Of the key it is for.
        key: Digest,
        /// When.
        at: Time,
    },
    /// A node is reached elsewhere.
    Relocate {
        /// The node.
        node: NodeName,
        /// Where.
        address: String,
    },
    /// An operator gets a token.
    IssueToken {
        /// Its id.
        id: TokenId,
        /// The token.
        token: AccessToken,
    },
    /// A secret gets a version, with what is in it.
    StoreSecret {
        /// Scope.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
        /// Its version.
        version: u64,
        /// What is in it.
        contents: Sealed,
        /// The only deployment that may use it; every one of the namespace unless named.
        #[serde(default)]
        deployment: Option<DeploymentName>,
    },
    /// A secret is removed, with all that was in it.
    RemoveSecret {
        /// Scope.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
    },
    /// From now on this one of the cluster's keys seals. Every server has it before anybody says so.
    UseKey {
        /// Its number.
        key: u32,
    },
    /// Something is sealed with a newer key.
    Reseal {
        /// What.
        what: SealedThing,
        /// The same, sealed anew.
        sealed: Sealed,
    },
    /// A token opens nothing any more.
    RevokeToken {
        /// Its id.
        id: TokenId,
    },
}
