//! Proposals, their answers and their errors.
//!
//! Owns: the types of a proposal, of its answer, and of the errors when there is no answer.
//! Invariant: an error says whether the command may still take effect.

use std::{fmt, sync::Arc};

use longshore_model::{Actor, Command, StateIndex, Time, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{CommandError, plan_check::DroppedItem};

/// A command to be committed, with its actor, time and idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The command.
    pub command: Command,
    /// Set by clients that may retry: commands with the same key are applied once.
    #[serde(default)]
    pub key: Option<IdempotencyKey>,
    /// Fingerprint of the client's request; `None` means the fingerprint of the command. A retried request may produce
    /// a command with another time, or with a secret sealed again.
    #[serde(default, rename = "asked", skip_serializing_if = "Option::is_none")]
    pub request: Option<Fingerprint>,
    /// Who requested it.
    #[serde(default)]
    pub actor: Actor,
    /// When the request was received, by the clock of the receiving member.
    #[serde(default)]
    pub at: Time,
}

impl Proposal {
    /// A proposal by one of the leader's own loops.
    pub fn by_system(command: Command, at: Time) -> Self {
        Self { command, key: None, request: None, actor: Actor::System, at }
    }
}

/// A client's key for one request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(Arc<str>);

/// Thousands of keys are kept, so each must be short.
const LONGEST_KEY: usize = 128;

impl IdempotencyKey {
    /// Validates a client's text as a key.
    pub fn new(text: &str) -> Result<Self, InvalidIdempotencyKey> {
        if text.is_empty() || text.len() > LONGEST_KEY {
            return Err(InvalidIdempotencyKey { length: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A derived key for one step of a request that takes several commands.
    pub fn part(&self, of: &str) -> Self {
        Self(Fingerprint::of([self.0.as_bytes(), of.as_bytes()]).to_string().into())
    }
}

/// Distinguishes a retried request from another request with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// The fingerprint of several parts. Each is hashed with its length, so different lists never collide by
    /// concatenation.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self::short(&digest.finalize())
    }

    /// The fingerprint of one byte string.
    pub(super) fn whole(bytes: &[u8]) -> Self {
        Self::short(&Sha256::digest(bytes))
    }

    fn short(digest: &[u8]) -> Self {
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        Self(short)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

/// The text cannot be an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key has 1 to {LONGEST_KEY} bytes, not {length}")]
pub struct InvalidIdempotencyKey {
    length: usize,
}

/// The answer to a proposal that was committed and applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The state index after it was applied.
    pub index: StateIndex,
    /// What it did.
    pub outcome: Outcome,
    /// Whether it was applied now, or earlier with the same key.
    #[serde(default, rename = "novelty")]
    pub dedup: Dedup,
    /// Placements that no longer fitted the applied state and were dropped before the plan was appended.
    #[serde(default)]
    pub dropped: Vec<DroppedItem>,
}

/// The effect of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The state changed. Watchers get the events.
    Changed,
    /// Nothing changed: the state was as requested, or every item was stale.
    Unchanged,
    /// The command was refused and changed nothing.
    Refused(CommandError),
    /// The idempotency key was used for another request.
    KeyReused,
}

/// Whether an answer is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dedup {
    /// The command was applied now.
    #[default]
    New,
    /// The stored answer of an earlier request with the same key.
    Repeated,
}

/// Why a proposal has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ProposeError {
    /// Too few voters are reachable.
    #[error("too few voters can be reached to decide anything")]
    QuorumLost {
        /// Whether the command may still take effect.
        #[serde(rename = "fate")]
        commit: CommitCertainty,
    },
    /// The leader changed while the command was in flight.
    #[error("the leader changed while the command was under way")]
    LeaderLost {
        /// Whether the command may still take effect.
        #[serde(rename = "fate")]
        commit: CommitCertainty,
    },
    /// The command is larger than a log entry may be.
    #[error("the command takes {bytes} bytes, and the log accepts at most {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The disk of this member is full. Reads still work.
    #[error("the disk that holds the log is full")]
    DiskFull,
    /// Too many commands are queued.
    #[error("too many commands are waiting already")]
    Overloaded,
    /// The log or a snapshot could not be written or read, and this member has stopped.
    #[error("the log of this member failed: {0}")]
    StorageFailed(String),
    /// This member is shutting down.
    #[error("this member is shutting down")]
    #[serde(rename = "closing")]
    ShuttingDown,
}

/// Whether a command without an answer may still take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitCertainty {
    /// It was not appended to the log.
    NotAppended,
    /// It may take effect later. Retrying with the same idempotency key is safe.
    Unknown,
}

impl CommitCertainty {
    /// Stable: clients branch on these strings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAppended => "not_appended",
            Self::Unknown => "unknown",
        }
    }
}

impl ProposeError {
    /// Stable: clients branch on these strings. Add codes, never rename one.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::QuorumLost { .. } => "quorum_lost",
            Self::LeaderLost { .. } => "leader_lost",
            Self::TooLarge { .. } => "command_too_large",
            Self::DiskFull => "disk_full",
            Self::Overloaded => "overloaded",
            Self::StorageFailed(_) => "storage_failed",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// Whether the command may still take effect.
    pub const fn commit_certainty(&self) -> CommitCertainty {
        match self {
            Self::QuorumLost { commit } | Self::LeaderLost { commit } => *commit,
            Self::StorageFailed(_) | Self::ShuttingDown => CommitCertainty::Unknown,
            Self::TooLarge { .. } | Self::DiskFull | Self::Overloaded => CommitCertainty::NotAppended,
        }
    }

    /// The same error for a command that an earlier attempt may have appended.
    pub(super) fn perhaps_appended(self) -> Self {
        match self {
            Self::QuorumLost { .. } => Self::QuorumLost { commit: CommitCertainty::Unknown },
            Self::LeaderLost { .. } | Self::DiskFull | Self::Overloaded | Self::TooLarge { .. } => {
                Self::LeaderLost { commit: CommitCertainty::Unknown }
            }
            Self::StorageFailed(_) | Self::ShuttingDown => self,
        }
    }

    /// What the operator or client can do.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::QuorumLost { .. } => {
                "start the missing voters; if they are lost for good, recover from a remaining member"
            }
            Self::LeaderLost { .. } => "retry with the same idempotency key",
            Self::TooLarge { .. } => "split the manifest into several deployments",
            Self::DiskFull => "free space on the disk; writes resume within seconds",
            Self::Overloaded => "retry in a moment",
            Self::StorageFailed(_) => "check the log output of the member, repair the disk, and restart the member",
            Self::ShuttingDown => "send the request to another member",
        }
    }
}
