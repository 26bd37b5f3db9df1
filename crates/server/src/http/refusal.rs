//! The way from every failure to the envelope.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use longshore_api::Envelope;
use longshore_model::{RequestCode, replica::Detail};
use longshore_store::{
    CommandError,
    replicated::{ProposeError, ReadError},
};

/// A request that is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    envelope: Envelope,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: RequestCode, message: impl Into<String>) -> Self {
        Self { status, envelope: Envelope::new(code.code(), message) }
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.envelope = self.envelope.with(name, value);
        self
    }

    pub(super) fn not_found(what: &str, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, RequestCode::NotFound, format!("there is no {what} `{name}`"))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(self.envelope)).into_response()
    }
}

impl From<CommandError> for Refusal {
    fn from(error: CommandError) -> Self {
        let status = match &error {
            CommandError::UnknownNode(_)
            | CommandError::UnknownDeployment(_)
            | CommandError::UnknownService { .. }
            | CommandError::UnknownRevision { .. }
            | CommandError::UnknownToken(_) => StatusCode::NOT_FOUND,
            CommandError::JoinTokenInvalid | CommandError::JoinTokenExpired => StatusCode::UNAUTHORIZED,
            CommandError::AlreadyFounded
            | CommandError::DuplicateToken(_)
            | CommandError::NoPreviousRevision(_)
            | CommandError::NoRollout(_)
            | CommandError::DuplicateNode(_)
            | CommandError::NodeIsHeardOf(_)
            | CommandError::ScaleOfGlobal(_)
            | CommandError::VolumeNeedsOneReplica { .. }
            | CommandError::IngressPortTaken { .. }
            | CommandError::PrintedIdTaken { .. }
            | CommandError::SecretStepsBack { .. }
            | CommandError::QuotaExceeded { .. } => StatusCode::CONFLICT,
        };
        let mut envelope = Envelope::new(error.code(), error.to_string()).with("hint", error.hint());
        for (name, detail) in error.details() {
            envelope = match detail {
                Detail::Number(number) => envelope.with(&name, number),
                Detail::Text(text) => envelope.with(&name, text),
                Detail::List(list) => envelope.with(&name, list),
            };
        }
        Self { status, envelope }
    }
}

impl From<ProposeError> for Refusal {
    fn from(error: ProposeError) -> Self {
        let status = match &error {
            ProposeError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ProposeError::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            ProposeError::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            ProposeError::QuorumLost { .. }
            | ProposeError::LeaderLost { .. }
            | ProposeError::StorageFailed(_)
            | ProposeError::Closing => StatusCode::SERVICE_UNAVAILABLE,
        };
        let envelope = Envelope::new(error.code(), error.to_string()).with("hint", error.hint());
        Self { status, envelope }
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        let envelope = Envelope::new(error.code(), error.to_string());
        Self { status: StatusCode::SERVICE_UNAVAILABLE, envelope }
    }
}
