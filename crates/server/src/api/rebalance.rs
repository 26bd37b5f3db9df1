//! Evening out the spread of replicas.
//!
//! Owns: asking the leader for a preview. Must not touch: which replicas move; the scheduler decides that.
//! Invariant: a preview changes nothing; it is computed on a view of its own.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, http::StatusCode};
use longshore_api::{Changed, EvenOutMove};
use longshore_model::{ApiErrorCode, Command};

use crate::{
    api::{ApiError, ApiResult, ApiState},
    clock,
    control::leader::view_of,
    lifecycle::node_context::LeaderLocation,
    node_rpc::unpack,
    security::auth::Caller,
};

/// Time the leader has to answer.
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The moves that evening out would make. Only the leader knows the load of the nodes, so it computes them.
pub(crate) async fn preview(State(api): State<Arc<ApiState>>) -> ApiResult<Vec<EvenOutMove>> {
    match api.ctx.leader() {
        LeaderLocation::Local(_) => preview_here(&api).await.map(Json),
        LeaderLocation::Remote(server) => {
            let asked =
                tokio::time::timeout(LEADER_TIMEOUT, api.ctx.peers.post(&server, "/peer/rebalance", Vec::new()));
            let answer = asked.await.ok().and_then(Result::ok).and_then(|answer| unpack(&answer).ok());
            answer.map(Json).ok_or_else(|| not_ready("the leader does not answer"))
        }
        LeaderLocation::Unknown => Err(not_ready("there is no leader")),
    }
}

fn not_ready(message: &str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ApiErrorCode::NotReady, message)
}

/// The preview from the loads that this server knows.
pub(crate) async fn preview_here(api: &ApiState) -> Result<Vec<EvenOutMove>, ApiError> {
    let state = api.store()?.read().await?.state;
    let now = clock::now();
    let rebalancer = api.ctx.pressures(now);
    let moves = tokio::task::block_in_place(|| rebalancer.preview(view_of(&state), now));
    let rows = moves.into_iter().map(|planned| EvenOutMove {
        namespace: planned.group.namespace.to_string(),
        replica: planned.slot.replica_id(&planned.group),
        from: planned.from.to_string(),
        to: planned.to.to_string(),
    });
    Ok(rows.collect())
}

pub(crate) async fn even_out(State(api): State<Arc<ApiState>>, caller: Caller) -> ApiResult<Changed> {
    api.change(caller, Command::EvenOut).await
}
