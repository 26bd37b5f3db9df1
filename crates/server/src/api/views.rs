//! Rows of the public API, computed from the state.
//!
//! Owns: what each row shows. Must not touch: the state. Invariant: a row depends on the state and the time alone.

use std::collections::BTreeMap;

use longshore_api::{
    Awaited, Candidate, Code, Deployment, Node, Pending, Port, Replica, Rollout, Service, StatusReason, Why,
};
use longshore_model::{
    DeploymentName, Evacuation, GroupKey, NamespaceName, NodeName, ReplicaState, RolloutState, RuntimeCode, Slot,
    SlotKey, Time,
    replica::{self, DesiredState, occupies},
    rollout::StepCount,
};
use longshore_scheduler::{View, explain, explain_placed};
use longshore_store::{Group, State, has_ended, is_live};

use crate::control::leader::view_of;

/// One deployment, by namespace and name.
#[derive(Clone, Copy)]
pub(crate) struct DeploymentRef<'a> {
    pub(crate) namespace: &'a NamespaceName,
    pub(crate) deployment: &'a DeploymentName,
}

pub(crate) fn deployments(state: &State, now: Time) -> Vec<Deployment> {
    let names = state.deployments().map(|(namespace, name, _)| (namespace, name));
    let mut view = None;
    names
        .filter_map(|(namespace, deployment)| {
            deployment_row(state, &DeploymentRef { namespace, deployment }, &mut view, now)
        })
        .collect()
}

pub(crate) fn deployment(
    state: &State,
    namespace: &NamespaceName,
    name: &DeploymentName,
    now: Time,
) -> Option<Deployment> {
    deployment_row(state, &DeploymentRef { namespace, deployment: name }, &mut None, now)
}

/// One row. The view is built for the first rollout that has to be explained.
fn deployment_row(state: &State, about: &DeploymentRef<'_>, view: &mut Option<View>, now: Time) -> Option<Deployment> {
    let DeploymentRef { namespace, deployment: name } = *about;
    let known = state.deployment(namespace, name)?;
    let report = state.status(namespace, name)?;
    let mut reasons: Vec<StatusReason> = report.reasons.into_iter().map(StatusReason::from).collect();
    let rollout = known.rollout.as_deref().map(|rollout| Rollout {
        waits_for: awaited(state, about, rollout.state, view, now),
        ..rollout_row(state, about, rollout)
    });
    let code = rollout.as_ref().and_then(|rollout| Some(rollout.waits_for.as_ref()?.code.clone()));
    let running = StatusReason::State(longshore_api::ReplicaState::Running);
    reasons.extend(code.filter(|code| *code != running && !reasons.contains(code)));
    Some(Deployment {
        namespace: namespace.to_string(),
        name: name.to_string(),
        status: report.status.into(),
        reasons,
        revision: known.in_force.0,
        revisions: known.revisions.iter().map(|kept| kept.number.0).collect(),
        rollout,
        services: state.groups_of(namespace, name).map(|(key, group)| service(key, group)).collect(),
        one_off_of: one_off_of(state, about),
    })
}

fn one_off_of(state: &State, about: &DeploymentRef<'_>) -> Option<String> {
    let mut groups = state.groups_of(about.namespace, about.deployment);
    groups.find_map(|(_, group)| Some(group.spec.one_off.as_ref()?.of.to_string()))
}

/// A rollout with its steps, and the replica that failed it.
fn rollout_row(state: &State, about: &DeploymentRef<'_>, rollout: &longshore_model::Rollout) -> Rollout {
    let DeploymentRef { namespace, deployment } = *about;
    let steps = state.rollout_steps(namespace, deployment).unwrap_or_default();
    let sum = |part: fn(&StepCount) -> u32| steps.values().map(part).sum();
    let failed_replica = rollout.failure.as_ref().map(|failure| {
        let (namespace, deployment) = (namespace.clone(), deployment.clone());
        failure.slot.replica_id(&GroupKey { namespace, deployment, service: failure.service.clone() })
    });
    Rollout {
        total_steps: sum(|count| count.total),
        current_step: sum(|count| count.done),
        failed_steps: sum(|count| count.failed),
        failed_replica,
        ..Rollout::from(rollout)
    }
}

