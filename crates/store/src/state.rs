//! The cluster state and read access to it.
//!
//! Owns: the types of the state and its getters.
//! Must not touch: changes. Each kind of command has its own file for that.
//! Invariant: every map is ordered, so iteration order is the same on every member. Clones of the state share the large
//! maps, so readers and snapshots do not block `apply`.

use std::{
    collections::{BTreeMap, VecDeque},
    net::Ipv6Addr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use longshore_model::{
    ClusterConfig, DeploymentName, DeploymentSpec, Evacuation, GroupKey, NamespaceName, Node, NodeName, ReplicaKey,
    RevisionNumber, Rollout, SecretName, ServiceName, ServiceSpec, Slot, SlotIndex, SlotKey, StateIndex, Time,
    VolumeKey,
    command::Quota,
    rebalance::{Move, SpreadRebalance},
    replica::{Collected, DesiredState, Replica, Rescheduled},
    rollout::RolloutPosition,
    volume::Volume,
};

use crate::{access::Access, cow_map::CowMap, number_pool::NumberPool};

/// Revisions kept per deployment: enough for several rollbacks, few enough not to matter in a snapshot.
pub(crate) const REVISIONS_KEPT: usize = 10;

/// The replicated cluster state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    pub(crate) index: StateIndex,
    pub(crate) config: ClusterConfig,
    pub(crate) nodes: BTreeMap<NodeName, Arc<Node>>,
    /// Removed nodes, as they were when they were removed.
    pub(crate) removed: BTreeMap<NodeName, Arc<Node>>,
    pub(crate) evacuation: Evacuation,
    /// Number of nodes that ever joined. A new node gets the next number.
    pub(crate) nodes_joined: u32,
    pub(crate) quotas: BTreeMap<NamespaceName, Quota>,
    pub(crate) secrets: BTreeMap<(NamespaceName, SecretName), u64>,
    pub(crate) volumes: CowMap<VolumeKey, Volume>,
    pub(crate) deployments: CowMap<(NamespaceName, DeploymentName), Deployment>,
    pub(crate) groups: CowMap<GroupKey, Group>,
    /// Next slot index of each service of deployments that were removed: an index is never used again, and logs, audit
    /// and dashboards of before stay unambiguous. One small record per service name ever used.
    pub(crate) counters_of_removed: BTreeMap<(NamespaceName, DeploymentName), BTreeMap<ServiceName, SlotIndex>>,
    /// Released addresses in cooldown, oldest first, each with the node whose range it belongs to.
    pub(crate) resting: BTreeMap<(Time, Ipv6Addr), NodeName>,
    /// The latest rebalancing move to each node.
    pub(crate) moves: BTreeMap<NodeName, Arc<Move>>,
    /// Node memberships, tokens and sealed secrets.
    pub(crate) access: Arc<Access>,
    /// Whether blocks and VIPs are given out. The first command of a version that does so begins it: members with
    /// snapshots of different ages must not number what exists in different orders.
    pub(crate) is_numbered: bool,
    /// The latest time of a command that changed the state, since then.
    pub(crate) latest: Time,
    /// Blocks of addresses, of which every node has one.
    pub(crate) blocks: Arc<NumberPool>,
    /// VIPs, of which every service with networks has one.
    pub(crate) vips: Arc<NumberPool>,
}

/// A deployment and its revisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// The last revisions, oldest first.
    pub revisions: VecDeque<Revision>,
    /// The revision in force.
    pub in_force: RevisionNumber,
    /// The revision a rollback without a number goes to.
    pub previous: Option<RevisionNumber>,
    /// The rollout under way, or the last one that ended.
    pub rollout: Option<Arc<Rollout>>,
    /// `Stop` once the deployment was removed. It is dropped when its last group is gone.
    #[serde(rename = "wanted")]
    pub desired: DesiredState,
    /// Next slot index of each service that left the manifest, so that no index is reused when the service returns.
    #[serde(default)]
    pub(crate) retired_counters: BTreeMap<ServiceName, SlotIndex>,
    /// When an operator stopped it; `None` while it shall run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_since: Option<Time>,
}

impl Deployment {
    /// The revision in force.
    pub fn current(&self) -> &Revision {
        self.revision(self.in_force).expect("the revision in force is never trimmed")
    }

    /// Whether an operator stopped it.
    pub const fn is_stopped(&self) -> bool {
        self.stopped_since.is_some()
    }

    /// A kept revision by its number.
    pub fn revision(&self, number: RevisionNumber) -> Option<&Revision> {
        self.revisions.iter().find(|kept| kept.number == number)
    }
}

/// One accepted manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Its number, counted per deployment from 1.
    pub number: RevisionNumber,
    /// The manifest, resolved.
    pub spec: DeploymentSpec,
}

