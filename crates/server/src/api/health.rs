//! Liveness, readiness, request counters and spans, and the backup.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};
use longshore_model::{ApiErrorCode, Command};

use crate::{
    api::{ApiError, ApiState},
    lifecycle::disaster_recovery::pack_backup,
    observability::telemetry::{Span, SpanKind, Telemetry, TraceContext},
    security::auth::Caller,
};

pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready means that a linearizable read succeeds and that the cluster is bootstrapped: before it has its authority and
/// this node its keys, every write would be refused. The route is public, so the answer gives no reason.
pub(crate) async fn readyz(State(api): State<Arc<ApiState>>) -> Result<&'static str, ApiError> {
    let not_ready = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ApiErrorCode::NotReady, "not ready");
    let read = api.store()?.read().await.map_err(|_| not_ready())?;
    let bootstrapped = read.state.access().authority().is_some() && api.ctx.keyring().is_some();
    bootstrapped.then_some("ready\n").ok_or_else(not_ready)
}

/// Counts every request, and every error by its code.
pub(crate) async fn record_request(State(api): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    api.ctx.counters.requests.add(1);
    let mut span = request_span(&api, &request);
    let response = Telemetry::in_span(span.as_ref(), next.run(request)).await;
    let refused = response.extensions().get::<ErrorCode>().map(|ErrorCode(code)| code.as_str());
    if let Some(code) = refused {
        api.ctx.counters.refused.add(code);
    }
    if let Some(span) = &mut span {
        if let Some(code) = refused {
            span.fail(code);
        }
        span.set("http.response.status_code", response.status().as_u16());
    }
    api.ctx.telemetry.end(span);
    response
}

/// A span for a public request; node RPCs and probes are left out because they would bury those.
fn request_span(api: &ApiState, request: &Request) -> Option<Span> {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str)?;
    if !path.starts_with("/v1/") {
        return None;
    }
    let caller = request.headers().get("traceparent").and_then(|header| header.to_str().ok());
    let name = format!("{} {path}", request.method());
    let mut span = api.ctx.telemetry.begin_as(SpanKind::Server, name, caller.and_then(TraceContext::parse))?;
    span.set("http.request.method", request.method().as_str());
    span.set("http.route", path);
    span.set("url.path", request.uri().path());
    Some(span)
}

/// The error code of an answer, for metrics and traces.
#[derive(Clone, Debug)]
pub(crate) struct ErrorCode(pub(crate) String);

/// The replicated state and the keys, as bytes that `longshore restore` reads. The audit record is committed first.
pub(crate) async fn backup(State(api): State<Arc<ApiState>>, caller: Caller) -> Result<Vec<u8>, ApiError> {
    api.execute(caller, Command::RecordBackup).await?;
    let failed = |error: String| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ApiErrorCode::NotReady, error);
    let keyring = || api.ctx.keyring().ok_or_else(|| failed("this node has no keys".to_owned()));
    let before = keyring()?;
    let state = api.store()?.backup().await.map_err(|error| failed(error.to_string()))?;
    // Keys may be rotated while the state is read; the union opens everything in it.
    let keyring = before.with(&keyring()?).map_err(|error| failed(error.to_string()))?;
    pack_backup(api.ctx.record().cluster, keyring, state).map_err(failed)
}
