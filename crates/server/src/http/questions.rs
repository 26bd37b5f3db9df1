//! Questions that change nothing: replicas, what waits, why, and who did what.

use std::sync::Arc;

use axum::{Json, extract::State};
use longshore_api::{AuditEntry, HistoryEntry, Pending, Replica, Status, Why};
use longshore_model::{DeploymentName, NamespaceName};
use serde::Deserialize;

use super::{
    Answer, Desk, Refusal,
    caller::Caller,
    deployments::Scope,
    extract::{Asked, Named},
};
use crate::{clock, rows};

pub(super) async fn replicas(State(desk): State<Arc<Desk>>, caller: Caller) -> Answer<Vec<Replica>> {
    let mut rows = rows::replicas(&desk.store()?.read().await?.state);
    rows.retain(|row| caller.sees(&row.namespace, &row.deployment));
    Ok(Json(rows))
}

/// Whose status is meant.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    namespace: Option<String>,
    deployment: Option<String>,
}

/// Both lists from one state: two questions could be answered from two, and a deployment would be called active beside a
/// replica that does not run.
pub(super) async fn status(State(desk): State<Arc<Desk>>, caller: Caller, Asked(part): Asked<Part>) -> Answer<Status> {
    let namespace = part.namespace.as_deref().map_or_else(NamespaceName::default_namespace, NamespaceName::from);
    let only = part.deployment.map(|name| (namespace, DeploymentName::from(name.as_str())));
    if let Some((namespace, name)) = &only {
        caller.within(namespace, name)?;
    }
    let state = desk.store()?.read().await?.state;
    let mut deployments = match &only {
        Some((namespace, name)) => {
            let row = rows::deployment(&state, namespace, name, clock::now());
            vec![row.ok_or_else(|| Refusal::not_found("deployment", name.as_str()))?]
        }
        None => rows::deployments(&state, clock::now()),
    };
    let mut replicas = rows::replicas(&state);
    deployments.retain(|row| caller.sees(&row.namespace, &row.name));
    replicas.retain(|row| caller.sees(&row.namespace, &row.deployment));
    if let Some((namespace, name)) = &only {
        replicas.retain(|row| row.namespace == namespace.as_str() && row.deployment == name.as_str());
    }
    Ok(Json(Status { deployments, replicas }))
}

/// What happened to a replica, as far back as this server remembers; asking is no reason to remember more.
pub(super) async fn history(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Vec<HistoryEntry>> {
    let store = desk.store()?;
    let state = store.read().await?.state;
    let found = rows::find(&state, &name);
    let theirs = found.filter(|(group, _)| caller.sees(group.namespace.as_str(), group.deployment.as_str()));
    let (group, _) = theirs.ok_or_else(|| Refusal::not_found("replica", &name))?;
    let changes = store.last_changes();
    let events = changes.iter().flat_map(|change| change.events.iter().map(|event| (change.index.0, event)));
    let mut entries: Vec<HistoryEntry> =
        events.filter_map(|(index, event)| HistoryEntry::of(&group, &name, index, event)).collect();
    entries.drain(..entries.len().saturating_sub(LONGEST_HISTORY));
    Ok(Json(entries))
}

pub(super) async fn pending(State(desk): State<Arc<Desk>>, caller: Caller) -> Answer<Vec<Pending>> {
    let state = desk.store()?.read().await?.state;
    let mut rows = tokio::task::block_in_place(|| rows::pending(&state, clock::now()));
    rows.retain(|row| caller.sees(&row.namespace, &row.deployment));
    Ok(Json(rows))
}

/// About a replica by its printed id, or about a service as `DEPLOYMENT/SERVICE`.
pub(super) async fn why(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Asked(scope): Asked<Scope>,
) -> Answer<Why> {
    let state = desk.store()?.read().await?.state;
    let group = match name.split_once('/') {
        Some((deployment, service)) => Some(scope.group(&(deployment.to_owned(), service.to_owned()))),
        None => rows::find(&state, &name).map(|(group, _)| group),
    };
    // What is not theirs is not there.
    let theirs = group.filter(|group| caller.sees(group.namespace.as_str(), group.deployment.as_str()));
    let why = theirs.and_then(|group| {
        tokio::task::block_in_place(|| {
            if name.contains('/') {
                return rows::why_service(&state, &group, clock::now());
            }
            rows::why(&state, &name, clock::now())
        })
    });
    let what = if name.contains('/') { "service" } else { "replica" };
    why.map(Json).ok_or_else(|| Refusal::not_found(what, &name))
}

/// Which records are meant.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    after: Option<u64>,
    #[serde(default = "hundred")]
    most: usize,
}

const fn hundred() -> usize {
    100
}

/// Entries of a replica's history at most; the newest count.
const LONGEST_HISTORY: usize = 200;

/// Records of one answer at most.
const LARGEST_PAGE: usize = 10_000;

pub(super) async fn audit(State(desk): State<Arc<Desk>>, Asked(page): Asked<Page>) -> Answer<Vec<AuditEntry>> {
    desk.store()?.read().await?;
    let (store, most) = (desk.store()?, page.most.min(LARGEST_PAGE));
    let records = match page.after {
        Some(after) => store.audit(after, most),
        None => store.newest_audit(most),
    };
    Ok(Json(records.iter().map(|record| AuditEntry::from(&**record)).collect()))
}
