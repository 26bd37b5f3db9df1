//! What members say to each other beyond what the consensus library says.
//!
//! Owns: commands and reads handed on to the leader.
//! Invariant: every message begins with the version of its encoding.

use serde::{Deserialize, Serialize};

use super::{Applied, Member, ProposeError, record::Payload};

/// Asked of the leader on behalf of somebody who came to another member.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Decide about these items, each on its own.
    Propose(Vec<Payload>),
    /// Up to where must a member have applied the log for its state to be as new as this question?
    Barrier,
}

/// The leader's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// To `Propose`, one for each.
    Answers(Vec<Result<Applied, ProposeError>>),
    /// To `Barrier`: the index of an entry.
    Barrier(u64),
    /// To `Barrier`: it could not find out.
    NoQuorum,
    /// Somebody else leads.
    NotLeading(Option<Member>),
}
