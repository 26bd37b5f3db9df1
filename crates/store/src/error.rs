//! Refusals of commands.
//!
//! Owns: the closed list of refusals with their stable codes, messages and hints.
//! Invariant: a refused command has changed nothing.

use serde::{Deserialize, Serialize};

use longshore_model::{
    DeploymentName, GroupKey, NamespaceName, NodeName, RevisionNumber, SecretName, ServiceName, VolumeKey,
    access::TokenId,
    command::QuotaDimension,
    replica::{Detail, Details},
    service::{MAX_REPLICAS, Protocol},
};

/// Why the state machine refused a command.
///
/// It is serialised because answers are stored for requests repeated under the same idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CommandError {
    /// No node of that name.
    #[error("there is no node `{0}`")]
    UnknownNode(NodeName),
    /// No deployment of that name.
    #[error("there is no deployment `{0}`")]
    UnknownDeployment(DeploymentName),
    /// No service of that name in the deployment.
    #[error("deployment `{deployment}` has no service `{service}`")]
    UnknownService {
        /// The deployment.
        deployment: DeploymentName,
        /// The unknown name.
        service: ServiceName,
    },
    /// The revision is not kept.
    #[error("deployment `{deployment}` keeps no revision {revision}")]
    UnknownRevision {
        /// The deployment.
        deployment: DeploymentName,
        /// The unknown number.
        revision: RevisionNumber,
    },
    /// There is no earlier revision.
    #[error("deployment `{0}` has no earlier revision to go back to")]
    NoPreviousRevision(DeploymentName),
    /// The deployment has no live rollout.
    #[error("deployment `{0}` has no rollout under way")]
    NoRollout(DeploymentName),
    /// A live node already has that name.
    #[error("a node named `{0}` is already part of the cluster")]
    DuplicateNode(NodeName),
    /// The node is alive and cannot be confirmed lost.
    #[error("node `{0}` still sends heartbeats and cannot be declared lost")]
    #[serde(rename = "node_is_heard_of")]
    NodeStillAlive(NodeName),
    /// A global service has no replica count.
    #[error("service \"{0}\" uses placement=global; remove replicas (global runs one replica per ready node)")]
    #[serde(rename = "scale_of_global")]
    CannotScaleGlobal(ServiceName),
    /// More replicas than `MAX_REPLICAS`.
    #[error("{0} replicas are more than a service may have, which is {MAX_REPLICAS}")]
    TooManyReplicas(u32),
    /// More replicas in the whole cluster than its nodes could run.
    #[error("{asked} replicas are more than this cluster may have, which is {limit}")]
    TooManyForCluster {
        /// All that would be desired.
        asked: u64,
        /// The ceiling for the present number of nodes.
        limit: u64,
    },
    /// An operator stores a secret that a manifest stored before, for a deployment.
    #[error("secret `{name}` belongs to deployment `{deployment}`, which stored it first")]
    SecretOwned {
        /// The secret.
        name: SecretName,
        /// Its deployment.
        deployment: DeploymentName,
    },
    /// The node is the cluster's only server.
    #[error("node `{0}` is the only server, and with it the cluster would be gone")]
    LastServer(NodeName),
    /// A service that mounts a named volume has one replica.
    #[error("service `{service}` mounts the volume `{volume}` and cannot have {replicas} replicas")]
    VolumeNeedsOneReplica {
        /// The service.
        service: ServiceName,
        /// The first volume it mounts.
        volume: VolumeKey,
        /// The requested count.
        replicas: u32,
    },
    /// Another service publishes the same ingress port.
    #[error("port {port}/{} of service `{service}` is already published by `{holder}`", .protocol.as_str())]
    IngressPortTaken {
        /// The service that was refused.
        service: ServiceName,
        /// The port.
        port: u16,
        /// Its protocol.
        protocol: Protocol,
        /// The service that publishes it.
        holder: GroupKey,
    },
    /// Two replicas would have the same id.
    #[error("a replica of service `{service}` of deployment `{deployment}` could print as `{printed}`, like one of service `{other_service}` of deployment `{other_deployment}`",
        service = .group.service, deployment = .group.deployment,
        other_service = .other.service, other_deployment = .other.deployment)]
    #[serde(rename = "printed_id_taken")]
    ReplicaIdConflict {
        /// The service that was refused; when a node joins, an existing one.
        group: GroupKey,
        /// The other service.
        other: GroupKey,
        /// The id of both.
        printed: String,
    },
    /// A secret's version may only increase.
    #[error("secret `{name}` already has version {current}, which is newer than version {asked}")]
    #[serde(rename = "secret_steps_back")]
    SecretVersionRegression {
        /// The secret.
        name: SecretName,
        /// Its current version.
        current: u64,
        /// The requested version.
        asked: u64,
    },
    /// No volume of that name.
    #[error("there is no volume `{0}`")]
    UnknownVolume(VolumeKey),
    /// A service mounts the volume, or a replica still holds it.
    #[error("volume `{volume}` is in use by `{holder}`")]
    VolumeHeld {
        /// The volume.
        volume: VolumeKey,
        /// A service as `deployment/service`, or a replica.
        holder: String,
    },
    /// No secret of that name.
    #[error("there is no secret `{0}`")]
    UnknownSecret(SecretName),
    /// A service requires the secret.
    #[error("service `{}` of deployment `{}` needs secret `{name}`", .group.service, .group.deployment)]
    SecretInUse {
        /// The secret.
        name: SecretName,
        /// The service.
        group: GroupKey,
    },
    /// The secret belongs to another deployment, or to none.
    #[error("secret `{name}` does not belong to deployment `{deployment}`")]
    #[serde(rename = "secret_not_yours")]
    SecretOutOfScope {
        /// The secret.
        name: SecretName,
        /// The deployment that was refused.
        deployment: DeploymentName,
    },
    /// The secret was sealed with a retired key.
    #[error("the secret was sealed with key {0}, which is no longer used")]
    KeyOutdated(u32),
    /// There is no such join token, its secret part is wrong, or it was used.
    #[error("the join token is not valid")]
    JoinTokenInvalid,
    /// The join token has expired.
    #[error("the join token has expired")]
    JoinTokenExpired,
    /// The cluster was bootstrapped before.
    #[error("the cluster is already bootstrapped")]
    #[serde(rename = "already_founded")]
    AlreadyBootstrapped,
    /// There is no token with that id.
    #[error("there is no token `{0}`")]
    UnknownToken(TokenId),
    /// There already is a token with that id.
    #[error("there is a token `{0}` already")]
    DuplicateToken(TokenId),
    /// The settings are not the ones that the change was computed from.
    #[error("the settings were changed by another request in the meantime")]
    SettingsConflict,
    /// The command exceeds the namespace's quota.
    #[error("the {} quota of namespace `{namespace}` is {}, {} in use, and {} more would be needed",
        .dimension.as_str(), .dimension.amount(*.limit), .dimension.amount(*.current_usage),
        .dimension.amount(*.requested_delta))]
    QuotaExceeded {
        /// The namespace.
        namespace: NamespaceName,
        /// The dimension that is exceeded.
        dimension: QuotaDimension,
        /// The limit.
        limit: u64,
        /// Usage before the command.
        current_usage: u64,
        /// The requested increase.
        requested_delta: u64,
    },
}

