//! How members reach each other.
//!
//! Owns: the one call every transport offers.
//! Must not touch: what is said. Messages are opaque, carry their own version, and are answered by
//! [`Replicated::serve`](super::Replicated::serve) on the other side.

use std::{future::Future, pin::Pin};

use super::Member;

/// The largest message ever sent, with room for what frames it: one entry of the log at its largest, or one chunk of a
/// snapshot.
pub const LARGEST_MESSAGE: usize = 10 * 1024 * 1024;

/// A call under way.
pub type Call<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Unreachable>> + Send + 'a>>;

/// Carries messages to other members.
///
/// Calls are made at the same time and in no order; each is given up by the caller when it takes too long, so a
/// transport needs no time limit of its own. Whoever implements it proves to both sides who they talk to: whatever
/// arrives at `serve` is trusted as coming from a member.
pub trait Transport: Send + Sync + 'static {
    /// Brings `message` to `to` and its answer back.
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a>;
}

/// A member could not be reached, or went away before it answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("member {to} cannot be reached: {why}")]
pub struct Unreachable {
    /// Who.
    pub to: longshore_model::MemberId,
    /// What the transport knows about it.
    pub why: String,
    /// Whether the message may have arrived.
    pub sent: Sent,
}

/// Whether a message without an answer may have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It never left: no connection could be made. What was asked may safely be asked of somebody else.
    No,
    /// It may have arrived, and been acted on.
    Perhaps,
}

/// For a cluster of one: there is nobody to call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Transport for Alone {
    fn call<'a>(&'a self, to: &'a Member, _message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            Err(Unreachable { to: to.id, why: "this member has no transport".to_owned(), sent: Sent::No })
        })
    }
}