/// What a rollout waits for: a step in progress, or one that cannot start.
fn awaited(
    state: &State,
    about: &DeploymentRef<'_>,
    rollout: RolloutState,
    view: &mut Option<View>,
    now: Time,
) -> Option<Awaited> {
    let DeploymentRef { namespace, deployment: name } = *about;
    let stopped = state.deployment(namespace, name).is_some_and(longshore_store::Deployment::is_stopped);
    if stopped || !matches!(rollout, RolloutState::InProgress | RolloutState::Aborted) {
        return None;
    }
    if let Some(awaited) = state.rollout_waits_for(namespace, name) {
        return Some(Awaited { replica: awaited.slot.replica_id(&awaited.group), code: awaited.code.into() });
    }
    let view = view.get_or_insert_with(|| view_of(state));
    state.groups_of(namespace, name).find_map(|(key, _)| {
        let pending_slots = explain(view, key, now);
        let (slots, why) = pending_slots.first()?;
        Some(Awaited { replica: slots.first()?.replica_id(key), code: StatusReason::Code(why.reason.into()) })
    })
}

fn service(key: &GroupKey, group: &Group) -> Service {
    let slots = group.slots.values().filter(|slot| slot.desired == DesiredState::Run);
    let runs =
        |slot: &&Slot| slot.replicas.iter().any(|replica| is_live(replica) && replica.state == ReplicaState::Running);
    let completed = |slot: &&Slot| {
        let newest = slot.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run);
        newest.is_some_and(|replica| replica.state == ReplicaState::Completed)
    };
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let desired = count(slots.clone().count());
    Service {
        name: key.service.to_string(),
        image: group.spec.container.image.clone(),
        strategy: group.spec.placement.strategy.as_str().to_owned(),
        driver: group.spec.driver.into(),
        desired,
        wanted: desired,
        running: count(slots.clone().filter(runs).count()),
        completed: count(slots.filter(completed).count()),
        ports: group.spec.ports.iter().map(Port::from).collect(),
    }
}

pub(crate) fn nodes(state: &State) -> Vec<Node> {
    let plan = state.config().address_plan();
    let row = |node: &longshore_model::Node| {
        let blocks = plan.blocks(node.address_block()).iter().map(ToString::to_string).collect();
        Node { blocks, ..Node::from(node) }
    };
    let mut rows: BTreeMap<&NodeName, Node> = state.nodes().map(|node| (&node.name, row(node))).collect();
    for (_, _, replica) in state.replicas() {
        let reservation = &replica.assignment.reservation;
        if let Some(deployment_row) =
            rows.get_mut(&replica.assignment.node).filter(|_| occupies(reservation.kind, replica.state))
        {
            deployment_row.replicas += 1;
            deployment_row.memory_used_bytes =
                deployment_row.memory_used_bytes.saturating_add(reservation.memory_total());
        }
    }
    rows.into_values().collect()
}

pub(crate) fn node(state: &State, name: &NodeName) -> Option<Node> {
    nodes(state).into_iter().find(|deployment_row| deployment_row.name == name.as_str())
}

pub(crate) fn replicas(state: &State) -> Vec<Replica> {
    let slots = state.groups().flat_map(|(key, group)| group.slots.values().map(move |slot| (key, slot)));
    let rows = slots.flat_map(|(key, slot)| {
        // A slot that is held for a lost node has no row besides that of the lost replica.
        let waits =
            slot.desired == DesiredState::Run && !slot.replicas.iter().any(is_live) && lost_node(slot).is_none();
        let placed = slot.replicas.iter().map(move |replica| placed(state, key, slot, replica));
        let unplaced = if state.is_stopped(key) { Replica::stopped } else { Replica::waiting };
        placed.chain(waits.then(|| unplaced(key, slot)))
    });
    rows.collect()
}

