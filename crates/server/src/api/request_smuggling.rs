//! Protection against request smuggling.
//!
//! Owns: the only accepted way to give a body's length, `Content-Length`. A proxy in front of the daemon might see
//! another end of the request than the daemon does, and the bytes between the two ends would count as someone else's
//! request.

use axum::{
    extract::Request,
    http::{StatusCode, header},
    middleware::Next,
    response::Response,
};
use longshore_model::ApiErrorCode;

use crate::api::ApiError;

/// Refuses chunked bodies and closes the connection. hyper already refuses contradicting lengths.
pub(crate) async fn unambiguous(request: Request, next: Next) -> Result<Response, ApiError> {
    if request.headers().contains_key(header::TRANSFER_ENCODING) {
        let message = "a body needs a `Content-Length`, and no other length";
        return Err(ApiError::new(StatusCode::LENGTH_REQUIRED, ApiErrorCode::RequestInvalid, message).closing());
    }
    Ok(next.run(request).await)
}
