//! Members of the control plane.
//!
//! Owns: who a member is and where it is reached.
//! Invariant: an id is given out once; a machine that lost its disk comes back as another member.

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
    /// Where other members reach it; only the transport looks inside.
    pub address: String,
}

/// The consensus library wants a nobody to fall back on; nothing of ours ever makes one.
impl Default for Member {
    fn default() -> Self {
        Self { id: MemberId(0), name: NodeName::from(""), address: String::new() }
    }
}

/// All members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those whose votes count.
    pub voters: BTreeSet<MemberId>,
    /// All of them, learners included.
    pub members: BTreeMap<MemberId, Member>,
}

/// Who leads, as far as this member knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Grows with every election.
    pub term: u64,
    /// The leader, if there is one.
    pub leader: Option<Member>,
    /// What this member does.
    pub part: Part,
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It leads, a quorum has confirmed it of late, and everything decided before its time is applied here.
    Leading,
    /// It follows, is being elected, or waits for a leader.
    Following,
    /// It has stopped taking part: its storage failed, or it is being closed.
    Stopped,
}

/// Why members could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// The member's directory already belongs to a cluster.
    #[error("this member already belongs to a cluster")]
    AlreadyInitialised,
    /// Only the leader changes members.
    #[error("this member does not lead; ask {}", .leader.as_ref().map_or_else(|| "again once a leader is elected".to_owned(), |leader| format!("`{}`", leader.name)))]
    NotLeading {
        /// Who leads instead.
        leader: Option<Member>,
    },
    /// Another change is under way.
    #[error("another change of members is under way")]
    InProgress,
    /// More than one voter would come or go.
    #[error("one voter comes or goes at a time, and this would change {changes}")]
    MoreThanOneChange {
        /// How many it would be.
        changes: usize,
    },
    /// Not a member.
    #[error("there is no member {0}")]
    UnknownMember(MemberId),
    /// A cluster without voters decides nothing.
    #[error("at least one voter must stay")]
    NoVoterLeft,
    /// A voter must first be made a learner.
    #[error("member {0} still votes")]
    StillVotes(MemberId),
    /// Too few voters can be reached, or this member stopped.
    #[error("the change was not decided: {0}")]
    NotDecided(String),
}
