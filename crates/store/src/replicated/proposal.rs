//! What is proposed to the cluster, and what it answers.
//!
//! Owns: the shape of a proposal, of its answer, and of the ways it can fail to get one.
//! Invariant: a failure says whether the command may still come into force; nobody has to guess.

use std::{fmt, sync::Arc};

use longshore_model::{Actor, Command, StateIndex, Time};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{CommandError, recheck::DroppedItem};

/// One command with its circumstances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// What shall change.
    pub command: Command,
    /// Set by whoever may ask again: the same key is carried out once.
    #[serde(default)]
    pub key: Option<IdempotencyKey>,
    /// What was asked under the key; the command itself where nobody says. One request asked twice may become two commands
    /// that differ in their time or in how a secret is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Fingerprint>,
    /// Who asks.
    #[serde(default)]
    pub actor: Actor,
    /// When, by the clock of whoever took the request.
    #[serde(default)]
    pub at: Time,
}

impl Proposal {
    /// A proposal of the leader's own loops.
    pub fn by_system(command: Command, at: Time) -> Self {
        Self { command, key: None, asked: None, actor: Actor::System, at }
    }
}

/// A client's name for one request of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(Arc<str>);

/// Keys are kept by the thousands, so one key must not be a document.
const LONGEST_KEY: usize = 128;

impl IdempotencyKey {
    /// Takes a client's text, if it can be a key.
    pub fn new(text: &str) -> Result<Self, KeyNotUsable> {
        if text.is_empty() || text.len() > LONGEST_KEY {
            return Err(KeyNotUsable { length: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// The bare text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of a part of the request, for one that takes several commands.
    pub fn part(&self, of: &str) -> Self {
        Self(Fingerprint::of([self.0.as_bytes(), of.as_bytes()]).to_string().into())
    }
}

/// Tells another request under the same key from the same one asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// What these parts come to, each with its length: no two lists of parts look alike.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self::short(&digest.finalize())
    }

    /// What one text comes to.
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
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that cannot be an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key has 1 to {LONGEST_KEY} bytes, not {length}")]
pub struct KeyNotUsable {
    length: usize,
}

/// The cluster's answer: committed, and applied in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The state in which the answer holds.
    pub index: StateIndex,
    /// What came of it.
    pub outcome: Outcome,
    /// Whether it was carried out now, or had been before under the same key.
    #[serde(default)]
    pub novelty: Novelty,
    /// Items of a plan that no longer fitted the applied state and were left out before the plan was appended.
    #[serde(default)]
    pub dropped: Vec<DroppedItem>,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The state changed; what exactly, watchers hear.
    Changed,
    /// It was so already, or all of it had gone stale.
    Unchanged,
    /// It was refused and changed nothing.
    Refused(CommandError),
    /// Its key belongs to another command.
    KeyReused,
}

/// Whether an answer is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Novelty {
    /// Carried out now.
    #[default]
    New,
    /// The first answer, given again.
    Repeated,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ProposeError {
    /// Too few voters can be reached for anything to be decided.
    #[error("too few voters can be reached to decide anything")]
    QuorumLost {
        /// Whether the command may still come into force.
        fate: Fate,
    },
    /// The leader went away while the command was under way.
    #[error("the leader changed while the command was under way")]
    LeaderLost {
        /// Whether the command may still come into force.
        fate: Fate,
    },
    /// More than one entry of the log may hold.
    #[error("the command takes {bytes} bytes, and {limit} is the most the log takes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The ceiling.
        limit: usize,
    },
    /// The disk of this member is full; it still reads.
    #[error("the disk that holds the log is full")]
    DiskFull,
    /// More is waiting than can be decided soon.
    #[error("too many commands are waiting already")]
    Overloaded,
    /// The log or a snapshot could not be written or read; this member has stopped taking part.
    #[error("the log of this member failed: {0}")]
    StorageFailed(String),
    /// This member is being closed.
    #[error("this member is shutting down")]
    Closing,
}

/// What can still become of a command without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It never entered the log.
    NotAppended,
    /// It may come into force later. Asking again under the same idempotency key is safe.
    Unknown,
}

impl Fate {
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
            Self::Closing => "closing",
        }
    }

    /// Whether the command may still come into force.
    pub const fn fate(&self) -> Fate {
        match self {
            Self::QuorumLost { fate } | Self::LeaderLost { fate } => *fate,
            Self::StorageFailed(_) | Self::Closing => Fate::Unknown,
            Self::TooLarge { .. } | Self::DiskFull | Self::Overloaded => Fate::NotAppended,
        }
    }

    /// The same, of a command that may have entered the log on an earlier try.
    pub(super) fn perhaps_appended(self) -> Self {
        match self {
            Self::QuorumLost { .. } => Self::QuorumLost { fate: Fate::Unknown },
            Self::LeaderLost { .. } | Self::DiskFull | Self::Overloaded | Self::TooLarge { .. } => {
                Self::LeaderLost { fate: Fate::Unknown }
            }
            Self::StorageFailed(_) | Self::Closing => self,
        }
    }

    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::QuorumLost { .. } => "bring voters back; if they are gone for good, recover from one that is left",
            Self::LeaderLost { .. } => "ask again, with the same idempotency key",
            Self::TooLarge { .. } => "split the manifest into several deployments",
            Self::DiskFull => "free space on the disk; writes are taken again within seconds",
            Self::Overloaded => "ask again in a moment",
            Self::StorageFailed(_) => "look at the member's log, mend the disk, and restart the member",
            Self::Closing => "ask another member",
        }
    }
}
