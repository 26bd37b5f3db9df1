//! Deployments: apply, remove, roll back, scale, restart.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use longshore_agent::EngineQuery;
use longshore_api::{
    AppliedManifest, ApplyRequest, Changed, ComposeVolumes, Deployment, ObjectKind, PullChoice, RollbackRequest,
    ScaleRequest,
};
use longshore_compose::{Loaded, Memory, Request};
use longshore_model::{
    ApiErrorCode, Command, DeploymentName, DeploymentSpec, GroupKey, NamespaceName, RevisionNumber, ServiceName,
    command::{Rerun, RolloutControl},
    replica::DesiredState,
};
use longshore_store::{State as ClusterState, replicated::Dedup};
use serde::Deserialize;

use crate::{
    api::{
        ApiError, ApiResult, ApiState, CommandResult,
        extract::{JsonBody, PathParams, QueryParams},
        image_resolution::{self, Target},
        policies,
        secrets::{self, SentFiles},
        views, volume_adoption,
    },
    clock,
    node_rpc::engine_query::{self, EngineAnswers},
    security::auth::Caller,
};

/// The `namespace` query parameter.
#[derive(Debug, Deserialize)]
pub(crate) struct NamespaceQuery {
    namespace: Option<String>,
}

impl NamespaceQuery {
    pub(crate) fn name(&self) -> NamespaceName {
        self.namespace.as_deref().map_or_else(NamespaceName::default_namespace, NamespaceName::from)
    }

    pub(crate) fn group(&self, deployment: &str, service: &str) -> GroupKey {
        let (deployment, service) = (DeploymentName::from(deployment), ServiceName::from(service));
        GroupKey { namespace: self.name(), deployment, service }
    }
}

pub(crate) async fn list(State(api): State<Arc<ApiState>>, caller: Caller) -> ApiResult<Vec<Deployment>> {
    let mut rows = views::deployments(&api.store()?.read().await?.state, clock::now());
    rows.retain(|row| caller.may_see(&row.namespace, &row.name));
    Ok(Json(rows))
}

pub(crate) async fn get(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<Deployment> {
    caller.ensure_in_scope(&scope.name(), &name.as_str().into())?;
    let state = api.store()?.read().await?.state;
    let found = views::deployment(&state, &scope.name(), &name.as_str().into(), clock::now());
    found.map(Json).ok_or_else(|| ApiError::not_found(&ObjectKind::Deployment, &name))
}

pub(crate) async fn apply(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    JsonBody(request): JsonBody<ApplyRequest>,
) -> ApiResult<AppliedManifest> {
    let state = api.store()?.read().await?.state;
    let nodes = state.nodes().map(|node| node.name.clone()).collect();
    let files = SentFiles::of(&request)?;
    let rerun = if request.rerun_ended { Rerun::Always } else { Rerun::IfChanged };
    let choices = EngineChoices::of(&request);
    let mut loaded = tokio::task::block_in_place(|| resolve(request, nodes))?;
    caller.ensure_in_scope(&loaded.namespace, &loaded.deployment)?;
    policies::ensure_allowed(&state, &caller, &loaded)?;
    let found = settle_with_engines(&api, &state, &mut loaded, choices).await?;
    // Again: engines may have given volumes names of their own.
    loaded.spec.granted = policies::ensure_allowed(&state, &caller, &loaded)?;
    let command = Command::Apply {
        namespace: loaded.namespace.clone(),
        deployment: loaded.deployment.clone(),
        spec: Box::new(loaded.spec.clone()),
        rerun,
    };
    // Checked before any secret is stored: a refused request changes nothing.
    if api.check_admission(&caller, &command).await? == Dedup::New {
        secrets::store_manifest_secrets(&api, &caller, &loaded, &files).await.map_err(ApiError::for_part)?;
    }
    let Loaded { deployment, namespace, warnings, .. } = loaded;
    let done = api.execute(caller, command).await?;
    let state = api.read_after(&done).await?;
    let CommandResult { changed, index, .. } = done;
    let known = state.deployment(&namespace, &deployment).map(|known| known.in_force.0);
    Ok(Json(AppliedManifest {
        namespace: namespace.to_string(),
        revision: known.ok_or_else(|| ApiError::not_found(&ObjectKind::Deployment, deployment.as_str()))?,
        deployment: deployment.to_string(),
        changed,
        index: index.0,
        warnings: warnings.iter().map(ToString::to_string).chain(found).collect(),
    }))
}

/// What a request says about images and volumes that engines have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EngineChoices {
    compose_volumes: Option<ComposeVolumes>,
    pull: Option<PullChoice>,
}

