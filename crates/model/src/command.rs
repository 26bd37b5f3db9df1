//! What may be asked of the state machine.
//!
//! Owns: the closed list of commands. Each carries everything it needs, its time included.
//! Invariant: applying the same commands in the same order gives the same state, always.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    AfterDrain, Attempt, ClusterConfig, DeploymentName, DeploymentSpec, Generation, GroupKey, Health, Intent,
    NamespaceName, Node, NodeName, Plan, ReplicaState, RevisionNumber, RuntimeCode, SecretName, SlotKey, Time,
    access::AccessCommand,
    node::{Survey, UseDegraded},
    replica::Details,
    units,
};

/// One change asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Sets the cluster's settings.
    Configure(ClusterConfig),
    /// A node joins, or reports itself anew.
    Join(Box<Node>),
    /// Labels of a node; an empty value takes the label away.
    Label {
        /// The node.
        node: NodeName,
        /// Labels to set.
        labels: BTreeMap<String, String>,
    },
    /// What operators want of a node.
    SetIntent {
        /// The node.
        node: NodeName,
        /// The wish. To remove a node this way asks nobody to leave it first.
        intent: Intent,
        /// When.
        at: Time,
    },
    /// A node shall be emptied, and perhaps leave.
    Drain {
        /// The node.
        node: NodeName,
        /// Until when jobs may finish.
        deadline: Option<Time>,
        /// What follows.
        then: AfterDrain,
        /// When.
        at: Time,
    },
    /// An operator says that a node that is away is gone for good.
    ConfirmLost {
        /// The node.
        node: NodeName,
        /// When.
        at: Time,
    },
    /// What was detected of a node.
    SetHealth {
        /// The node.
        node: NodeName,
        /// How it does.
        health: Health,
        /// When.
        at: Time,
    },
    /// Whether a degraded node may be used.
    SetUseDegraded {
        /// The node.
        node: NodeName,
        /// The operator's word.
        use_degraded: UseDegraded,
    },
    /// A manifest becomes a deployment's next revision.
    Apply {
        /// Scope.
        namespace: NamespaceName,
        /// Which deployment.
        deployment: DeploymentName,
        /// The resolved manifest.
        spec: Box<DeploymentSpec>,
    },
    /// A service's count changes: a new revision that differs only there.
    Scale {
        /// Which service.
        group: GroupKey,
        /// The new count.
        replicas: u32,
    },
    /// A deployment goes away.
    Remove {
        /// Scope.
        namespace: NamespaceName,
        /// Which deployment.
        deployment: DeploymentName,
    },
    /// An older manifest is in force again, and rolled to.
    Rollback {
        /// Scope.
        namespace: NamespaceName,
        /// Which deployment.
        deployment: DeploymentName,
        /// Which of its kept manifests; `None` is the one a rollout came from, else the one in force before.
        to: Option<RevisionNumber>,
        /// When.
        at: Time,
    },
    /// Something is said about a rollout under way.
    Steer {
        /// Scope.
        namespace: NamespaceName,
        /// Which deployment's.
        deployment: DeploymentName,
        /// What.
        word: Steering,
        /// When.
        at: Time,
    },
    /// Every replica of a service is replaced by another of the same, step by step; what was given up is tried again.
    Restart {
        /// Which service.
        group: GroupKey,
        /// When.
        at: Time,
    },
    /// A secret gets a version.
    PutSecret {
        /// Scope.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
        /// Its version.
        version: u64,
    },
    /// A namespace gets a ceiling.
    SetQuota {
        /// Scope.
        namespace: NamespaceName,
        /// The ceiling.
        quota: Quota,
    },
    /// The spread of every service that allows it is evened out.
    EvenOut,
    /// Somebody asks for a command beside a replica. Changes nothing; it is on record that they did, before it starts.
    NoteExec {
        /// Its service.
        group: GroupKey,
        /// Its slot.
        slot: SlotKey,
    },
    /// Somebody asks for a backup. Changes nothing; it is on record that they did, before they get it.
    NoteBackup,
    /// Who belongs to the cluster, or may ask it for something, changes.
    Access(Box<AccessCommand>),
    /// What a node says it is and has, now that its agent has started again; what operators said of it stays.
    Refresh {
        /// The node.
        node: NodeName,
        /// What it has.
        survey: Box<Survey>,
    },
    /// A pass's decisions.
    Commit(Box<Plan>),
    /// What an agent saw.
    Observe(Observation),
}

/// What an operator says about a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    /// No new steps.
    Pause,
    /// Go on.
    Resume,
    /// The first slots do well; the others may follow.
    Promote,
}

/// Ceilings of a namespace; absent is unlimited.
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
    /// The word in details and sentences.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replicas => "replicas",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }

    /// So much of it, in the unit people read: `3`, `512 MiB` or `1.5 cores`.
    pub fn amount(self, amount: u64) -> String {
        match self {
            Self::Replicas => amount.to_string(),
            Self::Memory => units::bytes(amount),
            Self::Cpu => units::cores(amount),
        }
    }
}

/// What an agent saw of one generation and attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The group.
    pub group: GroupKey,
    /// The slot.
    pub slot: SlotKey,
    /// The generation seen.
    pub generation: Generation,
    /// The attempt seen.
    pub attempt: Attempt,
    /// When the generation seen was placed: a slot that has gone and is opened anew counts from one again, and what was seen
    /// of its former life says nothing about this one. Absent in what was written before there was the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed_at: Option<Time>,
    /// Its state.
    pub state: ReplicaState,
    /// Why, where there is a why.
    pub code: Option<RuntimeCode>,
    /// Particulars.
    pub details: Details,
    /// When, stamped by the leader.
    pub at: Time,
}
