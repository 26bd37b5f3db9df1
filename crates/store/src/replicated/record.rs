//! What is written to the log: our own shapes, so that the library above can change without old logs becoming unreadable.
//!
//! Owns: the kinds of records.
//! Invariant: fields are named and added with a default, never renamed; a fixture of old bytes is read by a test.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Member;

/// One thing written to the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    /// An entry at the log's end.
    Entry(EntryRecord),
    /// Who has this member's vote.
    Vote(VoteRecord),
    /// Everything up to here is decided. Written without waiting for the disk: it may lag, never lead.
    Committed(Position),
    /// Entries from here on are void.
    Truncate {
        /// The first void one.
        from: u64,
    },
    /// Entries up to here are in a snapshot.
    Purge(Position),
}

/// Where an entry is, and who put it there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Term of the leader that appended it.
    pub(crate) term: u64,
    /// That leader.
    pub(crate) leader: u64,
    /// Its index.
    pub(crate) index: u64,
}

/// A vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoteRecord {
    pub(crate) term: u64,
    pub(crate) candidate: u64,
    pub(crate) standing: Standing,
}

/// Whether a quorum granted a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    Asked,
    Granted,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryRecord {
    pub(crate) at: Position,
    pub(crate) body: Body,
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    /// Nothing: a new leader's first word.
    Blank,
    /// Commands.
    Batch(Payload),
    /// Members.
    Members(MembersRecord),
}

/// Members as of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MembersRecord {
    /// One set of voters, or two while they change.
    pub(crate) voters: Vec<BTreeSet<u64>>,
    /// All members.
    pub(crate) members: BTreeMap<u64, Member>,
}

/// Encoded commands. Decoded where they are applied, and nowhere before.
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
