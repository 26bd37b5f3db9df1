//! Idempotency keys: a request that is sent again under its key is executed once.
//!
//! Owns: reading the key, and the fingerprint that tells a repeated request from another one under the same key.
//! Invariant: the same bytes to the same path under the same key are one request. The stored fingerprint is keyed with
//! a secret of the cluster, because a body may hold a secret that is easy to guess.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{FromRequest as _, Request, State},
    http::{HeaderValue, StatusCode},
    middleware::Next,
    response::Response,
};
use longshore_model::ApiErrorCode;
use longshore_store::replicated::{Fingerprint, IdempotencyKey};

use crate::{
    api::{ApiError, ApiState, extract::RawBody},
    node_rpc::service::{AUTHORITY_PURPOSE, NodeRequestError},
    security::keyring::keyed_hash,
};

/// The idempotency key of a request and the fingerprint of what was asked.
#[derive(Clone, Debug)]
pub(crate) struct IdempotentRequest {
    pub(crate) key: IdempotencyKey,
    pub(crate) fingerprint: Fingerprint,
}

impl IdempotentRequest {
    /// The key of one of several commands of the request.
    pub(crate) fn sub_request(&self, of: &str) -> Self {
        Self { key: self.key.part(of), fingerprint: self.fingerprint }
    }
}

/// Reads the key; where there is one, also the body.
pub(crate) async fn read_key(
    State(api): State<Arc<ApiState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let Some(key) = request.headers().get("idempotency-key").map(parse_key).transpose()? else {
        return Ok(next.run(request).await);
    };
    let (parts, body) = request.into_parts();
    let RawBody(bytes) = RawBody::from_request(Request::from_parts(parts.clone(), body), &()).await?;
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let secret = stable_secret(&api)?;
    let mac = keyed_hash(&secret, "asked", &[parts.method.as_str().as_bytes(), path.as_bytes(), &bytes]);
    let fingerprint = Fingerprint::of([mac.as_slice()]);
    let mut request = Request::from_parts(parts, Body::from(bytes));
    request.extensions_mut().insert(IdempotentRequest { key, fingerprint });
    Ok(next.run(request).await)
}

/// A secret that only servers know and that does not change when the sealing key is rotated, so that a repeated request
/// keeps its fingerprint.
fn stable_secret(api: &ApiState) -> Result<Vec<u8>, ApiError> {
    let state = api.store()?.read_local().state;
    let authority = state.access().authority().ok_or(NodeRequestError::NotBootstrapped)?;
    let keyring = api.ctx.keyring().ok_or(NodeRequestError::NotBootstrapped)?;
    Ok(keyring.open(AUTHORITY_PURPOSE, &authority.key).map_err(NodeRequestError::from)?)
}

fn parse_key(key: &HeaderValue) -> Result<IdempotencyKey, ApiError> {
    let invalid = |message: String| ApiError::new(StatusCode::BAD_REQUEST, ApiErrorCode::RequestInvalid, message);
    let text = key.to_str().map_err(|_| invalid("the idempotency key is not text".to_owned()))?;
    IdempotencyKey::new(text).map_err(|unusable| invalid(unusable.to_string()))
}
