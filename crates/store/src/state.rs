//! What is true of the cluster.
//!
//! Owns: the shape of the state and reading it.
//! Must not touch: changing it; each kind of command has a file of its own for that.
//! Invariant: every map is ordered, so that walking the state is the same everywhere. The large ones are shared by copies
//! of the state, so that readers and snapshots hold up nobody.

use std::{
    collections::{BTreeMap, VecDeque},
    net::Ipv6Addr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use longshore_model::{
    ClusterConfig, DeploymentName, DeploymentSpec, Evacuation, GroupKey, NamespaceName, Node, NodeName, RevisionNumber,
    Rollout, SecretName, ServiceName, ServiceSpec, Slot, SlotIndex, SlotKey, StateIndex, Time, VolumeKey,
    command::Quota,
    rebalance::{EveningOut, Move},
    replica::{Collected, Replica, Rescheduled, Wanted},
    rollout::Rolling,
    volume::Volume,
};

use crate::{access::Access, shelf::Shelf};

/// Manifests kept per deployment: enough to go back over a bad day, few enough to never matter in a snapshot.
pub(crate) const REVISIONS_KEPT: usize = 10;

/// Everything the cluster has agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    pub(crate) index: StateIndex,
    pub(crate) config: ClusterConfig,
    pub(crate) nodes: BTreeMap<NodeName, Arc<Node>>,
    /// Nodes that have left, as they were when they did.
    pub(crate) removed: BTreeMap<NodeName, Arc<Node>>,
    pub(crate) evacuation: Evacuation,
    /// Nodes ever joined; the next one gets the number after it. Never goes back, as numbers pick address ranges.
    pub(crate) nodes_joined: u32,
    pub(crate) quotas: BTreeMap<NamespaceName, Quota>,
    pub(crate) secrets: BTreeMap<(NamespaceName, SecretName), u64>,
    pub(crate) volumes: Shelf<VolumeKey, Volume>,
    pub(crate) deployments: Shelf<(NamespaceName, DeploymentName), Deployment>,
    pub(crate) groups: Shelf<GroupKey, Group>,
    /// Addresses given back, oldest first, with the node they belong to.
    pub(crate) resting: BTreeMap<(Time, Ipv6Addr), NodeName>,
    /// The last move to each node that evened the load.
    pub(crate) moves: BTreeMap<NodeName, Arc<Move>>,
    /// Who belongs to the cluster and who may ask.
    pub(crate) access: Arc<Access>,
}

/// A deployment and its manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// The last manifests, oldest first.
    pub revisions: VecDeque<Revision>,
    /// The one in force.
    pub in_force: RevisionNumber,
    /// The one a rollback goes to.
    pub previous: Option<RevisionNumber>,
    /// The change under way, or the last one that ended.
    pub rollout: Option<Arc<Rollout>>,
    /// Whether it was removed and only lingers until its replicas have stopped.
    pub wanted: Wanted,
    /// Counters of services that left the manifest, so that an index is not used twice when one comes back.
    #[serde(default)]
    pub(crate) retired_counters: BTreeMap<ServiceName, SlotIndex>,
}

impl Deployment {
    /// The manifest in force.
    pub fn current(&self) -> &Revision {
        self.revision(self.in_force).expect("the manifest in force is kept")
    }

    /// A manifest that is kept.
    pub fn revision(&self, number: RevisionNumber) -> Option<&Revision> {
        self.revisions.iter().find(|kept| kept.number == number)
    }
}

/// One accepted manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Its number.
    pub number: RevisionNumber,
    /// The manifest.
    pub spec: DeploymentSpec,
}

/// A service that is wanted, or whose slots have not all gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its spec in force.
    pub spec: Arc<ServiceSpec>,
    /// The revision the spec belongs to.
    pub revision: RevisionNumber,
    /// Next index of its counter.
    pub next_index: SlotIndex,
    /// Its slots.
    pub slots: BTreeMap<SlotKey, Slot>,
    /// Whether it is still in the manifest.
    pub wanted: Wanted,
    /// Moves of its slots after used-up restarts.
    pub(crate) reschedules: BTreeMap<SlotKey, Vec<Rescheduled>>,
    /// Replicas of a job that are done and no longer kept.
    pub collected: Collected,
    /// How often it was restarted on purpose.
    pub restart_epoch: u32,
    /// How it stands in the rollout of its deployment.
    pub rolling: Rolling,
    /// When it failed of late, by node; what is older than the cluster's window is forgotten.
    #[serde(default)]
    pub(crate) failures: BTreeMap<NodeName, Vec<Time>>,
    /// Whether its spread is to be evened out.
    #[serde(default)]
    pub evening_out: EveningOut,
}

impl State {
    /// How many commands have changed it.
    pub fn index(&self) -> StateIndex {
        self.index
    }

    /// The cluster's settings.
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Who belongs to the cluster and who may ask.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The version a secret has, if there is one.
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

    /// All volumes, by namespace and name.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// One volume.
    pub fn volume(&self, key: &VolumeKey) -> Option<&Volume> {
        self.volumes.get(key)
    }

    /// Every generation not yet observed stopped, with its place.
    pub fn replicas(&self) -> impl Iterator<Item = (&GroupKey, &Slot, &Replica)> {
        self.groups.iter().flat_map(|(key, group)| {
            group.slots.values().flat_map(move |slot| slot.replicas.iter().map(move |replica| (key, slot, replica)))
        })
    }

    /// Groups of one deployment.
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
