//! Slots, their generations, and the states they are seen in.
//!
//! Owns: what is planned and observed of a replica.
//! Invariant: an observation belongs to one generation and attempt, and says nothing about any other.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    Attempt, Generation, NodeName, Reason, RevisionNumber, RuntimeCode, SecretName, ServiceName, SlotKey, Time,
    VolumeKey,
    device::{DeviceRequest, TakenDevices},
    making::Makings,
    rollout::Step,
    service::{Protocol, ServiceKind, SpecHash},
};

/// One place in a service's count. Lives until scaled away.
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
    /// Numbers behind `waiting`, in words, as of the decision.
    pub waiting_details: Details,
    /// Whether it is still wanted.
    pub wanted: Wanted,
    /// Its part in the newest rollout that had one for it.
    #[serde(default)]
    pub step: Option<Step>,
    /// When it was last moved to even the load.
    #[serde(default)]
    pub moved_at: Option<Time>,
}

/// One generation of a slot on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Which decision.
    pub generation: Generation,
    /// Which start of it.
    pub attempt: Attempt,
    /// Where and with what.
    pub assignment: Assignment,
    /// Whether it shall run or stop.
    pub wanted: Wanted,
    /// Last state seen.
    pub state: ReplicaState,
    /// Why it is in that state, where there is a why.
    pub code: Option<RuntimeCode>,
    /// Particulars of the code.
    pub details: Details,
    /// When the state began.
    pub since: Time,
    /// Failures since it last ran well.
    pub failures: u32,
    /// Restarts in this generation.
    pub restarts: u32,
    /// What it was seen doing, and since when, before its node went out of sight. Still doing that when it is heard of
    /// again, it has done so all along.
    #[serde(default)]
    pub before_loss: Option<(ReplicaState, Time)>,
    /// The generation that had replaced it by the time it was heard of again.
    #[serde(default)]
    pub rival: Option<Generation>,
}

/// A move to another node because restarts on the old one were used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rescheduled {
    /// When.
    pub at: Time,
    /// The node it left; it is the last choice from then on.
    pub from: NodeName,
    /// How long it had waited for the move. The next pause grows from this one.
    pub delay: Duration,
}

/// Replicas of a job that ended and are no longer shown. They are done, so nobody takes their place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// How many ended well.
    pub completed: u32,
    /// How many were given up.
    pub failed: u32,
    /// Nodes on which a job with one replica per node is done, and how it ended there.
    pub nodes: BTreeMap<NodeName, Ending>,
}

impl Collected {
    /// How many there are.
    pub const fn total(&self) -> u32 {
        self.completed.saturating_add(self.failed)
    }
}

/// How a job's replica ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Well.
    Completed,
    /// It was given up.
    Failed,
}

/// Particulars of a code, by name.
pub type Details = BTreeMap<String, Detail>;

/// One particular.
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

/// Whether something shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// Yes.
    #[default]
    Run,
    /// No longer.
    Stop,
}

impl Wanted {
    /// Whether something wanted so and last seen in a state can be counted on: it shall run, and is not known to be gone
    /// with its node. Only a slot without such a generation waits.
    pub const fn is_live(self, state: ReplicaState) -> bool {
        match self {
            Self::Run => !matches!(state, ReplicaState::Lost),
            Self::Stop => false,
        }
    }
}

/// A generation bound to a node, with everything that was decided frozen in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The node.
    pub node: NodeName,
    /// Cluster-unique overlay address.
    pub address: Ipv6Addr,
    /// When it was decided.
    pub placed_at: Time,
    /// What it was promised; shared by the replicas of one batch.
    pub terms: Arc<Terms>,
    /// Which groups of devices answer `terms.device_requests`, and how many of each were taken.
    #[serde(default)]
    pub devices: TakenDevices,
}

/// What a generation occupies on its node, as of its decision. Later changes of settings do not move it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The manifest it follows.
    pub revision: RevisionNumber,
    /// The fingerprint it was made from.
    pub spec_hash: SpecHash,
    /// Whether it was made to stay or to end; a service that becomes a job does not make jobs of what runs.
    #[serde(default)]
    pub kind: ServiceKind,
    /// CPU request, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory cap.
    pub memory_bytes: u64,
    /// Memory on top, for the driver.
    pub overhead_bytes: u64,
    /// Scratch disk.
    pub disk_bytes: u64,
    /// Devices, by kind.
    pub devices: BTreeMap<String, u64>,
    /// Devices asked for by maker, model or attributes.
    #[serde(default)]
    pub device_requests: Vec<DeviceRequest>,
    /// Ports taken on the node.
    pub host_ports: Vec<HostPort>,
    /// Named volumes held.
    pub volumes: Vec<HeldVolume>,
    /// Versions of the secrets it was given.
    pub secret_versions: BTreeMap<SecretName, u64>,
    /// How often its service had been restarted on purpose.
    #[serde(default)]
    pub restart_epoch: u32,
    /// What the services it comes after, near or far, were made of when it was placed.
    #[serde(default)]
    pub made_after: Makings,
}

impl Terms {
    /// Whether the services named, so far as they were known, were made as they are now.
    pub fn was_made_after(&self, services: &BTreeSet<ServiceName>, now: &Makings) -> bool {
        let same = |name: &ServiceName| match (self.made_after.get(name), now.get(name)) {
            (Some(then), Some(now)) => then == now,
            // One that was not there then, or is not any more, is nothing to be restarted after.
            (None, _) | (_, None) => true,
        };
        services.iter().all(same)
    }

    /// Memory that counts against the node.
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
    /// Which.
    pub key: VolumeKey,
    /// Whether anybody else may hold it.
    pub sharing: crate::volume::Sharing,
}

/// States of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// Not started, placed or not.
    #[default]
    Pending,
    /// Its image is on the way.
    Pulling,
    /// Started, not yet healthy.
    Starting,
    /// Healthy, or started where there is no check.
    Running,
    /// Started, and its check fails.
    Degraded,
    /// Told to stop.
    Draining,
    /// Ended as told.
    Stopped,
    /// Ended badly, or given up.
    Failed,
    /// Ended well, a job's replica.
    Completed,
    /// On a node that is gone.
    Lost,
}

impl ReplicaState {
    /// The word in JSON and tables.
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
/// Everything does that was not seen to have ended: told to stop is not stopped, failed may be about to restart, and
/// lost may come back running. Only a job that completed, or what was seen stopped, holds nothing.
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

/// States of a deployment, always shown with their reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentStatus {
    /// None running, some unplaced.
    Pending,
    /// Starts or a rollout under way.
    Progressing,
    /// Converged.
    Active,
    /// Some running, some unplaced or failed.
    Degraded,
    /// All exhausted.
    Failed,
    /// A job done.
    Completed,
}

impl DeploymentStatus {
    /// The word in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Progressing => "progressing",
            Self::Active => "active",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Completed => "completed",
        }
    }
}
