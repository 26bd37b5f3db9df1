//! One-off jobs: a command run with the image, environment, volumes and networks of a service.
//!
//! Owns: how a job is made from its service. Must not touch: the service's own deployment.
//! Invariant: a job runs once, wherever its end comes from; it publishes no port and has no name on the networks.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use longshore_api::{ObjectKind, OneOffJob, RunRequest};
use longshore_model::{
    Command, DeploymentName, DeploymentSpec, GroupKey, ServiceKind, ServiceName, ServiceSpec, SlotIndex, SlotKey,
    command::Rerun,
    container::Switch,
    replica::DesiredState,
    service::{
        Attachment, Disconnect, MountSource, OneOff, Rebalance, Replace, RestartCondition, RestartPolicy, UpdatePolicy,
    },
    volume::Sharing,
};

use crate::{
    api::{
        ApiError, ApiResult, ApiState,
        deployments::NamespaceQuery,
        extract::{JsonBody, PathParams, QueryParams, invalid},
        policies,
    },
    security::{auth::Caller, keyring},
};

pub(crate) async fn run(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams((name, service)): PathParams<(String, String)>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
    JsonBody(request): JsonBody<RunRequest>,
) -> ApiResult<OneOffJob> {
    let of = scope.group(&name, &service);
    caller.ensure_in_scope(&of.namespace, &of.deployment)?;
    let state = api.store()?.read().await?.state;
    let known = state.deployment(&of.namespace, &of.deployment).filter(|known| known.desired == DesiredState::Run);
    let known = known.ok_or_else(|| ApiError::not_found(&ObjectKind::Deployment, &name))?;
    let revision = &known.current().spec;
    let spec = revision.services.get(&of.service).ok_or_else(|| ApiError::not_found(&ObjectKind::Service, &service))?;
    if spec.one_off.is_some() {
        return Err(invalid("this is a one-off job itself; run a command of the service it was made from"));
    }
    let suffix = keyring::random_hex(3).map_err(|error| invalid(error.to_string()))?;
    let group = GroupKey {
        namespace: of.namespace.clone(),
        deployment: DeploymentName::new(format!("{}-run-{suffix}", of.deployment)),
        // Not the service's name: on the networks they share, the job must not answer for it.
        service: ServiceName::new(format!("{}-run", of.service)),
    };
    let mut job = Box::new(deployment_of(&group, job(&of, spec, &request), revision));
    // Its volumes and networks are those of the deployment it was made from.
    job.granted = policies::ensure_spec_allowed(&state, &caller, (&of.namespace, &of.deployment), &job)?;
    let (namespace, deployment) = (group.namespace.clone(), group.deployment.clone());
    let command = Command::Apply { namespace, deployment, spec: job, rerun: Rerun::IfChanged };
    api.check_admission(&caller, &command).await?;
    api.execute(caller, command).await?;
    Ok(Json(OneOffJob {
        namespace: group.namespace.to_string(),
        deployment: group.deployment.to_string(),
        replica: SlotKey::Index(SlotIndex(0)).replica_id(&group),
    }))
}

/// The job as a deployment of its own, with the networks and volumes of the one it was made from.
fn deployment_of(group: &GroupKey, job: ServiceSpec, revision: &DeploymentSpec) -> DeploymentSpec {
    DeploymentSpec {
        services: BTreeMap::from([(group.service.clone(), Arc::new(job))]),
        networks: revision.networks.clone(),
        volumes: revision.volumes.clone(),
        routes: Vec::new(),
        granted: None,
    }
}

/// What runs instead of the service's own command.
fn job(of: &GroupKey, service: &ServiceSpec, request: &RunRequest) -> ServiceSpec {
    let mut job = ServiceSpec {
        kind: ServiceKind::Batch,
        replicas: 1,
        ports: Vec::new(),
        update: UpdatePolicy::default(),
        restart: RestartPolicy { condition: RestartCondition::None, ..RestartPolicy::default() },
        rollback: None,
        disconnect: Disconnect { replace: Replace::Never, ..Disconnect::default() },
        reschedule: None,
        rebalance: Rebalance::Off,
        max_concurrent: None,
        one_off: Some(OneOff { of: of.deployment.clone(), service: of.service.clone() }),
        ..service.clone()
    };
    change_container(&mut job, request);
    for mount in &mut job.mounts {
        if let MountSource::Volume { sharing, .. } = &mut mount.source {
            *sharing = Sharing::OneOff;
        }
    }
    for attachment in job.networks.values_mut() {
        *attachment = Attachment { priority: attachment.priority, ..Attachment::default() };
    }
    // Rules about neighbours name services of a deployment, and the job is alone in its own.
    (job.placement.near, job.placement.away_from) = (Vec::new(), Vec::new());
    if request.no_dependencies {
        job.depends_on.clear();
    }
    job.depends_on.values_mut().for_each(|dependency| dependency.restart = false);
    job
}

fn change_container(job: &mut ServiceSpec, request: &RunRequest) {
    let container = &mut job.container;
    container.healthcheck = None;
    (container.post_start, container.pre_stop) = (Vec::new(), Vec::new());
    container.hostname = None;
    if let Some(entrypoint) = &request.entrypoint {
        // As in an engine, another entrypoint does not get the arguments meant for the first.
        container.entrypoint = Some(entrypoint.clone());
        container.command = None;
    }
    if !request.command.is_empty() {
        container.command = Some(request.command.clone());
    }
    for variable in &request.environment {
        let (name, value) =
            variable.split_once('=').map_or((variable.as_str(), None), |(name, value)| (name, Some(value)));
        container.environment.insert(name.to_owned(), value.map(str::to_owned));
    }
    container.user = request.user.clone().or_else(|| container.user.take());
    container.working_dir = request.working_dir.clone().or_else(|| container.working_dir.take());
    let mut switch = |switch: Switch, on: bool| {
        if on { container.switches.insert(switch) } else { container.switches.remove(&switch) }
    };
    switch(Switch::Tty, request.terminal);
    switch(Switch::StdinOpen, request.attached);
}
