//! The network state of the whole cluster, kept up to date from events.
//!
//! Owns: every service with ports or scopes, every node, and which services a change concerns.
//! Must not touch: which machine needs what.
//! Invariant: only services with events, those on a node that changed, and those that refer to a network whose declaration
//! changed are looked at again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{DeploymentName, Event, GroupKey, NamespaceName, NodeName, event::Subject};
use longshore_network::{NetworkNode, NetworkService, NetworkSettings, ScopeName};
use longshore_store::{State, replicated::Change};

use super::{
    scopes::{self, Declared},
    service_view,
};

/// All services and nodes.
#[derive(Debug)]
pub(crate) struct NetworkIndex {
    pub(super) services: BTreeMap<GroupKey, Indexed>,
    pub(super) nodes: BTreeMap<NodeName, NetworkNode>,
    pub(super) settings: NetworkSettings,
    by_scope: BTreeMap<ScopeName, BTreeSet<GroupKey>>,
    /// The groups with a replica on each node, with or without a place in the network.
    groups_on: BTreeMap<NodeName, BTreeSet<GroupKey>>,
    declared: Declared,
    /// Services with an external network, whose scope other deployments decide.
    with_external: BTreeSet<GroupKey>,
}

/// A service, and the nodes that it has replicas on.
#[derive(Debug)]
pub(super) struct Indexed {
    pub(super) service: Arc<NetworkService>,
    pub(super) nodes: BTreeSet<NodeName>,
}

/// What is different.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct IndexChanges {
    pub(super) groups: BTreeSet<GroupKey>,
    pub(super) nodes: BTreeSet<NodeName>,
    pub(super) settings: Option<NetworkSettings>,
}

impl NetworkIndex {
    /// Everything in the state.
    pub(crate) fn open(state: &State, cluster: &str) -> Self {
        let mut index = Self {
            services: BTreeMap::new(),
            nodes: state.nodes().map(|node| (node.name.clone(), service_view::node(state, &node.name))).collect(),
            settings: settings(state, cluster.to_owned()),
            by_scope: BTreeMap::new(),
            groups_on: BTreeMap::new(),
            declared: Declared::default(),
            with_external: BTreeSet::new(),
        };
        for (namespace, deployment, _) in state.deployments() {
            index.declared.update(state, namespace, deployment);
        }
        for (key, _) in state.groups() {
            index.update_service(state, key);
        }
        index
    }

    /// Follows the changes; the state may be newer, and what it holds beyond is seen early.
    pub(super) fn advance(&mut self, state: &State, since: &[Arc<Change>]) -> IndexChanges {
        let mut changes = IndexChanges::default();
        let mut groups = BTreeSet::new();
        let mut deployments: BTreeSet<(NamespaceName, DeploymentName)> = BTreeSet::new();
        for event in since.iter().flat_map(|change| &change.events) {
            match event.subject() {
                Subject::Service(group) => {
                    if matches!(event, Event::GroupChanged { .. } | Event::GroupGone(_)) {
                        deployments.insert((group.namespace.clone(), group.deployment.clone()));
                    }
                    groups.insert(group.clone());
                }
                // It may have been stopped, started or removed.
                Subject::Deployment(namespace, deployment) => {
                    deployments.insert((namespace.clone(), deployment.clone()));
                    groups.extend(state.groups_of(namespace, deployment).map(|(group, _)| group.clone()));
                }
                Subject::Cluster => self.follow_cluster(state, event, &mut changes),
            }
        }
        for (namespace, deployment) in deployments {
            if self.declared.update(state, &namespace, &deployment) {
                groups.extend(self.with_external.iter().filter(|group| group.namespace == namespace).cloned());
            }
        }
        let moved = changes.nodes.iter().filter_map(|node| self.groups_on.get(node)).flatten();
        groups.extend(moved.cloned());
        changes.groups = groups.into_iter().filter(|group| self.update_service(state, group)).collect();
        changes
    }

