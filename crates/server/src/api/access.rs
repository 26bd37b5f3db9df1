//! Tokens, whoami and key rotation.

use std::{sync::Arc, time::Duration};

use axum::{Extension, Json, extract::State, http::StatusCode};
use longshore_api::{
    Changed, JoinTokenRequest, KeyRotated, NewToken, Pin, Token, TokenKind, TokenRequest, TokenRow, WhoAmI,
};
use longshore_model::{
    ApiErrorCode, Command, NamespaceName,
    access::{AccessCommand, AccessToken, NodeRole, TokenId, TokenScope},
};
use longshore_store::replicated::Dedup;

use crate::{
    api::{
        ApiError, ApiResult, ApiState,
        extract::{JsonBody, PathParams, invalid},
        name_rules,
    },
    clock,
    node_rpc::service::{self, NodeRequestError},
    security::{
        auth::{Caller, Principal},
        key_rotation::{self, KeyRotationError},
        keyring::{digest_of, random_hex},
    },
};

/// Default lifetime of a join token.
const JOIN_TOKEN: Duration = Duration::from_hours(1);

/// The caller's name, role and scope. The dashboard uses it to offer only what is allowed.
pub(crate) async fn whoami(Extension(who): Extension<Principal>) -> ApiResult<WhoAmI> {
    Ok(Json(who.whoami()))
}

pub(crate) async fn join_token(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    JsonBody(request): JsonBody<JoinTokenRequest>,
) -> ApiResult<NewToken> {
    let valid = request.valid_secs.map_or(JOIN_TOKEN, Duration::from_secs);
    let role = if request.worker { NodeRole::Worker } else { NodeRole::Server };
    let state = api.store()?.read().await?.state;
    let (token, command) = service::join_grant(&state, role, valid)?;
    let done = api.execute(caller, Command::Access(Box::new(command))).await?;
    if done.dedup == Dedup::Repeated {
        let id = TokenId::from(token.id.as_str());
        api.read_after(&done).await?.access().grant(&id).ok_or_else(shown_once)?;
    }
    Ok(Json(NewToken { id: token.id.clone(), token: token.reveal() }))
}

pub(crate) async fn tokens(State(api): State<Arc<ApiState>>) -> ApiResult<Vec<TokenRow>> {
    let state = api.store()?.read().await?.state;
    let rows = state.access().tokens().map(|(id, token)| TokenRow {
        id: id.to_string(),
        name: token.name.clone(),
        role: token.role.into(),
        namespace: token.scope.namespace.as_ref().map(ToString::to_string),
        deployment: token.scope.deployment.as_ref().map(ToString::to_string),
        expires_ms: token.expires_at.map(|at| at.0),
    });
    Ok(Json(rows.collect()))
}

pub(crate) async fn issue(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    JsonBody(request): JsonBody<TokenRequest>,
) -> ApiResult<NewToken> {
    plain(&request.name)?;
    if !name_rules::is_token(&request.name) {
        let message = format!("`{}` is how the audit record calls somebody else", request.name);
        return Err(invalid(message).with("hint", "give the token another name"));
    }
    let (store, now) = (api.store()?, clock::now());
    let state = store.read().await?.state;
    let authority = state.access().authority().ok_or(NodeRequestError::NotBootstrapped)?;
    let made = random_hex(8).and_then(|id| Ok((id, random_hex(16)?))).map_err(NodeRequestError::from)?;
    let token = Token { kind: TokenKind::Operator, id: made.0, secret: made.1, pin: Pin::of(&authority.certificate) };
    let namespace = request.namespace.as_deref().map(NamespaceName::from);
    let namespace = namespace.or_else(|| request.deployment.as_ref().map(|_| NamespaceName::default_namespace()));
    let kept = AccessToken {
        name: request.name,
        digest: digest_of(token.secret.as_bytes()),
        role: request.role,
        scope: TokenScope { namespace, deployment: request.deployment.as_deref().map(Into::into) },
        expires_at: request.valid_secs.map(|seconds| now.after(Duration::from_secs(seconds))),
        since: now,
    };
    let command = AccessCommand::IssueToken { id: TokenId::from(token.id.as_str()), token: kept };
    let done = api.execute(caller, Command::Access(Box::new(command))).await?;
    if done.dedup == Dedup::Repeated {
        let id = TokenId::from(token.id.as_str());
        api.read_after(&done).await?.access().token(&id).ok_or_else(shown_once)?;
    }
    Ok(Json(NewToken { id: token.id.clone(), token: token.reveal() }))
}

