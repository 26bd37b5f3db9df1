//! The node record: which node of which cluster a data folder belongs to.
//!
//! Owns: its file format, and the membership entry that is derived from it.
//! Must not touch: the store's own files.
//! Invariant: a folder belongs to one node of one cluster for ever.

use longshore_model::{
    AddressPlan, MemberId, NodeName,
    access::{NodeMembership, NodeRole},
};
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    node_rpc::ServerAddress,
    security::{
        identity::{Identity, IdentityError},
        keyring::digest_of,
    },
};

/// What a node knows about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    /// The cluster's id.
    pub(crate) cluster: String,
    /// The node.
    pub(crate) node: NodeName,
    /// Its member id, should it become a member.
    pub(crate) member: MemberId,
    /// What it may become.
    #[serde(rename = "part")]
    pub(crate) role: NodeRole,
    /// Address that others use; `None` on a single machine.
    pub(crate) address: Option<String>,
    /// Whether it is a member of the Raft group.
    #[serde(rename = "serving")]
    pub(crate) raft: RaftMembership,
    /// Servers to ask while it is not a member.
    pub(crate) servers: Vec<ServerAddress>,
    /// Whether its store exists. Set once the store was opened for the first time; a store that is missing afterwards is lost.
    #[serde(default)]
    pub(crate) has_store: bool,
    /// Where addresses of the overlay come from, on the node that created the cluster; the daemon commits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) new_addresses: Option<AddressPlan>,
}

impl NodeRecord {
    /// The membership entry of a server that no other server admitted.
    pub(crate) fn membership(&self, address: String, identity: &Identity) -> Result<NodeMembership, IdentityError> {
        Ok(NodeMembership {
            member: self.member,
            address,
            certificate: identity.certificate.to_vec(),
            fingerprint: digest_of(&identity.certificate),
            key: digest_of(&identity.public()?),
            role: NodeRole::Server,
            token: None,
            token_digest: None,
            since: clock::now(),
        })
    }
}

/// Whether a node is a member of the Raft group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RaftMembership {
    /// It is, or is about to be.
    #[serde(rename = "yes")]
    Member,
    /// It only runs replicas.
    #[serde(rename = "no")]
    NonMember,
}
