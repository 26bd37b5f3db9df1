//! The transport between members.
//!
//! Owns: the trait that every transport implements.
//! Must not touch: the contents of messages. They are opaque, carry their own version, and are handled by
//! [`Replicated::serve`](super::Replicated::serve) on the other side.

use std::{future::Future, pin::Pin};

use super::Member;

/// The largest message ever sent, with headroom for its framing: one log entry of maximum size, or one chunk of a
/// snapshot.
pub const MAX_MESSAGE_BYTES: usize = 10 * 1024 * 1024;

/// The future of a call.
pub type Call<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Unreachable>> + Send + 'a>>;

/// Sends messages to other members.
///
/// Calls are concurrent and unordered. The caller drops a call that takes too long, so a transport needs no timeout of
/// its own. An implementation must authenticate both sides: every message that reaches `serve` is trusted.
pub trait Transport: Send + Sync + 'static {
    /// Sends `message` to `to` and returns the response.
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a>;
}

/// A member could not be reached, or disconnected before it responded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("member {to} cannot be reached: {why}")]
pub struct Unreachable {
    /// The member.
    pub to: longshore_model::MemberId,
    /// The transport's error message.
    pub why: String,
    /// Whether the message may have been delivered.
    pub sent: Delivery,
}

/// Whether a message without a response may have been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Not delivered: no connection could be made. The request may safely be sent to another member.
    NotSent,
    /// It may have been delivered and processed.
    Unknown,
}

/// The transport of a single-member cluster: every call fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTransport;

impl Transport for NoTransport {
    fn call<'a>(&'a self, to: &'a Member, _message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            Err(Unreachable { to: to.id, why: "this member has no transport".to_owned(), sent: Delivery::NotSent })
        })
    }
}
