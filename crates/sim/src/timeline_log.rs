//! The timeline of a run's report.
//!
//! Owns: which events become entries, and their fields.
//! Must not touch: the run. It only observes.

mod nodes;
mod rebalance;
mod rollouts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Assignment, Attempt, DeploymentName, Event, Generation, GroupKey, NamespaceName, Node, NodeName, Reason,
    ReplicaKey, ReplicaState, RevisionNumber, RolloutNumber, RolloutState, RuntimeCode, SecretName, SlotKey, Time,
    VolumeKey,
    replica::{Details, HostPort},
    service::SpecHash,
};
use longshore_store::CommandError;
use serde::Serialize;

pub use self::rebalance::{Decimal, RebalancePayload};
use crate::report::Stats;

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Virtual time, in milliseconds.
    pub at_ms: u64,
    /// What happened.
    pub kind: EntryKind,
    /// The deployment, for entries about a whole one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// The printed id of the replica, for entries about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// Its generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// Its attempt, if that is not the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The node it was on before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeName>,
    /// The code of the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// The code of the step that made a rollout fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<&'static str>,
    /// Values that belong to the code.
    #[serde(skip_serializing_if = "Details::is_empty")]
    pub details: Details,
    /// What was reserved on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<AssignmentEntry>,
    /// A message for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The scores the rebalancer compared.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<RebalancePayload>,
}

/// Kinds of timeline entries. The names in JSON are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A generation got a node.
    Placed,
    /// A slot changed its node.
    Moved,
    /// A process is starting.
    Started,
    /// It runs and is healthy.
    Running,
    /// Its health check fails.
    Degraded,
    /// It is restarted.
    Restarted,
    /// It was observed stopped.
    Stopped,
    /// It exited with an error, exhausted its restarts, or could not be started.
    Failed,
    /// It exited with code 0.
    Completed,
    /// Its node is down.
    Lost,
    /// No node fits a replica.
    Waiting,
    /// A node accepts work.
    NodeReady,
    /// A node missed `suspect_after_missed` heartbeats.
    NodeSuspect,
    /// A node missed `down_after_missed` heartbeats, and its work is replaced.
    NodeDown,
    /// A node reports itself degraded.
    NodeDegraded,
    /// An operator keeps new work away from a node.
    NodePaused,
    /// A drain began.
    DrainStarted,
    /// An operator cancelled a drain.
    DrainCancelled,
    /// Nothing is left on a drained node.
    DrainCompleted,
    /// A drain took longer than allowed.
    DrainTimeout,
    /// A replica cannot leave a draining node.
    DrainBlocked,
    /// A node left the cluster.
    NodeRemoved,
    /// The record of a removed node was deleted.
    NodeForgotten,
    /// An operator confirmed a node lost.
    NodeLost,
    /// Too many nodes are down at once to replace their work.
    EvacuationPaused,
    /// Work of down nodes is replaced again.
    EvacuationResumed,
    /// A new leader took over.
    LeaderChanged,
    /// The rebalancer moved a replica.
    RebalanceMoved,
    /// The rebalancer left a replica on a node under pressure.
    RebalanceSkipped,
    /// A move of a previewed spread rebalance, or that there is none.
    RebalancePlanned,
    /// A rollout began.
    RolloutStarted,
    /// The step of a slot is done, or failed.
    RolloutStep,
    /// A rollout begins no more steps.
    RolloutPaused,
    /// A paused rollout goes on.
    RolloutResumed,
    /// The canary slots are done; the others wait for a promotion.
    RolloutAwaitsPromotion,
    /// A rollout was promoted.
    RolloutPromoted,
    /// Every step is done.
    RolloutCompleted,
    /// A rollout failed and is rolled back.
    RolloutAborted,
    /// Every slot is back on the old manifest.
    RolledBack,
    /// Another rollout began before this one ended.
    RolloutSuperseded,
    /// An operator stopped a deployment.
    DeploymentStopped,
    /// A stopped deployment runs again.
    DeploymentStarted,
    /// A command was refused.
    Refused,
    /// A fault of the scenario found no process to affect.
    #[serde(rename = "in_vain")]
    NoEffect,
}

