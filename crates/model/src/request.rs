//! Why a request never became a command.
//!
//! Owns: the codes of the public API for requests that were refused at the door. A command that was refused has a code
//! of its own.

/// A refusal at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestCode {
    /// The manifest makes no sense.
    ManifestInvalid,
    /// The request makes no sense.
    RequestInvalid,
    /// The request is larger than is read.
    RequestTooLarge,
    /// Nobody knows who asks.
    Unauthenticated,
    /// Who asks may not.
    Forbidden,
    /// There is nothing of that name.
    NotFound,
    /// That cannot be done with it.
    MethodNotAllowed,
    /// The idempotency key belongs to another request.
    IdempotencyKeyReused,
    /// The daemon is not ready.
    NotReady,
    /// The node keeps no state.
    NotAServer,
    /// Too much is asked at once.
    TooManyRequests,
    /// The request took too long to arrive.
    RequestTimedOut,
    /// A node that would have to answer does not.
    NodeUnreachable,
    /// A command could not be started beside a replica.
    ExecFailed,
    /// The node was removed from the cluster.
    NodeRemoved,
    /// The certificate no longer counts; the node has to join again.
    CertificateVoid,
    /// The other side speaks another version of what nodes say to each other.
    ProtocolMismatch,
}

impl RequestCode {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::ManifestInvalid,
        Self::RequestInvalid,
        Self::RequestTooLarge,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::IdempotencyKeyReused,
        Self::NotReady,
        Self::NotAServer,
        Self::TooManyRequests,
        Self::RequestTimedOut,
        Self::NodeUnreachable,
        Self::ExecFailed,
        Self::NodeRemoved,
        Self::CertificateVoid,
        Self::ProtocolMismatch,
    ];

    /// Stable: clients branch on these strings. Add codes, never rename one.
    pub const fn code(self) -> &'static str {
        match self {
            Self::ManifestInvalid => "manifest_invalid",
            Self::RequestInvalid => "request_invalid",
            Self::RequestTooLarge => "request_too_large",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::NotReady => "not_ready",
            Self::NotAServer => "not_a_server",
            Self::TooManyRequests => "too_many_requests",
            Self::RequestTimedOut => "request_timed_out",
            Self::NodeUnreachable => "node_unreachable",
            Self::ExecFailed => "exec_failed",
            Self::NodeRemoved => "node_removed",
            Self::CertificateVoid => "certificate_void",
            Self::ProtocolMismatch => "protocol_mismatch",
        }
    }
}
