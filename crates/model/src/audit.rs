//! The audit log: who changed what, and when.
//!
//! Owns: the closed list of audited actions, and the record of one.
//! Must not touch: contents. A record names its subject; secrets and manifests are never in it.

use serde::{Deserialize, Serialize};

use crate::{NodeName, StateIndex, Time};

/// Who asked for a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// One of the leader's own control loops.
    #[default]
    System,
    /// A person or program, by the name of its token or of its local user.
    Operator(String),
    /// The agent of a node.
    Node(NodeName),
}

/// One action that was carried out or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEvent {
    /// Position in the log, counted from 1. Records are dropped from whoever has the most, its oldest first.
    pub number: u64,
    /// Index of the state it led to, or was refused in.
    pub index: StateIndex,
    /// Time of the change.
    pub at: Time,
    /// Who asked for it.
    pub actor: Actor,
    /// What was asked for.
    pub action: AuditAction,
    /// Printed name of what it concerns.
    pub subject: String,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// Why it was done, where a failure led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// It changed the state.
    Done,
    /// The state was so already.
    Unchanged,
    /// It was refused with this code.
    Refused(String),
}

/// An audited action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// Settings were changed.
    ClusterConfigured,
    /// A node joined.
    NodeJoined,
    /// A node's labels were changed.
    NodeLabelled,
    /// A node's declared attributes were changed.
    NodeAttributesSet,
    /// A node's intent was changed.
    NodeIntentSet,
    /// A drain was requested.
    NodeDrained,
    /// An operator confirmed that a node is lost for good.
    NodeConfirmedLost,
    /// The failure detector changed a node's health.
    NodeHealthSet,
    /// The use of a degraded node was allowed or forbidden.
    NodeOverrideSet,
    /// A manifest was applied.
    DeploymentApplied,
    /// A service was scaled.
    ServiceScaled,
    /// A deployment was removed.
    DeploymentRemoved,
    /// A deployment was rolled back to an older revision.
    DeploymentRolledBack,
    /// A rollout was paused, resumed or promoted.
    #[serde(rename = "rollout_steered")]
    RolloutControlled,
    /// A service was restarted on purpose.
    ServiceRestarted,
    /// An allowed caller requested a command in a replica. Whether it could be started is not recorded.
    #[serde(rename = "exec_asked")]
    ExecRequested,
    /// A backup, which includes the cluster's keys, was handed out.
    BackupTaken,
    /// A secret got a new version.
    SecretPut,
    /// A secret was removed.
    SecretRemoved,
    /// Another cluster key encrypts from now on.
    KeyRotated,
    /// A namespace's quota was set.
    QuotaSet,
    /// A namespace's policy was set.
    PolicySet,
    /// Rebalancing of the spread of services was requested.
    #[serde(rename = "even_out_asked")]
    EvenOutRequested,
    /// The cluster was created.
    #[serde(rename = "cluster_founded")]
    ClusterBootstrapped,
    /// The cluster was recovered from a backup, or from the disk of one member.
    #[serde(rename = "cluster_began_again")]
    ClusterRecovered,
    /// A join token was created.
    JoinGranted,
    /// A node was admitted with a join token.
    NodeAdmitted,
    /// A node's address changed.
    NodeRelocated,
    /// An API token was issued.
    TokenIssued,
    /// A token was revoked.
    TokenRevoked,
    /// A deployment was stopped.
    DeploymentStopped,
    /// A stopped deployment was started.
    DeploymentStarted,
    /// A volume was removed with its data.
    VolumeRemoved,
    /// A rollout failed and waits for an operator.
    RolloutPaused,
    /// A rollout failed, and its replicas are being rolled back.
    RolloutAborted,
    /// Every replica of a failed rollout is rolled back.
    RolledBack,
}

impl AuditAction {
    /// Stable: operators filter by these names. Add names, never rename one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterConfigured => "cluster_configured",
            Self::NodeJoined => "node_joined",
            Self::NodeLabelled => "node_labelled",
            Self::NodeAttributesSet => "node_attributes_set",
            Self::NodeIntentSet => "node_intent_set",
            Self::NodeDrained => "node_drained",
            Self::NodeConfirmedLost => "node_confirmed_lost",
            Self::NodeHealthSet => "node_health_set",
            Self::NodeOverrideSet => "node_override_set",
            Self::DeploymentApplied => "deployment_applied",
            Self::ServiceScaled => "service_scaled",
            Self::DeploymentRemoved => "deployment_removed",
            Self::DeploymentRolledBack => "deployment_rolled_back",
            Self::RolloutControlled => "rollout_steered",
            Self::ServiceRestarted => "service_restarted",
            Self::ExecRequested => "exec_asked",
            Self::BackupTaken => "backup_taken",
            Self::SecretPut => "secret_put",
            Self::SecretRemoved => "secret_removed",
            Self::KeyRotated => "key_rotated",
            Self::QuotaSet => "quota_set",
            Self::PolicySet => "policy_set",
            Self::EvenOutRequested => "even_out_asked",
            Self::ClusterBootstrapped => "cluster_founded",
            Self::ClusterRecovered => "cluster_began_again",
            Self::JoinGranted => "join_granted",
            Self::NodeAdmitted => "node_admitted",
            Self::NodeRelocated => "node_relocated",
            Self::TokenIssued => "token_issued",
            Self::TokenRevoked => "token_revoked",
            Self::DeploymentStopped => "deployment_stopped",
            Self::DeploymentStarted => "deployment_started",
            Self::VolumeRemoved => "volume_removed",
            Self::RolloutPaused => "rollout_paused",
            Self::RolloutAborted => "rollout_aborted",
            Self::RolledBack => "rolled_back",
        }
    }
}
