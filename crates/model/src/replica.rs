//! Slots, their generations, and the states of replicas.
//!
//! Owns: the planned and the observed part of a replica.
//! Invariant: an observation belongs to one generation and attempt, and never changes another.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    Attempt, Generation, NodeName, Reason, ResolvedImage, RevisionNumber, RuntimeCode, SecretName, ServiceName,
    SlotKey, Time, VolumeKey,
    device::{DeviceRequest, TakenDevices},
    restart_fingerprint::RestartFingerprints,
    rollout::Step,
    service::{Program, Protocol, ServiceKind, SpecHash},
};

/// One replica position of a service. It exists until the service is scaled down or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Its identity in the group.
    pub key: SlotKey,
    /// Generation of the newest decision; 0 while it was never placed.
    pub newest: Generation,
    /// Generations not yet observed stopped, oldest first.
    pub replicas: Vec<Replica>,
    /// Why it has no node, while it has none.
    pub waiting: Option<Reason>,
    /// Details of `waiting`, as of the decision.
    pub waiting_details: Details,
    /// Whether it shall have a running replica.
    #[serde(rename = "wanted")]
    pub desired: DesiredState,
    /// Its step in the newest rollout that changed it.
    #[serde(default)]
    pub step: Option<Step>,
    /// When it was last moved by a rebalance.
    #[serde(default)]
    pub moved_at: Option<Time>,
    /// The generation that starts it again after its deployment was stopped. Like the first, it waits for dependencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_again: Option<Generation>,
}

/// One generation of a slot on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Its number in the slot.
    pub generation: Generation,
    /// Number of its current start.
    pub attempt: Attempt,
    /// Node, address and reservation.
    pub assignment: Assignment,
    /// Whether it shall run or stop.
    #[serde(rename = "wanted")]
    pub desired: DesiredState,
    /// Last observed state.
    pub state: ReplicaState,
    /// Why, where the state needs a reason.
    pub code: Option<RuntimeCode>,
    /// Details of the code, by name.
    pub details: Details,
    /// When the state began.
    pub since: Time,
    /// Failures since it last ran for the monitor time.
    pub failures: u32,
    /// Restarts in this generation.
    pub restarts: u32,
    /// What its next start waits for.
    #[serde(default, skip_serializing_if = "RestartHistory::is_empty")]
    pub history: RestartHistory,
    /// Its state, and when that began, before its node became unreachable. If the node returns and reports the same
    /// state, the state counts as uninterrupted.
    #[serde(default)]
    pub before_loss: Option<(ReplicaState, Time)>,
    /// The generation that had replaced it by the time its lost node reported it again.
    #[serde(default, rename = "rival")]
    pub replaced_by: Option<Generation>,
}

/// Counts from which the pause before a replica's next start follows. They clear after ten minutes of `running`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartHistory {
    /// Ends since it last ran for ten minutes or returned; the back-off grows with them. Unlike `failures` they also count
    /// what was not the replica's own fault.
    #[serde(default)]
    pub ends: u32,
    /// Returns after exhausted restarts; the pause before the next return grows with them.
    #[serde(default)]
    pub returns: u32,
}

impl RestartHistory {
    /// Whether nothing was counted.
    pub const fn is_empty(&self) -> bool {
        self.ends == 0 && self.returns == 0
    }

    /// The history when a replica with exhausted restarts starts again.
    #[must_use]
    pub const fn after_return(self) -> Self {
        Self { ends: 0, returns: self.returns.saturating_add(1) }
    }
}

/// A move to another node after restarts on the old one were exhausted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rescheduled {
    /// Time of the change.
    pub at: Time,
    /// The node it left; it is tried last from then on.
    pub from: NodeName,
    /// Delay before the move. The next delay grows from this one.
    pub delay: Duration,
}

/// Garbage-collected replicas of a job. They count as done and are not run again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// Number of completed ones.
    pub completed: u32,
    /// Number of failed ones.
    pub failed: u32,
    /// Outcome by node, for a job with one replica per node.
    pub nodes: BTreeMap<NodeName, JobOutcome>,
}

impl Collected {
    /// Completed and failed together.
    pub const fn total(&self) -> u32 {
        self.completed.saturating_add(self.failed)
    }
}

/// Outcome of a job's replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobOutcome {
    /// It exited successfully.
    Completed,
    /// It exhausted its restarts.
    Failed,
}

/// Details of a code, by name.
pub type Details = BTreeMap<String, Detail>;

/// One detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Detail {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

/// What a registry definitely answered to a pull; no retry changes it by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryAnswer {
    /// It has no such image.
    NotFound,
    /// It does not give the image to this node.
    Denied,
}

impl RegistryAnswer {
    /// The name of the detail of `image_pull_failed` that holds it.
    pub const DETAIL: &'static str = "registry_answer";
    /// Every answer.
    pub const ALL: &'static [Self] = &[Self::NotFound, Self::Denied];

    /// Stable: the value of the detail, and of `pull` in a scenario.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Denied => "denied",
        }
    }
}

/// Whether a slot or replica shall run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DesiredState {
    /// It shall run.
    #[default]
    Run,
    /// It shall stop.
    Stop,
}

impl DesiredState {
    /// Whether a generation with this desired state and that observed state counts as live: it shall run and is not lost.
    /// A slot without a live generation waits for placement.
    pub const fn is_live(self, state: ReplicaState) -> bool {
        match self {
            Self::Run => !matches!(state, ReplicaState::Lost),
            Self::Stop => false,
        }
    }
}