/// A repeated request cannot be answered: the token's secret was returned once and is not stored.
fn shown_once() -> ApiError {
    let message = "a token was created under this idempotency key before, and a token is shown only once";
    ApiError::new(StatusCode::CONFLICT, ApiErrorCode::IdempotencyKeyReused, message)
        .with("hint", "revoke that one if its answer was lost, and ask again under another key")
}

pub(crate) async fn revoke(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(id): PathParams<String>,
) -> ApiResult<Changed> {
    let command = AccessCommand::RevokeToken { id: TokenId::from(id.as_str()) };
    api.change(caller, Command::Access(Box::new(command))).await
}

/// Refuses names that break `name_rules`.
pub(crate) fn plain(name: &str) -> Result<(), ApiError> {
    let message = || format!("a name is plain text of up to {} bytes, without `/`", name_rules::MAX_BYTES);
    if name_rules::is_usable(name) { Ok(()) } else { Err(invalid(message())) }
}

/// Makes a new key of the cluster the sealing key.
pub(crate) async fn rotate_key(State(api): State<Arc<ApiState>>, caller: Caller) -> ApiResult<KeyRotated> {
    let store = api.store()?;
    let sealing = store.read().await?.state.access().sealing_key();
    let is_repeated = caller.key.as_ref().is_some_and(|keyed| store.has_answered(&keyed.key));
    // A repeated request must not create a third key: then the current key is proposed, which changes nothing.
    let key = if is_repeated { sealing } else { key_rotation::prepare(&api.ctx, &store, sealing).await? };
    let done = api.execute(caller, Command::Access(Box::new(AccessCommand::UseKey { key }))).await?;
    match done.dedup {
        Dedup::New => Ok(Json(KeyRotated { key })),
        Dedup::Repeated => Ok(Json(KeyRotated { key: api.read_after(&done).await?.access().sealing_key() })),
    }
}

impl From<KeyRotationError> for ApiError {
    fn from(error: KeyRotationError) -> Self {
        match error {
            KeyRotationError::Reception(error) => error.into(),
            KeyRotationError::NotEverywhere { .. } => {
                let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, ApiErrorCode::NotReady, error.to_string());
                refusal.with("hint", "start the server again or remove it, then ask again; nothing has changed")
            }
            KeyRotationError::Keyring(_) | KeyRotationError::Folder(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, ApiErrorCode::NotReady, error.to_string())
            }
        }
    }
}

impl From<NodeRequestError> for ApiError {
    fn from(error: NodeRequestError) -> Self {
        match error {
            NodeRequestError::Propose(error) => error.into(),
            NodeRequestError::Read(error) => error.into(),
            NodeRequestError::Refused(error) => error.into(),
            NodeRequestError::NotAssigned(_) | NodeRequestError::AddressTaken { .. } => {
                Self::new(StatusCode::FORBIDDEN, ApiErrorCode::Forbidden, error.to_string())
            }
            NodeRequestError::NoContents(_) => {
                Self::new(StatusCode::NOT_FOUND, ApiErrorCode::NotFound, error.to_string())
            }
            NodeRequestError::Identity(_) | NodeRequestError::InvalidName | NodeRequestError::AbsurdFingerprint(_) => {
                Self::new(StatusCode::BAD_REQUEST, ApiErrorCode::RequestInvalid, error.to_string())
            }
            NodeRequestError::Keyring(_) | NodeRequestError::NotBootstrapped => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, ApiErrorCode::NotReady, error.to_string())
            }
        }
    }
}
