//! Requests that a member forwards to the leader, beyond openraft's own messages.
//!
//! Owns: forwarded proposals and read barriers.
//! Invariant: every message begins with the version of its encoding.

use serde::{Deserialize, Serialize};

use super::{Applied, Member, ProposeError, record::Payload};

/// A request to the leader on behalf of a client of another member.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Commit these proposals, each on its own.
    Propose(Vec<Payload>),
    /// Which entry must a member have applied for its state to be as new as this request?
    Barrier,
}

/// The leader's response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// To `Propose`: one answer per proposal.
    Answers(Vec<Result<Applied, ProposeError>>),
    /// To `Barrier`: the index of an entry.
    Barrier(u64),
    /// To `Barrier`: no quorum confirmed the leader.
    NoQuorum,
    /// Another member leads, if one is known.
    NotLeading(Option<Member>),
}
