//! Questions about the future over HTTP. They change nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use axum::{Json, extract::State};
use longshore_api::{ApplyRequest, ManifestPlan, NewNode, WhatIf, WhatIfRequest};
use longshore_compose::Loaded;
use longshore_model::{
    AfterDrain, Capacity, Command, Driver, GroupKey, Health, NamespaceName, Node, NodeName, Platform, Time,
    node::Survey,
};

use super::{Answer, Desk, Refusal, caller::Caller, deployments::resolve, extract::Body, secrets};
use crate::{clock, forecast, foresee, reception};

pub(super) async fn plan(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Body(request): Body<ApplyRequest>,
) -> Answer<ManifestPlan> {
    let state = desk.store()?.read().await?.state;
    let answer = tokio::task::block_in_place(|| {
        let loaded = resolve(request, names(&state))?;
        caller.within(&loaded.namespace, &loaded.deployment)?;
        let mut commands = secrets::supposed(&state, &loaded);
        let Loaded { deployment, namespace, spec, warnings, .. } = loaded;
        let about = forecast::About { namespace: &namespace, deployment: &deployment };
        let (namespace, deployment) = (namespace.clone(), deployment.clone());
        commands.push(Command::Apply { namespace, deployment, spec: Box::new(spec) });
        let future = foresee::after(&state, commands, clock::now())?;
        let warnings = warnings.iter().map(ToString::to_string).collect();
        let mut plan = forecast::plan(&state, &future, &about, warnings);
        // Who is let in for a part of the cluster learns nothing of the rest.
        plan.elsewhere.retain(|_| caller.sees_everything());
        Ok::<_, Refusal>(plan)
    });
    answer.map(Json)
}

pub(super) async fn what_if(State(desk): State<Arc<Desk>>, Body(request): Body<WhatIfRequest>) -> Answer<WhatIf> {
    let state = desk.store()?.read().await?.state;
    let answer = tokio::task::block_in_place(|| {
        let (began, now) = (Instant::now(), clock::now());
        let supposed = supposed(&state, request, now)?;
        let future = foresee::after(&state, supposed, now)?;
        Ok::<_, Refusal>(forecast::what_if(&state, &future, began.elapsed()))
    });
    answer.map(Json)
}

fn names(state: &longshore_store::State) -> BTreeSet<NodeName> {
    state.nodes().map(|node| node.name.clone()).collect()
}

/// What is supposed, as commands: nodes come before anything is asked of them.
fn supposed(state: &longshore_store::State, request: WhatIfRequest, at: Time) -> Result<Vec<Command>, Refusal> {
    let WhatIfRequest { down, drain, add, scale, apply } = request;
    let mut commands: Vec<Command> = Vec::new();
    commands.extend(add.into_iter().map(|node| Command::Join(Box::new(joining(state, node, at)))));
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
        let loaded = resolve(*manifest, names(state))?;
        commands.extend(secrets::supposed(state, &loaded));
        let Loaded { deployment, namespace, spec, .. } = loaded;
        commands.push(Command::Apply { namespace, deployment, spec: Box::new(spec) });
    }
    Ok(commands)
}

/// A node as it would join: what is not said is as on the nodes that are there.
fn joining(state: &longshore_store::State, node: NewNode, at: Time) -> Node {
    let drivers: BTreeSet<Driver> = state.nodes().flat_map(|node| node.drivers.iter().copied()).collect();
    let platform = state.nodes().next().map(|node| node.platform.clone());
    let survey = Survey {
        platform: platform.unwrap_or_else(|| Platform::new(std::env::consts::OS, std::env::consts::ARCH)),
        capacity: Capacity { cpu_millis: node.cpu_millis, memory_bytes: node.memory_bytes, ..Capacity::default() },
        drivers,
        engine_labels: BTreeMap::new(),
        plugins: BTreeSet::new(),
    };
    Node { labels: node.labels, ..reception::newcomer(state, node.name.as_str().into(), survey, at) }
}
