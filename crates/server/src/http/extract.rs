//! Reading a request's parts, with refusals in the envelope.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, request::Parts},
    response::IntoResponse as _,
};
use longshore_model::RequestCode;
use serde::de::DeserializeOwned;

use super::Refusal;

/// A JSON body. An absent one is `{}`, for requests that only have options.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync + Send> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejected| {
            let status = rejected.into_response().status();
            if status == StatusCode::PAYLOAD_TOO_LARGE {
                Refusal::new(status, RequestCode::RequestTooLarge, "the request is larger than is read")
            } else {
                Refusal::new(status, RequestCode::RequestInvalid, "the request broke off")
            }
        })?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map(Body).map_err(|error| invalid(format!("the body is not understood: {error}")))
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

fn invalid(message: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, RequestCode::RequestInvalid, message)
}
