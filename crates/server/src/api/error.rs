//! Every error of the API as status code and envelope.
//!
//! Owns: which status a failure has, and the details in the envelope. Invariant: an error about an object that does not
//! exist carries `details.kind` and `details.name`; one about a proposed command carries `details.commit`.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use longshore_api::{Envelope, ObjectKind};
use longshore_model::{ApiErrorCode, StateIndex, replica::Detail};
use longshore_store::{
    CommandError,
    replicated::{CommitCertainty, ProposeError, ReadError},
};

use crate::{api::health::ErrorCode, security::rate_limit::RetryAfter};

/// An error answer.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    envelope: Envelope,
    after: After,
}

/// What happens to the connection, and when the caller may retry.
#[derive(Clone, Copy, Debug, Default)]
enum After {
    /// The connection stays open.
    #[default]
    GoesOn,
    /// The connection is closed: the start of the next request is unknown.
    HangsUp,
    /// The caller may retry after this time.
    Waits(Duration),
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: ApiErrorCode, message: impl Into<String>) -> Self {
        Self { status, envelope: Envelope::new(code.code(), message), after: After::GoesOn }
    }

    /// Closes the connection after the answer.
    pub(crate) fn closing(self) -> Self {
        Self { after: After::HangsUp, ..self }
    }

    /// The stable code of the error.
    pub(crate) fn code(&self) -> &str {
        &self.envelope.code
    }

    /// The error as a warning, for an answer that only says what would be refused.
    pub(crate) fn to_warning(&self) -> String {
        let hint = self.envelope.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("warning: {}{hint}", self.envelope.message)
    }

    /// A rate limit was exceeded.
    pub(crate) fn too_often(RetryAfter(wait): RetryAfter, message: &str) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, ApiErrorCode::TooManyRequests, message);
        Self { after: After::Waits(wait), ..refusal }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.envelope = self.envelope.with(name, value);
        self
    }

    /// The command was committed, and only the state after it could not be read.
    pub(crate) fn after_commit(self, at: StateIndex) -> Self {
        let hint = "the change was committed; ask again under the same idempotency key to get its result";
        self.with_commit("committed").with("index", at.0).with("hint", hint)
    }

    /// The error is about one of several commands of a request: its commit certainty is not that of the whole request.
    pub(crate) fn for_part(mut self) -> Self {
        if !self.envelope.details.contains_key("commit") {
            return self;
        }
        let was_committed = self.envelope.details.remove("index").is_some();
        let refusal = self.with_commit(CommitCertainty::Unknown.as_str());
        if was_committed { refusal.with("hint", "ask again, with the same idempotency key") } else { refusal }
    }

    /// There is no object of this kind and name: `details.kind` and `details.name` say so.
    pub(crate) fn not_found(kind: &ObjectKind, name: &str) -> Self {
        Self::nothing_named(kind.as_str(), name).about(kind, name)
    }

    /// There is nothing of this name among things that are no objects of the API, such as actions.
    pub(crate) fn nothing_named(what: &str, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, ApiErrorCode::NotFound, format!("there is no {what} `{name}`"))
    }

    /// Says which object does not exist.
    pub(crate) fn about(mut self, kind: &ObjectKind, name: &str) -> Self {
        self.envelope = self.envelope.about(kind, name);
        self
    }

    /// Whether the command may still take effect, as `details.commit`, and as `details.fate` for older clients.
    pub(crate) fn with_commit(self, certainty: &str) -> Self {
        self.with("commit", certainty).with("fate", certainty)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = ErrorCode(self.envelope.code.clone());
        let mut response = (self.status, Json(self.envelope)).into_response();
        response.extensions_mut().insert(code);
        match self.after {
            After::GoesOn => {}
            After::HangsUp => {
                drop(response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close")));
            }
            After::Waits(wait) => {
                // In whole seconds, at least one.
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
            }
        }
        response
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        let status = match &error {
            CommandError::UnknownNode(_)
            | CommandError::UnknownDeployment(_)
            | CommandError::UnknownService { .. }
            | CommandError::UnknownRevision { .. }
            | CommandError::UnknownSecret(_)
            | CommandError::UnknownVolume(_)
            | CommandError::UnknownToken(_) => StatusCode::NOT_FOUND,
            CommandError::SecretOutOfScope { .. } => StatusCode::FORBIDDEN,
            CommandError::JoinTokenInvalid | CommandError::JoinTokenExpired => StatusCode::UNAUTHORIZED,
            CommandError::AlreadyBootstrapped
            | CommandError::TooManyForCluster { .. }
            | CommandError::SecretOwned { .. }
            | CommandError::DuplicateToken(_)
            | CommandError::NoPreviousRevision(_)
            | CommandError::NoRollout(_)
            | CommandError::DuplicateNode(_)
            | CommandError::NodeStillAlive(_)
            | CommandError::CannotScaleGlobal(_)
            | CommandError::TooManyReplicas(_)
            | CommandError::LastServer(_)
            | CommandError::VolumeNeedsOneReplica { .. }
            | CommandError::IngressPortTaken { .. }
            | CommandError::ReplicaIdConflict { .. }
            | CommandError::SecretVersionRegression { .. }
            | CommandError::SecretInUse { .. }
            | CommandError::VolumeHeld { .. }
            | CommandError::KeyOutdated(_)
            | CommandError::SettingsConflict
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
        if let Some((kind, name)) = missing_object(&error) {
            envelope = envelope.about(&kind, &name);
        }
        Self { status, envelope, after: After::GoesOn }
    }
}

/// The object that a refused command names and that does not exist, where that is why it was refused.
fn missing_object(error: &CommandError) -> Option<(ObjectKind, String)> {
    Some(match error {
        CommandError::UnknownNode(node) => (ObjectKind::Node, node.to_string()),
        CommandError::UnknownDeployment(deployment) => (ObjectKind::Deployment, deployment.to_string()),
        CommandError::UnknownService { service, .. } => (ObjectKind::Service, service.to_string()),
        CommandError::UnknownRevision { revision, .. } => (ObjectKind::Revision, revision.0.to_string()),
        CommandError::UnknownSecret(secret) => (ObjectKind::Secret, secret.to_string()),
        CommandError::UnknownVolume(volume) => (ObjectKind::Volume, volume.to_string()),
        CommandError::UnknownToken(token) => (ObjectKind::Token, token.to_string()),
        CommandError::NoPreviousRevision(deployment) => (ObjectKind::Revision, deployment.to_string()),
        CommandError::NoRollout(deployment) => (ObjectKind::Rollout, deployment.to_string()),
        CommandError::SecretOutOfScope { .. }
        | CommandError::TooManyForCluster { .. }
        | CommandError::SecretOwned { .. }
        | CommandError::JoinTokenInvalid
        | CommandError::JoinTokenExpired
        | CommandError::AlreadyBootstrapped
        | CommandError::DuplicateToken(_)
        | CommandError::DuplicateNode(_)
        | CommandError::NodeStillAlive(_)
        | CommandError::CannotScaleGlobal(_)
        | CommandError::TooManyReplicas(_)
        | CommandError::LastServer(_)
        | CommandError::VolumeNeedsOneReplica { .. }
        | CommandError::IngressPortTaken { .. }
        | CommandError::ReplicaIdConflict { .. }
        | CommandError::SecretVersionRegression { .. }
        | CommandError::SecretInUse { .. }
        | CommandError::VolumeHeld { .. }
        | CommandError::KeyOutdated(_)
        | CommandError::SettingsConflict
        | CommandError::QuotaExceeded { .. } => return None,
    })
}

impl From<ProposeError> for ApiError {
    fn from(error: ProposeError) -> Self {
        let status = match &error {
            ProposeError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ProposeError::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            ProposeError::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            ProposeError::QuorumLost { .. }
            | ProposeError::LeaderLost { .. }
            | ProposeError::StorageFailed(_)
            | ProposeError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        };
        let envelope = Envelope::new(error.code(), error.to_string());
        let envelope = envelope.with("hint", error.hint());
        Self { status, envelope, after: After::GoesOn }.with_commit(error.commit_certainty().as_str())
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        let envelope = Envelope::new(error.code(), error.to_string());
        Self { status: StatusCode::SERVICE_UNAVAILABLE, envelope, after: After::GoesOn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(refusal: ApiError) -> Vec<(String, String)> {
        refusal.envelope.details.into_iter().map(|(name, value)| (name, value.to_string())).collect()
    }

    #[test]
    fn the_commit_certainty_of_a_part_is_not_reported_for_the_whole_request() {
        let whole = ApiError::from(ReadError::QuorumLost).after_commit(StateIndex(7));
        assert!(details(whole).contains(&("commit".to_owned(), "\"committed\"".to_owned())));
        let part = details(ApiError::from(ReadError::QuorumLost).after_commit(StateIndex(7)).for_part());
        for key in ["commit", "fate"] {
            assert!(part.contains(&(key.to_owned(), "\"unknown\"".to_owned())), "{part:?}");
        }
        assert!(part.iter().any(|(name, value)| name == "hint" && value.contains("again")), "{part:?}");
        let full = details(ApiError::from(ProposeError::DiskFull).for_part());
        assert!(full.iter().any(|(name, value)| name == "hint" && value.contains("free space")), "{full:?}");
        assert_eq!(details(ApiError::from(ReadError::QuorumLost).for_part()), [], "nothing was proposed yet");
    }

    #[test]
    fn an_error_about_a_missing_object_says_its_kind_and_name() {
        let about = |error: ApiError| {
            let missing = error.envelope.missing().map(|(kind, name)| (kind.to_string(), name.to_owned()));
            missing.unwrap_or_else(|| panic!("no kind: {}", error.envelope))
        };
        let unknown_service = CommandError::UnknownService { deployment: "shop".into(), service: "web".into() };
        for (error, kind, name) in [
            (CommandError::UnknownNode("n9".into()).into(), "node", "n9"),
            (CommandError::UnknownDeployment("shop".into()).into(), "deployment", "shop"),
            (unknown_service.into(), "service", "web"),
            (CommandError::UnknownSecret("pass".into()).into(), "secret", "pass"),
            (CommandError::NoRollout("shop".into()).into(), "rollout", "shop"),
            (ApiError::not_found(&ObjectKind::Replica, "shop-web-9"), "replica", "shop-web-9"),
        ] {
            assert_eq!(about(error), (kind.to_owned(), name.to_owned()));
        }
        assert_eq!(ApiError::from(CommandError::JoinTokenExpired).envelope.missing(), None);
    }
}
