//! The records of the log. They are this crate's own types, so that old logs stay readable when openraft changes.
//!
//! Owns: the kinds of records.
//! Invariant: fields are named, are added with a default, and keep their serialised names; a test reads fixtures of old
//! bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Member;

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    /// An entry appended to the log.
    Entry(EntryRecord),
    /// This member's vote.
    Vote(VoteRecord),
    /// Everything up to this position is committed. Written without a sync, so it may lag behind but never runs ahead.
    Committed(Position),
    /// Entries from this index on are discarded.
    Truncate {
        /// The first discarded index.
        from: u64,
    },
    /// Entries up to this position are in a snapshot.
    Purge(Position),
}

/// The position of an entry in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Term of the leader that appended it.
    pub(crate) term: u64,
    /// The leader that appended it.
    pub(crate) leader: u64,
    /// Its index.
    pub(crate) index: u64,
}

/// A vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoteRecord {
    pub(crate) term: u64,
    pub(crate) candidate: u64,
    #[serde(rename = "standing")]
    pub(crate) state: VoteState,
}

/// Whether a quorum granted the vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VoteState {
    #[serde(rename = "asked")]
    Requested,
    Granted,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryRecord {
    pub(crate) at: Position,
    pub(crate) body: Body,
}

/// The contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    /// Nothing: the first entry of a new leader.
    Blank,
    /// A batch of commands.
    Batch(Payload),
    /// The members from this entry on.
    Members(MembersRecord),
}

/// The members as of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MembersRecord {
    /// One set of voters, or two during a joint configuration.
    pub(crate) voters: Vec<BTreeSet<u64>>,
    /// All members.
    pub(crate) members: BTreeMap<u64, Member>,
}

/// Encoded commands. They are decoded only when they are applied.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Payload(pub(crate) Arc<[u8]>);

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(PayloadVisitor)
    }
}

struct PayloadVisitor;

impl de::Visitor<'_> for PayloadVisitor {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Payload, E> {
        Ok(Payload(bytes.into()))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Payload, E> {
        Ok(Payload(bytes.into()))
    }
}