fn placed(state: &State, key: &GroupKey, slot: &Slot, replica: &replica::Replica) -> Replica {
    let mut deployment_row = Replica::placed(key, slot, replica);
    if let Some(group) = state.group(key) {
        let exhausted = replica.state == ReplicaState::Failed && replica.code == Some(RuntimeCode::RestartExhausted);
        let returns_at = longshore_scheduler::returns_at(&group.spec, replica.since, replica.history);
        deployment_row.returns_at_ms = returns_at.filter(|_| exhausted).map(|at| at.0);
        deployment_row.ended = has_ended(&group.spec, replica);
    }
    match state.drain_blocker(key, slot, replica) {
        Some((code, details)) => deployment_row.kept_by(code, &details),
        None => deployment_row,
    }
}

/// The lost node that a slot waits for: no replacement was decided, because the service or the cluster waits for it.
fn lost_node(slot: &Slot) -> Option<&NodeName> {
    let lost = slot.replicas.iter().rev().find(|replica| replica.desired == DesiredState::Run)?;
    let pending_on_lost_nodes =
        slot.desired == DesiredState::Run && slot.waiting.is_none() && !slot.replicas.iter().any(is_live);
    (pending_on_lost_nodes && lost.state == ReplicaState::Lost).then_some(&lost.assignment.node)
}

/// The replicas of a service that are held for lost nodes, as pending rows.
fn pending_on_lost_nodes(state: &State, key: &GroupKey) -> Vec<Pending> {
    let mut counts: BTreeMap<&NodeName, u32> = BTreeMap::new();
    for node in state.group(key).into_iter().flat_map(|group| group.slots.values()).filter_map(lost_node) {
        *counts.entry(node).or_default() += 1;
    }
    counts.into_iter().map(|(node, count)| pending_on_lost_node(state, key, node, count)).collect()
}

fn pending_on_lost_node(state: &State, key: &GroupKey, node: &NodeName, count: u32) -> Pending {
    let confirmed = state.node(node).is_some_and(|node| node.confirmed_lost.is_some());
    let explain = match state.evacuation() {
        Evacuation::Paused { gone, nodes, .. } if !confirmed => format!(
            "`{node}` is down, and so are {} of {nodes} nodes: nothing is replaced until at most half are, or until \
             `longshore node lost {node}` says that it is gone for good",
            gone.len()
        ),
        Evacuation::Paused { .. } | Evacuation::Free => {
            format!("`{node}` is down, and the service waits for it to return")
        }
    };
    Pending {
        namespace: key.namespace.to_string(),
        deployment: key.deployment.to_string(),
        service: key.service.to_string(),
        count,
        reason: RuntimeCode::NodeLost.into(),
        refused: BTreeMap::new(),
        explain,
    }
}

/// Replicas without a node. Computed on a view of its own: a query must not delay the leader, and any member can
/// answer.
pub(crate) fn pending(state: &State, now: Time) -> Vec<Pending> {
    let mut view = view_of(state);
    let mut rows: Vec<Pending> = Vec::new();
    for (key, _) in state.groups() {
        let pending_slots = explain(&mut view, key, now);
        rows.extend(pending_slots.iter().map(|(slots, explanation)| Pending::new(key, slots.len(), explanation)));
        rows.extend(pending_on_lost_nodes(state, key));
    }
    rows
}

/// Why a replica is on its node; `None` if there is no such replica.
pub(crate) fn why(state: &State, printed: &str, now: Time) -> Option<Why> {
    let (key, slot) = find(state, printed)?;
    let replica = printed.to_owned();
    if let Some(node) = state.group(&key).and_then(|group| group.slots.get(&slot)).and_then(lost_node) {
        return Some(Why::Waits { replica, pending: pending_on_lost_node(state, &key, node, 1) });
    }
    let mut view = view_of(state);
    // A lost generation is no answer: the slot waits for its replacement.
    if let Some(deployment_row) = newest(state, &key, &slot)
        && let Some(decision) = explain_placed(&mut view, &key, &slot, now)
    {
        let best = decision.best.into_iter();
        return Some(Why::Placed {
            replica,
            state: Some(deployment_row.state),
            code: deployment_row.code,
            details: deployment_row.details,
            attempt: deployment_row.attempt,
            restarts: deployment_row.restarts,
            node: decision.node.to_string(),
            strategy: decision.strategy.as_str().to_owned(),
            nodes: decision.nodes,
            candidates: decision.candidates,
            refused: decision.refused.iter().map(|(reason, nodes)| (Code::from(*reason), *nodes)).collect(),
            best: best.map(|ranked| Candidate { node: ranked.node.to_string(), keys: ranked.keys }).collect(),
            placed_at_ms: placed_at(state, &key, &slot).map_or(0, |at| at.0),
            index: state.index().0,
        });
    }
    let pending_slots = explain(&mut view, &key, now);
    match pending_slots.iter().find(|(slots, _)| slots.contains(&slot)) {
        Some((_, explanation)) => Some(Why::Waits { replica, pending: Pending::new(&key, 1, explanation) }),
        None => observed(state, &key, &slot),
    }
}

