//! The network state of a machine: nodes, services with their scopes, VIPs and replicas, and published ports.
//!
//! Owns: the data, the feed it arrives as, and which of an endpoint's addresses can be reached from where.
//! Must not touch: sockets, and any program of this machine. Invariant: a feed starts with a snapshot and continues with
//! every change, so a state with a cursor is complete up to it; an older message changes nothing.

mod members;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use longshore_model::{AddressPlan, Cursor, GroupKey, NodeName, service::Protocol};
use serde::{Deserialize, Serialize};

pub use self::members::{NetworkNode, NetworkReplica, NetworkService, NetworkSettings, Scope, ScopeName};
pub use longshore_model::{MeshIdentity, MeshMode, service::EndpointMode};

/// The port of the transparent relay at mesh addresses.
pub(crate) const RELAY_PORT: u16 = 7480;

/// One port that every machine of the cluster listens on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedPort {
    /// Transport.
    pub protocol: Protocol,
    /// The port to listen on.
    pub port: u16,
    /// The only address to listen on; `None` is every address.
    #[serde(default)]
    pub host_ip: Option<IpAddr>,
    /// Whether a plain process of the service may bind the published port itself: its target port is the same number,
    /// and nothing separates its network from the machine's. The listener then waits for an endpoint at another port.
    #[serde(default)]
    pub process_may_bind: bool,
    /// Where its replicas answer.
    pub endpoints: Vec<Endpoint>,
}

/// Where one replica answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The replica's printed id with generation and attempt, so that a restart is another endpoint.
    pub replica: String,
    /// The node it runs on.
    pub node: NodeName,
    /// The address that other nodes reach its node at, if one is known.
    #[serde(default)]
    pub node_ip: Option<IpAddr>,
    /// Its own address, which only its node can reach.
    #[serde(default)]
    pub own: Option<SocketAddr>,
    /// Addresses of its node that lead to it. An unspecified one stands for every address of the node.
    pub bound: Vec<SocketAddr>,
    /// Its overlay address, which every node of the mesh can reach; `None` if it has none on its interface.
    #[serde(default)]
    pub overlay: Option<SocketAddr>,
}

impl Endpoint {
    /// The addresses to try from a machine with these nodes, best first.
    pub fn addresses_from(&self, local_nodes: &BTreeSet<NodeName>) -> Vec<SocketAddr> {
        if self.is_on(local_nodes) {
            let bound = self.bound.iter().map(|address| match address.ip() {
                ip if ip.is_unspecified() => SocketAddr::new(loopback_of(ip), address.port()),
                _ => *address,
            });
            return deduplicated(self.own.into_iter().chain(bound));
        }
        // A node whose address is a loopback one shares this machine with whoever knows it by that address.
        let shares_machine = self.node_ip.is_some_and(|ip| ip.is_loopback());
        let reachable = self.bound.iter().filter_map(|address| match address.ip() {
            ip if ip.is_unspecified() => Some(SocketAddr::new(self.node_ip?, address.port())),
            ip if ip.is_loopback() && !shares_machine => None,
            _ => Some(*address),
        });
        deduplicated(reachable)
    }

    /// Whether it runs on one of these nodes.
    pub fn is_on(&self, local_nodes: &BTreeSet<NodeName>) -> bool {
        local_nodes.contains(&self.node)
    }
}

/// Where this machine looks at endpoints from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vantage {
    /// The nodes of this machine.
    pub local_nodes: BTreeSet<NodeName>,
    /// Nodes that the mesh reaches from here, with their mesh addresses; none if this machine takes no part in it.
    pub meshed_nodes: BTreeMap<NodeName, IpAddr>,
    /// Where addresses of the overlay come from.
    pub plan: Option<AddressPlan>,
}

/// How an endpoint is reached so that its replica sees the client's own address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransparentWay {
    /// The relay of its machine; `None` on its own machine.
    pub relay: Option<SocketAddr>,
    /// Its overlay address, whose family the client must have.
    pub ipv4: Option<SocketAddr>,
    /// The same in IPv6.
    pub ipv6: Option<SocketAddr>,
}

impl TransparentWay {
    /// The replica's address in the client's family.
    pub fn replica_for(&self, client: IpAddr) -> Option<SocketAddr> {
        if client.is_ipv4() { self.ipv4 } else { self.ipv6 }
    }
}