impl EntryKind {
    /// The name in JSON and on the terminal.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Moved => "moved",
            Self::Started => "started",
            Self::Running => "running",
            Self::Degraded => "degraded",
            Self::Restarted => "restarted",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Completed => "completed",
            Self::Lost => "lost",
            Self::Waiting => "waiting",
            Self::NodeReady => "node_ready",
            Self::NodeSuspect => "node_suspect",
            Self::NodeDown => "node_down",
            Self::NodeDegraded => "node_degraded",
            Self::NodePaused => "node_paused",
            Self::DrainStarted => "drain_started",
            Self::DrainCancelled => "drain_cancelled",
            Self::DrainCompleted => "drain_completed",
            Self::DrainTimeout => "drain_timeout",
            Self::DrainBlocked => "drain_blocked",
            Self::NodeRemoved => "node_removed",
            Self::NodeForgotten => "node_forgotten",
            Self::NodeLost => "node_lost",
            Self::EvacuationPaused => "evacuation_paused",
            Self::EvacuationResumed => "evacuation_resumed",
            Self::LeaderChanged => "leader_changed",
            Self::RebalanceMoved => "rebalance_moved",
            Self::RebalanceSkipped => "rebalance_skipped",
            Self::RebalancePlanned => "rebalance_planned",
            Self::RolloutStarted => "rollout_started",
            Self::RolloutStep => "rollout_step",
            Self::RolloutPaused => "rollout_paused",
            Self::RolloutResumed => "rollout_resumed",
            Self::RolloutAwaitsPromotion => "rollout_awaits_promotion",
            Self::RolloutPromoted => "rollout_promoted",
            Self::RolloutCompleted => "rollout_completed",
            Self::RolloutAborted => "rollout_aborted",
            Self::RolledBack => "rolled_back",
            Self::RolloutSuperseded => "rollout_superseded",
            Self::DeploymentStopped => "deployment_stopped",
            Self::DeploymentStarted => "deployment_started",
            Self::Refused => "refused",
            Self::NoEffect => "in_vain",
        }
    }
}

/// An assignment as the timeline shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AssignmentEntry {
    /// Cluster-unique overlay address.
    pub address: std::net::Ipv6Addr,
    /// The revision it was placed from.
    pub revision: RevisionNumber,
    /// The hash of the spec it was placed from.
    pub spec_hash: SpecHash,
    /// CPU request, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory limit.
    pub memory_bytes: u64,
    /// Extra memory for the driver.
    pub overhead_bytes: u64,
    /// Scratch disk.
    pub disk_bytes: u64,
    /// Devices, by kind, or by group where one was requested.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u64>,
    /// Host ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<HostPort>,
    /// Named volumes held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeKey>,
    /// Versions of its secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_versions: BTreeMap<SecretName, u64>,
}

impl AssignmentEntry {
    fn of(assignment: &Assignment) -> Self {
        let reservation = &assignment.reservation;
        Self {
            address: assignment.address,
            revision: reservation.revision,
            spec_hash: reservation.spec_hash.clone(),
            cpu_millis: reservation.cpu_millis,
            memory_bytes: reservation.memory_bytes,
            overhead_bytes: reservation.overhead_bytes,
            disk_bytes: reservation.disk_bytes,
            devices: reservation
                .devices
                .iter()
                .chain(&assignment.devices)
                .map(|(kind, count)| (kind.clone(), *count))
                .collect(),
            host_ports: reservation.host_ports.clone(),
            volumes: reservation.volumes.iter().map(|held| held.key.clone()).collect(),
            secret_versions: reservation.secret_versions.clone(),
        }
    }
}

/// The entries so far, and what is needed to write the next.
#[derive(Debug, Default)]
pub(crate) struct TimelineLog {
    entries: Vec<Entry>,
    /// The node of each slot's newest generation, to tell a move from a first placement.
    node_of_slot: BTreeMap<(GroupKey, SlotKey), NodeName>,
    /// The node of each generation. The state may have removed a generation when its end is reported.
    node_of_replica: BTreeMap<ReplicaKey, NodeName>,
    nodes: BTreeMap<NodeName, Arc<Node>>,
    /// Generations that were told to stop.
    stopping: BTreeSet<ReplicaKey>,
    rollouts: BTreeMap<(NamespaceName, DeploymentName), (RolloutNumber, RolloutState)>,
}

impl TimelineLog {
    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    pub(crate) fn refused(&mut self, now: Time, refused: &CommandError) {
        let entry = self.push(now, EntryKind::Refused);
        entry.code = Some(refused.code());
        entry.message = Some(refused.to_string());
    }

    pub(crate) fn no_effect(&mut self, now: Time, replica: &str) {
        let entry = self.push(now, EntryKind::NoEffect);
        entry.replica = Some(replica.to_owned());
        entry.message = Some("there is no such replica with a process".to_owned());
    }

