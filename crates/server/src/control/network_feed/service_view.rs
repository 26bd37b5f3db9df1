//! A service as the network state has it: its ports with their endpoints, its scopes, its VIP and its replicas.
//!
//! Owns: which replicas serve, and where each answers. Must not touch: which machine needs to know.
//! Invariant: a replica serves if it was observed running, shall run, and its node is not down. It serves by its overlay
//! address only if that address is really on its interface.

use std::net::{IpAddr, SocketAddr};

use longshore_model::{
    AddressPlan, BoundPort, Driver, GroupKey, Health, NodeName, ReplicaState, ServiceSpec, SlotKey,
    address_plan::is_block,
    replica::{DesiredState, Detail, Replica},
    service::{Port, PortMode, Protocol},
};
use longshore_network::{Endpoint, NetworkNode, NetworkReplica, NetworkService, PublishedPort, Scope};
use longshore_store::{Group, State};

/// Detail of a replica that names its address on an interface of its own.
const ADDRESS: &str = "address";
/// Detail of a replica that names its overlay address, where `address` names another one.
const OVERLAY_ADDRESS: &str = "overlay_address";

/// A node as other machines see it.
pub(super) fn node(state: &State, name: &NodeName) -> NetworkNode {
    let node = state.node(name);
    let advertised = state.access().membership(name).and_then(|membership| ip_of(&membership.address));
    NetworkNode {
        name: name.clone(),
        block: node.map(|node| node.address_block()).filter(|block| is_block(*block)),
        ip: advertised.or_else(|| node.and_then(|node| node.ip)),
        mesh: node.and_then(|node| node.network.as_ref()?.mesh.clone()),
        is_up: node.is_some_and(|node| node.health != Health::Down && node.confirmed_lost.is_none()),
    }
}

/// The service with these scopes; `None` if it has neither ports nor scopes.
pub(super) fn service(state: &State, key: &GroupKey, group: &Group, scopes: Vec<Scope>) -> Option<NetworkService> {
    let mut ports = open_ports(state, key, group);
    if ports.is_empty() && scopes.is_empty() {
        return None;
    }
    let plan = state.config().address_plan();
    let mut replicas = Vec::new();
    for (slot, replica) in group.slots.values().flat_map(|slot| slot.replicas.iter().map(move |it| (&slot.key, it))) {
        if !is_present(replica) {
            continue;
        }
        let node = node(state, &replica.assignment.node);
        let serves = replica.desired == DesiredState::Run && replica.state == ReplicaState::Running && node.is_up;
        let overlay = overlay_ip(replica, plan);
        if serves {
            let spec = spec_of(state, key, group, replica);
            for port in &mut ports {
                port.endpoints.extend(endpoint(key, slot, replica, spec, port, (node.ip, overlay)));
            }
        }
        if !scopes.is_empty() {
            replicas.push(NetworkReplica { serves: serves && overlay.is_some(), ..member(key, slot, replica) });
        }
    }
    let spec = &group.spec;
    Some(NetworkService {
        ports,
        vip: group.vip.filter(|_| !scopes.is_empty()),
        endpoint_mode: spec.endpoint_mode,
        scopes,
        hostname: spec.container.hostname.clone(),
        dns: spec.container.resolver.dns.iter().filter_map(|server| server.parse().ok()).collect(),
        replicas,
        ..NetworkService::new(key.clone())
    })
}

/// Whether something of it may run on its node.
fn is_present(replica: &Replica) -> bool {
    match replica.state {
        ReplicaState::Stopped | ReplicaState::Completed => false,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Failed
        | ReplicaState::Lost => true,
    }
}

/// The replica as a member of its scopes, before it is known whether it serves.
fn member(key: &GroupKey, slot: &SlotKey, replica: &Replica) -> NetworkReplica {
    NetworkReplica {
        id: slot.replica_id(key),
        generation: replica.generation,
        attempt: replica.attempt,
        node: replica.assignment.node.clone(),
        address: replica.assignment.address,
        serves: false,
    }
}

/// The address that other machines reach the replica at, IPv4 if it has one; `None` if its interface has neither: its
/// node takes no part in the overlay, or it was created before the node did.
fn overlay_ip(replica: &Replica, plan: AddressPlan) -> Option<IpAddr> {
    let assigned = IpAddr::V6(replica.assignment.address);
    let best = plan.ipv4_of(replica.assignment.address).map_or(assigned, IpAddr::V4);
    let is_reported = [ADDRESS, OVERLAY_ADDRESS].iter().any(|name| match replica.details.get(*name) {
        Some(Detail::Text(text)) => text.parse().is_ok_and(|ip: IpAddr| ip == best || ip == assigned),
        Some(Detail::List(_) | Detail::Number(_)) | None => false,
    });
    is_reported.then_some(best)
}

/// The ports that every machine listens on for the service, still without endpoints.
fn open_ports(state: &State, key: &GroupKey, group: &Group) -> Vec<PublishedPort> {
    if is_removed(state, key) || state.is_stopped(key) || has_no_replicas(group) || !is_proxied(&group.spec) {
        return Vec::new();
    }
    published(&group.spec).map(|port| listener(&group.spec, port)).collect()
}

/// The address of `10.0.0.1:7070` or `[fd00::1]:7070`; `None` for a host name, whose owner binds ports to an address.
fn ip_of(address: &str) -> Option<IpAddr> {
    address.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| address.parse()).ok()
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
    (node_ip, overlay): (Option<IpAddr>, Option<IpAddr>),
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
    let own = match replica.details.get(ADDRESS) {
        Some(Detail::Text(address)) => address.parse().ok().map(|ip| SocketAddr::new(ip, target)),
        Some(Detail::List(_) | Detail::Number(_)) | None => None,
    };
    (own.is_some() || !bound.is_empty() || overlay.is_some()).then(|| Endpoint {
        replica: format!("{} g{} r{}", slot.replica_id(key), replica.generation, replica.attempt),
        node: replica.assignment.node.clone(),
        node_ip,
        own,
        bound,
        overlay: overlay.map(|ip| SocketAddr::new(ip, target)),
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