impl EngineChoices {
    pub(crate) fn of(request: &ApplyRequest) -> Self {
        Self { compose_volumes: request.compose_volumes, pull: request.pull }
    }
}

/// Settles what the text of a manifest cannot say: which image a reference is, and what volumes are called. Returns
/// warnings.
pub(crate) async fn settle_with_engines(
    api: &ApiState,
    state: &ClusterState,
    loaded: &mut Loaded,
    choices: EngineChoices,
) -> Result<Vec<String>, ApiError> {
    let target = Target { namespace: &loaded.namespace, deployment: &loaded.deployment };
    let spec = &mut loaded.spec;
    let images = image_resolution::references(spec);
    let compose_project = (!spec.volumes.is_empty()).then(|| target.deployment.to_string());
    let query = EngineQuery { images, compose_project, ..EngineQuery::default() };
    let answers = if query == EngineQuery::default() {
        EngineAnswers::default()
    } else {
        engine_query::ask(&api.ctx, state, &query).await
    };
    let mut warnings = volume_adoption::settle(state, target, &answers, spec, choices.compose_volumes)?;
    warnings.extend(image_resolution::resolve(&api.ctx, state, target, &answers, spec, choices.pull).await);
    Ok(warnings)
}

/// Resolves the images of a deployment again, and rolls what changed.
pub(crate) async fn pull(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<AppliedManifest> {
    let (namespace, deployment) = (scope.name(), DeploymentName::from(name.as_str()));
    caller.ensure_in_scope(&namespace, &deployment)?;
    let target = Target { namespace: &namespace, deployment: &deployment };
    let missing = || ApiError::not_found(&ObjectKind::Deployment, &name);
    let (mut state, mut found): (_, Option<Refreshed>) = (api.store()?.read().await?.state, None);
    // Another apply may come in between while registries are asked: then its images are resolved.
    let Refreshed { spec, warnings, revision } = loop {
        let known = state.deployment(&namespace, &deployment).filter(|known| known.desired == DesiredState::Run);
        let known = known.ok_or_else(missing)?;
        match found.take().filter(|found| found.revision == known.in_force) {
            Some(found) if found.spec == known.current().spec => {
                let (deployment, namespace, index) = (name, namespace.to_string(), state.index().0);
                let (revision, changed, warnings) = (found.revision.0, Changed::No, found.warnings);
                return Ok(Json(AppliedManifest { namespace, deployment, revision, changed, index, warnings }));
            }
            Some(found) => break found,
            None => found = Some(refresh(&api, &state, target, known.in_force, &known.current().spec).await),
        }
        state = api.store()?.read().await?.state;
    };
    let mut spec = spec;
    spec.granted = policies::ensure_spec_allowed(&state, &caller, (&namespace, &deployment), &spec)?;
    let command = Command::Apply {
        namespace: namespace.clone(),
        deployment: deployment.clone(),
        spec: Box::new(spec),
        rerun: Rerun::IfChanged,
    };
    let done = api.execute(caller, command).await?;
    let now = api.read_after(&done).await?;
    Ok(Json(AppliedManifest {
        revision: now.deployment(&namespace, &deployment).map_or(revision.0, |known| known.in_force.0),
        namespace: namespace.to_string(),
        deployment: name,
        changed: done.changed,
        index: done.index.0,
        warnings,
    }))
}

/// A revision whose images were resolved again.
struct Refreshed {
    revision: RevisionNumber,
    spec: DeploymentSpec,
    warnings: Vec<String>,
}

async fn refresh(
    api: &ApiState,
    state: &ClusterState,
    target: Target<'_>,
    revision: RevisionNumber,
    spec: &DeploymentSpec,
) -> Refreshed {
    let mut spec = spec.clone();
    let query = EngineQuery { images: image_resolution::references(&spec), ..EngineQuery::default() };
    let answers = engine_query::ask(&api.ctx, state, &query).await;
    let choice = Some(PullChoice::Always);
    let warnings = image_resolution::resolve(&api.ctx, state, target, &answers, &mut spec, choice).await;
    Refreshed { revision, spec, warnings }
}

/// Parses and validates a manifest as it was sent; the error lists every problem.
pub(crate) fn resolve(
    request: ApplyRequest,
    nodes: std::collections::BTreeSet<longshore_model::NodeName>,
) -> Result<Loaded, ApiError> {
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
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, ApiErrorCode::ManifestInvalid, problems.to_string());
        refusal.with("problems", found)
    });
    let loaded = loaded.map(secrets::require_manifest_secrets)?;
    secrets::ensure_no_reserved_names(&loaded)?;
    Ok(loaded)
}

