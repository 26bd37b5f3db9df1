//! The commands of the state machine.
//!
//! Owns: the closed list of commands. Each carries everything it needs, its time included.
//! Invariant: applying the same commands in the same order gives the same state, always.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    AfterDrain, Attempt, ClusterConfig, DeploymentName, DeploymentSpec, GroupKey, Health, Intent, NamespaceName, Node,
    NodeAttributes, NodeName, Plan, ReplicaKey, ReplicaState, RevisionNumber, RuntimeCode, SecretName, SlotKey, Time,
    VolumeKey,
    access::AccessCommand,
    node::{NodeFingerprint, UseDegraded},
    replica::Details,
    units,
};

/// Whether an apply runs services again that run once and have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rerun {
    /// Only those whose spec changed.
    #[default]
    IfChanged,
    /// All of them, as `up` asks for.
    Always,
}

impl Rerun {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands the field in by reference")]
    const fn is_default(&self) -> bool {
        matches!(self, Self::IfChanged)
    }
}

/// One proposed change of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Sets the cluster's settings, whatever they were. Two of these at once lose one change: use
    /// [`ChangeSettings`](Self::ChangeSettings) for requests.
    Configure(ClusterConfig),
    /// Sets the cluster's settings if they are still the expected ones; otherwise it is refused as a conflict.
    ChangeSettings {
        /// The settings that the change was computed from.
        expected: Box<ClusterConfig>,
        /// The new settings.
        config: Box<ClusterConfig>,
    },
    /// A node registers, or registers again.
    Join(Box<Node>),
    /// Sets labels of a node; an empty value removes the label.
    Label {
        /// The node.
        node: NodeName,
        /// Labels to set.
        labels: BTreeMap<String, String>,
    },
    /// Sets declared attributes of a node; absent parts stay.
    SetNodeAttributes {
        /// The node.
        node: NodeName,
        /// The attributes.
        attributes: Box<NodeAttributes>,
        /// Time of the change.
        at: Time,
    },
    /// Sets what operators want of a node.
    SetIntent {
        /// The node.
        node: NodeName,
        /// The intent. `Removed` takes effect at once, without a drain.
        intent: Intent,
        /// Time of the change.
        at: Time,
    },
    /// A node is drained, and perhaps removed afterwards.
    Drain {
        /// The node.
        node: NodeName,
        /// Time until which jobs may finish.
        deadline: Option<Time>,
        /// What follows once the node is empty.
        then: AfterDrain,
        /// Time of the change.
        at: Time,
    },
    /// An operator confirms that an unreachable node is lost for good.
    ConfirmLost {
        /// The node.
        node: NodeName,
        /// Time of the change.
        at: Time,
    },
    /// The failure detector's verdict on a node.
    SetHealth {
        /// The node.
        node: NodeName,
        /// The health.
        health: Health,
        /// Time of the change.
        at: Time,
    },
    /// Allows or forbids new work on a degraded node.
    SetUseDegraded {
        /// The node.
        node: NodeName,
        /// The operator's choice.
        use_degraded: UseDegraded,
    },
    /// A manifest becomes a deployment's next revision.
    Apply {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
        /// The resolved manifest.
        spec: Box<DeploymentSpec>,
        /// Whether services that ended run again.
        #[serde(default, skip_serializing_if = "Rerun::is_default")]
        rerun: Rerun,
    },
    /// Changes a service's replica count: a new revision that differs only there.
    Scale {
        /// The service.
        group: GroupKey,
        /// The new count.
        replicas: u32,
    },
    /// Removes a deployment.
    Remove {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
    },
    /// Rolls a deployment back to an older revision.
    Rollback {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
        /// One of its stored revisions; `None` is the one a live rollout started from, else the one in force before.
        to: Option<RevisionNumber>,
        /// Time of the change.
        at: Time,
    },
    /// Pauses, resumes or promotes a live rollout.
    #[serde(rename = "steer")]
    ControlRollout {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
        /// What to do with it.
        #[serde(rename = "word")]
        control: RolloutControl,
        /// Time of the change.
        at: Time,
    },
    /// Replaces every replica of a service, step by step; replicas that were given up are tried again.
    Restart {
        /// The service.
        group: GroupKey,
        /// Time of the change.
        at: Time,
    },
    /// A secret gets a new version.
    PutSecret {
        /// The namespace.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
        /// Its version.
        version: u64,
    },
    /// Sets a namespace's quota.
    SetQuota {
        /// The namespace.
        namespace: NamespaceName,
        /// The quota.
        quota: Quota,
    },
    /// Requests a rebalance of the spread of every service that allows it.
    EvenOut,
    /// Records in the audit log, before it starts, that somebody runs a command in a replica. Changes nothing else.
    #[serde(rename = "note_exec")]
    RecordExec {
        /// Its service.
        group: GroupKey,
        /// Its slot.
        slot: SlotKey,
    },
    /// Records in the audit log, before it is handed out, that somebody takes a backup. Changes nothing else.
    #[serde(rename = "note_backup")]
    RecordBackup,
    /// Changes memberships, tokens, secrets or keys.
    Access(Box<AccessCommand>),
    /// Updates what a node reported about itself, after its agent restarted; what operators set stays.
    Refresh {
        /// The node.
        node: NodeName,
        /// Its platform, capacity, drivers and plugins.
        #[serde(rename = "survey")]
        fingerprint: Box<NodeFingerprint>,
    },
    /// Applies the plan of one scheduling pass.
    Commit(Box<Plan>),
    /// Records an agent's observation of a replica.
    Observe(Observation),
    /// Stops every replica of a deployment. Its revisions, slots and volumes stay, and nothing starts again before
    /// [`Start`](Self::Start), [`Restart`](Self::Restart) or [`Apply`](Self::Apply).
    Stop {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
        /// Time of the change.
        at: Time,
    },
    /// Forgets a volume whose data was deleted; refused while something mounts or holds it.
    RemoveVolume {
        /// The volume.
        volume: VolumeKey,
    },
    /// Starts a stopped deployment again, with the revision in force.
    Start {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
        /// Time of the change.
        at: Time,
    },
}

