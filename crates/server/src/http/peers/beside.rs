//! What servers ask of the node a replica runs on: its lines, and commands beside it.
//!
//! Invariant: only a server of this cluster is answered, and not one that left, also by a node that keeps no log and cannot
//! know who did.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Extension, FromRequest as _, Request, State},
    response::Response,
};
use futures_util::stream;
use tokio::sync::mpsc;

use super::{Desk, Known, Refusal, SIGN_OF_LIFE, Whole, ensure_trusted, read};
use crate::{
    beside::{self, BesideError, ExecWanted, Line, LogsWanted},
    http::exec::{switched, upgrade},
    peer::frame,
};

pub(super) async fn logs(
    State(desk): State<Arc<Desk>>,
    Extension(known): Extension<Known>,
    Whole(message): Whole,
) -> Result<Response, Refusal> {
    ensure_trusted(&desk, &known).await?;
    let wanted: LogsWanted = read(&message)?;
    let agent = beside::agent_of(&desk.hub, &wanted.target)?.ok_or(BesideError::NotThere)?;
    let lines = beside::lines_here(&agent, &wanted).await?;
    Ok(Response::new(Body::from_stream(stream::unfold(lines, next_line))))
}

/// The next line, or a sign of life.
async fn next_line(mut lines: mpsc::Receiver<Line>) -> Option<(Result<Vec<u8>, String>, mpsc::Receiver<Line>)> {
    let line = match tokio::time::timeout(SIGN_OF_LIFE, lines.recv()).await {
        Ok(Some(line)) => Some(line),
        Ok(None) => return None,
        Err(_) => None,
    };
    Some((frame(&line), lines))
}

pub(super) async fn exec(
    State(desk): State<Arc<Desk>>,
    Extension(known): Extension<Known>,
    mut request: Request,
) -> Result<Response, Refusal> {
    let upgrade = upgrade(&mut request)?;
    let Whole(message) = Whole::from_request(request, &()).await?;
    ensure_trusted(&desk, &known).await?;
    let wanted: ExecWanted = read(&message)?;
    let agent = beside::agent_of(&desk.hub, &wanted.target)?.ok_or(BesideError::NotThere)?;
    let conversation = beside::command_here(&agent, &wanted).await?;
    tokio::spawn(async move {
        if let Ok(with) = upgrade.await {
            conversation.hold(with).await;
        }
    });
    Ok(switched())
}