pub(crate) async fn remove(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<Changed> {
    let (namespace, deployment) = (scope.name(), name.as_str().into());
    caller.ensure_in_scope(&namespace, &deployment)?;
    api.change(caller, Command::Remove { namespace, deployment }).await
}

pub(crate) async fn rollback(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
    JsonBody(request): JsonBody<RollbackRequest>,
) -> ApiResult<Changed> {
    caller.ensure_in_scope(&scope.name(), &name.as_str().into())?;
    let state = api.store()?.read().await?.state;
    let target =
        request.to.map(RevisionNumber).or_else(|| rollback_target(&state, &scope.name(), &name.as_str().into()));
    policies::ensure_revision_allowed(&state, (&scope.name(), &name.as_str().into()), target)?;
    let command = Command::Rollback {
        namespace: scope.name(),
        deployment: name.as_str().into(),
        to: request.to.map(RevisionNumber),
        at: clock::now(),
    };
    api.change(caller, command).await
}

/// The revision that a rollback without a number goes to.
fn rollback_target(state: &ClusterState, namespace: &NamespaceName, name: &DeploymentName) -> Option<RevisionNumber> {
    let known = state.deployment(namespace, name)?;
    let live = known.rollout.as_ref().filter(|rollout| rollout.is_live()).map(|rollout| rollout.from);
    live.or(known.previous)
}

pub(crate) async fn control_rollout(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams((name, word)): PathParams<(String, String)>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<Changed> {
    let word = match word.as_str() {
        "pause" => RolloutControl::Pause,
        "resume" => RolloutControl::Resume,
        "promote" => RolloutControl::Promote,
        other => return Err(ApiError::nothing_named("action", other)),
    };
    let (namespace, deployment) = (scope.name(), name.as_str().into());
    caller.ensure_in_scope(&namespace, &deployment)?;
    api.change(caller, Command::ControlRollout { namespace, deployment, control: word, at: clock::now() }).await
}

pub(crate) async fn stop(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<Changed> {
    let (namespace, deployment) = (scope.name(), name.as_str().into());
    caller.ensure_in_scope(&namespace, &deployment)?;
    api.change(caller, Command::Stop { namespace, deployment, at: clock::now() }).await
}

pub(crate) async fn start(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<Changed> {
    let (namespace, deployment) = (scope.name(), name.as_str().into());
    caller.ensure_in_scope(&namespace, &deployment)?;
    policies::ensure_revision_allowed(&api.store()?.read().await?.state, (&namespace, &deployment), None)?;
    api.change(caller, Command::Start { namespace, deployment, at: clock::now() }).await
}

pub(crate) async fn scale(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams((name, service)): PathParams<(String, String)>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
    JsonBody(request): JsonBody<ScaleRequest>,
) -> ApiResult<Changed> {
    let group = scope.group(&name, &service);
    caller.ensure_in_scope(&group.namespace, &group.deployment)?;
    let state = api.store()?.read().await?.state;
    let grows = state.group(&group).is_some_and(|known| known.spec.replicas < request.replicas);
    if grows {
        policies::ensure_revision_allowed(&state, (&group.namespace, &group.deployment), None)?;
    }
    let command = Command::Scale { group, replicas: request.replicas };
    api.check_admission(&caller, &command).await?;
    api.change(caller, command).await
}

pub(crate) async fn restart(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams((name, service)): PathParams<(String, String)>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<Changed> {
    let group = scope.group(&name, &service);
    caller.ensure_in_scope(&group.namespace, &group.deployment)?;
    api.change(caller, Command::Restart { group, at: clock::now() }).await
}
