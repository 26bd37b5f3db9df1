//! The events of the state machine, the only input of views and watchers.
//!
//! Owns: the closed list of events.
//! Must not touch: formats. Events are never stored or sent; `api` and `sim` have their own words for them.
//! Invariant: applying all events of a state to an empty view gives the same view as following the state from its start.

use std::{net::Ipv6Addr, sync::Arc};

use crate::{
    Assignment, Attempt, ClusterConfig, DeploymentName, Evacuation, Generation, GroupKey, NamespaceName, Node,
    NodeName, Reason, ReplicaKey, ReplicaState, RevisionNumber, Rollout, RuntimeCode, SecretName, ServiceSpec,
    SlotIndex, SlotKey, Time, VolumeKey,
    command::Quota,
    rebalance::Move,
    replica::{Collected, Details, Rescheduled, RestartHistory},
    rollout::{RolloutPosition, Step},
    volume::Volume,
};

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Settings changed.
    Configured(ClusterConfig),
    /// A node was added or changed.
    NodeChanged(Arc<Node>),
    /// A node left the cluster.
    NodeGone(NodeName),
    /// The record of a removed node exists; follows [`Event::NodeGone`].
    NodeRemoved {
        /// The node.
        node: NodeName,
        /// When it was removed.
        at: Time,
    },
    /// The record of a removed node was deleted.
    NodeForgotten(NodeName),
    /// Replacement of replicas on nodes that are down was paused or resumed.
    EvacuationChanged(Evacuation),
    /// A service was added, or its spec changed.
    GroupChanged {
        /// The group.
        group: GroupKey,
        /// Its revision.
        revision: RevisionNumber,
        /// Its spec.
        spec: Arc<ServiceSpec>,
        /// The next slot index.
        next_index: SlotIndex,
        /// Number of requested restarts.
        restart_epoch: u32,
        /// Its position in the rollout of its deployment.
        rollout_position: RolloutPosition,
    },
    /// A group's position in the rollout of its deployment changed.
    GroupRolloutChanged {
        /// The group.
        group: GroupKey,
        /// The new position.
        rollout_position: RolloutPosition,
    },
    /// A rollout began or changed its state.
    RolloutChanged {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
        /// The rollout.
        rollout: Arc<Rollout>,
    },
    /// A deployment was removed, together with the record of its last rollout.
    DeploymentGone {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
    },
    /// A service was removed from its deployment; its slots exist until their replicas have stopped.
    GroupRemoved(GroupKey),
    /// A removed group has no slots left and was deleted.
    GroupGone(GroupKey),
    /// A slot was created.
    SlotOpened {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// Its newest generation, 0 for a new slot; the next one continues from it even if no replica is left.
        newest: Generation,
        /// When it was last moved by a rebalance.
        moved_at: Option<Time>,
    },
    /// A slot's rollout step began or ended.
    SlotStepped {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// The step.
        step: Step,
    },
    /// A slot could not be placed.
    SlotWaits {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// The reason.
        reason: Reason,
        /// Details of the code, by name.
        details: Details,
    },
    /// A slot is being removed; its generations shall stop.
    SlotClosing {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
    },
    /// A slot was deleted.
    SlotGone {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
    },
    /// A generation was placed on a node.
    Placed {
        /// Which generation of which slot.
        key: ReplicaKey,
        /// Node, address and reservation.
        assignment: Assignment,
    },
    /// A generation was placed by a rebalance; follows its [`Event::Placed`].
    Rebalanced(Arc<Move>),
    /// A rebalance of a group's spread was requested.
    EvenOutRequested(GroupKey),
    /// The requested rebalance of a group's spread is complete: no move improves it.
    EvenOutDone(GroupKey),
    /// A generation shall stop.
    Stopping(ReplicaKey),
    /// A generation is restarted on its node.
    Restarting {
        /// Which generation of which slot.
        key: ReplicaKey,
        /// The attempt that begins.
        attempt: Attempt,
    },
    /// A slot's moves after exhausted restarts, all that still count.
    Rescheduled {
        /// The group.
        group: GroupKey,
        /// The slot.
        slot: SlotKey,
        /// The moves, oldest first; empty once the count is reset.
        moves: Vec<Rescheduled>,
    },
    /// Finished replicas of a job were garbage-collected.
    Collected {
        /// The group.
        group: GroupKey,
        /// The totals so far.
        collected: Collected,
    },
    /// A generation was observed in another state.
    Observed {
        /// Which generation of which slot.
        key: ReplicaKey,
        /// The attempt.
        attempt: Attempt,
        /// Its state.
        state: ReplicaState,
        /// Why, where the state needs a reason.
        code: Option<RuntimeCode>,
        /// Details of the code, by name.
        details: Details,
        /// Failures since it last ran for the monitor time.
        failures: u32,
        /// What its next start waits for.
        history: RestartHistory,
        /// Time of the change.
        at: Time,
        /// The generation that had replaced it by the time its lost node reported it again.
        replaced_by: Option<Generation>,
    },
    /// A generation was observed stopped; its resources are free.
    Released {
        /// Which generation of which slot.
        key: ReplicaKey,
        /// Time of the change.
        at: Time,
    },
    /// A service failed on a node; enough failures within `faulty_window` make the node faulty for it.
    FailureCounted {
        /// The group.
        group: GroupKey,
        /// The node it happened on.
        node: NodeName,
        /// Time of the change.
        at: Time,
    },
    /// An address was released; no other replica gets it during `address_cooldown`.
    AddressCoolingDown {
        /// The node whose range it is from.
        node: NodeName,
        /// The address.
        address: Ipv6Addr,
        /// When it was released.
        since: Time,
    },
    /// A volume was created.
    VolumeCreated(Volume),
    /// A volume was removed.
    VolumeGone(VolumeKey),
    /// A secret got a new version.
    SecretSet {
        /// The namespace.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
        /// Its version.
        version: u64,
    },
    /// A secret was removed.
    SecretGone {
        /// The namespace.
        namespace: NamespaceName,
        /// Its name.
        name: SecretName,
    },
    /// Memberships, tokens or keys changed.
    AccessChanged,
    /// A namespace's quota was set.
    QuotaSet {
        /// The namespace.
        namespace: NamespaceName,
        /// The quota.
        quota: Quota,
    },
    /// An operator stopped a deployment: none of its replicas shall run.
    DeploymentStopped {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
    },
    /// The next generation of a slot starts it again after a stop: like the first, it waits for dependencies.
    /// [`Event::DeploymentStarted`] implies this for every slot; it is emitted only for a view that starts empty.
    SlotStartsAgain(ReplicaKey),
    /// A stopped deployment shall run again.
    DeploymentStarted {
        /// The namespace.
        namespace: NamespaceName,
        /// The deployment.
        deployment: DeploymentName,
    },
}

