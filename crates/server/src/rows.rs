//! Rows of the public API, read off the state.

use std::collections::BTreeMap;

use longshore_api::{Awaited, Candidate, Deployment, Node, Pending, Port, Replica, Rollout, Service, Why};
use longshore_model::{
    DeploymentName, Evacuation, GroupKey, NamespaceName, NodeName, ReplicaState, RolloutState, RuntimeCode, Slot,
    SlotKey, Time,
    replica::{self, Wanted, occupies},
};
use longshore_scheduler::{View, explain, explain_placed};
use longshore_store::{Group, State, is_live};

use crate::leader::view_of;

pub(crate) fn deployments(state: &State, now: Time) -> Vec<Deployment> {
    let names = state.deployments().map(|(namespace, name, _)| (namespace, name));
    let mut view = None;
    names.filter_map(|(namespace, name)| row(state, (namespace, name), &mut view, now)).collect()
}

pub(crate) fn deployment(
    state: &State,
    namespace: &NamespaceName,
    name: &DeploymentName,
    now: Time,
) -> Option<Deployment> {
    row(state, (namespace, name), &mut None, now)
}

/// One row. A view is made when the first rollout has to be asked why it does not go on.
fn row(
    state: &State,
    (namespace, name): (&NamespaceName, &DeploymentName),
    view: &mut Option<View>,
    now: Time,
) -> Option<Deployment> {
    let known = state.deployment(namespace, name)?;
    let report = state.status(namespace, name)?;
    let mut reasons: Vec<String> = report.reasons.into_iter().map(str::to_owned).collect();
    let rollout = known.rollout.as_deref().map(|rollout| {
        let waits_for = awaited(state, (namespace, name), rollout.state, (view, now));
        Rollout { waits_for, ..Rollout::from(rollout) }
    });
    let code = rollout.as_ref().and_then(|rollout| Some(rollout.waits_for.as_ref()?.code.clone()));
    reasons.extend(code.filter(|code| *code != ReplicaState::Running.as_str() && !reasons.contains(code)));
    Some(Deployment {
        namespace: namespace.to_string(),
        name: name.to_string(),
        status: report.status.as_str().to_owned(),
        reasons,
        revision: known.in_force.0,
        revisions: known.revisions.iter().map(|kept| kept.number.0).collect(),
        rollout,
        services: state.groups_of(namespace, name).map(|(key, group)| service(key, group)).collect(),
    })
}

/// What a rollout waits for: a step that has begun, or one that cannot.
fn awaited(
    state: &State,
    (namespace, name): (&NamespaceName, &DeploymentName),
    rollout: RolloutState,
    (view, now): (&mut Option<View>, Time),
) -> Option<Awaited> {
    if !matches!(rollout, RolloutState::InProgress | RolloutState::Aborted) {
        return None;
    }
    if let Some(awaited) = state.rollout_waits_for(namespace, name) {
        return Some(Awaited { replica: awaited.slot.printed(&awaited.group), code: awaited.code.to_owned() });
    }
    let view = view.get_or_insert_with(|| view_of(state));
    state.groups_of(namespace, name).find_map(|(key, _)| {
        let told = explain(view, key, now);
        let (slots, why) = told.first()?;
        Some(Awaited { replica: slots.first()?.printed(key), code: why.reason.code().to_owned() })
    })
}

fn service(key: &GroupKey, group: &Group) -> Service {
    let wanted = group.slots.values().filter(|slot| slot.wanted == Wanted::Run);
    let runs =
        |slot: &&Slot| slot.replicas.iter().any(|replica| is_live(replica) && replica.state == ReplicaState::Running);
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Service {
        name: key.service.to_string(),
        image: group.spec.container.image.clone(),
        strategy: group.spec.placement.strategy.as_str().to_owned(),
        driver: group.spec.driver.as_str().to_owned(),
        wanted: count(wanted.clone().count()),
        running: count(wanted.filter(runs).count()),
        ports: group.spec.ports.iter().map(Port::from).collect(),
    }
}

pub(crate) fn nodes(state: &State) -> Vec<Node> {
    let mut rows: BTreeMap<&NodeName, Node> = state.nodes().map(|node| (&node.name, Node::from(&**node))).collect();
    for (_, _, replica) in state.replicas() {
        let terms = &replica.assignment.terms;
        if let Some(row) = rows.get_mut(&replica.assignment.node).filter(|_| occupies(terms.kind, replica.state)) {
            row.replicas += 1;
            row.memory_used_bytes = row.memory_used_bytes.saturating_add(terms.memory_total());
        }
    }
    rows.into_values().collect()
}

pub(crate) fn node(state: &State, name: &NodeName) -> Option<Node> {
    nodes(state).into_iter().find(|row| row.name == name.as_str())
}

pub(crate) fn replicas(state: &State) -> Vec<Replica> {
    let slots = state.groups().flat_map(|(key, group)| group.slots.values().map(move |slot| (key, slot)));
    let rows = slots.flat_map(|(key, slot)| {
        // One that is held back because its node may return has no other row than what was lost.
        let waits = slot.wanted == Wanted::Run && !slot.replicas.iter().any(is_live) && held_by(slot).is_none();
        let placed = slot.replicas.iter().map(move |replica| placed(state, key, slot, replica));
        placed.chain(waits.then(|| Replica::waiting(key, slot)))
    });
    rows.collect()
}