impl Vantage {
    /// As a state tells it.
    pub fn of(state: &NetworkState, local_nodes: &BTreeSet<NodeName>) -> Self {
        let is_meshed = |node: &&NetworkNode| node.mesh.is_some() && node.block.is_some();
        let takes_part = local_nodes.iter().filter_map(|node| state.node(node)).any(|node| is_meshed(&node));
        let plan = state.settings().map(|settings| settings.addresses);
        let meshed = state.nodes().filter(|node| takes_part && is_meshed(node));
        let addresses = meshed.filter_map(|node| Some((node.name.clone(), plan?.node_ipv6(node.block?).into())));
        Self { local_nodes: local_nodes.clone(), meshed_nodes: addresses.collect(), plan }
    }

    /// How an endpoint is reached from the client's own address; `None` if it has no overlay address, or the mesh does not
    /// reach its machine from here.
    pub fn transparent_way(&self, endpoint: &Endpoint) -> Option<TransparentWay> {
        let (plan, overlay) = (self.plan?, endpoint.overlay?);
        let is_local = endpoint.is_on(&self.local_nodes);
        let relay = self.meshed_nodes.get(&endpoint.node).map(|ip| SocketAddr::new(*ip, RELAY_PORT));
        let relay = if is_local { None } else { Some(relay?) };
        let (ipv4, ipv6) = match overlay.ip() {
            IpAddr::V4(ip) => (Some(ip), plan.ipv6_of(ip)),
            IpAddr::V6(ip) => (plan.ipv4_of(ip), Some(ip)),
        };
        let at = |ip: IpAddr| SocketAddr::new(ip, overlay.port());
        Some(TransparentWay { relay, ipv4: ipv4.map(|ip| at(ip.into())), ipv6: ipv6.map(|ip| at(ip.into())) })
    }

    /// The addresses of an endpoint to try from here, best first: through the mesh where both take part in it.
    pub fn addresses_of(&self, endpoint: &Endpoint) -> Vec<SocketAddr> {
        let others = endpoint.addresses_from(&self.local_nodes).into_iter();
        let is_local = endpoint.is_on(&self.local_nodes);
        match endpoint.overlay {
            Some(overlay) if is_local => deduplicated(endpoint.own.into_iter().chain([overlay]).chain(others)),
            Some(overlay) if self.meshed_nodes.contains_key(&endpoint.node) => {
                deduplicated([overlay].into_iter().chain(others))
            }
            Some(_) | None => others.collect(),
        }
    }
}

fn loopback_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// The addresses without repetitions, in their order.
fn deduplicated(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut kept: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        if !kept.contains(&address) {
            kept.push(address);
        }
    }
    kept
}

/// One message of the feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkFeed {
    /// Everything this machine has to know; the first message of a connection.
    Snapshot {
        /// The state it was made from.
        cursor: Cursor,
        /// The services.
        services: Vec<NetworkService>,
        /// Every node of the cluster.
        #[serde(default)]
        nodes: Vec<NetworkNode>,
        /// Settings of the cluster; `None` if the server does not know of an overlay.
        #[serde(default)]
        settings: Option<NetworkSettings>,
    },
    /// Changes since the previous message.
    Changes {
        /// The state it was made from.
        cursor: Cursor,
        /// Services that are new or different.
        changed: Vec<NetworkService>,
        /// Services that do not concern this machine any more.
        gone: Vec<GroupKey>,
        /// Nodes that are new or different.
        #[serde(default)]
        nodes: Vec<NetworkNode>,
        /// Nodes that left the cluster.
        #[serde(default)]
        nodes_gone: Vec<NodeName>,
        /// The settings, if they changed.
        #[serde(default)]
        settings: Option<NetworkSettings>,
    },
}

/// Which services a message may have changed, so that what is computed from the state follows in proportion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TouchedServices {
    /// Any of them.
    All,
    /// These, changed or gone.
    These(BTreeSet<GroupKey>),
}

impl TouchedServices {
    /// Those of one message.
    pub fn of(message: &NetworkFeed) -> Self {
        match message {
            NetworkFeed::Snapshot { .. } => Self::All,
            NetworkFeed::Changes { changed, gone, .. } => {
                Self::These(changed.iter().map(|service| &service.group).chain(gone).cloned().collect())
            }
        }
    }

    /// Those of both.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::These(mut groups), Self::These(others)) => {
                groups.extend(others);
                Self::These(groups)
            }
            (Self::All, _) | (_, Self::All) => Self::All,
        }
    }
}

/// What a machine knows of the network, up to a cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct NetworkState {
    cursor: Option<Cursor>,
    services: BTreeMap<GroupKey, NetworkService>,
    nodes: BTreeMap<NodeName, NetworkNode>,
    settings: Option<NetworkSettings>,
}

