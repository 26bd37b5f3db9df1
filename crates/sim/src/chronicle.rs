//! What happened, in the words of the report's timeline.
//!
//! Owns: which events become entries and what each entry says.
//! Must not touch: the run. Reading the chronicle or not changes nothing.

mod nodes;
mod rebalance;
mod rollouts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Assignment, Attempt, DeploymentName, Event, Generation, GroupKey, NamespaceName, Node, NodeName, Reason,
    ReplicaState, RevisionNumber, RolloutNumber, RolloutState, RuntimeCode, SecretName, SlotKey, Time, VolumeKey,
    replica::{Details, HostPort},
    service::SpecHash,
};
use longshore_store::CommandError;
use serde::Serialize;

pub use self::rebalance::{Decimal, Payload};
use crate::report::Stats;

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When, in milliseconds.
    pub at_ms: u64,
    /// What.
    pub kind: Kind,
    /// The deployment it is about, where it is about a whole one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// The replica it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// Its generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// Its attempt, where that is not the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The node it was on before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeName>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// What a rollout stumbled over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<&'static str>,
    /// Particulars of the code.
    #[serde(skip_serializing_if = "Details::is_empty")]
    pub details: Details,
    /// What was promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Promise>,
    /// A sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the rebalancer weighed.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<Payload>,
}

/// Kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A generation got a node.
    Placed,
    /// A slot changed its node.
    Moved,
    /// A process is starting.
    Started,
    /// It runs and is healthy.
    Running,
    /// Its check fails.
    Degraded,
    /// It is started once more.
    Restarted,
    /// It was seen stopped.
    Stopped,
    /// It ended badly, was given up, or could not be started.
    Failed,
    /// It ended well.
    Completed,
    /// Its node is gone.
    Lost,
    /// A replica found no node.
    Waiting,
    /// A node takes work.
    NodeReady,
    /// A node missed some beats.
    NodeSuspect,
    /// A node missed so many beats that its work is replaced.
    NodeDown,
    /// A node reports itself unfit.
    NodeDegraded,
    /// An operator keeps new work away from a node.
    NodePaused,
    /// An operator wants a node empty.
    DrainStarted,
    /// An operator wants a node to go on as before.
    DrainCancelled,
    /// Nothing is left on a node that was to be emptied.
    DrainCompleted,
    /// It took too long to empty a node.
    DrainTimeout,
    /// Something on a node that is to be emptied cannot leave it.
    DrainBlocked,
    /// A node left the cluster.
    NodeRemoved,
    /// Nothing is kept any more of a node that left.
    NodeForgotten,
    /// An operator gave a node up.
    NodeLost,
    /// Too many nodes are gone at once to take work off them.
    EvacuationPaused,
    /// Work is taken off nodes that are down again.
    EvacuationResumed,
    /// A new leader took over.
    LeaderChanged,
    /// A replica was moved to even the load.
    RebalanceMoved,
    /// A replica was left on a hot node.
    RebalanceSkipped,
    /// Somebody asked which moves evening out would make, and this is one of them, or that there is none.
    RebalancePlanned,
    /// A change begins.
    RolloutStarted,
    /// A slot has changed, or failed to.
    RolloutStep,
    /// A change makes no new steps.
    RolloutPaused,
    /// A change goes on.
    RolloutResumed,
    /// The first slots have changed; the others wait for a word.
    RolloutAwaitsPromotion,
    /// The others follow.
    RolloutPromoted,
    /// Every slot has changed.
    RolloutCompleted,
    /// A change failed and goes back.
    RolloutAborted,
    /// Every slot is back.
    RolledBack,
    /// Another change came before this one ended.
    RolloutSuperseded,
    /// A command was refused.
    Refused,
    /// A step of the scenario found nothing it could happen to.
    InVain,
}

impl Kind {
    /// The word in JSON and on the terminal.
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
            Self::Refused => "refused",
            Self::InVain => "in_vain",
        }
    }
}

