//! Who did what, and when: the record operators read after the fact.
//!
//! Owns: the closed list of actions worth a record, and the shape of one.
//! Must not touch: contents. A record names its subject; secrets and manifests are never in it.

use serde::{Deserialize, Serialize};

use crate::{NodeName, StateIndex, Time};

/// Who asked for a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// One of the leader's own loops.
    #[default]
    System,
    /// A person or program, by the name of its token or its user on this machine.
    Operator(String),
    /// The agent of a node.
    Node(NodeName),
}

/// One thing done, or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEvent {
    /// Its place in the record: counted from 1, without gaps, older ones forgotten first.
    pub number: u64,
    /// The state it led to, or was refused in.
    pub index: StateIndex,
    /// When.
    pub at: Time,
    /// Who.
    pub actor: Actor,
    /// What.
    pub action: AuditAction,
    /// To whom: a printed name.
    pub subject: String,
    /// How it ended.
    pub outcome: AuditOutcome,
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// The state changed.
    Done,
    /// It was so already.
    Unchanged,
    /// It was refused, with this code.
    Refused(String),
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// Settings were changed.
    ClusterConfigured,
    /// A node joined.
    NodeJoined,
    /// A node's labels were changed.
    NodeLabelled,
    /// Operators want something else of a node.
    NodeIntentSet,
    /// A node is to be emptied.
    NodeDrained,
    /// An operator said that a node is gone for good.
    NodeConfirmedLost,
    /// A node was found to do better or worse.
    NodeHealthSet,
    /// The use of a degraded node was allowed or forbidden.
    NodeOverrideSet,
    /// A manifest was applied.
    DeploymentApplied,
    /// A service was scaled.
    ServiceScaled,
    /// A deployment was removed.
    DeploymentRemoved,
    /// An older manifest was put in force again.
    DeploymentRolledBack,
    /// A rollout was paused, resumed or promoted.
    RolloutSteered,
    /// A service was restarted on purpose.
    ServiceRestarted,
    /// A command beside a replica was asked for, by somebody who may. Whether it could be started is not on record.
    ExecAsked,
    /// Everything the cluster knows, its keys included, was handed out.
    BackupTaken,
    /// A secret got a version.
    SecretPut,
    /// A secret was removed.
    SecretRemoved,
    /// Another of the cluster's keys seals from now on.
    KeyRotated,
    /// A namespace got a ceiling.
    QuotaSet,
    /// Services are to be evened out over the nodes.
    EvenOutAsked,
    /// The cluster was made.
    ClusterFounded,
    /// The cluster went on from a backup, or from the disk of one member.
    ClusterBeganAgain,
    /// A token was made that lets one node in.
    JoinGranted,
    /// A node was let in.
    NodeAdmitted,
    /// A node is reached elsewhere.
    NodeRelocated,
    /// An operator got a token.
    TokenIssued,
    /// A token was revoked.
    TokenRevoked,
}

impl AuditAction {
    /// Stable: operators filter by these words. Add words, never rename one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterConfigured => "cluster_configured",
            Self::NodeJoined => "node_joined",
            Self::NodeLabelled => "node_labelled",
            Self::NodeIntentSet => "node_intent_set",
            Self::NodeDrained => "node_drained",
            Self::NodeConfirmedLost => "node_confirmed_lost",
            Self::NodeHealthSet => "node_health_set",
            Self::NodeOverrideSet => "node_override_set",
            Self::DeploymentApplied => "deployment_applied",
            Self::ServiceScaled => "service_scaled",
            Self::DeploymentRemoved => "deployment_removed",
            Self::DeploymentRolledBack => "deployment_rolled_back",
            Self::RolloutSteered => "rollout_steered",
            Self::ServiceRestarted => "service_restarted",
            Self::ExecAsked => "exec_asked",
            Self::BackupTaken => "backup_taken",
            Self::SecretPut => "secret_put",
            Self::SecretRemoved => "secret_removed",
            Self::KeyRotated => "key_rotated",
            Self::QuotaSet => "quota_set",
            Self::EvenOutAsked => "even_out_asked",
            Self::ClusterFounded => "cluster_founded",
            Self::ClusterBeganAgain => "cluster_began_again",
            Self::JoinGranted => "join_granted",
            Self::NodeAdmitted => "node_admitted",
            Self::NodeRelocated => "node_relocated",
            Self::TokenIssued => "token_issued",
            Self::TokenRevoked => "token_revoked",
        }
    }
}