/// The state as it is written: a list, because a key with several parts is no name of a JSON object.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    cursor: Option<Cursor>,
    services: Vec<NetworkService>,
    #[serde(default)]
    nodes: Vec<NetworkNode>,
    #[serde(default)]
    settings: Option<NetworkSettings>,
}

impl From<Stored> for NetworkState {
    fn from(Stored { cursor, services, nodes, settings }: Stored) -> Self {
        Self { cursor, services: by_group(services), nodes: by_name(nodes), settings }
    }
}

impl From<NetworkState> for Stored {
    fn from(NetworkState { cursor, services, nodes, settings }: NetworkState) -> Self {
        let (services, nodes) = (services.into_values().collect(), nodes.into_values().collect());
        Self { cursor, services, nodes, settings }
    }
}

fn by_group(services: Vec<NetworkService>) -> BTreeMap<GroupKey, NetworkService> {
    services.into_iter().map(|service| (service.group.clone(), service)).collect()
}

fn by_name(nodes: Vec<NetworkNode>) -> BTreeMap<NodeName, NetworkNode> {
    nodes.into_iter().map(|node| (node.name.clone(), node)).collect()
}

impl NetworkState {
    /// Applies a message. Returns whether anything changed; a message that is older than the state changes nothing.
    pub fn apply(&mut self, message: NetworkFeed) -> bool {
        match message {
            NetworkFeed::Snapshot { cursor, services, nodes, settings } => {
                if self.cursor.is_some_and(|known| known > cursor) {
                    return false;
                }
                let next = Self { cursor: Some(cursor), services: by_group(services), nodes: by_name(nodes), settings };
                let before = std::mem::replace(self, next);
                before.cursor.is_none() || Self { cursor: self.cursor, ..before } != *self
            }
            NetworkFeed::Changes { cursor, changed, gone, nodes, nodes_gone, settings } => {
                if self.cursor.is_none_or(|known| known >= cursor) {
                    return false;
                }
                self.cursor = Some(cursor);
                for group in &gone {
                    self.services.remove(group);
                }
                for node in &nodes_gone {
                    self.nodes.remove(node);
                }
                self.services.extend(by_group(changed));
                self.nodes.extend(by_name(nodes));
                self.settings = settings.or_else(|| self.settings.take());
                true
            }
        }
    }

    /// Whether a server has told anything yet.
    pub fn is_known(&self) -> bool {
        self.cursor.is_some()
    }

    /// The state with further services.
    pub(crate) fn with_services(&self, services: Vec<NetworkService>) -> Self {
        let mut state = self.clone();
        state.services.extend(by_group(services));
        state
    }

    /// The services, by group.
    pub fn services(&self) -> impl Iterator<Item = &NetworkService> {
        self.services.values()
    }

    /// The service of a group.
    pub fn service(&self, group: &GroupKey) -> Option<&NetworkService> {
        self.services.get(group)
    }