impl CommandError {
    /// Stable: clients branch on these strings. Add codes, never rename one.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownNode(_) => "unknown_node",
            Self::UnknownDeployment(_) => "unknown_deployment",
            Self::UnknownService { .. } => "unknown_service",
            Self::UnknownRevision { .. } => "unknown_revision",
            Self::NoPreviousRevision(_) => "no_previous_revision",
            Self::NoRollout(_) => "no_rollout",
            Self::DuplicateNode(_) => "duplicate_node",
            Self::NodeStillAlive(_) => "node_still_alive",
            Self::CannotScaleGlobal(_) => "cannot_scale_global",
            Self::TooManyReplicas(_) | Self::TooManyForCluster { .. } => "too_many_replicas",
            Self::SecretOwned { .. } => "secret_owned",
            Self::LastServer(_) => "last_server",
            Self::VolumeNeedsOneReplica { .. } => "volume_needs_one_replica",
            Self::IngressPortTaken { .. } => "ingress_port_taken",
            Self::ReplicaIdConflict { .. } => "replica_id_conflict",
            Self::SecretVersionRegression { .. } => "secret_version_regression",
            Self::UnknownVolume(_) => "unknown_volume",
            Self::VolumeHeld { .. } => "volume_in_use",
            Self::UnknownSecret(_) => "unknown_secret",
            Self::SecretInUse { .. } => "secret_in_use",
            Self::SecretOutOfScope { .. } => "secret_out_of_scope",
            Self::KeyOutdated(_) => "key_outdated",
            Self::JoinTokenInvalid => "join_token_invalid",
            Self::JoinTokenExpired => "join_token_expired",
            Self::AlreadyBootstrapped => "already_bootstrapped",
            Self::UnknownToken(_) => "unknown_token",
            Self::DuplicateToken(_) => "duplicate_token",
            Self::SettingsConflict => "settings_conflict",
            Self::QuotaExceeded { .. } => "quota_exceeded",
        }
    }

    /// The numbers of the refusal by the names in the API.
    pub fn details(&self) -> Details {
        match self {
            Self::QuotaExceeded { dimension, limit, current_usage, requested_delta, .. } => [
                ("dimension", Detail::Text(dimension.as_str().to_owned())),
                ("limit", Detail::Number(*limit)),
                ("current_usage", Detail::Number(*current_usage)),
                ("requested_delta", Detail::Number(*requested_delta)),
            ]
            .map(|(name, detail)| (name.to_owned(), detail))
            .into(),
            Self::UnknownNode(_)
            | Self::UnknownDeployment(_)
            | Self::UnknownService { .. }
            | Self::UnknownRevision { .. }
            | Self::NoPreviousRevision(_)
            | Self::NoRollout(_)
            | Self::DuplicateNode(_)
            | Self::NodeStillAlive(_)
            | Self::CannotScaleGlobal(_)
            | Self::TooManyReplicas(_)
            | Self::TooManyForCluster { .. }
            | Self::SecretOwned { .. }
            | Self::LastServer(_)
            | Self::VolumeNeedsOneReplica { .. }
            | Self::IngressPortTaken { .. }
            | Self::ReplicaIdConflict { .. }
            | Self::UnknownVolume(_)
            | Self::VolumeHeld { .. }
            | Self::UnknownSecret(_)
            | Self::SecretInUse { .. }
            | Self::SecretOutOfScope { .. }
            | Self::KeyOutdated(_)
            | Self::JoinTokenInvalid
            | Self::JoinTokenExpired
            | Self::AlreadyBootstrapped
            | Self::UnknownToken(_)
            | Self::DuplicateToken(_)
            | Self::SettingsConflict
            | Self::SecretVersionRegression { .. } => Details::new(),
        }
    }

    /// What the operator can do.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::UnknownNode(_) => "name a node that has joined",
            Self::UnknownDeployment(_) => "apply the deployment first",
            Self::UnknownService { .. } => "name a service of the deployment's current manifest",
            Self::UnknownRevision { .. } => "name one of the kept revisions",
            Self::NoPreviousRevision(_) => "apply the manifest you want",
            Self::NoRollout(_) => "apply a change first; a rollout that has ended cannot be controlled",
            Self::DuplicateNode(_) => "give the new node a name of its own, or remove the old one first",
            Self::NodeStillAlive(_) => "wait until the node is suspect or down, or drain it",
            Self::TooManyReplicas(_) => "ask for fewer, or divide them among services",
            Self::TooManyForCluster { .. } => "ask for fewer, or let more nodes join: each allows 10,000",
            Self::SecretOwned { .. } => {
                "name that deployment with `--deployment` if the secret is for it; else use another name, or remove the secret first"
            }
            Self::LastServer(_) => "let another server join first, or stop the daemon and empty its data directory",
            Self::CannotScaleGlobal(_) => "a global service follows the nodes; use constraints to choose them",
            Self::VolumeNeedsOneReplica { .. } => "use one replica, or keep the data outside of the service",
            Self::IngressPortTaken { .. } => {
                "publish another port, or use `mode: host` to bind on the replica's node only"
            }
            Self::ReplicaIdConflict { .. } => "rename the service or the deployment",
            Self::SecretVersionRegression { .. } => "use a higher version",
            Self::UnknownVolume(_) => "`longshore volume ls` lists them",
            Self::VolumeHeld { .. } => "remove the deployment first: `longshore down -v` does both",
            Self::UnknownSecret(_) => "`longshore secret ls` lists them",
            Self::SecretInUse { .. } => "apply the deployment without it first, or remove the deployment",
            Self::SecretOutOfScope { .. } => "use another name, or let an admin store the secret for this deployment",
            Self::JoinTokenInvalid | Self::JoinTokenExpired => "make a new one with `longshore cluster token`",
            Self::AlreadyBootstrapped => "join the cluster instead",
            Self::UnknownToken(_) => "`longshore token ls` lists them",
            Self::DuplicateToken(_) | Self::KeyOutdated(_) => "send the request again",
            Self::SettingsConflict => "read the settings and send the change again",
            Self::QuotaExceeded { .. } => "raise the quota, or scale something else of the namespace down",
        }
    }
}
