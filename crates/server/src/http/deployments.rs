//! Deployments over HTTP.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use longshore_api::{AppliedManifest, ApplyRequest, Changed, Deployment, RollbackRequest, ScaleRequest};
use longshore_compose::{Loaded, Memory, Request};
use longshore_model::{
    Command, DeploymentName, GroupKey, NamespaceName, RequestCode, RevisionNumber, ServiceName, command::Steering,
};
use longshore_store::replicated::Novelty;
use serde::Deserialize;

use super::{
    Answer, CarriedOut, Desk, Refusal,
    caller::Caller,
    extract::{Asked, Body, Named},
    secrets::{self, Sent},
};
use crate::{clock, rows};

/// Which namespace is meant.
#[derive(Debug, Deserialize)]
pub(super) struct Scope {
    namespace: Option<String>,
}

impl Scope {
    pub(super) fn name(&self) -> NamespaceName {
        self.namespace.as_deref().map_or_else(NamespaceName::default_namespace, NamespaceName::from)
    }

    pub(super) fn group(&self, (deployment, service): &(String, String)) -> GroupKey {
        let (deployment, service) = (DeploymentName::from(deployment.as_str()), ServiceName::from(service.as_str()));
        GroupKey { namespace: self.name(), deployment, service }
    }
}

pub(super) async fn list(State(desk): State<Arc<Desk>>, caller: Caller) -> Answer<Vec<Deployment>> {
    let mut rows = rows::deployments(&desk.store()?.read().await?.state, clock::now());
    rows.retain(|row| caller.sees(&row.namespace, &row.name));
    Ok(Json(rows))
}

pub(super) async fn get(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Asked(scope): Asked<Scope>,
) -> Answer<Deployment> {
    caller.within(&scope.name(), &name.as_str().into())?;
    let state = desk.store()?.read().await?.state;
    let found = rows::deployment(&state, &scope.name(), &name.as_str().into(), clock::now());
    found.map(Json).ok_or_else(|| Refusal::not_found("deployment", &name))
}

pub(super) async fn apply(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Body(request): Body<ApplyRequest>,
) -> Answer<AppliedManifest> {
    let nodes = desk.store()?.read().await?.state.nodes().map(|node| node.name.clone()).collect();
    let files = Sent::of(&request)?;
    let loaded = tokio::task::block_in_place(|| resolve(request, nodes))?;
    caller.within(&loaded.namespace, &loaded.deployment)?;
    let command = Command::Apply {
        namespace: loaded.namespace.clone(),
        deployment: loaded.deployment.clone(),
        spec: Box::new(loaded.spec.clone()),
    };
    // Before anything is stored: what is refused changes nothing.
    if desk.admit(&caller, &command).await? == Novelty::New {
        secrets::bring_along(&desk, &caller, &loaded, &files).await.map_err(Refusal::of_a_part)?;
    }
    let Loaded { deployment, namespace, warnings, .. } = loaded;
    let done = desk.carry_out(caller, command).await?;
    let state = desk.read_after(&done).await?;
    let CarriedOut { changed, index, .. } = done;
    let known = state.deployment(&namespace, &deployment).map(|known| known.in_force.0);
    Ok(Json(AppliedManifest {
        namespace: namespace.to_string(),
        revision: known.ok_or_else(|| Refusal::not_found("deployment", deployment.as_str()))?,
        deployment: deployment.to_string(),
        changed,
        index: index.0,
        warnings: warnings.iter().map(ToString::to_string).collect(),
    }))
}

/// A manifest as it was sent, understood; or all that is wrong with it.
pub(super) fn resolve(
    request: ApplyRequest,
    nodes: std::collections::BTreeSet<longshore_model::NodeName>,
) -> Result<Loaded, Refusal> {
    let files = Memory(request.texts);
    let request = Request {
        files: request.files,
        overlay: request.overlay,
        working_directory: request.working_directory,
        project_directory: request.project_directory,
        environment: request.environment,
        env_files: request.env_files,
        profiles: request.profiles,
        name: request.name,
        nodes: Some(nodes),
        namespace: request.namespace,
    };
    let loaded = longshore_compose::load(&request, &files).map_err(|problems| {
        let found = problems.iter().map(|problem| serde_json::to_value(problem).unwrap_or_default());
        let found: Vec<serde_json::Value> = found.collect();
        let refusal =
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, RequestCode::ManifestInvalid, problems.to_string());
        refusal.with("problems", found)
    });
    loaded.map(secrets::require_brought)
}

pub(super) async fn remove(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Asked(scope): Asked<Scope>,
) -> Answer<Changed> {
    let (namespace, deployment) = (scope.name(), name.as_str().into());
    caller.within(&namespace, &deployment)?;
    desk.change(caller, Command::Remove { namespace, deployment }).await
}

pub(super) async fn rollback(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Asked(scope): Asked<Scope>,
    Body(request): Body<RollbackRequest>,
) -> Answer<Changed> {
    caller.within(&scope.name(), &name.as_str().into())?;
    let command = Command::Rollback {
        namespace: scope.name(),
        deployment: name.as_str().into(),
        to: request.to.map(RevisionNumber),
        at: clock::now(),
    };
    desk.change(caller, command).await
}

pub(super) async fn steer(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named((name, word)): Named<(String, String)>,
    Asked(scope): Asked<Scope>,
) -> Answer<Changed> {
    let word = match word.as_str() {
        "pause" => Steering::Pause,
        "resume" => Steering::Resume,
        "promote" => Steering::Promote,
        other => return Err(Refusal::not_found("action", other)),
    };
    let (namespace, deployment) = (scope.name(), name.as_str().into());
    caller.within(&namespace, &deployment)?;
    desk.change(caller, Command::Steer { namespace, deployment, word, at: clock::now() }).await
}

pub(super) async fn scale(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(names): Named<(String, String)>,
    Asked(scope): Asked<Scope>,
    Body(request): Body<ScaleRequest>,
) -> Answer<Changed> {
    let group = scope.group(&names);
    caller.within(&group.namespace, &group.deployment)?;
    let command = Command::Scale { group, replicas: request.replicas };
    desk.admit(&caller, &command).await?;
    desk.change(caller, command).await
}

pub(super) async fn restart(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(names): Named<(String, String)>,
    Asked(scope): Asked<Scope>,
) -> Answer<Changed> {
    let group = scope.group(&names);
    caller.within(&group.namespace, &group.deployment)?;
    desk.change(caller, Command::Restart { group, at: clock::now() }).await
}
