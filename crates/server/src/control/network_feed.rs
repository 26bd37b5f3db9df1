//! The network state of every machine: published ports and their endpoints, as a snapshot and then as changes.
//!
//! Owns: which replicas are endpoints of a published port, and which services changed.
//! Must not touch: the transport, and which of an endpoint's addresses a machine can reach.
//! Invariant: an endpoint is a generation that was observed running, shall run, and whose node is not down. Only
//! services with events, and those with endpoints on a node whose health or address changed, are looked at again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use longshore_model::{
    BoundPort, Cursor, Driver, Event, GroupKey, Health, NodeName, ReplicaState, ServiceSpec, SlotKey, StateIndex,
    event::Subject,
    replica::{DesiredState, Detail, Replica},
    service::{Port, PortMode, Protocol},
};
use longshore_network::{Endpoint, NetworkFeed, NetworkService, PublishedPort};
use longshore_store::{Group, State, replicated::Change};

/// What was sent to a machine.
#[derive(Debug, Default)]
pub(crate) struct MachineFeed {
    sent: BTreeMap<GroupKey, NetworkService>,
    /// Nodes with endpoints, as they were when those were sent.
    nodes: BTreeMap<NodeName, NodeView>,
}

/// What an endpoint takes from its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeView {
    is_up: bool,
    ip: Option<IpAddr>,
}

impl MachineFeed {
    /// Opens a feed: the snapshot of every service that publishes ports.
    pub(crate) fn open(state: &State) -> (Self, NetworkFeed) {
        let mut feed = Self::default();
        let services = state.groups().filter_map(|(key, group)| service(state, key, group));
        feed.sent = services.map(|service| (service.group.clone(), service)).collect();
        let keys: Vec<GroupKey> = feed.sent.keys().cloned().collect();
        for key in &keys {
            feed.remember_nodes(state, key);
        }
        let services = feed.sent.values().cloned().collect();
        let snapshot =
            NetworkFeed::Snapshot { cursor: cursor(state, state.index()), services, nodes: Vec::new(), settings: None };
        (feed, snapshot)
    }

    /// What changed up to `through`. The state may be newer: what it holds beyond is sent early, and not again later.
    pub(crate) fn next_changes(
        &mut self,
        state: &State,
        through: StateIndex,
        since: &[Arc<Change>],
    ) -> Option<NetworkFeed> {
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        for key in self.touched(state, since) {
            self.remember_nodes(state, &key);
            match state.group(&key).and_then(|group| service(state, &key, group)) {
                Some(now) if self.sent.get(&key) == Some(&now) => {}
                Some(now) => {
                    self.sent.insert(key, now.clone());
                    changed.push(now);
                }
                None => gone.extend(self.sent.remove(&key).map(|_| key)),
            }
        }
        if changed.is_empty() && gone.is_empty() {
            return None;
        }
        Some(NetworkFeed::Changes {
            cursor: cursor(state, through),
            changed,
            gone,
            nodes: Vec::new(),
            nodes_gone: Vec::new(),
            settings: None,
        })
    }

    /// The services to look at again.
    fn touched(&mut self, state: &State, changes: &[Arc<Change>]) -> BTreeSet<GroupKey> {
        let mut groups = BTreeSet::new();
        let mut nodes_changed = false;
        for event in changes.iter().flat_map(|change| &change.events) {
            match event.subject() {
                Subject::Service(group) => drop(groups.insert(group.clone())),
                Subject::Cluster => {
                    nodes_changed |= matches!(event, Event::NodeChanged(_) | Event::NodeGone(_) | Event::AccessChanged);
                }
                // It may have been stopped or started.
                Subject::Deployment(namespace, deployment) => {
                    groups.extend(state.groups_of(namespace, deployment).map(|(group, _)| group.clone()));
                }
            }
        }
        if nodes_changed {
            groups.extend(self.groups_of_changed_nodes(state));
        }
        groups
    }

    /// The services with a replica on a node whose health or address is another one now.
    fn groups_of_changed_nodes(&mut self, state: &State) -> Vec<GroupKey> {
        let now = self.nodes.keys().map(|name| (name.clone(), view_of(state, name)));
        let other: BTreeMap<NodeName, NodeView> = now.filter(|(name, view)| self.nodes[name] != *view).collect();
        if other.is_empty() {
            return Vec::new();
        }
        let is_affected = |key: &&GroupKey| {
            state.group(key).is_some_and(|group| nodes_of(group).any(|name| other.contains_key(name)))
        };
        let affected = self.sent.keys().filter(is_affected).cloned().collect();
        self.nodes.extend(other);
        affected
    }

    /// Only nodes of services that publish ports: the others' health changes nothing here.
    fn remember_nodes(&mut self, state: &State, key: &GroupKey) {
        let Some(group) = state.group(key).filter(|group| published(&group.spec).next().is_some()) else { return };
        for name in nodes_of(group) {
            // A known one is compared when its own event arrives: the state may be ahead of it, and other services on
            // the node have not been looked at yet.
            self.nodes.entry(name.clone()).or_insert_with(|| view_of(state, name));
        }
    }
}

fn nodes_of(group: &Group) -> impl Iterator<Item = &NodeName> {
    group.slots.values().flat_map(|slot| &slot.replicas).map(|replica| &replica.assignment.node)
}

