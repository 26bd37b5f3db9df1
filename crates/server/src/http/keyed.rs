//! Requests that may be asked again.
//!
//! Owns: reading an idempotency key, and what tells the request asked again from another one under the same key.
//! Invariant: the same bytes to the same place under the same key are one request, however its commands come out. What is
//! kept of them tells nothing to whoever has not the cluster's key: a body may hold a secret that is easily guessed.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{FromRequest as _, Request, State},
    http::{HeaderValue, StatusCode},
    middleware::Next,
    response::Response,
};
use longshore_model::RequestCode;
use longshore_store::replicated::{Fingerprint, IdempotencyKey};

use super::{Desk, Refusal, extract::Whole};
use crate::{
    reception::{AUTHORITY_PURPOSE, ReceptionError},
    vault::mark,
};

/// The key of a request, and what was asked under it.
#[derive(Clone, Debug)]
pub(super) struct Keyed {
    pub(super) key: IdempotencyKey,
    pub(super) asked: Fingerprint,
}

impl Keyed {
    /// The key of one of several commands that a request takes.
    pub(super) fn part(&self, of: &str) -> Self {
        Self { key: self.key.part(of), asked: self.asked }
    }
}

/// Reads the key, and the whole request where there is one.
pub(super) async fn take_note(
    State(desk): State<Arc<Desk>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let Some(key) = request.headers().get("idempotency-key").map(usable).transpose()? else {
        return Ok(next.run(request).await);
    };
    let (parts, body) = request.into_parts();
    let Whole(bytes) = Whole::from_request(Request::from_parts(parts.clone(), body), &()).await?;
    let place = parts.uri.path_and_query().map_or("", |place| place.as_str());
    let secret = lasting_secret(&desk)?;
    let asked = mark(&secret, "asked", &[parts.method.as_str().as_bytes(), place.as_bytes(), &bytes]);
    let asked = Fingerprint::of([asked.as_slice()]);
    let mut request = Request::from_parts(parts, Body::from(bytes));
    request.extensions_mut().insert(Keyed { key, asked });
    Ok(next.run(request).await)
}

/// What only servers know, whichever key seals: a request asked again after the key was changed is the same request.
fn lasting_secret(desk: &Desk) -> Result<Vec<u8>, Refusal> {
    let state = desk.store()?.read_local().state;
    let authority = state.access().authority().ok_or(ReceptionError::NotFounded)?;
    let vault = desk.hub.vault().ok_or(ReceptionError::NotFounded)?;
    Ok(vault.open(AUTHORITY_PURPOSE, &authority.key).map_err(ReceptionError::from)?)
}

fn usable(key: &HeaderValue) -> Result<IdempotencyKey, Refusal> {
    let invalid = |message: String| Refusal::new(StatusCode::BAD_REQUEST, RequestCode::RequestInvalid, message);
    let text = key.to_str().map_err(|_| invalid("the idempotency key is not text".to_owned()))?;
    IdempotencyKey::new(text).map_err(|unusable| invalid(unusable.to_string()))
}