    /// The state it is complete up to; `None` before the first snapshot.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    /// The nodes of the cluster, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NetworkNode> {
        self.nodes.values()
    }

    /// The node of a name.
    pub fn node(&self, name: &NodeName) -> Option<&NetworkNode> {
        self.nodes.get(name)
    }

    /// The settings of the overlay; `None` until a server that knows of it has answered.
    pub fn settings(&self) -> Option<&NetworkSettings> {
        self.settings.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::StateIndex;

    use super::*;

    fn endpoint(node: &str, node_ip: &str, own: Option<&str>, bound: &[&str]) -> Endpoint {
        Endpoint {
            replica: "shop-web-0 g1 r0".to_owned(),
            node: node.into(),
            node_ip: node_ip.parse().ok(),
            own: own.map(|own| own.parse().unwrap()),
            bound: bound.iter().map(|address| address.parse().unwrap()).collect(),
            overlay: None,
        }
    }

    fn from(nodes: &[&str], endpoint: &Endpoint) -> Vec<String> {
        let nodes = nodes.iter().map(|node| NodeName::from(*node)).collect();
        endpoint.addresses_from(&nodes).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn its_own_node_asks_the_replica_itself_and_others_ask_its_node() {
        let container = endpoint("a", "10.0.0.1", Some("172.18.0.2:80"), &["10.0.0.1:49153"]);
        assert_eq!(from(&["a"], &container), ["172.18.0.2:80", "10.0.0.1:49153"]);
        assert_eq!(from(&["b"], &container), ["10.0.0.1:49153"]);
    }

    #[test]
    fn what_listens_on_loopback_is_reached_from_its_own_machine_only() {
        let process = endpoint("a", "10.0.0.1", None, &["127.0.0.1:41000"]);
        assert_eq!(from(&["a"], &process), ["127.0.0.1:41000"]);
        assert!(from(&["b"], &process).is_empty());
        let same_machine = endpoint("a", "127.0.0.1", None, &["127.0.0.1:41000"]);
        assert_eq!(from(&["b"], &same_machine), ["127.0.0.1:41000"]);
    }

    #[test]
    fn a_process_on_every_address_is_reached_at_its_nodes() {
        let process = endpoint("a", "10.0.0.1", None, &["0.0.0.0:41000"]);
        assert_eq!(from(&["a"], &process), ["127.0.0.1:41000"]);
        assert_eq!(from(&["b"], &process), ["10.0.0.1:41000"]);
        assert!(from(&["b"], &endpoint("a", "", None, &["0.0.0.0:41000"])).is_empty());
    }

    #[test]
    fn a_replica_of_another_machine_is_reached_through_the_mesh_if_both_take_part_in_it() {
        let overlay = "10.128.4.3:80".parse().ok();
        let container = Endpoint { overlay, ..endpoint("a", "10.0.0.1", Some("10.128.4.3:80"), &["10.0.0.1:49153"]) };
        let node = |name: &str, mesh: bool| NetworkNode {
            name: name.into(),
            block: Some(1),
            ip: None,
            mesh: mesh.then(|| MeshIdentity { public_key: "k".to_owned(), port: 51820 }),
            is_up: true,
        };
        let from = |local: &str, nodes: Vec<NetworkNode>| {
            let mut state = NetworkState::default();
            let addresses = AddressPlan { prefix: "fd4c::".parse().unwrap(), pool: "10.128.0.0/10".parse().unwrap() };
            let settings =
                NetworkSettings { cluster: "c".to_owned(), addresses, mesh: MeshMode::Auto, mesh_port: 51_820 };
            let (cursor, services) = (cursor(1), Vec::new());
            state.apply(NetworkFeed::Snapshot { cursor, services, nodes, settings: Some(settings) });
            let addresses = Vantage::of(&state, &BTreeSet::from([local.into()])).addresses_of(&container);
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(from("b", vec![node("a", true), node("b", true)]), ["10.128.4.3:80", "10.0.0.1:49153"]);
        assert_eq!(from("b", vec![node("a", true), node("b", false)]), ["10.0.0.1:49153"]);
        assert_eq!(from("b", vec![node("a", false), node("b", true)]), ["10.0.0.1:49153"]);
        assert_eq!(from("a", Vec::new()), ["10.128.4.3:80", "10.0.0.1:49153"]);
    }

    fn service(name: &str, port: u16) -> NetworkService {
        let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: name.into() };
        let (protocol, endpoints) = (Protocol::Tcp, vec![endpoint("a", "", None, &["127.0.0.1:41000"])]);
        let ports = vec![PublishedPort { protocol, port, host_ip: None, process_may_bind: false, endpoints }];
        NetworkService { ports, ..NetworkService::new(group) }
    }

    fn snapshot(at: u64, services: Vec<NetworkService>) -> NetworkFeed {
        NetworkFeed::Snapshot { cursor: cursor(at), services, nodes: Vec::new(), settings: None }
    }

    fn cursor(index: u64) -> Cursor {
        Cursor { incarnation: 0, index: StateIndex(index) }
    }

    #[test]
    fn changes_follow_a_snapshot_and_what_is_older_changes_nothing() {
        let mut state = NetworkState::default();
        let changes = |at, name, gone: &[&NetworkService]| NetworkFeed::Changes {
            cursor: cursor(at),
            changed: vec![service(name, 81)],
            gone: gone.iter().map(|service| service.group.clone()).collect(),
            nodes: Vec::new(),
            nodes_gone: Vec::new(),
            settings: None,
        };
        assert!(!state.apply(changes(9, "early", &[])), "there was no snapshot");
        assert!(state.apply(snapshot(5, vec![service("web", 80)])));
        assert!(state.apply(changes(6, "api", &[&service("web", 80)])));
        assert!(!state.apply(changes(6, "late", &[])));
        assert!(!state.apply(snapshot(4, Vec::new())));
        let names: Vec<String> = state.services().map(|service| service.group.service.to_string()).collect();
        assert_eq!(names, ["api"]);
    }

    #[test]
    fn a_state_is_read_back_from_json() {
        let mut state = NetworkState::default();
        state.apply(snapshot(5, vec![service("web", 80)]));
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<NetworkState>(&text).unwrap(), state);
    }
}