/// An assignment as the timeline shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// Cluster-unique overlay address.
    pub address: std::net::Ipv6Addr,
    /// The manifest it follows.
    pub revision: RevisionNumber,
    /// The fingerprint it was made from.
    pub spec_hash: SpecHash,
    /// CPU request, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory cap.
    pub memory_bytes: u64,
    /// Memory on top, for the driver.
    pub overhead_bytes: u64,
    /// Scratch disk.
    pub disk_bytes: u64,
    /// Devices, by kind, or by group where a certain one was asked for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u64>,
    /// Ports taken on the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<HostPort>,
    /// Named volumes held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeKey>,
    /// Versions of the secrets it was given.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_versions: BTreeMap<SecretName, u64>,
}

impl Promise {
    fn of(assignment: &Assignment) -> Self {
        let terms = &assignment.terms;
        Self {
            address: assignment.address,
            revision: terms.revision,
            spec_hash: terms.spec_hash.clone(),
            cpu_millis: terms.cpu_millis,
            memory_bytes: terms.memory_bytes,
            overhead_bytes: terms.overhead_bytes,
            disk_bytes: terms.disk_bytes,
            devices: terms
                .devices
                .iter()
                .chain(&assignment.devices)
                .map(|(kind, count)| (kind.clone(), *count))
                .collect(),
            host_ports: terms.host_ports.clone(),
            volumes: terms.volumes.iter().map(|held| held.key.clone()).collect(),
            secret_versions: terms.secret_versions.clone(),
        }
    }
}

/// The entries so far, and what must be remembered to write the next.
#[derive(Debug, Default)]
pub(crate) struct Chronicle {
    entries: Vec<Entry>,
    /// Where each slot's newest generation is, to tell a move from a first placement.
    whereabouts: BTreeMap<(GroupKey, SlotKey), NodeName>,
    /// Where each generation is, as a report of its end comes when the state has forgotten it.
    hosts: BTreeMap<(GroupKey, SlotKey, Generation), NodeName>,
    nodes: BTreeMap<NodeName, Arc<Node>>,
    /// Generations told to stop.
    stopping: BTreeSet<(GroupKey, SlotKey, Generation)>,
    rollouts: BTreeMap<(NamespaceName, DeploymentName), (RolloutNumber, RolloutState)>,
}

impl Chronicle {
    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    pub(crate) fn refused(&mut self, now: Time, refused: &CommandError) {
        let entry = self.push(now, Kind::Refused);
        entry.code = Some(refused.code());
        entry.message = Some(refused.to_string());
    }

    pub(crate) fn in_vain(&mut self, now: Time, replica: &str) {
        let entry = self.push(now, Kind::InVain);
        entry.replica = Some(replica.to_owned());
        entry.message = Some("there is no such replica with a process".to_owned());
    }

    pub(crate) fn record(&mut self, now: Time, event: &Event, stats: &mut Stats) {
        match event {
            Event::NodeChanged(node) => self.node_changed(now, node),
            Event::NodeGone(node) => self.node_gone(now, node),
            Event::NodeForgotten(node) => self.push(now, Kind::NodeForgotten).node = Some(node.clone()),
            Event::EvacuationChanged(evacuation) => self.evacuation_changed(now, evacuation),
            Event::RolloutChanged { namespace, deployment, rollout } => {
                self.rollout_changed(now, namespace, deployment, rollout);
            }
            Event::Stopping { group, slot, generation } => {
                self.stopping.insert((group.clone(), slot.clone(), *generation));
            }
            Event::SlotStepped { group, slot, step } => self.stepped(now, group, slot, *step),
            Event::Placed { group, slot, generation, assignment } => {
                self.placed(now, group, slot, *generation, assignment, stats);
            }
            Event::SlotWaits { group, slot, reason, details } => self.waits(now, group, slot, *reason, details),
            Event::Restarting { group, slot, generation, attempt } => {
                let entry = self.push_replica(now, Kind::Restarted, group, slot, *generation);
                entry.attempt = Some(*attempt);
            }
            Event::Observed { group, slot, generation, attempt, state: seen, code, details, failures, .. }
                if *seen != ReplicaState::Failed || *failures > 0 =>
            {
                self.observed(now, group, slot, (*generation, *attempt), (*seen, *code), details);
            }
            Event::Released { group, slot, generation, .. } => {
                self.push_replica(now, Kind::Stopped, group, slot, *generation);
                self.hosts.remove(&(group.clone(), slot.clone(), *generation));
            }
            Event::Rebalanced(made) => self.rebalanced(now, made),
            Event::SlotGone { group, slot } => {
                self.whereabouts.remove(&(group.clone(), slot.clone()));
            }
            // A replica seen failed without a failure was given another chance by an apply: nothing happened to it.
            Event::Observed { .. }
            | Event::Configured(_)
            | Event::NodeRemoved { .. }
            | Event::GroupChanged { .. }
            | Event::GroupRolls { .. }
            | Event::DeploymentGone { .. }
            | Event::GroupUnwanted(_)
            | Event::GroupGone(_)
            | Event::SlotOpened { .. }
            | Event::SlotClosing { .. }
            | Event::Rescheduled { .. }
            | Event::Collected { .. }
            | Event::FailureCounted { .. }
            | Event::EvenOutAsked(_)
            | Event::EvenedOut(_)
            | Event::AddressResting { .. }
            | Event::VolumeMade(_)
            | Event::VolumeGone(_)
            | Event::SecretSet { .. }
            | Event::SecretGone { .. }
            | Event::AccessChanged
            | Event::QuotaSet { .. } => {}
        }
    }

