//! Read-only queries: replicas, status, history, pending, why, audit.

use std::sync::Arc;

use axum::{Json, extract::State};
use longshore_api::{
    AuditEntry, Deployment, HistoryEntry, ObjectKind, Pending, PortCondition, Protocol, Replica, Status, Why,
};
use longshore_model::{DeploymentName, NamespaceName, node::NodeCondition};
use serde::Deserialize;

use crate::{
    api::{
        ApiError, ApiResult, ApiState,
        deployments::NamespaceQuery,
        extract::{PathParams, QueryParams},
        views,
    },
    clock,
    observability::node_conditions::{self, ConditionsByNode},
    security::auth::Caller,
};

pub(crate) async fn replicas(State(api): State<Arc<ApiState>>, caller: Caller) -> ApiResult<Vec<Replica>> {
    let mut rows = views::replicas(&api.store()?.read().await?.state);
    rows.retain(|row| caller.may_see(&row.namespace, &row.deployment));
    Ok(Json(rows))
}

/// The query of a status request.
#[derive(Debug, Deserialize)]
pub(crate) struct StatusQuery {
    namespace: Option<String>,
    deployment: Option<String>,
}

/// Both lists come from one state: two reads could show a deployment as active beside a replica that does not run.
pub(crate) async fn status(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    QueryParams(part): QueryParams<StatusQuery>,
) -> ApiResult<Status> {
    let namespace = part.namespace.as_deref().map_or_else(NamespaceName::default_namespace, NamespaceName::from);
    let only = part.deployment.map(|name| (namespace, DeploymentName::from(name.as_str())));
    if let Some((namespace, name)) = &only {
        caller.ensure_in_scope(namespace, name)?;
    }
    let state = api.store()?.read().await?.state;
    let mut deployments = match &only {
        Some((namespace, name)) => {
            let row = views::deployment(&state, namespace, name, clock::now());
            vec![row.ok_or_else(|| ApiError::not_found(&ObjectKind::Deployment, name.as_str()))?]
        }
        None => views::deployments(&state, clock::now()),
    };
    let mut replicas = views::replicas(&state);
    deployments.retain(|row| caller.may_see(&row.namespace, &row.name));
    replicas.retain(|row| caller.may_see(&row.namespace, &row.deployment));
    if let Some((namespace, name)) = &only {
        replicas.retain(|row| row.namespace == namespace.as_str() && row.deployment == name.as_str());
    }
    let conditions = port_conditions(&deployments, node_conditions::fetch_from_leader(&api.ctx).await);
    Ok(Json(Status { deployments, replicas, conditions }))
}

/// The conditions about published ports of these deployments.
fn port_conditions(deployments: &[Deployment], by_node: ConditionsByNode) -> Vec<PortCondition> {
    let services = deployments.iter().flat_map(|deployment| &deployment.services);
    let ports: Vec<(Option<u16>, Protocol)> =
        services.flat_map(|service| &service.ports).map(|port| (port.published, port.protocol.clone())).collect();
    let all =
        by_node.into_iter().flat_map(|(node, conditions)| conditions.into_iter().map(move |it| (node.clone(), it)));
    let own = all.filter_map(|(node, condition)| {
        let NodeCondition { code, message, port, protocol } = condition;
        let (port, protocol) = (port?, Protocol::from(protocol?));
        let is_own = ports.contains(&(Some(port), protocol.clone()));
        let code = code.code().to_owned();
        is_own.then(|| PortCondition { node: node.to_string(), code, message, port, protocol })
    });
    own.collect()
}

/// What happened to a replica, as far back as this server remembers. Queries do not extend that memory.
pub(crate) async fn history(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> ApiResult<Vec<HistoryEntry>> {
    let store = api.store()?;
    let state = store.read().await?.state;
    let found = views::find(&state, &name);
    let theirs = found.filter(|(group, _)| caller.may_see(group.namespace.as_str(), group.deployment.as_str()));
    let (group, _) = theirs.ok_or_else(|| ApiError::not_found(&ObjectKind::Replica, &name))?;
    let changes = store.last_changes();
    let events = changes.iter().flat_map(|change| change.events.iter().map(|event| (change.index.0, event)));
    let mut entries: Vec<HistoryEntry> =
        events.filter_map(|(index, event)| HistoryEntry::of(&group, &name, index, event)).collect();
    entries.drain(..entries.len().saturating_sub(MAX_HISTORY));
    Ok(Json(entries))
}

pub(crate) async fn pending(State(api): State<Arc<ApiState>>, caller: Caller) -> ApiResult<Vec<Pending>> {
    let state = api.store()?.read().await?.state;
    let mut rows = tokio::task::block_in_place(|| views::pending(&state, clock::now()));
    rows.retain(|row| caller.may_see(&row.namespace, &row.deployment));
    Ok(Json(rows))
}

/// Explains a replica by its printed id, or a service as `DEPLOYMENT/SERVICE`.
pub(crate) async fn why(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<Why> {
    let state = api.store()?.read().await?.state;
    let group = match name.split_once('/') {
        Some((deployment, service)) => Some(scope.group(deployment, service)),
        None => views::find(&state, &name).map(|(group, _)| group),
    };
    // What is outside of the caller's scope is reported as missing.
    let theirs = group.filter(|group| caller.may_see(group.namespace.as_str(), group.deployment.as_str()));
    let why = theirs.and_then(|group| {
        tokio::task::block_in_place(|| {
            if name.contains('/') {
                return views::why_service(&state, &group, clock::now());
            }
            views::why(&state, &name, clock::now())
        })
    });
    let kind = if name.contains('/') { ObjectKind::Service } else { ObjectKind::Replica };
    why.map(Json).ok_or_else(|| ApiError::not_found(&kind, &name))
}

/// The query of an audit request; `most` is the older name of `limit`.
#[derive(Debug, Deserialize)]
pub(crate) struct AuditQuery {
    #[serde(default)]
    after: Option<u64>,
    #[serde(default = "default_limit", alias = "most")]
    limit: usize,
}

const fn default_limit() -> usize {
    100
}

/// Entries of a replica's history at most; the newest are kept.
const MAX_HISTORY: usize = 200;

/// Records of one answer at most.
const MAX_LIMIT: usize = 10_000;

pub(crate) async fn audit(
    State(api): State<Arc<ApiState>>,
    QueryParams(page): QueryParams<AuditQuery>,
) -> ApiResult<Vec<AuditEntry>> {
    api.store()?.read().await?;
    let (store, limit) = (api.store()?, page.limit.min(MAX_LIMIT));
    let records = match page.after {
        Some(after) => store.audit(after, limit),
        None => store.newest_audit(limit),
    };
    Ok(Json(records.iter().map(|record| AuditEntry::from(&**record)).collect()))
}