/// The placement of a generation; never changed afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The node.
    pub node: NodeName,
    /// Cluster-unique overlay address.
    pub address: Ipv6Addr,
    /// When it was decided.
    pub placed_at: Time,
    /// Its reservation; shared by the replicas of one batch.
    #[serde(rename = "terms")]
    pub reservation: Arc<Reservation>,
    /// Devices taken for `reservation.device_requests`, by group.
    #[serde(default)]
    pub devices: TakenDevices,
}

/// Resources a generation occupies on its node, fixed when it was placed. Later changes of settings do not affect it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The revision it was placed for.
    pub revision: RevisionNumber,
    /// Hash of the spec it was created from.
    pub spec_hash: SpecHash,
    /// Kind of its service when it was placed; a service that becomes a job does not turn running replicas into jobs.
    #[serde(default)]
    pub kind: ServiceKind,
    /// CPU request, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory cap.
    pub memory_bytes: u64,
    /// Memory overhead of the driver.
    pub overhead_bytes: u64,
    /// Scratch disk.
    pub disk_bytes: u64,
    /// Devices, by kind.
    pub devices: BTreeMap<String, u64>,
    /// Devices requested by vendor, model or attributes.
    #[serde(default)]
    pub device_requests: Vec<DeviceRequest>,
    /// Ports taken on the node.
    pub host_ports: Vec<HostPort>,
    /// Named volumes held.
    pub volumes: Vec<HeldVolume>,
    /// Versions of the secrets it mounts.
    pub secret_versions: BTreeMap<SecretName, u64>,
    /// Requested restarts of its service so far.
    #[serde(default)]
    pub restart_epoch: u32,
    /// Fingerprints of its direct and transitive dependencies when it was placed.
    #[serde(default, rename = "made_after")]
    pub dependency_fingerprints: RestartFingerprints,
    /// The image it runs, exactly; `None` if the reference of the spec was not resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_image: Option<ResolvedImage>,
}

impl Reservation {
    /// Whether both run the same image with the same settings, whatever their kind.
    pub fn has_same_code(&self, other: &Self) -> bool {
        (&self.spec_hash, &self.resolved_image) == (&other.spec_hash, &other.resolved_image)
    }

    /// What it was created from.
    pub const fn program(&self) -> Program<'_> {
        Program { spec_hash: &self.spec_hash, resolved_image: self.resolved_image.as_ref(), kind: self.kind }
    }

    /// Whether the fingerprints of the named dependencies are still those of its placement.
    pub fn matches_dependencies(&self, services: &BTreeSet<ServiceName>, now: &RestartFingerprints) -> bool {
        let same = |name: &ServiceName| match (self.dependency_fingerprints.get(name), now.get(name)) {
            (Some(then), Some(now)) => then == now,
            // A dependency that did not exist then, or does not now, is no reason for a restart.
            (None, _) | (_, None) => true,
        };
        services.iter().all(same)
    }

    /// Memory it occupies on the node, overhead included.
    pub const fn memory_total(&self) -> u64 {
        self.memory_bytes.saturating_add(self.overhead_bytes)
    }
}

/// A port taken on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// Transport.
    pub protocol: Protocol,
    /// Number.
    pub port: u16,
}

/// A named volume held by a generation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldVolume {
    /// The key.
    pub key: VolumeKey,
    /// Whether other replicas may hold it, too.
    pub sharing: crate::volume::Sharing,
}

/// Observed states of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// Not started, placed or not.
    #[default]
    Pending,
    /// Its image is being pulled.
    Pulling,
    /// Started, not yet healthy.
    Starting,
    /// Healthy, or started where there is no health check.
    Running,
    /// Started, and its health check fails.
    Degraded,
    /// Being stopped.
    Draining,
    /// Stopped on request.
    Stopped,
    /// Exited with an error, or given up.
    Failed,
    /// Exited successfully; only replicas of jobs.
    Completed,
    /// On a node that is lost.
    Lost,
}

impl ReplicaState {
    /// The name in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Pulling => "pulling",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Degraded => "degraded",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Completed => "completed",
            Self::Lost => "lost",
        }
    }
}

/// Whether a generation in that state holds memory, ports, devices, volumes and its address on its node.
///
/// Only a completed job and a replica that was observed stopped hold nothing: one that is being stopped still runs, a
/// failed one may restart, and a lost one may return running.
pub const fn occupies(kind: ServiceKind, state: ReplicaState) -> bool {
    match state {
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Failed
        | ReplicaState::Lost => true,
        ReplicaState::Completed => matches!(kind, ServiceKind::Service | ServiceKind::System),
        ReplicaState::Stopped => false,
    }
}

/// Status of a deployment, always shown with its reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentStatus {
    /// None running, some unplaced.
    Pending,
    /// Replicas are starting, or a rollout is live.
    Progressing,
    /// Every replica runs as desired.
    Active,
    /// Some running, some unplaced or failed.
    Degraded,
    /// Every replica exhausted its restarts.
    Failed,
    /// Its jobs are complete.
    Completed,
    /// An operator stopped it, and no replica is left running.
    Stopped,
}

impl DeploymentStatus {
    /// The name in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Progressing => "progressing",
            Self::Active => "active",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Completed => "completed",
            Self::Stopped => "stopped",
        }
    }
}
