//! Questions that change nothing: replicas, what waits, why, and who did what.

use std::sync::Arc;

use axum::{Json, extract::State};
use longshore_api::{AuditEntry, Pending, Replica, Why};
use serde::Deserialize;

use super::{
    Answer, Desk, Refusal,
    caller::Caller,
    extract::{Asked, Named},
};
use crate::{clock, rows};

pub(super) async fn replicas(State(desk): State<Arc<Desk>>, caller: Caller) -> Answer<Vec<Replica>> {
    let mut rows = rows::replicas(&desk.store()?.read().await?.state);
    rows.retain(|row| caller.sees(&row.namespace, &row.deployment));
    Ok(Json(rows))
}

pub(super) async fn pending(State(desk): State<Arc<Desk>>, caller: Caller) -> Answer<Vec<Pending>> {
    let state = desk.store()?.read().await?.state;
    let mut rows = tokio::task::block_in_place(|| rows::pending(&state, clock::now()));
    rows.retain(|row| caller.sees(&row.namespace, &row.deployment));
    Ok(Json(rows))
}

pub(super) async fn why(State(desk): State<Arc<Desk>>, caller: Caller, Named(replica): Named<String>) -> Answer<Why> {
    let state = desk.store()?.read().await?.state;
    // What is not theirs is not there.
    let theirs = rows::find(&state, &replica)
        .is_some_and(|(group, _)| caller.sees(group.namespace.as_str(), group.deployment.as_str()));
    if !theirs {
        return Err(Refusal::not_found("replica", &replica));
    }
    let why = tokio::task::block_in_place(|| rows::why(&state, &replica, clock::now()));
    why.map(Json).ok_or_else(|| Refusal::not_found("replica", &replica))
}

/// Which records are meant.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    after: u64,
    #[serde(default = "hundred")]
    most: usize,
}

const fn hundred() -> usize {
    100
}

/// Records of one answer at most.
const LARGEST_PAGE: usize = 10_000;

pub(super) async fn audit(State(desk): State<Arc<Desk>>, Asked(page): Asked<Page>) -> Answer<Vec<AuditEntry>> {
    desk.store()?.read().await?;
    let records = desk.store()?.audit(page.after, page.most.min(LARGEST_PAGE));
    Ok(Json(records.iter().map(|record| AuditEntry::from(&**record)).collect()))
}