/// The last observation of a slot that has no live generation and that the next plan can place.
fn observed(state: &State, key: &GroupKey, slot: &SlotKey) -> Option<Why> {
    let slot = state.group(key)?.slots.get(slot)?;
    let last = slot.replicas.last();
    let row = last.map_or_else(|| Replica::waiting(key, slot), |last| placed(state, key, slot, last));
    let explain = match (slot.desired, last.map(|last| (last.state, &last.assignment.node)), slot.waiting) {
        (DesiredState::Run, _, _) if state.is_stopped(key) => {
            format!("`{0}` is stopped; `longshore start {0}` starts it", key.deployment)
        }
        (DesiredState::Stop, _, _) => {
            "its slot was removed, because the service was scaled down or removed; it is being stopped".to_owned()
        }
        (DesiredState::Run, Some((ReplicaState::Lost, node)), _) => {
            format!(
                "it is lost with `{node}`, which is down; a node has room for its replacement, which is about to be placed"
            )
        }
        (DesiredState::Run, Some(_), Some(reason)) => {
            format!(
                "its old generation is being stopped, and the next one waited for a node ({reason}); one has room now"
            )
        }
        (DesiredState::Run, Some(_), None) => {
            "its old generation is being stopped, and the next one is about to be placed".to_owned()
        }
        (DesiredState::Run, None, Some(reason)) => {
            format!("it waited for a node ({reason}); one has room now, and it is about to be placed")
        }
        (DesiredState::Run, None, None) => "it is new, and is about to be placed".to_owned(),
    };
    Some(Why::Observed {
        replica: row.id,
        generation: row.generation,
        node: row.node,
        state: row.state,
        code: row.code,
        details: row.details,
        explain,
    })
}

/// The newest live generation of a slot.
fn newest(state: &State, key: &GroupKey, slot: &SlotKey) -> Option<Replica> {
    let slot = state.group(key)?.slots.get(slot)?;
    let live = slot.replicas.iter().rev().find(|replica| is_live(replica))?;
    Some(placed(state, key, slot, live))
}

fn placed_at(state: &State, key: &GroupKey, slot: &SlotKey) -> Option<Time> {
    let live = state.group(key)?.slots.get(slot)?.replicas.iter().rev().find(|replica| is_live(replica))?;
    Some(live.assignment.placed_at)
}

/// What blocks a service's replicas; `None` if there is no such service.
pub(crate) fn why_service(state: &State, key: &GroupKey, now: Time) -> Option<Why> {
    let deployment_row = service(key, state.group(key)?);
    let pending_slots = explain(&mut view_of(state), key, now);
    let pending = pending_slots.iter().map(|(slots, explanation)| Pending::new(key, slots.len(), explanation));
    let pending: Vec<Pending> = pending.chain(pending_on_lost_nodes(state, key)).collect();
    let waiting: u32 = pending.iter().map(|pending| pending.count).sum();
    Some(Why::Service {
        service: format!("{}/{}", key.deployment, key.service),
        desired: deployment_row.desired,
        wanted: deployment_row.desired,
        placed: deployment_row.desired.saturating_sub(waiting),
        pending,
    })
}

pub(crate) fn find(state: &State, printed: &str) -> Option<(GroupKey, SlotKey)> {
    let slots = state.groups().flat_map(|(key, group)| group.slots.keys().map(move |slot| (key, slot)));
    let mut found = slots.filter(|(key, slot)| slot.replica_id(key) == printed);
    found.next().map(|(key, slot)| (key.clone(), slot.clone()))
}
