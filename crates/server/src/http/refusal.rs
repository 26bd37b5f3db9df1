//! The way from every failure to the envelope.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use longshore_api::Envelope;
use longshore_model::{RequestCode, replica::Detail};
use longshore_store::{
    CommandError,
    replicated::{ProposeError, ReadError},
};

use super::probes::Code;
use crate::limit::TooOften;

/// A request that is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    envelope: Envelope,
    after: After,
}

/// What becomes of the caller.
#[derive(Clone, Copy, Debug, Default)]
enum After {
    /// It may go on.
    #[default]
    GoesOn,
    /// Nobody knows where its next request would begin.
    HangsUp,
    /// It may come back.
    Waits(Duration),
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: RequestCode, message: impl Into<String>) -> Self {
        Self { status, envelope: Envelope::new(code.code(), message), after: After::GoesOn }
    }

    /// The connection ends with this.
    pub(super) fn closing(self) -> Self {
        Self { after: After::HangsUp, ..self }
    }

    /// Its code.
    pub(super) fn code(&self) -> &str {
        &self.envelope.code
    }

    /// Too much was asked.
    pub(super) fn too_often(TooOften(wait): TooOften, message: &str) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, RequestCode::TooManyRequests, message);
        Self { after: After::Waits(wait), ..refusal }
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
        let code = Code(self.envelope.code.clone());
        let mut response = (self.status, Json(self.envelope)).into_response();
        response.extensions_mut().insert(code);
        match self.after {
            After::GoesOn => {}
            After::HangsUp => {
                drop(response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close")));
            }
            After::Waits(wait) => {
                // In whole seconds, and never now.
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
            }
        }
        response
    }
}

impl From<CommandError> for Refusal {
    fn from(error: CommandError) -> Self {
        let status = match &error {
            CommandError::UnknownNode(_)
            | CommandError::UnknownDeployment(_)
            | CommandError::UnknownService { .. }
            | CommandError::UnknownRevision { .. }
            | CommandError::UnknownSecret(_)
            | CommandError::UnknownToken(_) => StatusCode::NOT_FOUND,
            CommandError::SecretNotYours { .. } => StatusCode::FORBIDDEN,
            CommandError::JoinTokenInvalid | CommandError::JoinTokenExpired => StatusCode::UNAUTHORIZED,
            CommandError::AlreadyFounded
            | CommandError::DuplicateToken(_)
            | CommandError::NoPreviousRevision(_)
            | CommandError::NoRollout(_)
            | CommandError::DuplicateNode(_)
            | CommandError::NodeIsHeardOf(_)
            | CommandError::ScaleOfGlobal(_)
            | CommandError::TooManyReplicas(_)
            | CommandError::LastServer(_)
            | CommandError::VolumeNeedsOneReplica { .. }
            | CommandError::IngressPortTaken { .. }
            | CommandError::PrintedIdTaken { .. }
            | CommandError::SecretStepsBack { .. }
            | CommandError::SecretInUse { .. }
            | CommandError::KeyOutdated(_)
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
        Self { status, envelope, after: After::GoesOn }
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
        let envelope = Envelope::new(error.code(), error.to_string());
        let envelope = envelope.with("hint", error.hint()).with("fate", error.fate().as_str());
        Self { status, envelope, after: After::GoesOn }
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        let envelope = Envelope::new(error.code(), error.to_string());
        Self { status: StatusCode::SERVICE_UNAVAILABLE, envelope, after: After::GoesOn }
    }
}
