//! What a node must not forget about its place in the cluster.
//!
//! Owns: the shape of what is kept, and of what the cluster keeps of it.
//! Must not touch: the store's own records, which are kept by the store.
//! Invariant: a folder belongs to one node of one cluster for ever.

use longshore_model::{
    MemberId, NodeName,
    access::{Seat, SeatPart},
};
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    identity::{Identity, IdentityError},
    peer::Server,
    vault::digest_of,
};

/// A node's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The cluster.
    pub(crate) cluster: String,
    /// The node.
    pub(crate) node: NodeName,
    /// The member it is, should it serve.
    pub(crate) member: MemberId,
    /// What it may become.
    pub(crate) part: SeatPart,
    /// Where others reach it; nowhere on a machine of its own.
    pub(crate) address: Option<String>,
    /// Whether it keeps the log.
    pub(crate) serving: Serving,
    /// Whom to ask while it does not.
    pub(crate) servers: Vec<Server>,
}

impl Place {
    /// What is on record of a node that serves without having been let in by another.
    pub(crate) fn seat(&self, address: String, identity: &Identity) -> Result<Seat, IdentityError> {
        Ok(Seat {
            member: self.member,
            address,
            certificate: identity.certificate.to_vec(),
            fingerprint: digest_of(&identity.certificate),
            key: digest_of(&identity.public()?),
            part: SeatPart::Server,
            token: None,
            proof: None,
            since: clock::now(),
        })
    }
}

/// Whether a node keeps the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Serving {
    /// It does, or is about to.
    Yes,
    /// It runs work alone.
    No,
}
