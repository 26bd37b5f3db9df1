//! What the state machine says has changed. Views and watchers live on these alone.
//!
//! Owns: the closed list of events.
//! Invariant: feeding all events of a state to an empty view gives the same view as following it from the start.

use std::{net::Ipv6Addr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    Assignment, Attempt, ClusterConfig, DeploymentName, Evacuation, Generation, GroupKey, NamespaceName, Node,
    NodeName, Reason, ReplicaState, RevisionNumber, Rollout, RuntimeCode, SecretName, ServiceSpec, SlotIndex, SlotKey,
    Time, VolumeKey,
    command::Quota,
    rebalance::Move,
    replica::{Collected, Details, Rescheduled},
    rollout::{Rolling, Step},
    volume::Volume,
};

/// One change that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Settings changed.
    Configured(ClusterConfig),
    /// A node is new, or anything about it changed.
    NodeChanged(Arc<Node>),
    /// A node is gone for good.
    NodeGone(NodeName),
    /// A node that is gone is still kept in the books; told after it went.
    NodeRemoved {
        /// Which.
        node: NodeName,
        /// When it went.
        at: Time,
    },
    /// A node that was gone is no longer kept in the books.
    NodeForgotten(NodeName),
    /// Work is no longer taken off nodes that are down, or is again.
    EvacuationChanged(Evacuation),
    /// A service is new, or its spec changed.
    GroupChanged {
        /// Which.
        group: GroupKey,
        /// Its revision.
        revision: RevisionNumber,
        /// Its spec.
        spec: Arc<ServiceSpec>,
        /// Next index of its counter.
        next_index: SlotIndex,
        /// How often it was restarted on purpose.
        #[serde(default)]
        restart_epoch: u32,
        /// How it stands in the rollout of its deployment.
        #[serde(default)]
        rolling: Rolling,
    },
    /// A group stands elsewhere in the rollout of its deployment.
    GroupRolls {
        /// Which.
        group: GroupKey,
        /// How it stands.
        rolling: Rolling,
    },
    /// A rollout began, or is in another state.
    RolloutChanged {
        /// Scope.
        namespace: NamespaceName,
        /// Which deployment.
        deployment: DeploymentName,
        /// The rollout.
        rollout: Arc<Rollout>,
    },
    /// A deployment is gone, and with it the record of its last rollout.
    DeploymentGone {
        /// Scope.
        namespace: NamespaceName,
        /// Which.
        deployment: DeploymentName,
    },
    /// A service is no longer wanted; its slots may linger until they are closed.
    GroupUnwanted(GroupKey),
    /// A group has no slots left and is forgotten.
    GroupGone(GroupKey),
    /// A slot exists.
    SlotOpened {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// Its newest generation, 0 for a new slot; the next one counts on from it even if none is left.
        #[serde(default)]
        newest: Generation,
        /// When it was last moved to even the load.
        #[serde(default)]
        moved_at: Option<Time>,
    },
    /// A slot's part in a rollout began or ended.
    SlotStepped {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// Its part.
        step: Step,
    },
    /// A slot has no node, for this reason.
    SlotWaits {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// Why.
        reason: Reason,
        /// Particulars.
        details: Details,
    },
    /// A slot is no longer wanted; its generations shall stop.
    SlotClosing {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
    },
    /// A slot is gone.
    SlotGone {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
    },
    /// A generation got a node.
    Placed {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// The generation.
        generation: Generation,
        /// Where and with what.
        assignment: Assignment,
    },
    /// A generation was placed to even the load; told after its placement.
    Rebalanced(Arc<Move>),
    /// A group's spread is to be evened out.
    EvenOutAsked(GroupKey),
    /// A group's spread is as even as it can be.
    EvenedOut(GroupKey),
    /// A generation shall stop.
    Stopping {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// The generation.
        generation: Generation,
    },
    /// A generation is started once more.
    Restarting {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// The generation.
        generation: Generation,
        /// The attempt that begins.
        attempt: Attempt,
    },
    /// A slot's moves after used-up restarts, all that still count.
    Rescheduled {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// The moves, oldest first; none once they are forgiven.
        moves: Vec<Rescheduled>,
    },
    /// What is no longer kept of a job's replicas.
    Collected {
        /// The group.
        group: GroupKey,
        /// All of it.
        collected: Collected,
    },
    /// A generation was seen in another state.
    Observed {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// The generation.
        generation: Generation,
        /// The attempt.
        attempt: Attempt,
        /// Its state.
        state: ReplicaState,
        /// Why.
        code: Option<RuntimeCode>,
        /// Particulars.
        details: Details,
        /// Failures since it last ran well.
        failures: u32,
        /// When.
        at: Time,
        /// The generation that had replaced it by the time it was heard of again.
        #[serde(default)]
        rival: Option<Generation>,
    },
    /// A generation was seen stopped: what it occupied is free.
    Released {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// The generation.
        generation: Generation,
        /// When.
        at: Time,
    },
    /// A service failed on a node; five within five minutes make the node faulty for it.
    FailureCounted {
        /// The group.
        group: GroupKey,
        /// The node it happened on.
        node: NodeName,
        /// When.
        at: Time,
    },
    /// An address was given back and rests before another replica may get it.
    AddressResting {
        /// The node whose range it is from.
        node: NodeName,
        /// The address.
        address: Ipv6Addr,
        /// Since when.
        since: Time,
    },
    /// A volume came to exist.
    VolumeMade(Volume),
    /// A volume is gone.
    VolumeGone(VolumeKey),
    /// A secret has a version.
    SecretSet {
        /// Scope.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
        /// Its version.
        version: u64,
    },
    /// A secret is gone.
    SecretGone {
        /// Scope.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
    },
    /// Who belongs to the cluster, or may ask it for something, is not who it was.
    AccessChanged,
    /// A namespace has a ceiling.
    QuotaSet {
        /// Scope.
        namespace: NamespaceName,
        /// The ceiling.
        quota: Quota,
    },
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// Nodes, volumes, settings.
    Cluster,
    /// A deployment as a whole.
    Deployment(&'a NamespaceName, &'a DeploymentName),
    /// One service of a deployment.
    Service(&'a GroupKey),
}

