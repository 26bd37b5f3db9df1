//! Error codes of API requests that were refused before they became a command.
//!
//! Owns: the codes of the public API for such requests. A command that the state machine refuses has a code of its own.

/// Why the API refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApiErrorCode {
    /// The manifest has errors.
    ManifestInvalid,
    /// The request is malformed.
    RequestInvalid,
    /// The request body exceeds the size limit.
    RequestTooLarge,
    /// The caller showed no valid credential.
    Unauthenticated,
    /// The caller's role or scope does not allow it.
    Forbidden,
    /// No object of that name exists.
    NotFound,
    /// The path does not support the method.
    MethodNotAllowed,
    /// The idempotency key was used with another request.
    IdempotencyKeyReused,
    /// The server is not ready.
    NotReady,
    /// The node is a worker and keeps no state.
    NotAServer,
    /// The caller exceeds its rate or connection limit.
    TooManyRequests,
    /// The request took too long to arrive.
    RequestTimedOut,
    /// A node needed for the answer does not respond.
    NodeUnreachable,
    /// The command could not be started in the replica.
    ExecFailed,
    /// The node was removed from the cluster.
    NodeRemoved,
    /// The certificate was revoked; the node has to join again.
    CertificateRevoked,
    /// The peer uses another protocol version.
    ProtocolMismatch,
    /// Compose made a volume that an apply would replace by an empty one.
    ComposeVolumeFound,
    /// The policy of the namespace does not allow what the manifest asks.
    PolicyDenied,
}

impl ApiErrorCode {
    /// Every variant, in order.
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
        Self::CertificateRevoked,
        Self::ProtocolMismatch,
        Self::ComposeVolumeFound,
        Self::PolicyDenied,
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
            Self::CertificateRevoked => "certificate_revoked",
            Self::ProtocolMismatch => "protocol_mismatch",
            Self::ComposeVolumeFound => "compose_volume_found",
            Self::PolicyDenied => "policy_denied",
        }
    }
}