    fn push(&mut self, now: Time, kind: Kind) -> &mut Entry {
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

    fn push_replica(
        &mut self,
        now: Time,
        kind: Kind,
        group: &GroupKey,
        slot: &SlotKey,
        generation: Generation,
    ) -> &mut Entry {
        let node = self.hosts.get(&(group.clone(), slot.clone(), generation)).cloned();
        let entry = self.push(now, kind);
        entry.replica = Some(slot.printed(group));
        entry.generation = Some(generation);
        entry.node = node;
        entry
    }

    fn placed(
        &mut self,
        now: Time,
        group: &GroupKey,
        slot: &SlotKey,
        generation: Generation,
        assignment: &Assignment,
        stats: &mut Stats,
    ) {
        let node = assignment.node.clone();
        self.hosts.insert((group.clone(), slot.clone(), generation), node.clone());
        let entry = self.push_replica(now, Kind::Placed, group, slot, generation);
        entry.assignment = Some(Promise::of(assignment));
        let before = self.whereabouts.insert((group.clone(), slot.clone()), node.clone());
        if let Some(from) = before.filter(|before| *before != node) {
            stats.moves += 1;
            self.push_replica(now, Kind::Moved, group, slot, generation).from = Some(from);
        }
    }

    /// Every generation ever placed of a slot, in order.
    fn generations_of(&self, group: &GroupKey, slot: &SlotKey) -> impl DoubleEndedIterator<Item = Generation> {
        let first = (group.clone(), slot.clone(), Generation(0));
        let last = (group.clone(), slot.clone(), Generation(u32::MAX));
        self.hosts.range(first..=last).map(|((_, _, generation), _)| *generation)
    }

    /// The newest generation ever placed of a slot; its node may be away, and there may be none yet.
    fn newest_of(&self, group: &GroupKey, slot: &SlotKey) -> Generation {
        self.generations_of(group, slot).next_back().unwrap_or(Generation(0))
    }

    fn waits(&mut self, now: Time, group: &GroupKey, slot: &SlotKey, reason: Reason, details: &Details) {
        let generation = self.newest_of(group, slot);
        let entry = self.push_replica(now, Kind::Waiting, group, slot, generation);
        entry.code = Some(reason.code());
        entry.details = details.clone();
    }

    fn observed(
        &mut self,
        now: Time,
        group: &GroupKey,
        slot: &SlotKey,
        (generation, attempt): (Generation, Attempt),
        (state, code): (ReplicaState, Option<RuntimeCode>),
        details: &Details,
    ) {
        let kind = match state {
            ReplicaState::Starting => Kind::Started,
            ReplicaState::Running => Kind::Running,
            ReplicaState::Degraded => Kind::Degraded,
            ReplicaState::Failed => Kind::Failed,
            ReplicaState::Completed => Kind::Completed,
            ReplicaState::Lost => Kind::Lost,
            // A pull that fails is tried again for ever, and said once.
            ReplicaState::Pending if code == Some(RuntimeCode::ImagePullFailed) => Kind::Failed,
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Draining | ReplicaState::Stopped => return,
        };
        let entry = self.push_replica(now, kind, group, slot, generation);
        entry.attempt = Some(attempt).filter(|attempt| attempt.0 > 0);
        entry.code = code.map(RuntimeCode::code);
        entry.details = details.clone();
    }
}