/// What an event concerns.
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
    /// The deployment it concerns; `None` for events of the cluster.
    pub const fn deployment(&self) -> Option<(&NamespaceName, &DeploymentName)> {
        match self.subject() {
            Subject::Cluster => None,
            Subject::Deployment(namespace, deployment) => Some((namespace, deployment)),
            Subject::Service(group) => Some((&group.namespace, &group.deployment)),
        }
    }

    /// What it concerns.
    pub const fn subject(&self) -> Subject<'_> {
        match self {
            Self::GroupChanged { group, .. }
            | Self::GroupRolloutChanged { group, .. }
            | Self::GroupRemoved(group)
            | Self::GroupGone(group)
            | Self::SlotOpened { group, .. }
            | Self::SlotStepped { group, .. }
            | Self::SlotWaits { group, .. }
            | Self::SlotClosing { group, .. }
            | Self::SlotGone { group, .. }
            | Self::Rescheduled { group, .. }
            | Self::Collected { group, .. }
            | Self::EvenOutRequested(group)
            | Self::EvenOutDone(group)
            | Self::FailureCounted { group, .. } => Subject::Service(group),
            Self::SlotStartsAgain(key)
            | Self::Placed { key, .. }
            | Self::Stopping(key)
            | Self::Restarting { key, .. }
            | Self::Observed { key, .. }
            | Self::Released { key, .. } => Subject::Service(&key.group),
            Self::RolloutChanged { namespace, deployment, .. }
            | Self::DeploymentGone { namespace, deployment }
            | Self::DeploymentStopped { namespace, deployment }
            | Self::DeploymentStarted { namespace, deployment } => Subject::Deployment(namespace, deployment),
            Self::Configured(_)
            | Self::NodeChanged(_)
            | Self::NodeGone(_)
            | Self::NodeRemoved { .. }
            | Self::NodeForgotten(_)
            | Self::EvacuationChanged(_)
            | Self::AddressCoolingDown { .. }
            // The destination node keeps the move's time, so a replay emits this event even after the service is gone.
            | Self::Rebalanced(_)
            | Self::VolumeCreated(_)
            | Self::VolumeGone(_)
            | Self::SecretSet { .. }
            | Self::SecretGone { .. }
            | Self::AccessChanged
            | Self::QuotaSet { .. } => Subject::Cluster,
        }
    }
}
