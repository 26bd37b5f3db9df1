//! Rows of the report, read off the state.
//!
//! Owns: which generations get a row, and what it says.

use std::collections::BTreeMap;

use longshore_model::{
    Attempt, DeploymentName, Generation, GroupKey, Health, Intent, NamespaceName, NodeName, ReplicaState,
    RevisionNumber, RolloutState, RuntimeCode, ServiceName, Slot, SlotKey, Time,
    replica::{Details, Replica, Wanted},
    rollout::{RolloutKind, StepCount},
};
use longshore_scheduler::View;
use longshore_store::{Deployment, Group, State, is_live};
use serde::Serialize;

/// One generation, or a slot that has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaRow {
    /// The replica's printed id.
    pub id: String,
    /// Its deployment.
    pub deployment: String,
    /// Its service.
    pub service: String,
    /// Its node, if it has one.
    pub node: Option<NodeName>,
    /// Its state.
    pub state: &'static str,
    /// Why it is in that state, where there is a why.
    pub code: Option<&'static str>,
    /// Particulars of the code.
    pub details: Details,
    /// Which decision about the slot.
    pub generation: Generation,
    /// Which start of it.
    pub attempt: Attempt,
    /// The manifest it follows.
    pub revision: RevisionNumber,
    /// Restarts in this generation.
    pub restarts: u32,
}

/// One deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeploymentRow {
    /// Its name.
    pub name: String,
    /// Its state.
    pub status: &'static str,
    /// What makes it so.
    pub reasons: Vec<&'static str>,
    /// The manifest in force.
    pub revision: RevisionNumber,
    /// The change under way, or the last one that ended.
    pub rollout: Option<RolloutRow>,
}

/// A change of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RolloutRow {
    /// The manifest it came from.
    pub from: RevisionNumber,
    /// The manifest it goes to.
    pub to: RevisionNumber,
    /// How far it is.
    pub state: &'static str,
    /// Why it was begun.
    pub kind: RolloutKind,
    /// Steps there are.
    pub total_steps: u32,
    /// Steps that are done.
    pub current_step: u32,
    /// Steps that failed.
    pub failed_steps: u32,
    /// Steps by service.
    pub services: BTreeMap<ServiceName, StepCount>,
    /// What it stumbled over.
    pub failure_reason: Option<&'static str>,
    /// The replica it stumbled over.
    pub failed_replica: Option<String>,
    /// What it waits for; nothing where it waits for a word, or is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<AwaitedRow>,
}

/// A replica that a rollout waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AwaitedRow {
    /// Which.
    pub replica: String,
    /// What it does, or why it cannot: a code, or a state where there is none.
    pub code: &'static str,
}

/// One node and what is on it, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: NodeName,
    /// What operators want of it.
    pub intent: Intent,
    /// How it does.
    pub health: Health,
    /// Memory that may be given out.
    pub memory_bytes: u64,
    /// Memory given out.
    pub memory_used_bytes: u64,
    /// Cores that may be given out, overcommitted, in thousandths.
    pub cpu_millis: u64,
    /// Cores given out.
    pub cpu_used_millis: u64,
    /// What is on it: the service, as `deployment-service`, and the state of each of its replicas.
    pub replicas: BTreeMap<String, Vec<ReplicaState>>,
}

pub(super) fn placements(state: &State) -> BTreeMap<String, String> {
    let mut placements = BTreeMap::new();
    for (key, group) in state.groups() {
        for slot in group.slots.values().filter(|slot| slot.wanted == Wanted::Run) {
            let holding = slot.replicas.iter().filter(|replica| holds_its_place(replica));
            if let Some(replica) = holding.max_by_key(|replica| replica.generation) {
                placements.insert(slot.key.printed(key), replica.assignment.node.to_string());
            }
        }
    }
    placements
}

/// Wanted on its node and not known to be gone from it, or done with it.
fn holds_its_place(replica: &Replica) -> bool {
    is_live(replica) && replica.state != ReplicaState::Completed
}

pub(super) fn replicas(state: &State) -> Vec<ReplicaRow> {
    let mut rows = Vec::new();
    for (key, group) in state.groups() {
        for slot in group.slots.values() {
            slot_rows(state, key, group, slot, &mut rows);
        }
    }
    rows
}

fn slot_rows(state: &State, key: &GroupKey, group: &Group, slot: &Slot, rows: &mut Vec<ReplicaRow>) {
    let unplaced = slot.wanted == Wanted::Run && !slot.replicas.iter().any(is_live);
    // One that is lost and waited for, rather than waiting for a node, is told as it is.
    let waits = unplaced && (slot.waiting.is_some() || !slot.replicas.iter().any(|it| it.wanted == Wanted::Run));
    // A stateful one on a lost node keeps its node and waits for it: that is one row, not two.
    let held = slot.replicas.iter().find(|replica| waits && replica.wanted == Wanted::Run);
    let others = slot.replicas.iter().filter(|replica| held != Some(*replica));
    rows.extend(others.map(|replica| hindered(state, key, slot, replica)));
    if waits {
        rows.push(waiting_row(key, group, slot, held));
    }
}

fn replica_row(key: &GroupKey, slot: &Slot, replica: &Replica) -> ReplicaRow {
    ReplicaRow {
        id: slot.key.printed(key),
        deployment: key.deployment.to_string(),
        service: key.service.to_string(),
        node: Some(replica.assignment.node.clone()),
        state: replica.state.as_str(),
        code: replica.code.map(RuntimeCode::code),
        details: replica.details.clone(),
        generation: replica.generation,
        attempt: replica.attempt,
        revision: replica.assignment.terms.revision,
        restarts: replica.restarts,
    }
}