impl Event {
    /// The deployment it is about, where it is about one.
    pub const fn deployment(&self) -> Option<(&NamespaceName, &DeploymentName)> {
        match self.subject() {
            Subject::Cluster => None,
            Subject::Deployment(namespace, deployment) => Some((namespace, deployment)),
            Subject::Service(group) => Some((&group.namespace, &group.deployment)),
        }
    }

    /// What it is about.
    pub const fn subject(&self) -> Subject<'_> {
        match self {
            Self::GroupChanged { group, .. }
            | Self::GroupRolls { group, .. }
            | Self::GroupUnwanted(group)
            | Self::GroupGone(group)
            | Self::SlotOpened { group, .. }
            | Self::SlotStepped { group, .. }
            | Self::SlotWaits { group, .. }
            | Self::SlotClosing { group, .. }
            | Self::SlotGone { group, .. }
            | Self::Placed { group, .. }
            | Self::Stopping { group, .. }
            | Self::Restarting { group, .. }
            | Self::Rescheduled { group, .. }
            | Self::Collected { group, .. }
            | Self::Observed { group, .. }
            | Self::Released { group, .. }
            | Self::EvenOutAsked(group)
            | Self::EvenedOut(group)
            | Self::FailureCounted { group, .. } => Subject::Service(group),
            Self::RolloutChanged { namespace, deployment, .. } | Self::DeploymentGone { namespace, deployment } => {
                Subject::Deployment(namespace, deployment)
            }
            Self::Configured(_)
            | Self::NodeChanged(_)
            | Self::NodeGone(_)
            | Self::NodeRemoved { .. }
            | Self::NodeForgotten(_)
            | Self::EvacuationChanged(_)
            | Self::AddressResting { .. }
            // Told anew it outlives the service it was about: the node it led to remembers it.
            | Self::Rebalanced(_)
            | Self::VolumeMade(_)
            | Self::VolumeGone(_)
            | Self::SecretSet { .. }
            | Self::SecretGone { .. }
            | Self::AccessChanged
            | Self::QuotaSet { .. } => Subject::Cluster,
        }
    }
}
