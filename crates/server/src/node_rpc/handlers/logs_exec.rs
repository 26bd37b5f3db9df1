//! Handlers for logs and exec of a replica on this node, called by servers.
//!
//! Invariant: only a current server of this cluster is answered, also by a node without a store.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Extension, FromRequest as _, Request, State},
    response::Response,
};
use futures_util::stream;
use tokio::sync::mpsc;

use crate::{
    api::exec::{switching_protocols, upgrade},
    node_rpc::{
        frame,
        handlers::{ApiError, ApiState, KEEPALIVE_INTERVAL, PeerNode, RawBody, ensure_trusted, read},
        logs_exec::{self, LogsExecError, PeerExecRequest, PeerLogLine, PeerLogRequest},
    },
};

pub(crate) async fn logs(
    State(api): State<Arc<ApiState>>,
    Extension(peer_node): Extension<PeerNode>,
    RawBody(message): RawBody,
) -> Result<Response, ApiError> {
    ensure_trusted(&api, &peer_node).await?;
    let wanted: PeerLogRequest = read(&message)?;
    let agent = logs_exec::local_agent(&api.ctx, &wanted.target)?.ok_or(LogsExecError::NotFound)?;
    let lines = logs_exec::local_logs(&agent, &wanted).await?;
    Ok(Response::new(Body::from_stream(stream::unfold(lines, next_line))))
}

/// The next line, or a keepalive.
async fn next_line(
    mut lines: mpsc::Receiver<PeerLogLine>,
) -> Option<(Result<Vec<u8>, String>, mpsc::Receiver<PeerLogLine>)> {
    let line = match tokio::time::timeout(KEEPALIVE_INTERVAL, lines.recv()).await {
        Ok(Some(line)) => Some(line),
        Ok(None) => return None,
        Err(_) => None,
    };
    Some((frame(&line), lines))
}

pub(crate) async fn exec(
    State(api): State<Arc<ApiState>>,
    Extension(peer_node): Extension<PeerNode>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let upgrade = upgrade(&mut request)?;
    let RawBody(message) = RawBody::from_request(request, &()).await?;
    ensure_trusted(&api, &peer_node).await?;
    let wanted: PeerExecRequest = read(&message)?;
    let agent = logs_exec::local_agent(&api.ctx, &wanted.target)?.ok_or(LogsExecError::NotFound)?;
    let connection = logs_exec::exec_local(&agent, &wanted).await?;
    tokio::spawn(async move {
        if let Ok(with) = upgrade.await {
            connection.relay(with).await;
        }
    });
    Ok(switching_protocols())
}
