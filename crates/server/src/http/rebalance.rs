//! Evening out, over HTTP.
//!
//! Invariant: asking changes nothing; what evening out would do is worked out on a view of its own.

use std::sync::Arc;

use axum::{Json, extract::State};
use longshore_api::{Changed, EvenOutMove};
use longshore_model::Command;

use super::{Answer, Desk, caller::Caller};
use crate::{clock, leader::view_of};

/// What evening out would move, by the pressures this server last heard of: those of the whole cluster where it leads.
pub(super) async fn preview(State(desk): State<Arc<Desk>>) -> Answer<Vec<EvenOutMove>> {
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
    Ok(Json(rows.collect()))
}

pub(super) async fn even_out(State(desk): State<Arc<Desk>>, caller: Caller) -> Answer<Changed> {
    desk.change(caller, Command::EvenOut).await
}