/// A replica that runs on a node to be emptied and cannot leave it says so.
fn hindered(state: &State, key: &GroupKey, slot: &Slot, replica: &Replica) -> ReplicaRow {
    let row = replica_row(key, slot, replica);
    match state.hindrance(key, slot, replica) {
        Some((code, details)) => ReplicaRow { code: Some(code.code()), details, ..row },
        None => row,
    }
}

fn waiting_row(key: &GroupKey, group: &Group, slot: &Slot, held: Option<&Replica>) -> ReplicaRow {
    ReplicaRow {
        id: slot.key.printed(key),
        deployment: key.deployment.to_string(),
        service: key.service.to_string(),
        node: held.map(|replica| replica.assignment.node.clone()),
        state: ReplicaState::Pending.as_str(),
        code: slot.waiting.map(longshore_model::Reason::code),
        details: slot.waiting_details.clone(),
        generation: slot.newest,
        attempt: held.map_or(Attempt(0), |replica| replica.attempt),
        revision: held.map_or(group.revision, |replica| replica.assignment.terms.revision),
        restarts: held.map_or(0, |replica| replica.restarts),
    }
}

pub(super) fn deployments(state: &State, view: &mut View, now: Time) -> Vec<DeploymentRow> {
    state
        .deployments()
        .filter_map(|(namespace, name, deployment)| {
            let report = state.status(namespace, name)?;
            let waits_for = awaited(state, view, (namespace, name), now);
            let mut reasons = report.reasons;
            let why = waits_for.as_ref().map(|awaited| awaited.code);
            let news = why.filter(|code| *code != ReplicaState::Running.as_str() && !reasons.contains(code));
            reasons.extend(news);
            let rollout = rollout(state, namespace, name, deployment);
            Some(DeploymentRow {
                name: name.to_string(),
                status: report.status.as_str(),
                reasons,
                revision: deployment.current().number,
                rollout: rollout.map(|rollout| RolloutRow { waits_for, ..rollout }),
            })
        })
        .collect()
}

/// What the rollout of a deployment waits for: a step that has begun, or one that cannot.
fn awaited(
    state: &State,
    view: &mut View,
    (namespace, name): (&NamespaceName, &DeploymentName),
    now: Time,
) -> Option<AwaitedRow> {
    let rollout = state.deployment(namespace, name)?.rollout.as_deref()?;
    if !matches!(rollout.state, RolloutState::InProgress | RolloutState::Aborted) {
        return None;
    }
    if let Some(awaited) = state.rollout_waits_for(namespace, name) {
        return Some(AwaitedRow { replica: awaited.slot.printed(&awaited.group), code: awaited.code });
    }
    let groups: Vec<&GroupKey> = state.groups_of(namespace, name).map(|(key, _)| key).collect();
    groups.into_iter().find_map(|key| {
        let told = longshore_scheduler::explain(view, key, now);
        let (slots, why) = told.first()?;
        Some(AwaitedRow { replica: slots.first()?.printed(key), code: why.reason.code() })
    })
}

fn rollout(
    state: &State,
    namespace: &NamespaceName,
    name: &DeploymentName,
    deployment: &Deployment,
) -> Option<RolloutRow> {
    let rollout = deployment.rollout.as_deref()?;
    let services = state.rollout_steps(namespace, name)?;
    let sum = |part: fn(&StepCount) -> u32| services.values().map(part).sum();
    let replica = |service: &ServiceName, slot: &SlotKey| {
        let (namespace, deployment) = (namespace.clone(), name.clone());
        slot.printed(&GroupKey { namespace, deployment, service: service.clone() })
    };
    Some(RolloutRow {
        from: rollout.from,
        to: rollout.to,
        state: rollout.state.as_str(),
        kind: rollout.kind,
        total_steps: sum(|count| count.total),
        current_step: sum(|count| count.done),
        failed_steps: sum(|count| count.failed),
        failure_reason: rollout.failure.as_ref().map(|failure| failure.code.code()),
        failed_replica: rollout.failure.as_ref().map(|failure| replica(&failure.service, &failure.slot)),
        waits_for: None,
        services,
    })
}

pub(super) fn nodes(state: &State) -> Vec<NodeRow> {
    let overcommit = u128::from(state.config().cpu_overcommit_millionths);
    let mut rows: BTreeMap<NodeName, NodeRow> = BTreeMap::new();
    for node in state.nodes() {
        let cpu = u128::from(node.usable_cpu_millis()) * overcommit / 1_000_000;
        let row = NodeRow {
            name: node.name.clone(),
            intent: node.intent,
            health: node.health,
            memory_bytes: node.allocatable_memory(),
            memory_used_bytes: 0,
            cpu_millis: u64::try_from(cpu).unwrap_or(u64::MAX),
            cpu_used_millis: 0,
            replicas: BTreeMap::new(),
        };
        rows.insert(node.name.clone(), row);
    }
    for (key, _, replica) in state.replicas() {
        if let Some(row) = rows.get_mut(&replica.assignment.node) {
            row.replicas.entry(key.to_string()).or_default().push(replica.state);
            let kind = state.group(key).map(|group| group.spec.kind);
            if kind.is_some_and(|kind| longshore_scheduler::occupies(kind, replica.state)) {
                row.memory_used_bytes += replica.assignment.terms.memory_total();
                row.cpu_used_millis += replica.assignment.terms.cpu_millis;
            }
        }
    }
    rows.into_values().collect()
}