    fn follow_cluster(&mut self, state: &State, event: &Event, changes: &mut IndexChanges) {
        let looked_at: Vec<NodeName> = match event {
            Event::NodeChanged(node) => vec![node.name.clone()],
            Event::NodeGone(name) => vec![name.clone()],
            // A node may have another address.
            Event::AccessChanged => self.nodes.keys().cloned().collect(),
            Event::Configured(_) => {
                let now = settings(state, self.settings.cluster.clone());
                if now != self.settings {
                    self.settings = now.clone();
                    changes.settings = Some(now);
                }
                Vec::new()
            }
            _ => Vec::new(),
        };
        changes.nodes.extend(looked_at.into_iter().filter(|name| self.update_node(state, name)));
    }

    /// Returns whether the node is another one now.
    fn update_node(&mut self, state: &State, name: &NodeName) -> bool {
        let now = state.node(name).map(|_| service_view::node(state, name));
        let changed = self.nodes.get(name) != now.as_ref();
        match now {
            Some(now) => drop(self.nodes.insert(name.clone(), now)),
            None => drop(self.nodes.remove(name)),
        }
        changed
    }

    /// Returns whether the service, or the nodes it is on, are others now.
    fn update_service(&mut self, state: &State, key: &GroupKey) -> bool {
        let group = state.group(key);
        let service = group.and_then(|group| {
            let scopes = self.declared.scopes_of(state, key, group);
            service_view::service(state, key, group, scopes)
        });
        let replicas = group.into_iter().flat_map(|group| group.slots.values()).flat_map(|slot| &slot.replicas);
        let nodes: BTreeSet<NodeName> = replicas.map(|replica| replica.assignment.node.clone()).collect();
        if group.is_some() && scopes::has_external(state, key) {
            self.with_external.insert(key.clone());
        } else {
            self.with_external.remove(key);
        }
        let before = self.services.get(key);
        let is_same = match (before, &service) {
            (Some(before), Some(now)) => *before.service == *now && before.nodes == nodes,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_same {
            self.replace(key, service.map(|service| Indexed { service: Arc::new(service), nodes }));
        }
        !is_same
    }

    fn replace(&mut self, key: &GroupKey, now: Option<Indexed>) {
        if let Some(before) = self.services.remove(key) {
            for scope in &before.service.scopes {
                remove_from(&mut self.by_scope, &scope.name, key);
            }
            for node in &before.nodes {
                remove_from(&mut self.groups_on, node, key);
            }
        }
        let Some(now) = now else { return };
        for scope in &now.service.scopes {
            self.by_scope.entry(scope.name.clone()).or_default().insert(key.clone());
        }
        for node in &now.nodes {
            self.groups_on.entry(node.clone()).or_default().insert(key.clone());
        }
        self.services.insert(key.clone(), now);
    }

    /// Every service with ports or scopes.
    pub(crate) fn services(&self) -> impl Iterator<Item = &NetworkService> {
        self.services.values().map(|indexed| &*indexed.service)
    }

    /// One service.
    pub(crate) fn service(&self, key: &GroupKey) -> Option<&NetworkService> {
        self.services.get(key).map(|indexed| &*indexed.service)
    }

    /// The services of a scope.
    pub(super) fn members(&self, scope: &ScopeName) -> impl Iterator<Item = &GroupKey> {
        self.by_scope.get(scope).into_iter().flatten()
    }
}

fn remove_from<K: Ord>(map: &mut BTreeMap<K, BTreeSet<GroupKey>>, key: &K, group: &GroupKey) {
    if let Some(groups) = map.get_mut(key) {
        groups.remove(group);
        if groups.is_empty() {
            map.remove(key);
        }
    }
}

fn settings(state: &State, cluster: String) -> NetworkSettings {
    let config = state.config();
    let mesh_port = u16::try_from(config.mesh_port).unwrap_or(u16::MAX);
    NetworkSettings { cluster, addresses: config.address_plan(), mesh: config.mesh, mesh_port }
}
