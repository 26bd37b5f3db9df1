//! The way from every failure to the envelope.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use longshore_api::Envelope;
use longshore_model::{RequestCode, StateIndex, replica::Detail};
use longshore_store::{
    CommandError,
    replicated::{Fate, ProposeError, ReadError},
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

    /// What was asked for was decided all the same, and only the answer to it could not be read.
    pub(super) fn though_decided(self, at: StateIndex) -> Self {
        let hint =
            "it was decided and is in force; ask again under the same idempotency key to be told what came of it";
        self.with("fate", "committed").with("index", at.0).with("hint", hint)
    }

    /// This is about a part of the request: what became of that one is not what became of the whole.
    pub(super) fn of_a_part(mut self) -> Self {
        if !self.envelope.details.contains_key("fate") {
            return self;
        }
        let told_decided = self.envelope.details.remove("index").is_some();
        let refusal = self.with("fate", Fate::Unknown.as_str());
        if told_decided { refusal.with("hint", "ask again, with the same idempotency key") } else { refusal }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn details(refusal: Refusal) -> Vec<(String, String)> {
        refusal.envelope.details.into_iter().map(|(name, value)| (name, value.to_string())).collect()
    }

    #[test]
    fn what_became_of_a_part_is_not_said_of_the_whole() {
        let whole = Refusal::from(ReadError::QuorumLost).though_decided(StateIndex(7));
        assert!(details(whole).contains(&("fate".to_owned(), "\"committed\"".to_owned())));
        let part = details(Refusal::from(ReadError::QuorumLost).though_decided(StateIndex(7)).of_a_part());
        assert_eq!(part[0], ("fate".to_owned(), "\"unknown\"".to_owned()));
        assert!(part[1].1.contains("ask again"), "{part:?}");
        let full = details(Refusal::from(ProposeError::DiskFull).of_a_part());
        assert!(full.iter().any(|(name, value)| name == "hint" && value.contains("free space")), "{full:?}");
        assert_eq!(details(Refusal::from(ReadError::QuorumLost).of_a_part()), [], "nothing was asked of the log yet");
    }
}