fn view_of(state: &State, name: &NodeName) -> NodeView {
    let node = state.node(name);
    let advertised = state.access().membership(name).and_then(|membership| ip_of(&membership.address));
    NodeView {
        is_up: node.is_some_and(|node| node.health != Health::Down && node.confirmed_lost.is_none()),
        ip: advertised.or_else(|| node.and_then(|node| node.ip)),
    }
}

/// The address of `10.0.0.1:7070` or `[fd00::1]:7070`; `None` for a host name, whose owner binds ports to an address.
fn ip_of(address: &str) -> Option<IpAddr> {
    address.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| address.parse()).ok()
}

/// The incarnation makes a recovered cluster newer, although its indices continue from an older state.
fn cursor(state: &State, index: StateIndex) -> Cursor {
    Cursor { incarnation: state.access().incarnation(), index }
}

/// The published ports of a service with their endpoints; `None` if it publishes none.
fn service(state: &State, key: &GroupKey, group: &Group) -> Option<NetworkService> {
    if is_removed(state, key) || state.is_stopped(key) || has_no_replicas(group) || !is_proxied(&group.spec) {
        return None;
    }
    let mut ports: Vec<PublishedPort> = published(&group.spec).map(|port| listener(&group.spec, port)).collect();
    if ports.is_empty() {
        return None;
    }
    for (slot, replica) in group.slots.values().flat_map(|slot| slot.replicas.iter().map(move |it| (&slot.key, it))) {
        let node = view_of(state, &replica.assignment.node);
        let serves = replica.desired == DesiredState::Run && replica.state == ReplicaState::Running && node.is_up;
        if !serves {
            continue;
        }
        let spec = spec_of(state, key, group, replica);
        for port in &mut ports {
            port.endpoints.extend(endpoint(key, slot, replica, spec, port, node.ip));
        }
    }
    Some(NetworkService { ports, ..NetworkService::new(key.clone()) })
}

/// Whether the service is no longer part of its deployment; its last replicas may still be stopping.
fn is_removed(state: &State, key: &GroupKey) -> bool {
    let deployment = state.deployment(&key.namespace, &key.deployment);
    deployment.is_none_or(|deployment| !deployment.current().spec.services.contains_key(&key.service))
}

/// Whether no replica is desired. Clients of such a service are refused at once.
fn has_no_replicas(group: &Group) -> bool {
    !group.slots.values().any(|slot| slot.desired == DesiredState::Run)
}

/// A container without a network of its own listens by itself, or has no ports.
fn is_proxied(spec: &ServiceSpec) -> bool {
    let own_network = match spec.container.namespaces.network.as_deref() {
        Some("host" | "none") => false,
        Some(other) => !other.starts_with("service:") && !other.starts_with("container:"),
        None => true,
    };
    own_network || spec.driver == Driver::Exec
}

fn published(spec: &ServiceSpec) -> impl Iterator<Item = &Port> {
    spec.ports
        .iter()
        .filter(|port| port.mode == PortMode::Ingress && port.published.is_some() && port.protocol != Protocol::Sctp)
}

fn listener(spec: &ServiceSpec, port: &Port) -> PublishedPort {
    let published = port.published.unwrap_or(port.target);
    PublishedPort {
        protocol: port.protocol,
        port: published,
        host_ip: port.host_ip,
        process_may_bind: spec.driver == Driver::Exec && port.target == published,
        endpoints: Vec::new(),
    }
}

/// The spec that a generation was created from: an older one may answer the same published port at another target.
fn spec_of<'a>(state: &'a State, key: &GroupKey, group: &'a Group, replica: &Replica) -> &'a ServiceSpec {
    let deployment = state.deployment(&key.namespace, &key.deployment);
    let revision = deployment.and_then(|kept| kept.revision(replica.assignment.reservation.revision));
    revision.and_then(|kept| kept.spec.services.get(&key.service)).unwrap_or(&group.spec)
}

fn endpoint(
    key: &GroupKey,
    slot: &SlotKey,
    replica: &Replica,
    spec: &ServiceSpec,
    port: &PublishedPort,
    node_ip: Option<IpAddr>,
) -> Option<Endpoint> {
    // One number may lead to two targets at two addresses of the machine.
    let same =
        |own: &&Port| (own.published, own.protocol, own.host_ip) == (Some(port.port), port.protocol, port.host_ip);
    let target = published(spec).find(same)?.target;
    let bound: Vec<SocketAddr> = match replica.details.get("ports") {
        Some(Detail::List(bindings)) => {
            let bound = bindings.iter().filter_map(|binding| BoundPort::parse(binding));
            bound.filter(|it| it.is_for(target, port.protocol.as_str())).map(|it| it.at).collect()
        }
        Some(Detail::Text(_) | Detail::Number(_)) | None => Vec::new(),
    };
    let own = match replica.details.get("address") {
        Some(Detail::Text(address)) => address.parse().ok().map(|ip| SocketAddr::new(ip, target)),
        Some(Detail::List(_) | Detail::Number(_)) | None => None,
    };
    (own.is_some() || !bound.is_empty()).then(|| Endpoint {
        replica: format!("{} g{} r{}", slot.replica_id(key), replica.generation, replica.attempt),
        node: replica.assignment.node.clone(),
        node_ip,
        own,
        bound,
        overlay: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_node_is_the_one_it_advertises() {
        assert_eq!(ip_of("10.0.0.1:7070"), Some(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(ip_of("[fd00::1]:7070").map(|ip| ip.to_string()).as_deref(), Some("fd00::1"));
        assert_eq!(ip_of("box.example:7070"), None);
    }
}
