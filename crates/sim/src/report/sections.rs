//! The sections of the report (placements, replicas, deployments, nodes), read from the final state.
//!
//! Owns: which generations get a row, and its fields.

use std::collections::BTreeMap;

use longshore_model::{
    Attempt, DeploymentName, Generation, GroupKey, Health, Intent, NamespaceName, NodeName, ReplicaState,
    RevisionNumber, RolloutState, RuntimeCode, ServiceName, Slot, SlotKey, Time,
    replica::{DesiredState, Details, Replica},
    rollout::{RolloutKind, StepCount},
};
use longshore_scheduler::View;
use longshore_store::{Deployment, Group, State, is_live};
use serde::Serialize;

/// One generation, or a slot without one.
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
    /// The code of the reason for that state, if it has one.
    pub code: Option<&'static str>,
    /// Values that belong to the code.
    pub details: Details,
    /// Its generation: the number of the placement decision about the slot.
    pub generation: Generation,
    /// Its attempt: the number of the start within the generation.
    pub attempt: Attempt,
    /// The revision it was placed from.
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
    /// The codes that explain the status.
    pub reasons: Vec<&'static str>,
    /// The revision in force.
    pub revision: RevisionNumber,
    /// The rollout in progress, or the last one.
    pub rollout: Option<RolloutRow>,
}

/// A rollout of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RolloutRow {
    /// The revision it started from.
    pub from: RevisionNumber,
    /// The revision it rolls out.
    pub to: RevisionNumber,
    /// Its state.
    pub state: &'static str,
    /// What started it.
    pub kind: RolloutKind,
    /// Number of steps.
    pub total_steps: u32,
    /// Steps that are done.
    pub current_step: u32,
    /// Steps that failed.
    pub failed_steps: u32,
    /// Steps by service.
    pub services: BTreeMap<ServiceName, StepCount>,
    /// The code of the step that made it fail.
    pub failure_reason: Option<&'static str>,
    /// The replica of that step.
    pub failed_replica: Option<String>,
    /// The replica it waits for; `None` if it waits for an operator or has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<AwaitedRow>,
}

/// A replica that a rollout waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AwaitedRow {
    /// Its printed id.
    pub replica: String,
    /// The code of the reason, or its state if it has none.
    pub code: &'static str,
}

/// One node and its replicas, for the text output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: NodeName,
    /// Its intent, as set by an operator.
    pub intent: Intent,
    /// Its health.
    pub health: Health,
    /// Allocatable memory.
    pub memory_bytes: u64,
    /// Reserved memory.
    pub memory_used_bytes: u64,
    /// Allocatable cores with overcommit, in thousandths.
    pub cpu_millis: u64,
    /// Reserved cores, in thousandths.
    pub cpu_used_millis: u64,
    /// Its replicas: the service, as `deployment-service`, and the state of each replica.
    pub replicas: BTreeMap<String, Vec<ReplicaState>>,
}

pub(super) fn placements(state: &State) -> BTreeMap<String, String> {
    let mut placements = BTreeMap::new();
    for (key, group) in state.groups() {
        for slot in group.slots.values().filter(|slot| slot.desired == DesiredState::Run) {
            let placed = slot.replicas.iter().filter(|replica| is_placed(replica));
            if let Some(replica) = placed.max_by_key(|replica| replica.generation) {
                placements.insert(slot.key.replica_id(key), replica.assignment.node.to_string());
            }
        }
    }
    placements
}

/// Whether a replica is desired, is not known to be gone, and has not completed.
fn is_placed(replica: &Replica) -> bool {
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
    let unplaced = slot.desired == DesiredState::Run && !slot.replicas.iter().any(is_live);
    // A lost replica whose node is waited for is shown as it is, not as waiting for a node.
    let waits = unplaced && (slot.waiting.is_some() || !slot.replicas.iter().any(|it| it.desired == DesiredState::Run));
    // A stateful replica on a lost node keeps its node and waits for it: that is one row, not two.
    let held = slot.replicas.iter().find(|replica| waits && replica.desired == DesiredState::Run);
    let others = slot.replicas.iter().filter(|replica| held != Some(*replica));
    rows.extend(others.map(|replica| row_of(state, key, slot, replica)));
    if waits {
        let row = waiting_row(key, group, slot, held);
        let state = if state.is_stopped(key) { ReplicaState::Stopped.as_str() } else { row.state };
        rows.push(ReplicaRow { state, ..row });
    }
}

