//! Reading a request's parts, with refusals in the envelope.
//!
//! Owns: how large a body may be and how long it may take to arrive.
//! Invariant: a body that is announced as too large is refused before any of it is read; one that dawdles is not waited for.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, header, request::Parts},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use longshore_model::RequestCode;
use serde::de::DeserializeOwned;

use super::Refusal;

/// Largest body of the routes below; the router says so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Largest(pub(super) usize);

/// Longest pause within a body: networks stumble for less.
const PAUSE: Duration = Duration::from_secs(5);
/// Longest a whole body may take.
const WHOLE: Duration = Duration::from_secs(30);

/// A body in bytes, whole.
pub(super) struct Whole(pub(super) Bytes);

impl<S: Sync + Send> FromRequest<S> for Whole {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refusal> {
        // Where nobody said how much may come, nothing may.
        let Largest(largest) = request.extensions().get::<Largest>().copied().unwrap_or(Largest(0));
        let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        if announced.and_then(|length| length.parse::<usize>().ok()).is_some_and(|length| length > largest) {
            return Err(too_large(largest));
        }
        let read = tokio::time::timeout(WHOLE, collected(request, largest)).await;
        read.unwrap_or_else(|_| Err(too_slow())).map(Self)
    }
}

async fn collected(request: Request, largest: usize) -> Result<Bytes, Refusal> {
    let mut body = Limited::new(request.into_body(), largest);
    let mut bytes = Vec::new();
    loop {
        match tokio::time::timeout(PAUSE, body.frame()).await {
            Ok(Some(Ok(frame))) => bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => return Err(too_large(largest)),
            Ok(Some(Err(_))) => return Err(invalid("the request broke off")),
            Ok(None) => return Ok(bytes.into()),
            Err(_) => return Err(too_slow()),
        }
    }
}

fn too_large(largest: usize) -> Refusal {
    let message = format!("the request is larger than {largest} bytes, which is the most that is read");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, RequestCode::RequestTooLarge, message).closing()
}

fn too_slow() -> Refusal {
    let message = "the request took too long to arrive";
    Refusal::new(StatusCode::REQUEST_TIMEOUT, RequestCode::RequestTimedOut, message).closing()
}

/// A JSON body. An absent one is `{}`, for requests that only have options.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync + Send> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let Whole(bytes) = Whole::from_request(request, state).await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map(Body).map_err(|error| invalid(format!("the body is not understood: {error}")))
    }
}

/// A JSON body that holds a secret: nothing of it is repeated, not even to whoever sent it.
pub(super) struct Quiet<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync + Send> FromRequest<S> for Quiet<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let Whole(bytes) = Whole::from_request(request, state).await?;
        serde_json::from_slice(&bytes).map(Quiet).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            invalid(format!("the body is not understood: look at line {line}, column {column}"))
        })
    }
}

/// The query.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync + Send> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|error| invalid(error.body_text()))
    }
}

/// Names in the path.
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Sync + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(names)| Self(names)).map_err(|error| invalid(error.body_text()))
    }
}

/// The request makes no sense.
pub(super) fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, RequestCode::RequestInvalid, message)
}
