//! Dry runs over HTTP: `plan` and `whatif`. They change nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Json, extract::State};
use longshore_api::{ApplyRequest, ManifestPlan, NewNode, WhatIf, WhatIfRequest};
use longshore_compose::Loaded;
use longshore_model::{
    AfterDrain, ApiErrorCode, Capacity, Command, Driver, GroupKey, Health, NamespaceName, Node, NodeName, Platform,
    Time, node::NodeFingerprint,
};

use crate::{
    api::{
        ApiError, ApiResult, ApiState,
        deployments::{EngineChoices, resolve, settle_with_engines},
        extract::{JsonBody, invalid},
        image_resolution::{self, Target},
        policies, secrets, views,
    },
    clock,
    dry_run::{self, plan_diff},
    node_rpc::service,
    security::{
        auth::Caller,
        rate_limit::{ConcurrencyPermit, RetryAfter},
    },
};

/// Nodes that `whatif` may add.
const MAX_SIMULATED_NODES: usize = 1000;

pub(crate) async fn plan(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    JsonBody(request): JsonBody<ApplyRequest>,
) -> ApiResult<ManifestPlan> {
    let state = api.store()?.read().await?.state;
    let choices = EngineChoices::of(&request);
    let mut loaded = tokio::task::block_in_place(|| resolve(request, names(&state)))?;
    caller.ensure_in_scope(&loaded.namespace, &loaded.deployment)?;
    policies::ensure_allowed(&state, &caller, &loaded)?;
    let notes = match settle_with_engines(&api, &state, &mut loaded, choices).await {
        // A plan changes nothing, so it may say what an apply asks about.
        Err(refusal) if refusal.code() == ApiErrorCode::ComposeVolumeFound.code() => vec![refusal.to_warning()],
        notes => notes?,
    };
    let _permit = simulation_permit(&api)?;
    let answer = tokio::task::block_in_place(|| {
        let mut commands = secrets::simulated_commands(&state, &loaded);
        let Loaded { deployment, namespace, spec, warnings, .. } = loaded;
        let about = views::DeploymentRef { namespace: &namespace, deployment: &deployment };
        let (namespace, deployment) = (namespace.clone(), deployment.clone());
        commands.push(Command::Apply {
            namespace,
            deployment,
            spec: Box::new(spec),
            rerun: longshore_model::command::Rerun::IfChanged,
        });
        let future = dry_run::simulate(&state, commands, clock::now())?;
        let warnings = warnings.iter().map(ToString::to_string).chain(notes).collect();
        let mut plan = plan_diff::plan(&state, &future, &about, warnings);
        // A scoped caller sees nothing of other deployments.
        plan.elsewhere.retain(|_| caller.may_see_all());
        Ok::<_, ApiError>(plan)
    });
    answer.map(Json)
}

pub(crate) async fn what_if(
    State(api): State<Arc<ApiState>>,
    JsonBody(request): JsonBody<WhatIfRequest>,
) -> ApiResult<WhatIf> {
    let state = api.store()?.read().await?.state;
    if request.add.len() > MAX_SIMULATED_NODES {
        return Err(invalid(format!("a dry run adds at most {MAX_SIMULATED_NODES} nodes")));
    }
    let _permit = simulation_permit(&api)?;
    let answer = tokio::task::block_in_place(|| {
        let (began, now) = (Instant::now(), clock::now());
        let commands = what_if_commands(&state, request, now)?;
        let future = dry_run::simulate(&state, commands, now)?;
        Ok::<_, ApiError>(plan_diff::what_if(&state, &future, began.elapsed()))
    });
    answer.map(Json)
}

/// A dry run holds a copy of the state and a thread: a server runs a few at a time.
fn simulation_permit(api: &ApiState) -> Result<ConcurrencyPermit, ApiError> {
    let wait = RetryAfter(Duration::from_secs(1));
    let busy = "this server runs other dry runs at the moment; try again in a moment";
    api.simulations.acquire("dry run").ok_or_else(|| ApiError::too_often(wait, busy))
}

fn names(state: &longshore_store::State) -> BTreeSet<NodeName> {
    state.nodes().map(|node| node.name.clone()).collect()
}

/// The assumptions as commands; nodes are added before anything else refers to them.
fn what_if_commands(
    state: &longshore_store::State,
    request: WhatIfRequest,
    at: Time,
) -> Result<Vec<Command>, ApiError> {
    let WhatIfRequest { down, drain, add, scale, apply } = request;
    let mut commands: Vec<Command> = Vec::new();
    commands.extend(add.into_iter().map(|node| Command::Join(Box::new(simulated_node(state, node, at)))));
    let lost = |name: String| Command::SetHealth { node: name.as_str().into(), health: Health::Down, at };
    commands.extend(down.into_iter().map(lost));
    let emptied =
        |name: String| Command::Drain { node: name.as_str().into(), deadline: None, then: AfterDrain::Keep, at };
    commands.extend(drain.into_iter().map(emptied));
    for count in scale {
        let namespace = match count.namespace.as_str() {
            "" => NamespaceName::default_namespace(),
            name => name.into(),
        };
        let (deployment, service) = (count.deployment.as_str().into(), count.service.as_str().into());
        let group = GroupKey { namespace, deployment, service };
        commands.push(Command::Scale { group, replicas: count.replicas });
    }
    if let Some(manifest) = apply {
        let mut loaded = resolve(*manifest, names(state))?;
        let target = Target { namespace: &loaded.namespace, deployment: &loaded.deployment };
        image_resolution::carry_over(state, target, &mut loaded.spec);
        commands.extend(secrets::simulated_commands(state, &loaded));
        let Loaded { deployment, namespace, spec, .. } = loaded;
        commands.push(Command::Apply {
            namespace,
            deployment,
            spec: Box::new(spec),
            rerun: longshore_model::command::Rerun::IfChanged,
        });
    }
    Ok(commands)
}

/// A simulated new node. What the request leaves out is taken from the existing nodes.
fn simulated_node(state: &longshore_store::State, node: NewNode, at: Time) -> Node {
    let drivers: BTreeSet<Driver> = state.nodes().flat_map(|node| node.drivers.iter().copied()).collect();
    let platform = state.nodes().next().map(|node| node.platform.clone());
    let survey = NodeFingerprint {
        platform: platform.unwrap_or_else(|| Platform::new(std::env::consts::OS, std::env::consts::ARCH)),
        capacity: Capacity { cpu_millis: node.cpu_millis, memory_bytes: node.memory_bytes, ..Capacity::default() },
        drivers,
        engine_labels: BTreeMap::new(),
        plugins: BTreeSet::new(),
        network: None,
        flags: longshore_model::NodeAttributes::default(),
    };
    Node { labels: node.labels, ..service::new_node(state, node.name.as_str().into(), survey, at) }
}
