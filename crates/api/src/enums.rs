//! States, statuses and codes as typed values on the wire.
//!
//! Owns: one enum per closed set of words, its text form, and its conversion from the model.
//! Must not touch: what a state means; the model defines that.
//! Invariant: every enum reads and writes exactly the words of the model. A word that this version does not know becomes
//! `Unknown` and is written back unchanged, so that an older client can show what a newer server answers.

use std::fmt;

use longshore_model as model;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The text form of a type that has `as_str` and `From<&str>`: printed, written and read as that word.
macro_rules! text_form {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(deserializer)?.as_str()))
            }
        }
    )*};
}

macro_rules! wire_enums {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "each word is documented where the model defines it")]
        pub enum $name {
            $($variant,)*
            /// A word of a newer server.
            Unknown(String),
        }

        impl $name {
            /// Every word this version knows.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];

            /// The word on the wire and in tables.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Unknown(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Unknown(other.to_owned()),
                }
            }
        }

        text_form!($name);
    )*};
}

/// Conversions that the compiler keeps complete: a new variant of the model does not build until it has a word here.
macro_rules! from_model {
    ($($model:path => $name:ident { $($variant:ident),* $(,)? })*) => {$(
        impl From<$model> for $name {
            fn from(value: $model) -> Self {
                match value {
                    $(<$model>::$variant => Self::$variant,)*
                }
            }
        }
    )*};
}

wire_enums! {
    /// State of a replica.
    ReplicaState {
        Pending = "pending",
        Pulling = "pulling",
        Starting = "starting",
        Running = "running",
        Degraded = "degraded",
        Draining = "draining",
        Stopped = "stopped",
        Failed = "failed",
        Completed = "completed",
        Lost = "lost",
    }
    /// Status of a deployment.
    DeploymentStatus {
        Pending = "pending",
        Progressing = "progressing",
        Active = "active",
        Degraded = "degraded",
        Failed = "failed",
        Completed = "completed",
        Stopped = "stopped",
    }
    /// State of a rollout.
    RolloutState {
        InProgress = "in_progress",
        Paused = "paused",
        AwaitingPromotion = "awaiting_promotion",
        Completed = "completed",
        Aborted = "aborted",
        RolledBack = "rolled_back",
        Superseded = "superseded",
    }
    /// What an operator wants of a node.
    Intent {
        Active = "active",
        Paused = "paused",
        Draining = "draining",
        Removed = "removed",
    }
    /// What was detected of a node.
    Health {
        Ready = "ready",
        Suspect = "suspect",
        Down = "down",
        Degraded = "degraded",
    }
    /// Whether a node is a member of the control plane, in the words of placement constraints.
    ConstraintRole {
        Worker = "worker",
        Manager = "manager",
    }
    /// Whether a node may vote.
    NodeRole {
        Server = "server",
        Worker = "worker",
    }
    /// What the holder of a token may do.
    TokenRole {
        View = "view",
        Deploy = "deploy",
        Admin = "admin",
    }
    /// What starts a replica.
    Driver {
        Docker = "docker",
        Exec = "exec",
        Microvm = "microvm",
    }
    /// Transport protocol of a published port.
    Protocol {
        Tcp = "tcp",
        Udp = "udp",
        Sctp = "sctp",
    }
    /// Where a published port listens: on every node, or on the replica's node.
    PortMode {
        Ingress = "ingress",
        Host = "host",
    }
    /// Progress of a drain.
    DrainOutcome {
        UnderWay = "under_way",
        TimedOut = "timed_out",
        Done = "done",
    }
    /// What happens to a node once it is drained.
    AfterDrain {
        Keep = "keep",
        Remove = "remove",
    }
    /// Result of an audited action.
    AuditOutcome {
        Done = "done",
        Unchanged = "unchanged",
        Refused = "refused",
    }
    /// What kind of thing an error is about: `details.kind` of an answer about something that does not exist.
    ObjectKind {
        Node = "node",
        Deployment = "deployment",
        Service = "service",
        Replica = "replica",
        Namespace = "namespace",
        Secret = "secret",
        Token = "token",
        Revision = "revision",
        Volume = "volume",
        Rollout = "rollout",
    }
    /// Why a replica has no node, or is not simply running. The codes are those of the error pages.
    Code {
        SecretsMissing = "secrets_missing",
        VolumeConstraintsInvalid = "volume_constraints_invalid",
        QuotaExceeded = "quota_exceeded",
        DependencyNotReady = "dependency_not_ready",
        NoNodesActive = "no_nodes_active",
        CannotSatisfyHostPlacement = "cannot_satisfy_host_placement",
        PoolUnavailable = "pool_unavailable",
        VolumeHomeNodeOffline = "volume_home_node_offline",
        VolumeLocalityNoNode = "volume_locality_no_node",
        VolumeInUse = "volume_in_use",
        ConstraintUnsatisfied = "constraint_unsatisfied",
        PlatformUnsupported = "platform_unsupported",
        DriverMissing = "driver_missing",
        PluginMissing = "plugin_missing",
        HostPortInUse = "host_port_in_use",
        MaxReplicasPerNode = "max_replicas_per_node",
        DistinctHosts = "distinct_hosts",
        DistinctProperty = "distinct_property",
        AffinityUnsatisfied = "affinity_unsatisfied",
        MaxSkew = "max_skew",
        NoCapacityMemory = "no_capacity_memory",
        NoCapacityDisk = "no_capacity_disk",
        NoCapacityDevice = "no_capacity_device",
        IpamExhausted = "ipam_exhausted",
        BatchIncomplete = "batch_incomplete",
        Pulling = "pulling",
        ImagePullFailed = "image_pull_failed",
        StartFailed = "start_failed",
        HealthcheckFailed = "healthcheck_failed",
        Exited = "exited",
        OomKilled = "oom_killed",
        RestartExhausted = "restart_exhausted",
        NodeLost = "node_lost",
        EngineUnreachable = "engine_unreachable",
        SubnetPoolExhausted = "subnet_pool_exhausted",
        DrainTimeout = "drain_timeout",
        DrainBlockedStateful = "drain_blocked_stateful",
    }
}