/// A service of a manifest, or one that was removed and still has slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The spec in force.
    pub spec: Arc<ServiceSpec>,
    /// The revision that the spec belongs to.
    pub revision: RevisionNumber,
    /// The index the next new slot gets.
    pub next_index: SlotIndex,
    /// Its slots by key.
    pub slots: BTreeMap<SlotKey, Slot>,
    /// `Stop` once the service is no longer in the manifest.
    #[serde(rename = "wanted")]
    pub desired: DesiredState,
    /// Reschedules of each slot after its restarts were exhausted.
    pub(crate) reschedules: BTreeMap<SlotKey, Vec<Rescheduled>>,
    /// Finished replicas of a job that were garbage-collected.
    pub collected: Collected,
    /// How often an operator restarted the service.
    pub restart_epoch: u32,
    /// Its position in the deployment's rollout.
    #[serde(rename = "rolling")]
    pub rollout_position: RolloutPosition,
    /// Recent failures by node. Those older than the cluster's failure window are dropped.
    #[serde(default)]
    pub(crate) failures: BTreeMap<NodeName, Vec<Time>>,
    /// Whether a spread rebalance was requested.
    #[serde(default, rename = "evening_out")]
    pub spread_rebalance: SpreadRebalance,
    /// Number of its VIP; `None` if it has no networks.
    #[serde(default)]
    pub vip: Option<u32>,
}

impl State {
    /// The number of commands that have changed the state.
    pub fn index(&self) -> StateIndex {
        self.index
    }

    /// The cluster's settings.
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Node memberships, tokens and sealed secrets.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The current version of a secret, or `None` if there is no such secret.
    pub fn secret_version(&self, namespace: &NamespaceName, name: &SecretName) -> Option<u64> {
        self.secrets.get(&(namespace.clone(), name.clone())).copied()
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// One node.
    pub fn node(&self, name: &NodeName) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// All groups, by key.
    pub fn groups(&self) -> impl Iterator<Item = (&GroupKey, &Group)> {
        self.groups.iter()
    }

    /// One group.
    pub fn group(&self, key: &GroupKey) -> Option<&Group> {
        self.groups.get(key)
    }

    /// All deployments, by namespace and name.
    pub fn deployments(&self) -> impl Iterator<Item = (&NamespaceName, &DeploymentName, &Deployment)> {
        self.deployments.iter().map(|((namespace, name), deployment)| (namespace, name, deployment))
    }

    /// One deployment.
    pub fn deployment(&self, namespace: &NamespaceName, name: &DeploymentName) -> Option<&Deployment> {
        self.deployments.get(&(namespace.clone(), name.clone()))
    }

    /// Counts the ends of replicas in a state that was written before ends were counted: every failure was one.
    #[cfg(feature = "replicated")]
    pub(crate) fn count_older_ends(&mut self) {
        let slots = self.groups.values_mut().flat_map(|group| group.slots.values_mut());
        for replica in slots.flat_map(|slot| &mut slot.replicas) {
            replica.history.ends = replica.history.ends.max(replica.failures);
        }
    }

    /// Whether the deployment of a group was stopped by an operator.
    pub fn is_stopped(&self, key: &GroupKey) -> bool {
        self.deployment(&key.namespace, &key.deployment).is_some_and(Deployment::is_stopped)
    }

    /// All volumes, by namespace and name.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// One volume.
    pub fn volume(&self, key: &VolumeKey) -> Option<&Volume> {
        self.volumes.get(key)
    }

    /// Every generation that was not yet observed stopped, with its group and slot.
    pub fn replicas(&self) -> impl Iterator<Item = (&GroupKey, &Slot, &Replica)> {
        self.groups.iter().flat_map(|(key, group)| {
            group.slots.values().flat_map(move |slot| slot.replicas.iter().map(move |replica| (key, slot, replica)))
        })
    }

    /// One generation.
    pub fn replica(&self, key: &ReplicaKey) -> Option<&Replica> {
        let slot = self.groups.get(&key.group)?.slots.get(&key.slot)?;
        slot.replicas.iter().find(|replica| replica.generation == key.generation)
    }

    /// The groups of one deployment.
    pub fn groups_of<'a>(
        &'a self,
        namespace: &'a NamespaceName,
        deployment: &'a DeploymentName,
    ) -> impl Iterator<Item = (&'a GroupKey, &'a Group)> {
        // The empty service sorts before every other, so the range starts at the deployment's first group.
        let first =
            GroupKey { namespace: namespace.clone(), deployment: deployment.clone(), service: ServiceName::from("") };
        self.groups
            .range(first..)
            .take_while(move |(key, _)| key.namespace == *namespace && key.deployment == *deployment)
    }
}