fn placed(state: &State, key: &GroupKey, slot: &Slot, replica: &replica::Replica) -> Replica {
    let row = Replica::placed(key, slot, replica);
    match state.hindrance(key, slot, replica) {
        Some((code, details)) => row.kept_by(code, &details),
        None => row,
    }
}

/// The node that a slot's generation was lost with, where nothing was decided about another: the cluster, or the service,
/// waits for that node.
fn held_by(slot: &Slot) -> Option<&NodeName> {
    let lost = slot.replicas.iter().rev().find(|replica| replica.wanted == Wanted::Run)?;
    let held = slot.wanted == Wanted::Run && slot.waiting.is_none() && !slot.replicas.iter().any(is_live);
    (held && lost.state == ReplicaState::Lost).then_some(&lost.assignment.node)
}

/// What is lost with a node that is waited for, as what has no node.
fn held(state: &State, key: &GroupKey) -> Vec<Pending> {
    let mut counts: BTreeMap<&NodeName, u32> = BTreeMap::new();
    for node in state.group(key).into_iter().flat_map(|group| group.slots.values()).filter_map(held_by) {
        *counts.entry(node).or_default() += 1;
    }
    counts.into_iter().map(|(node, count)| away(state, key, node, count)).collect()
}

fn away(state: &State, key: &GroupKey, node: &NodeName, count: u32) -> Pending {
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
        reason: RuntimeCode::NodeLost.code().to_owned(),
        refused: BTreeMap::new(),
        explain,
    }
}

/// What has no node. Answered from a view of its own: asking must not hold up the leader, and any member can answer.
pub(crate) fn pending(state: &State, now: Time) -> Vec<Pending> {
    let mut view = view_of(state);
    let mut rows: Vec<Pending> = Vec::new();
    for (key, _) in state.groups() {
        let told = explain(&mut view, key, now);
        rows.extend(told.iter().map(|(slots, explanation)| Pending::new(key, slots.len(), explanation)));
        rows.extend(held(state, key));
    }
    rows
}

/// Why a replica is where it is; nothing where there is no such replica.
pub(crate) fn why(state: &State, printed: &str, now: Time) -> Option<Why> {
    let (key, slot) = find(state, printed)?;
    let replica = printed.to_owned();
    if let Some(node) = state.group(&key).and_then(|group| group.slots.get(&slot)).and_then(held_by) {
        return Some(Why::Waits { replica, pending: away(state, &key, node, 1) });
    }
    let mut view = view_of(state);
    if let Some(decision) = explain_placed(&mut view, &key, &slot, now) {
        let best = decision.best.into_iter();
        let row = newest(state, &key, &slot)?;
        return Some(Why::Placed {
            replica,
            state: row.state,
            code: row.code,
            details: row.details,
            attempt: row.attempt,
            restarts: row.restarts,
            node: decision.node.to_string(),
            strategy: decision.strategy.as_str().to_owned(),
            nodes: decision.nodes,
            candidates: decision.candidates,
            refused: decision.refused.iter().map(|(reason, nodes)| (reason.code().to_owned(), *nodes)).collect(),
            best: best.map(|ranked| Candidate { node: ranked.node.to_string(), keys: ranked.keys }).collect(),
            placed_at_ms: placed_at(state, &key, &slot).map_or(0, |at| at.0),
            index: state.index().0,
        });
    }
    let told = explain(&mut view, &key, now);
    let (_, explanation) = told.iter().find(|(slots, _)| slots.contains(&slot))?;
    Some(Why::Waits { replica, pending: Pending::new(&key, 1, explanation) })
}

/// How the newest live generation of a slot does.
fn newest(state: &State, key: &GroupKey, slot: &SlotKey) -> Option<Replica> {
    let slot = state.group(key)?.slots.get(slot)?;
    let live = slot.replicas.iter().rev().find(|replica| is_live(replica))?;
    Some(placed(state, key, slot, live))
}

fn placed_at(state: &State, key: &GroupKey, slot: &SlotKey) -> Option<Time> {
    let live = state.group(key)?.slots.get(slot)?.replicas.iter().rev().find(|replica| is_live(replica))?;
    Some(live.assignment.placed_at)
}

/// What stands in the way of a service's replicas; nothing where there is no such service.
pub(crate) fn why_service(state: &State, key: &GroupKey, now: Time) -> Option<Why> {
    let row = service(key, state.group(key)?);
    let told = explain(&mut view_of(state), key, now);
    let pending = told.iter().map(|(slots, explanation)| Pending::new(key, slots.len(), explanation));
    let pending: Vec<Pending> = pending.chain(held(state, key)).collect();
    let waiting: u32 = pending.iter().map(|pending| pending.count).sum();
    Some(Why::Service {
        service: format!("{}/{}", key.deployment, key.service),
        wanted: row.wanted,
        placed: row.wanted.saturating_sub(waiting),
        pending,
    })
}

pub(crate) fn find(state: &State, printed: &str) -> Option<(GroupKey, SlotKey)> {
    let slots = state.groups().flat_map(|(key, group)| group.slots.keys().map(move |slot| (key, slot)));
    let mut found = slots.filter(|(key, slot)| slot.printed(key) == printed);
    found.next().map(|(key, slot)| (key.clone(), slot.clone()))
}
