//! Requests that two readers could understand differently.
//!
//! Owns: which ways to say how long a body is are understood: one. Whoever stands between a caller and the daemon may see
//! another end of a request than the daemon does, and what lies between the two ends would be a request of somebody else.

use axum::{
    extract::Request,
    http::{StatusCode, header},
    middleware::Next,
    response::Response,
};
use longshore_model::RequestCode;

use super::Refusal;

/// Refuses bodies of no announced length, and then hangs up. Lengths that contradict each other never get here.
pub(super) async fn unambiguous(request: Request, next: Next) -> Result<Response, Refusal> {
    if request.headers().contains_key(header::TRANSFER_ENCODING) {
        let message = "a body must say how long it is, by `Content-Length` alone";
        return Err(Refusal::new(StatusCode::LENGTH_REQUIRED, RequestCode::RequestInvalid, message).closing());
    }
    Ok(next.run(request).await)
}