from_model! {
    model::ReplicaState => ReplicaState {
        Pending, Pulling, Starting, Running, Degraded, Draining, Stopped, Failed, Completed, Lost,
    }
    model::DeploymentStatus => DeploymentStatus {
        Pending, Progressing, Active, Degraded, Failed, Completed, Stopped,
    }
    model::RolloutState => RolloutState {
        InProgress, Paused, AwaitingPromotion, Completed, Aborted, RolledBack, Superseded,
    }
    model::Intent => Intent { Active, Paused, Draining, Removed }
    model::Health => Health { Ready, Suspect, Down, Degraded }
    model::ConstraintRole => ConstraintRole { Worker, Manager }
    model::access::NodeRole => NodeRole { Server, Worker }
    model::access::TokenRole => TokenRole { View, Deploy, Admin }
    model::Driver => Driver { Docker, Exec, Microvm }
    model::service::Protocol => Protocol { Tcp, Udp, Sctp }
    model::service::PortMode => PortMode { Ingress, Host }
    model::DrainOutcome => DrainOutcome { UnderWay, TimedOut, Done }
    model::AfterDrain => AfterDrain { Keep, Remove }
    model::Reason => Code {
        SecretsMissing, VolumeConstraintsInvalid, QuotaExceeded, DependencyNotReady, NoNodesActive,
        CannotSatisfyHostPlacement, PoolUnavailable, VolumeHomeNodeOffline, VolumeLocalityNoNode, VolumeInUse,
        ConstraintUnsatisfied, PlatformUnsupported, DriverMissing, PluginMissing, HostPortInUse, MaxReplicasPerNode,
        DistinctHosts, DistinctProperty, AffinityUnsatisfied, MaxSkew, NoCapacityMemory, NoCapacityDisk,
        NoCapacityDevice, IpamExhausted, BatchIncomplete,
    }
    model::RuntimeCode => Code {
        Pulling, ImagePullFailed, StartFailed, HealthcheckFailed, Exited, OomKilled, RestartExhausted, NodeLost,
        EngineUnreachable, DependencyNotReady, SubnetPoolExhausted, DrainTimeout, DrainBlockedStateful,
    }
}

