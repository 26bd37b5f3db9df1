//! Why a command was refused.
//!
//! Owns: the closed list of refusals, their stable codes, their sentences and their hints.
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
/// An answer is remembered for whoever asks again, so a refusal is written down like everything else.
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
        /// The name looked for.
        service: ServiceName,
    },
    /// No such manifest of the deployment is kept.
    #[error("deployment `{deployment}` keeps no revision {revision}")]
    UnknownRevision {
        /// The deployment.
        deployment: DeploymentName,
        /// The number looked for.
        revision: RevisionNumber,
    },
    /// Nothing to go back to.
    #[error("deployment `{0}` has no earlier revision to go back to")]
    NoPreviousRevision(DeploymentName),
    /// No change is on its way that could be steered.
    #[error("deployment `{0}` has no rollout under way")]
    NoRollout(DeploymentName),
    /// A living node has that name already.
    #[error("a node named `{0}` is already part of the cluster")]
    DuplicateNode(NodeName),
    /// A node that is heard of cannot be given up.
    #[error("node `{0}` is heard of and cannot be given up for lost")]
    NodeIsHeardOf(NodeName),
    /// A count for a service that has none.
    #[error("service \"{0}\" uses placement=global; remove replicas (global runs one replica per ready node)")]
    ScaleOfGlobal(ServiceName),
    /// More replicas than a service may have.
    #[error("{0} replicas are more than a service may have, which is {MAX_REPLICAS}")]
    TooManyReplicas(u32),
    /// The only server would go.
    #[error("node `{0}` is the only server, and with it the cluster would be gone")]
    LastServer(NodeName),
    /// Several replicas of a service that mounts a named volume.
    #[error("service `{service}` mounts the volume `{volume}` and cannot have {replicas} replicas")]
    VolumeNeedsOneReplica {
        /// The service.
        service: ServiceName,
        /// The first volume it mounts.
        volume: VolumeKey,
        /// The count asked for.
        replicas: u32,
    },
    /// Two services publish the same cluster-wide port.
    #[error("port {port}/{} of service `{service}` is already published by `{holder}`", .protocol.as_str())]
    IngressPortTaken {
        /// The service asking.
        service: ServiceName,
        /// The port.
        port: u16,
        /// Its transport.
        protocol: Protocol,
        /// The service that has it.
        holder: GroupKey,
    },
    /// Two replicas would have the same printed id.
    #[error("a replica of service `{service}` of deployment `{deployment}` could print as `{printed}`, like one of service `{other_service}` of deployment `{other_deployment}`",
        service = .group.service, deployment = .group.deployment,
        other_service = .other.service, other_deployment = .other.deployment)]
    PrintedIdTaken {
        /// The service asking, or already there when a node joins.
        group: GroupKey,
        /// The other one.
        other: GroupKey,
        /// The id both would print.
        printed: String,
    },
    /// A secret's version may only grow.
    #[error("secret `{name}` has version {current} already, version {asked} would be a step back")]
    SecretStepsBack {
        /// The secret.
        name: SecretName,
        /// Its version.
        current: u64,
        /// The version asked for.
        asked: u64,
    },
    /// No secret of that name.
    #[error("there is no secret `{0}`")]
    UnknownSecret(SecretName),
    /// A service needs it.
    #[error("service `{}` of deployment `{}` needs secret `{name}`", .group.service, .group.deployment)]
    SecretInUse {
        /// The secret.
        name: SecretName,
        /// Who needs it.
        group: GroupKey,
    },
    /// It is another deployment's, or everybody's.
    #[error("secret `{name}` is not one of deployment `{deployment}`")]
    SecretNotYours {
        /// The secret.
        name: SecretName,
        /// Who wanted it.
        deployment: DeploymentName,
    },
    /// It was sealed with a key that is no longer used.
    #[error("it was sealed with key {0}, which is no longer used")]
    KeyOutdated(u32),
    /// The token lets nobody in: there is no such token, its secret part is another, or it was used.
    #[error("the join token is not valid")]
    JoinTokenInvalid,
    /// The token's time is over.
    #[error("the join token has expired")]
    JoinTokenExpired,
    /// The cluster was made before.
    #[error("the cluster was founded before")]
    AlreadyFounded,
    /// No token of that id.
    #[error("there is no token `{0}`")]
    UnknownToken(TokenId),
    /// A token has that id already.
    #[error("there is a token `{0}` already")]
    DuplicateToken(TokenId),
    /// More than the namespace has left.
    #[error("the {} quota of namespace `{namespace}` is {}, {} in use, and {} more would be needed",
        .dimension.as_str(), .dimension.amount(*.limit), .dimension.amount(*.current_usage),
        .dimension.amount(*.requested_delta))]
    QuotaExceeded {
        /// The namespace.
        namespace: NamespaceName,
        /// What there is too little of.
        dimension: QuotaDimension,
        /// The ceiling.
        limit: u64,
        /// Desired before.
        current_usage: u64,
        /// Asked for on top.
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
            Self::NodeIsHeardOf(_) => "node_is_heard_of",
            Self::ScaleOfGlobal(_) => "scale_of_global",
            Self::TooManyReplicas(_) => "too_many_replicas",
            Self::LastServer(_) => "last_server",
            Self::VolumeNeedsOneReplica { .. } => "volume_needs_one_replica",
            Self::IngressPortTaken { .. } => "ingress_port_taken",
            Self::PrintedIdTaken { .. } => "printed_id_taken",
            Self::SecretStepsBack { .. } => "secret_steps_back",
            Self::UnknownSecret(_) => "unknown_secret",
            Self::SecretInUse { .. } => "secret_in_use",
            Self::SecretNotYours { .. } => "secret_not_yours",
            Self::KeyOutdated(_) => "key_outdated",
            Self::JoinTokenInvalid => "join_token_invalid",
            Self::JoinTokenExpired => "join_token_expired",
            Self::AlreadyFounded => "already_founded",
            Self::UnknownToken(_) => "unknown_token",
            Self::DuplicateToken(_) => "duplicate_token",
            Self::QuotaExceeded { .. } => "quota_exceeded",
        }
    }

    /// The numbers behind it, by the names clients know.
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
            | Self::NodeIsHeardOf(_)
            | Self::ScaleOfGlobal(_)
            | Self::TooManyReplicas(_)
            | Self::LastServer(_)
            | Self::VolumeNeedsOneReplica { .. }
            | Self::IngressPortTaken { .. }
            | Self::PrintedIdTaken { .. }
            | Self::UnknownSecret(_)
            | Self::SecretInUse { .. }
            | Self::SecretNotYours { .. }
            | Self::KeyOutdated(_)
            | Self::JoinTokenInvalid
            | Self::JoinTokenExpired
            | Self::AlreadyFounded
            | Self::UnknownToken(_)
            | Self::DuplicateToken(_)
            | Self::SecretStepsBack { .. } => Details::new(),
        }
    }

    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::UnknownNode(_) => "name a node that has joined",
            Self::UnknownDeployment(_) => "apply the deployment first",
            Self::UnknownService { .. } => "name a service of the deployment's current manifest",
            Self::UnknownRevision { .. } => "name one of the last revisions",
            Self::NoPreviousRevision(_) => "apply the manifest you want",
            Self::NoRollout(_) => "apply a change first; one that has ended cannot be steered",
            Self::DuplicateNode(_) => "give the new node a name of its own, or remove the old one first",
            Self::NodeIsHeardOf(_) => "wait until the node is suspect or down; to empty one that is well, drain it",
            Self::TooManyReplicas(_) => "ask for fewer, or divide them among services",
            Self::LastServer(_) => "let another server join first, or end the daemon and empty its folder",
            Self::ScaleOfGlobal(_) => "a global service follows the nodes; use constraints to choose them",
            Self::VolumeNeedsOneReplica { .. } => "use one replica, or keep the data outside of the service",
            Self::IngressPortTaken { .. } => {
                "publish another port, or use `mode: host` to bind on the replica's node only"
            }
            Self::PrintedIdTaken { .. } => "rename the service or the deployment",
            Self::SecretStepsBack { .. } => "use a higher version",
            Self::UnknownSecret(_) => "`longshore secret ls` lists them",
            Self::SecretInUse { .. } => "apply the deployment without it first, or remove the deployment",
            Self::SecretNotYours { .. } => "use one of another name, or have an admin store it for this deployment",
            Self::JoinTokenInvalid | Self::JoinTokenExpired => "make a new one with `longshore cluster token`",
            Self::AlreadyFounded => "join it instead",
            Self::UnknownToken(_) => "`longshore token ls` lists them",
            Self::DuplicateToken(_) | Self::KeyOutdated(_) => "ask once more",
            Self::QuotaExceeded { .. } => "raise the quota, or scale something else of the namespace down",
        }
    }
}
