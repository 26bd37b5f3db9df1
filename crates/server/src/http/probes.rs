//! Whether the daemon lives, whether it can do its work, how much it is asked, and all it knows, for a backup.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};
use longshore_model::{Command, RequestCode};

use super::{Desk, Refusal, caller::Caller};
use crate::beginning_again::pack_backup;

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
    let response = next.run(request).await;
    if let Some(Code(code)) = response.extensions().get::<Code>() {
        desk.hub.figures.refused.add(code);
    }
    response
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