impl Command {
    /// The time of the change, where the command has one.
    pub fn time(&self) -> Option<Time> {
        match self {
            Self::SetIntent { at, .. }
            | Self::SetNodeAttributes { at, .. }
            | Self::Drain { at, .. }
            | Self::ConfirmLost { at, .. }
            | Self::SetHealth { at, .. }
            | Self::Rollback { at, .. }
            | Self::ControlRollout { at, .. }
            | Self::Restart { at, .. }
            | Self::Stop { at, .. }
            | Self::Start { at, .. } => Some(*at),
            Self::Join(node) => node.joined_at,
            Self::Commit(plan) => Some(plan.made_at),
            Self::Observe(observation) => Some(observation.at),
            Self::Configure(_)
            | Self::ChangeSettings { .. }
            | Self::Label { .. }
            | Self::SetUseDegraded { .. }
            | Self::Apply { .. }
            | Self::Scale { .. }
            | Self::Remove { .. }
            | Self::RemoveVolume { .. }
            | Self::PutSecret { .. }
            | Self::SetQuota { .. }
            | Self::EvenOut
            | Self::RecordExec { .. }
            | Self::RecordBackup
            | Self::Access(_)
            | Self::Refresh { .. } => None,
        }
    }
}

/// What an operator can do with a live rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutControl {
    /// Begin no new steps.
    Pause,
    /// Continue a paused rollout.
    Resume,
    /// Accept the canary slots and continue with the others.
    Promote,
}

/// Limits of a namespace; absent is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Replicas.
    pub replicas: Option<u64>,
    /// Memory, overhead included.
    pub memory_bytes: Option<u64>,
    /// CPU requests, thousandths of a core.
    pub cpu_millis: Option<u64>,
}

/// What a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaDimension {
    /// Replicas.
    Replicas,
    /// Bytes of memory, overhead included.
    Memory,
    /// Thousandths of a core.
    Cpu,
}

impl QuotaDimension {
    /// The name in details and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replicas => "replicas",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }

    /// Formats an amount in its unit: `3`, `512 MiB` or `1.5 cores`.
    pub fn amount(self, amount: u64) -> String {
        match self {
            Self::Replicas => amount.to_string(),
            Self::Memory => units::bytes(amount),
            Self::Cpu => units::cores(amount),
        }
    }
}

/// An agent's observation of one generation and attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The generation seen.
    pub key: ReplicaKey,
    /// The attempt seen.
    pub attempt: Attempt,
    /// When the observed generation was placed. A slot that was closed and opened again counts generations from 1 again;
    /// this time tells its incarnations apart. Absent in logs written before the field existed.
    pub placed_at: Option<Time>,
    /// Its state.
    pub state: ReplicaState,
    /// Why, where the state needs a reason.
    pub code: Option<RuntimeCode>,
    /// Details of the code, by name.
    pub details: Details,
    /// The leader's time of the observation.
    pub at: Time,
}
