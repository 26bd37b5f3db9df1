//! Evening out, over HTTP.
//!
//! Owns: whom a server asks that does not lead. Must not touch: what moves, which the scheduler says.
//! Invariant: asking changes nothing; what evening out would do is worked out on a view of its own.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, http::StatusCode};
use longshore_api::{Changed, EvenOutMove};
use longshore_model::{Command, RequestCode};

use super::{Answer, Desk, Refusal, caller::Caller};
use crate::{clock, hub::Leader, leader::view_of, peer::unpack};

/// Time the leader has to work it out.
const PATIENCE: Duration = Duration::from_secs(10);

/// What evening out would move. Only the leader hears how busy nodes are, so it is the one that is asked.
pub(super) async fn preview(State(desk): State<Arc<Desk>>) -> Answer<Vec<EvenOutMove>> {
    match desk.hub.leader() {
        Leader::Here(_) => preview_here(&desk).await.map(Json),
        Leader::There(server) => {
            let asked = tokio::time::timeout(PATIENCE, desk.hub.calls.post(&server, "/peer/rebalance", Vec::new()));
            let answer = asked.await.ok().and_then(Result::ok).and_then(|answer| unpack(&answer).ok());
            answer.map(Json).ok_or_else(|| not_ready("the leader does not answer"))
        }
        Leader::Unknown => Err(not_ready("nobody leads")),
    }
}

fn not_ready(message: &str) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RequestCode::NotReady, message)
}

/// The same, by the pressures this server last heard of.
pub(super) async fn preview_here(desk: &Desk) -> Result<Vec<EvenOutMove>, Refusal> {
    let state = desk.store()?.read().await?.state;
    let now = clock::now();
    let rebalancer = desk.hub.pressures(now);
    let moves = tokio::task::block_in_place(|| rebalancer.preview(view_of(&state), now));
    let rows = moves.into_iter().map(|planned| EvenOutMove {
        namespace: planned.group.namespace.to_string(),
        replica: planned.slot.printed(&planned.group),
        from: planned.from.to_string(),
        to: planned.to.to_string(),
    });
    Ok(rows.collect())
}

pub(super) async fn even_out(State(desk): State<Arc<Desk>>, caller: Caller) -> Answer<Changed> {
    desk.change(caller, Command::EvenOut).await
}
