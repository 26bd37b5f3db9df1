//! Nodes over HTTP.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use longshore_api::{Changed, DrainRequest, LabelRequest, Node, RemoveNode};
use longshore_model::{AfterDrain, Command, Intent, NodeName, access::SeatPart};
use longshore_store::CommandError;
use serde::Deserialize;

use super::{
    Answer, Desk, Refusal,
    caller::Caller,
    extract::{Asked, Body, Named},
};
use crate::{clock, link::Reach, loads, rows};

pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Answer<Vec<Node>> {
    let state = desk.store()?.read().await?.state;
    let mut loads = loads::of_the_leader(&desk.hub).await;
    let rows = rows::nodes(&state).into_iter();
    Ok(Json(rows.map(|row| Node { load: loads.remove(row.name.as_str()), ..row }).collect()))
}

pub(super) async fn get(State(desk): State<Arc<Desk>>, Named(name): Named<String>) -> Answer<Node> {
    let state = desk.store()?.read().await?.state;
    let row = rows::node(&state, &name.as_str().into()).ok_or_else(|| Refusal::not_found("node", &name))?;
    let load = loads::of_the_leader(&desk.hub).await.remove(name.as_str());
    Ok(Json(Node { load, ..row }))
}

pub(super) async fn drain(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Body(request): Body<DrainRequest>,
) -> Answer<Changed> {
    let at = clock::now();
    let deadline = request.deadline_secs.map(|seconds| at.after(Duration::from_secs(seconds)));
    desk.change(caller, Command::Drain { node: name.as_str().into(), deadline, then: AfterDrain::Keep, at }).await
}

pub(super) async fn label(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Body(request): Body<LabelRequest>,
) -> Answer<Changed> {
    desk.change(caller, Command::Label { node: name.as_str().into(), labels: request.labels }).await
}

pub(super) async fn tell(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named((name, word)): Named<(String, String)>,
) -> Answer<Changed> {
    let (node, at): (NodeName, _) = (name.as_str().into(), clock::now());
    let command = match word.as_str() {
        "cut" => return cut(&desk, &node, Reach::Cut),
        "mend" => return cut(&desk, &node, Reach::Whole),
        "activate" => Command::SetIntent { node, intent: Intent::Active, at },
        "pause" => Command::SetIntent { node, intent: Intent::Paused, at },
        "lost" => Command::ConfirmLost { node, at },
        other => return Err(Refusal::not_found("action", other)),
    };
    desk.change(caller, command).await
}

/// Only a node of this very process can be cut off: any other has cables of its own.
fn cut(desk: &Desk, node: &NodeName, reach: Reach) -> Answer<Changed> {
    let done = desk.hub.agents.set_reach(node, reach).map(|()| Json(Changed::Yes));
    done.ok_or_else(|| Refusal::not_found("node of this daemon", node.as_str()))
}

/// How a node shall leave.
#[derive(Debug, Deserialize)]
pub(super) struct Leaving {
    #[serde(default)]
    how: RemoveNode,
}

pub(super) async fn remove(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Asked(leaving): Asked<Leaving>,
) -> Answer<Changed> {
    let (node, at) = (NodeName::from(name.as_str()), clock::now());
    let state = desk.store()?.read().await?.state;
    let mut servers = state.access().seats().filter(|(_, seat)| seat.part == SeatPart::Server).map(|(name, _)| name);
    if servers.next() == Some(&node) && servers.next().is_none() {
        return Err(CommandError::LastServer(node).into());
    }
    // Let in, and never heard of: nothing runs there that could leave first.
    let never_came = state.node(&node).is_none() && state.access().seat(&node).is_some();
    let how = if never_came { RemoveNode::AtOnce } else { leaving.how };
    let command = match how {
        RemoveNode::Drained => Command::Drain { node, deadline: None, then: AfterDrain::Remove, at },
        RemoveNode::AtOnce => Command::SetIntent { node, intent: Intent::Removed, at },
    };
    desk.change(caller, command).await
}
