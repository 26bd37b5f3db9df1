//! Members of the control plane.
//!
//! Owns: the identity and the address of a member.
//! Invariant: an id is assigned once; a machine that lost its disk returns as another member.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{MemberId, NodeName};
use serde::{Deserialize, Serialize};

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id.
    pub id: MemberId,
    /// The node it runs on.
    pub name: NodeName,
    /// Where other members reach it. Only the transport interprets it.
    pub address: String,
}

/// openraft requires a default; nothing in this crate creates one.
impl Default for Member {
    fn default() -> Self {
        Self { id: MemberId(0), name: NodeName::from(""), address: String::new() }
    }
}

/// All members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The voters.
    pub voters: BTreeSet<MemberId>,
    /// All members, including learners.
    pub members: BTreeMap<MemberId, Member>,
}

/// The leadership as known to this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The current term.
    pub term: u64,
    /// The leader, if one is known.
    pub leader: Option<Member>,
    /// The role of this member.
    pub role: LeadershipRole,
}

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadershipRole {
    /// It leads: a quorum confirmed it recently, and every entry committed before its term is applied here.
    Leading,
    /// It follows, is a candidate, or waits for a leader.
    Following,
    /// It has stopped: its storage failed, or it is shutting down.
    Stopped,
}

/// Why a membership change failed.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// The member's directory already belongs to a cluster.
    #[error("this member already belongs to a cluster")]
    AlreadyInitialised,
    /// Only the leader changes members.
    #[error("this member does not lead; ask {}", .leader.as_ref().map_or_else(|| "again once a leader is elected".to_owned(), |leader| format!("`{}`", leader.name)))]
    NotLeading {
        /// The leader, if one is known.
        leader: Option<Member>,
    },
    /// Another membership change is under way.
    #[error("another change of members is under way")]
    InProgress,
    /// A change adds or removes one voter at a time.
    #[error("only one voter can be added or removed at a time, and this would change {changes}")]
    MoreThanOneChange {
        /// The number of voters that would change.
        changes: usize,
    },
    /// Not a member.
    #[error("there is no member {0}")]
    UnknownMember(MemberId),
    /// At least one voter is required.
    #[error("at least one voter must remain")]
    NoVoterLeft,
    /// A voter must first be made a learner.
    #[error("member {0} still votes")]
    StillVotes(MemberId),
    /// Too few voters are reachable, or this member stopped.
    #[error("the change was not committed: {0}")]
    NotDecided(String),
}
