//! Whether the daemon lives, whether it can do its work, how much it is asked, and all it knows, for a backup.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};
use longshore_model::{Command, RequestCode};

use super::{Desk, Refusal, caller::Caller};
use crate::{
    beginning_again::pack_backup,
    telemetry::{Context, Role, Span, Telemetry},
};

pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Ready is who can answer with the newest state. Anybody may ask, and so nobody is told why not.
pub(super) async fn ready(State(desk): State<Arc<Desk>>) -> Result<&'static str, Refusal> {
    let not_ready = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, "not ready");
    desk.store()?.read().await.map(|_| "ready\n").map_err(not_ready)
}

/// Counts every request, and every refusal by its code.
pub(super) async fn count(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    desk.hub.figures.requests.add(1);
    let mut span = begun(&desk, &request);
    let response = Telemetry::within(span.as_ref(), next.run(request)).await;
    let refused = response.extensions().get::<Code>().map(|Code(code)| code.as_str());
    if let Some(code) = refused {
        desk.hub.figures.refused.add(code);
    }
    if let Some(span) = &mut span {
        if let Some(code) = refused {
            span.fail(code);
        }
        span.note("http.response.status_code", response.status().as_u16());
    }
    desk.hub.telemetry.end(span);
    response
}

/// A span for a request of somebody; what nodes say to each other, and probes, would only hide those.
fn begun(desk: &Desk, request: &Request) -> Option<Span> {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str)?;
    if !path.starts_with("/v1/") {
        return None;
    }
    let caller = request.headers().get("traceparent").and_then(|header| header.to_str().ok());
    let name = format!("{} {path}", request.method());
    let mut span = desk.hub.telemetry.begin_as(Role::Request, name, caller.and_then(Context::of_caller))?;
    span.note("http.request.method", request.method().as_str());
    span.note("http.route", path);
    span.note("url.path", request.uri().path());
    Some(span)
}

/// The code that an answer carries.
#[derive(Clone, Debug)]
pub(super) struct Code(pub(super) String);

/// Everything a cluster goes on with, keys included, as bytes that `longshore restore` takes.
/// Who asked is on record before they have it.
pub(super) async fn backup(State(desk): State<Arc<Desk>>, caller: Caller) -> Result<Vec<u8>, Refusal> {
    desk.carry_out(caller, Command::NoteBackup).await?;
    let failed = |error: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, error);
    let vault = || desk.hub.vault().ok_or_else(|| failed("this node has no keys".to_owned()));
    let before = vault()?;
    let state = desk.store()?.backup().await.map_err(|error| failed(error.to_string()))?;
    // Keys may come and go meanwhile; what is in the backup is sealed with one of these.
    let vault = before.with(&vault()?).map_err(|error| failed(error.to_string()))?;
    pack_backup(desk.hub.place().cluster, vault, state).map_err(failed)
}