    pub(crate) fn record(&mut self, now: Time, event: &Event, stats: &mut Stats) {
        match event {
            Event::NodeChanged(node) => self.node_changed(now, node),
            Event::NodeGone(node) => self.node_gone(now, node),
            Event::NodeForgotten(node) => self.push(now, EntryKind::NodeForgotten).node = Some(node.clone()),
            Event::EvacuationChanged(evacuation) => self.evacuation_changed(now, evacuation),
            Event::RolloutChanged { namespace, deployment, rollout } => {
                self.rollout_changed(now, namespace, deployment, rollout);
            }
            Event::DeploymentStopped { deployment, .. } => {
                self.push(now, EntryKind::DeploymentStopped).deployment = Some(deployment.to_string());
            }
            Event::DeploymentStarted { deployment, .. } => {
                self.push(now, EntryKind::DeploymentStarted).deployment = Some(deployment.to_string());
            }
            Event::Stopping(key) => _ = self.stopping.insert(key.clone()),
            Event::SlotStepped { group, slot, step } => self.stepped(now, group, slot, *step),
            Event::Placed { key, assignment } => self.placed(now, key, assignment, stats),
            Event::SlotWaits { group, slot, reason, details } => self.waits(now, group, slot, *reason, details),
            Event::Restarting { key, attempt } => {
                self.push_replica(now, EntryKind::Restarted, key).attempt = Some(*attempt);
            }
            Event::Observed { .. } => self.observation(now, event),
            Event::Released { key, .. } => {
                self.push_replica(now, EntryKind::Stopped, key);
                self.node_of_replica.remove(key);
            }
            Event::Rebalanced(made) => self.rebalanced(now, made),
            Event::SlotGone { group, slot } => {
                self.node_of_slot.remove(&(group.clone(), slot.clone()));
            }
            Event::Configured(_)
            | Event::NodeRemoved { .. }
            | Event::GroupChanged { .. }
            | Event::GroupRolloutChanged { .. }
            | Event::DeploymentGone { .. }
            | Event::SlotStartsAgain(_)
            | Event::GroupRemoved(_)
            | Event::GroupGone(_)
            | Event::SlotOpened { .. }
            | Event::SlotClosing { .. }
            | Event::Rescheduled { .. }
            | Event::Collected { .. }
            | Event::FailureCounted { .. }
            | Event::EvenOutRequested(_)
            | Event::EvenOutDone(_)
            | Event::AddressCoolingDown { .. }
            | Event::VolumeCreated(_)
            | Event::VolumeGone(_)
            | Event::SecretSet { .. }
            | Event::SecretGone { .. }
            | Event::AccessChanged
            | Event::QuotaSet { .. } => {}
        }
    }

    fn observation(&mut self, now: Time, event: &Event) {
        let Event::Observed { key, attempt, state, code, details, failures, history, .. } = event else { return };
        // A failed replica without failures was reset by an apply: nothing happened to it.
        if *state != ReplicaState::Failed || *failures > 0 || history.ends > 0 {
            self.observed(now, key, *attempt, *state, *code, details);
        }
    }

    fn push(&mut self, now: Time, kind: EntryKind) -> &mut Entry {
        self.entries.push(Entry {
            at_ms: now.0,
            kind,
            deployment: None,
            failure_reason: None,
            replica: None,
            generation: None,
            attempt: None,
            node: None,
            from: None,
            code: None,
            details: Details::new(),
            assignment: None,
            message: None,
            rebalance: None,
        });
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    fn push_replica(&mut self, now: Time, kind: EntryKind, key: &ReplicaKey) -> &mut Entry {
        let node = self.node_of_replica.get(key).cloned();
        let entry = self.push(now, kind);
        entry.replica = Some(key.replica_id());
        entry.generation = Some(key.generation);
        entry.node = node;
        entry
    }

    fn placed(&mut self, now: Time, key: &ReplicaKey, assignment: &Assignment, stats: &mut Stats) {
        let node = assignment.node.clone();
        self.node_of_replica.insert(key.clone(), node.clone());
        let entry = self.push_replica(now, EntryKind::Placed, key);
        entry.assignment = Some(AssignmentEntry::of(assignment));
        let before = self.node_of_slot.insert((key.group.clone(), key.slot.clone()), node.clone());
        if let Some(from) = before.filter(|before| *before != node) {
            stats.moves += 1;
            self.push_replica(now, EntryKind::Moved, key).from = Some(from);
        }
    }

    /// The generations of a slot that were placed and not released, in order.
    fn generations_of(&self, group: &GroupKey, slot: &SlotKey) -> impl DoubleEndedIterator<Item = &ReplicaKey> {
        let first = group.replica(slot, Generation(0));
        let last = group.replica(slot, Generation(u32::MAX));
        self.node_of_replica.range(first..=last).map(|(key, _)| key)
    }

    fn waits(&mut self, now: Time, group: &GroupKey, slot: &SlotKey, reason: Reason, details: &Details) {
        let newest = self.generations_of(group, slot).next_back().cloned();
        let key = newest.unwrap_or_else(|| group.replica(slot, Generation(0)));
        let entry = self.push_replica(now, EntryKind::Waiting, &key);
        entry.code = Some(reason.code());
        entry.details = details.clone();
    }

    fn observed(
        &mut self,
        now: Time,
        key: &ReplicaKey,
        attempt: Attempt,
        state: ReplicaState,
        code: Option<RuntimeCode>,
        details: &Details,
    ) {
        let kind = match state {
            ReplicaState::Starting => EntryKind::Started,
            ReplicaState::Running => EntryKind::Running,
            ReplicaState::Degraded => EntryKind::Degraded,
            ReplicaState::Failed => EntryKind::Failed,
            ReplicaState::Completed => EntryKind::Completed,
            ReplicaState::Lost => EntryKind::Lost,
            // A failing pull is retried for ever, and gets one entry.
            ReplicaState::Pending if code == Some(RuntimeCode::ImagePullFailed) => EntryKind::Failed,
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Draining | ReplicaState::Stopped => return,
        };
        let entry = self.push_replica(now, kind, key);
        entry.attempt = Some(attempt).filter(|attempt| attempt.0 > 0);
        entry.code = code.map(RuntimeCode::code);
        entry.details = details.clone();
    }
}
