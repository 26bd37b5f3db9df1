//! Nodes: list, inspect, drain, label, act on, remove.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, http::StatusCode};
use longshore_api::{Changed, DrainRequest, LabelRequest, Node, NodeAttributesRequest, ObjectKind, RemoveNode};
use longshore_model::{
    AfterDrain, ApiErrorCode, Command, Health, Intent, NodeAttributes, NodeName,
    access::NodeRole,
    node::{NodeCondition, UseDegraded},
};
use longshore_store::CommandError;
use serde::Deserialize;

use crate::{
    api::{
        ApiError, ApiResult, ApiState,
        extract::{JsonBody, PathParams, QueryParams},
        name_rules, views,
    },
    clock,
    node_rpc::control_link::LinkState,
    observability::{node_conditions, node_load},
    security::auth::Caller,
};

pub(crate) async fn list(State(api): State<Arc<ApiState>>) -> ApiResult<Vec<Node>> {
    let state = api.store()?.read().await?.state;
    let mut loads = node_load::fetch_from_leader(&api.ctx).await;
    let mut conditions = node_conditions::fetch_from_leader(&api.ctx).await;
    let mut row = |row: Node| {
        let (load, conditions) = (loads.remove(row.name.as_str()), conditions.remove(row.name.as_str()));
        Node { load, conditions: printed(conditions), ..row }
    };
    Ok(Json(views::nodes(&state).into_iter().map(&mut row).collect()))
}

pub(crate) async fn get(State(api): State<Arc<ApiState>>, PathParams(name): PathParams<String>) -> ApiResult<Node> {
    let state = api.store()?.read().await?.state;
    let row =
        views::node(&state, &name.as_str().into()).ok_or_else(|| ApiError::not_found(&ObjectKind::Node, &name))?;
    let load = node_load::fetch_from_leader(&api.ctx).await.remove(name.as_str());
    let conditions = node_conditions::fetch_from_leader(&api.ctx).await.remove(name.as_str());
    Ok(Json(Node { load, conditions: printed(conditions), ..row }))
}

fn printed(conditions: Option<Vec<NodeCondition>>) -> Vec<longshore_api::NodeCondition> {
    conditions.unwrap_or_default().into_iter().map(Into::into).collect()
}

pub(crate) async fn drain(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    JsonBody(request): JsonBody<DrainRequest>,
) -> ApiResult<Changed> {
    let at = clock::now();
    let deadline = request.deadline_secs.map(|seconds| at.after(Duration::from_secs(seconds)));
    api.change(caller, Command::Drain { node: name.as_str().into(), deadline, then: AfterDrain::Keep, at }).await
}

pub(crate) async fn label(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    JsonBody(request): JsonBody<LabelRequest>,
) -> ApiResult<Changed> {
    api.change(caller, Command::Label { node: name.as_str().into(), labels: request.labels }).await
}

pub(crate) async fn set_attributes(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    JsonBody(request): JsonBody<NodeAttributesRequest>,
) -> ApiResult<Changed> {
    check_names(&request)?;
    let (node, attributes) = (name.as_str().into(), Box::new(request.into()));
    api.change(caller, Command::SetNodeAttributes { node, attributes, at: clock::now() }).await
}

/// Refuses names that could not be written in a constraint or a manifest.
fn check_names(request: &NodeAttributesRequest) -> Result<(), ApiError> {
    let named = request.pool.iter().chain(request.datacenter.iter().filter(|name| !name.is_empty()));
    let devices = request.devices.iter().flat_map(|group| {
        [&group.vendor, &group.model].into_iter().filter(|name| !name.is_empty()).chain([&group.kind])
    });
    for name in named.chain(devices) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > name_rules::MAX_BYTES || !name.chars().all(is_plain) {
            let message = format!("`{name}` is no name: use letters, digits, `-`, `_` and `.`");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, ApiErrorCode::RequestInvalid, message));
        }
    }
    Ok(())
}

pub(crate) async fn act(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams((name, word)): PathParams<(String, String)>,
) -> ApiResult<Changed> {
    let (node, at): (NodeName, _) = (name.as_str().into(), clock::now());
    let command = match word.as_str() {
        "isolate" | "cut" => return set_link_state(&api, &node, LinkState::Isolated),
        "heal" | "mend" => return set_link_state(&api, &node, LinkState::Connected),
        "activate" => Command::SetIntent { node, intent: Intent::Active, at },
        "pause" => Command::SetIntent { node, intent: Intent::Paused, at },
        "lost" => Command::ConfirmLost { node, at },
        "degrade" => set_health_when_heard(node, Health::Degraded),
        "recover" => set_health_when_heard(node, Health::Ready),
        "override" => Command::SetUseDegraded { node, use_degraded: UseDegraded::Allowed },
        "withdraw-override" => Command::SetUseDegraded { node, use_degraded: UseDegraded::Forbidden },
        other => return Err(ApiError::nothing_named("action", other)),
    };
    api.change(caller, command).await
}

/// Declares the health of a node whose heartbeats arrive.
fn set_health_when_heard(node: NodeName, health: Health) -> Command {
    let degraded = Some(health == Health::Degraded);
    let attributes = NodeAttributes { degraded, ..NodeAttributes::default() };
    Command::SetNodeAttributes { node, attributes: Box::new(attributes), at: clock::now() }
}

/// Isolates or heals a node. Only nodes of this process have a link that can be switched.
fn set_link_state(api: &ApiState, node: &NodeName, state: LinkState) -> ApiResult<Changed> {
    let done = api.ctx.agents.set_link_state(node, state).map(|()| Json(Changed::Yes));
    done.ok_or_else(|| {
        ApiError::nothing_named("node of this daemon", node.as_str()).about(&ObjectKind::Node, node.as_str())
    })
}

/// The query of a node removal.
#[derive(Debug, Deserialize)]
pub(crate) struct RemoveQuery {
    #[serde(default)]
    how: RemoveNode,
}

pub(crate) async fn remove(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<RemoveQuery>,
) -> ApiResult<Changed> {
    let (node, at) = (NodeName::from(name.as_str()), clock::now());
    let state = api.store()?.read().await?.state;
    let mut servers = state
        .access()
        .memberships()
        .filter(|(_, membership)| membership.role == NodeRole::Server)
        .map(|(name, _)| name);
    if servers.next() == Some(&node) && servers.next().is_none() {
        return Err(CommandError::LastServer(node).into());
    }
    // Admitted and never seen: nothing runs there that could be drained.
    let never_came = state.node(&node).is_none() && state.access().membership(&node).is_some();
    let how = if never_came { RemoveNode::AtOnce } else { query.how };
    let command = match how {
        RemoveNode::Drained => Command::Drain { node, deadline: None, then: AfterDrain::Remove, at },
        RemoveNode::AtOnce => Command::SetIntent { node, intent: Intent::Removed, at },
    };
    api.change(caller, command).await
}