fn replica_row(key: &GroupKey, slot: &Slot, replica: &Replica) -> ReplicaRow {
    ReplicaRow {
        id: slot.key.replica_id(key),
        deployment: key.deployment.to_string(),
        service: key.service.to_string(),
        node: Some(replica.assignment.node.clone()),
        state: replica.state.as_str(),
        code: replica.code.map(RuntimeCode::code),
        details: replica.details.clone(),
        generation: replica.generation,
        attempt: replica.attempt,
        revision: replica.assignment.reservation.revision,
        restarts: replica.restarts,
    }
}

/// The row of a replica. One that cannot leave its draining node has the drain's code.
fn row_of(state: &State, key: &GroupKey, slot: &Slot, replica: &Replica) -> ReplicaRow {
    let row = replica_row(key, slot, replica);
    match state.drain_blocker(key, slot, replica) {
        Some((code, details)) => ReplicaRow { code: Some(code.code()), details, ..row },
        None => row,
    }
}

fn waiting_row(key: &GroupKey, group: &Group, slot: &Slot, held: Option<&Replica>) -> ReplicaRow {
    ReplicaRow {
        id: slot.key.replica_id(key),
        deployment: key.deployment.to_string(),
        service: key.service.to_string(),
        node: held.map(|replica| replica.assignment.node.clone()),
        state: ReplicaState::Pending.as_str(),
        code: slot.waiting.map(longshore_model::Reason::code),
        details: slot.waiting_details.clone(),
        generation: slot.newest,
        attempt: held.map_or(Attempt(0), |replica| replica.attempt),
        revision: held.map_or(group.revision, |replica| replica.assignment.reservation.revision),
        restarts: held.map_or(0, |replica| replica.restarts),
    }
}

pub(super) fn deployments(state: &State, view: &mut View, now: Time) -> Vec<DeploymentRow> {
    state
        .deployments()
        .filter_map(|(namespace, name, deployment)| {
            let report = state.status(namespace, name)?;
            let waits_for = awaited(state, view, namespace, name, now);
            let mut reasons = report.reasons;
            let why = waits_for.as_ref().map(|awaited| awaited.code);
            let added = why.filter(|code| *code != ReplicaState::Running.as_str() && !reasons.contains(code));
            reasons.extend(added);
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

/// The replica a rollout waits for: one whose step has begun, or one that cannot be placed.
fn awaited(
    state: &State,
    view: &mut View,
    namespace: &NamespaceName,
    name: &DeploymentName,
    now: Time,
) -> Option<AwaitedRow> {
    let known = state.deployment(namespace, name).filter(|known| !known.is_stopped())?;
    let rollout = known.rollout.as_deref()?;
    if !matches!(rollout.state, RolloutState::InProgress | RolloutState::Aborted) {
        return None;
    }
    if let Some(awaited) = state.rollout_waits_for(namespace, name) {
        return Some(AwaitedRow { replica: awaited.slot.replica_id(&awaited.group), code: awaited.code });
    }
    let groups: Vec<&GroupKey> = state.groups_of(namespace, name).map(|(key, _)| key).collect();
    groups.into_iter().find_map(|key| {
        let explained = longshore_scheduler::explain(view, key, now);
        let (slots, why) = explained.first()?;
        Some(AwaitedRow { replica: slots.first()?.replica_id(key), code: why.reason.code() })
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
        slot.replica_id(&GroupKey { namespace, deployment, service: service.clone() })
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
                row.memory_used_bytes += replica.assignment.reservation.memory_total();
                row.cpu_used_millis += replica.assignment.reservation.cpu_millis;
            }
        }
    }
    rows.into_values().collect()
}
