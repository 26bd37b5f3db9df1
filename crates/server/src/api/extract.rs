//! Extractors for the parts of a request, with errors in the envelope.
//!
//! Owns: the size limit and the time limit of a body, and the memory that all bodies together may take.
//! Invariant: a body whose announced length is over the limit is refused before any of it is read; a slow one times
//! out.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::Bytes,
    extract::{Extension, FromRequest, FromRequestParts, Path, Query, Request, State},
    http::{StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use longshore_model::ApiErrorCode;
use serde::de::DeserializeOwned;

use crate::{
    api::{ApiError, ApiState},
    security::{
        auth::Principal,
        rate_limit::{ConcurrencyLimit, ConcurrencyPermit, RetryAfter},
    },
};

/// Largest body of a route, in bytes; set by the router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimit(pub(crate) usize);

/// Longest pause between two parts of a body.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The whole body as bytes.
pub(crate) struct RawBody(pub(crate) Bytes);

impl<S: Sync + Send> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        // A route without a limit accepts no body.
        let BodyLimit(largest) = request.extensions().get::<BodyLimit>().copied().unwrap_or(BodyLimit(0));
        let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        if announced.and_then(|length| length.parse::<usize>().ok()).is_some_and(|length| length > largest) {
            return Err(too_large(largest));
        }
        let budget = request.extensions().get::<BodyBudget>().cloned();
        let read = tokio::time::timeout(BODY_TIMEOUT, read_limited(request, largest, budget)).await;
        read.unwrap_or_else(|_| Err(too_slow())).map(Self)
    }
}

/// What one unit of the budget for bodies is worth, in bytes.
pub(crate) const BODY_UNIT: usize = 64 * 1024;

/// The part of the server's memory for bodies that one request holds, until it is answered.
#[derive(Clone)]
pub(crate) struct BodyBudget {
    limit: Arc<ConcurrencyLimit>,
    caller: String,
    held: Arc<Mutex<Vec<ConcurrencyPermit>>>,
}

impl BodyBudget {
    /// Takes what `bytes` need in all. Half-sent bodies count by what has arrived.
    fn reserve(&self, bytes: usize) -> Result<(), ApiError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while held.len() * BODY_UNIT < bytes {
            let busy = "too many large requests are under way; try again in a moment";
            let permit = self.limit.acquire(&self.caller);
            held.push(permit.ok_or_else(|| ApiError::too_often(RetryAfter(Duration::from_secs(1)), busy).closing())?);
        }
        Ok(())
    }
}

/// Middleware: counts the bodies of authenticated callers against the server's memory for them.
pub(crate) async fn budget_body(
    State(api): State<Arc<ApiState>>,
    Extension(who): Extension<Principal>,
    mut request: Request,
    next: Next,
) -> Response {
    let (limit, caller) = (Arc::clone(&api.bodies), who.credential().name());
    let budget = BodyBudget { limit, caller, held: Arc::default() };
    request.extensions_mut().insert(budget.clone());
    let response = next.run(request).await;
    drop(budget);
    response
}

async fn read_limited(request: Request, largest: usize, budget: Option<BodyBudget>) -> Result<Bytes, ApiError> {
    let mut body = Limited::new(request.into_body(), largest);
    let mut bytes = Vec::new();
    loop {
        match tokio::time::timeout(READ_TIMEOUT, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                let part: &[u8] = frame.data_ref().map_or(&[], |data| data);
                if let Some(budget) = &budget {
                    budget.reserve(bytes.len() + part.len())?;
                }
                bytes.extend_from_slice(part);
            }
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => return Err(too_large(largest)),
            Ok(Some(Err(_))) => return Err(invalid("the request was interrupted")),
            Ok(None) => return Ok(bytes.into()),
            Err(_) => return Err(too_slow()),
        }
    }
}

fn too_large(largest: usize) -> ApiError {
    let message = format!("the request is larger than the limit of {largest} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, ApiErrorCode::RequestTooLarge, message).closing()
}

fn too_slow() -> ApiError {
    let message = "the request took too long to arrive";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, ApiErrorCode::RequestTimedOut, message).closing()
}

/// A JSON body. An empty one counts as `{}`, for requests that only have options.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync + Send> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text)
            .map(JsonBody)
            .map_err(|error| invalid(format!("the body cannot be parsed: {error}")))
    }
}

/// A JSON body that holds a secret: errors repeat nothing of it.
pub(crate) struct SecretJsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync + Send> FromRequest<S> for SecretJsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        serde_json::from_slice(&bytes).map(SecretJsonBody).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            invalid(format!("the body cannot be parsed: look at line {line}, column {column}"))
        })
    }
}

/// The query string.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync + Send> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|error| invalid(error.body_text()))
    }
}

/// The path parameters.
pub(crate) struct PathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Sync + Send> FromRequestParts<S> for PathParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(names)| Self(names)).map_err(|error| invalid(error.body_text()))
    }
}

/// The request is malformed.
pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, ApiErrorCode::RequestInvalid, message)
}