/// Why a replica is still on a node that is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainBlocker {
    /// A job that may finish.
    Finishing,
    /// Its replacement does not run well yet.
    Moving,
    /// It was told to stop and was not yet seen stopped.
    Stopping,
    /// It cannot move: its data is there, or no other node takes it.
    Blocked(Code),
}

impl DrainBlocker {
    /// The word on the wire and in tables.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Finishing => "finishing",
            Self::Moving => "moving",
            Self::Stopping => "stopping",
            Self::Blocked(code) => code.as_str(),
        }
    }
}

impl From<&str> for DrainBlocker {
    fn from(word: &str) -> Self {
        match word {
            "finishing" => Self::Finishing,
            "moving" => Self::Moving,
            "stopping" => Self::Stopping,
            code => Self::Blocked(code.into()),
        }
    }
}

/// One reason behind a deployment's status, or what a rollout waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusReason {
    /// The deployment was removed and its replicas have not all stopped.
    Removing,
    /// The deployment was stopped and its replicas have not all ended.
    Stopping,
    /// A rollout has not ended: one of `in_progress`, `paused`, `awaiting_promotion`, `aborted`.
    RolloutInProgress,
    /// See [`Self::RolloutInProgress`].
    RolloutPaused,
    /// See [`Self::RolloutInProgress`].
    RolloutAwaitingPromotion,
    /// See [`Self::RolloutInProgress`].
    RolloutAborted,
    /// A replica's state, where it has no code.
    State(ReplicaState),
    /// A replica's code.
    Code(Code),
}

impl StatusReason {
    /// The word on the wire and in tables.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Removing => "removing",
            Self::Stopping => "stopping",
            Self::RolloutInProgress => "rollout_in_progress",
            Self::RolloutPaused => "rollout_paused",
            Self::RolloutAwaitingPromotion => "rollout_awaiting_promotion",
            Self::RolloutAborted => "rollout_aborted",
            Self::State(state) => state.as_str(),
            Self::Code(code) => code.as_str(),
        }
    }
}

impl From<&str> for StatusReason {
    fn from(word: &str) -> Self {
        match (word, ReplicaState::from(word)) {
            ("removing", _) => Self::Removing,
            ("stopping", _) => Self::Stopping,
            ("rollout_in_progress", _) => Self::RolloutInProgress,
            ("rollout_paused", _) => Self::RolloutPaused,
            ("rollout_awaiting_promotion", _) => Self::RolloutAwaitingPromotion,
            ("rollout_aborted", _) => Self::RolloutAborted,
            (code, ReplicaState::Unknown(_)) => Self::Code(code.into()),
            (_, state) => Self::State(state),
        }
    }
}

text_form!(DrainBlocker StatusReason);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_model_is_known_and_written_back_unchanged() {
        for code in
            model::Reason::ALL.iter().map(|it| it.code()).chain(model::RuntimeCode::ALL.iter().map(|it| it.code()))
        {
            assert!(!matches!(Code::from(code), Code::Unknown(_)), "{code}");
            assert_eq!(Code::from(code).as_str(), code);
        }
        for word in ReplicaState::WORDS.iter().chain(["removing", "stopping", "rollout_paused", "exited"].iter()) {
            assert_eq!(StatusReason::from(*word).as_str(), *word);
        }
        for word in ["finishing", "moving", "stopping", "drain_blocked_stateful", "no_capacity_memory"] {
            assert_eq!(DrainBlocker::from(word).as_str(), word);
        }
        assert_eq!(ReplicaState::from(model::ReplicaState::Lost).as_str(), model::ReplicaState::Lost.as_str());
        assert_eq!(RolloutState::from(model::RolloutState::RolledBack).as_str(), "rolled_back");
    }

    #[test]
    fn a_word_of_a_newer_server_survives_the_way_through_an_older_client() {
        let state: ReplicaState = serde_json::from_str("\"hibernating\"").unwrap();
        assert_eq!(state, ReplicaState::Unknown("hibernating".to_owned()));
        assert_eq!(serde_json::to_string(&state).unwrap(), "\"hibernating\"");
        assert_eq!(format!("{state:>12}"), " hibernating");
    }
}
