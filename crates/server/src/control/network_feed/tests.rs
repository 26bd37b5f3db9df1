//! What machines are told: their scopes and everybody's ports, and nothing that does not concern them.

use std::{collections::BTreeMap, net::Ipv6Addr};

use longshore_model::{
    Attempt, Command, DeploymentSpec, Generation, GroupPlan, MeshIdentity, NamespaceName, Node, NodeNetwork,
    Observation, Placement, Plan, PlanItem, ReplicaState, Reservation, ServiceSpec, SlotIndex, SlotKey, Time,
    replica::{Detail, Details},
    service::{Attachment, EndpointMode, NetworkReach, NetworkSpec, Port, PortMode, Protocol},
};
use longshore_store::replicated::Change;

use super::*;

/// A state with nodes `a`, `b` and `c`, the index of it, and the feeds of their machines.
struct World {
    state: State,
    index: NetworkIndex,
    machines: BTreeMap<&'static str, MachineFeed>,
}

impl World {
    fn new() -> Self {
        let mut state = State::default();
        for name in ["a", "b", "c"] {
            let network = NodeNetwork { gives_addresses: true, ..NodeNetwork::default() };
            let node = Node { joined_at: Some(Time(1)), network: Some(network), ..Node::new(name) };
            state.apply(Command::Join(Box::new(node))).unwrap();
        }
        let index = NetworkIndex::open(&state, "cluster");
        let open = |name: &'static str| {
            (name, MachineFeed::open(&index, cursor(&state, state.index()), [name.into()].into()).0)
        };
        let machines = ["a", "b", "c"].map(open).into();
        Self { state, index, machines }
    }

    /// Applies a command and returns the message to each machine that gets one.
    fn apply(&mut self, command: Command) -> BTreeMap<&'static str, NetworkFeed> {
        let events = self.state.apply(command).unwrap();
        let change = Arc::new(Change { index: self.state.index(), events });
        let changes = self.index.advance(&self.state, &[change]);
        let at = cursor(&self.state, self.state.index());
        let (index, machines) = (&self.index, self.machines.iter_mut());
        machines.filter_map(|(name, feed)| Some((*name, feed.next_changes(index, at, &changes)?))).collect()
    }

    fn deploy(&mut self, name: &str, networks: &[(&str, NetworkSpec)], services: &[(&str, ServiceSpec)]) {
        let spec = DeploymentSpec {
            services: services.iter().map(|(name, spec)| ((*name).into(), Arc::new(spec.clone()))).collect(),
            networks: networks.iter().map(|(name, spec)| ((*name).to_owned(), spec.clone())).collect(),
            ..DeploymentSpec::default()
        };
        self.apply(Command::Apply {
            namespace: NamespaceName::default_namespace(),
            deployment: name.into(),
            spec: Box::new(spec),
            rerun: longshore_model::command::Rerun::IfChanged,
        });
    }

    fn place(&mut self, group: &GroupKey, node: &str) -> BTreeMap<&'static str, NetworkFeed> {
        let block = self.state.node(&node.into()).unwrap().address_block();
        let items = vec![PlanItem::Place(Placement {
            key: slot().generation(Generation(1)),
            node: node.into(),
            address: self.state.config().address_plan().replica_ipv6(block, 5),
            new_volumes: Vec::new(),
            devices: BTreeMap::new(),
            reservation: None,
            moved: None,
        })];
        let part = GroupPlan { group: group.clone(), reservation: Arc::new(Reservation::default()), items };
        self.apply(Command::Commit(Box::new(Plan { made_at: Time(50), groups: vec![part], ..Plan::default() })))
    }

    fn observe(&mut self, group: &GroupKey, state: ReplicaState, address: &str) -> BTreeMap<&'static str, NetworkFeed> {
        self.apply(Command::Observe(Observation {
            key: group.replica(&slot(), Generation(1)),
            attempt: Attempt(0),
            placed_at: None,
            state,
            code: None,
            details: Details::from([("address".to_owned(), Detail::Text(address.to_owned()))]),
            at: Time(60),
        }))
    }

    fn sent(&self, machine: &str) -> Vec<String> {
        self.machines[machine].sent.keys().map(|key| format!("{}/{}", key.deployment, key.service)).collect()
    }
}

fn slot() -> SlotKey {
    SlotKey::Index(SlotIndex(0))
}

fn group(deployment: &str, service: &str) -> GroupKey {
    GroupKey { namespace: "default".into(), deployment: deployment.into(), service: service.into() }
}

fn on(networks: &[&str]) -> ServiceSpec {
    let networks = networks.iter().map(|name| ((*name).to_owned(), Attachment::default())).collect();
    ServiceSpec { networks, ..ServiceSpec::default() }
}

fn published(port: u16) -> ServiceSpec {
    let port =
        Port { target: 80, published: Some(port), protocol: Protocol::Tcp, mode: PortMode::Ingress, host_ip: None };
    ServiceSpec { ports: vec![port], ..ServiceSpec::default() }
}

fn changed(message: &NetworkFeed) -> &[NetworkService] {
    match message {
        NetworkFeed::Changes { changed, .. } => changed,
        NetworkFeed::Snapshot { .. } => panic!("a snapshot"),
    }
}

#[test]
fn a_machine_knows_every_published_port_and_the_scopes_of_its_own_replicas() {
    let mut world = World::new();
    world.deploy("shop", &[], &[("web", published(8080)), ("api", on(&[])), ("db", on(&["back"]))]);
    world.deploy("blog", &[], &[("web", on(&[]))]);
    assert!(world.sent("a").is_empty(), "a service without replicas has no open port");
    world.place(&group("shop", "web"), "c");
    assert_eq!(world.sent("a"), ["shop/web"], "a port is everybody's");
    let told = world.place(&group("shop", "api"), "a");
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), ["a", "c"], "`b` has no replica in the scope");
    assert_eq!(world.sent("a"), ["shop/api", "shop/web"]);
    assert_eq!(world.sent("b"), ["shop/web"]);
    world.place(&group("blog", "web"), "b");
    assert_eq!(world.sent("b"), ["blog/web", "shop/web"], "equal names are different services");
}

#[test]
fn a_change_that_does_not_concern_a_machine_sends_it_nothing() {
    let mut world = World::new();
    world.deploy("shop", &[], &[("api", on(&[]))]);
    world.deploy("blog", &[], &[("web", on(&[]))]);
    world.place(&group("shop", "api"), "a");
    let told = world.place(&group("blog", "web"), "b");
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), ["b"]);
    let told = world.observe(&group("blog", "web"), ReplicaState::Running, "10.128.8.5");
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), ["b"]);
    let labels = BTreeMap::from([("zone".to_owned(), "x".to_owned())]);
    assert!(world.apply(Command::Label { node: "b".into(), labels }).is_empty(), "a label is not of the network");
}

#[test]
fn a_service_that_leaves_the_machine_takes_its_scope_with_it() {
    let mut world = World::new();
    world.deploy("shop", &[], &[("api", on(&[])), ("db", on(&[]))]);
    world.place(&group("shop", "api"), "a");
    assert_eq!(world.sent("a"), ["shop/api", "shop/db"]);
    let intent = longshore_model::Intent::Removed;
    world.apply(Command::SetIntent { node: "a".into(), intent, at: Time(80) });
    assert!(world.sent("a").is_empty(), "{:?}", world.sent("a"));
}

#[test]
fn a_replica_serves_by_its_overlay_address_only_where_its_interface_has_it() {
    let mut world = World::new();
    world.deploy("shop", &[], &[("web", published(8080))]);
    let web = group("shop", "web");
    world.place(&web, "a");
    let told = world.observe(&web, ReplicaState::Running, "172.18.0.2");
    let [service] = changed(&told["b"]) else { panic!("{told:?}") };
    assert_eq!(service.ports[0].endpoints[0].overlay, None);
    assert_eq!(service.serving().count(), 0, "it was created before its node had an overlay");
    let told = world.observe(&web, ReplicaState::Running, "10.128.4.5");
    let [service] = changed(&told["b"]) else { panic!("{told:?}") };
    assert_eq!(service.ports[0].endpoints[0].overlay.unwrap().to_string(), "10.128.4.5:80");
    assert_eq!(service.serving().map(|replica| replica.address).collect::<Vec<Ipv6Addr>>().len(), 1);
    assert_eq!(service.vip, Some(1));
}

#[test]
fn a_node_that_goes_down_serves_nothing_and_everybody_knows() {
    let mut world = World::new();
    world.deploy("shop", &[], &[("web", published(8080))]);
    let web = group("shop", "web");
    world.place(&web, "a");
    world.observe(&web, ReplicaState::Running, "10.128.4.5");
    let told =
        world.apply(Command::SetHealth { node: "a".into(), health: longshore_model::Health::Down, at: Time(70) });
    assert_eq!(told.len(), 3);
    let NetworkFeed::Changes { nodes, changed, .. } = &told["c"] else { panic!("{told:?}") };
    assert!(!nodes[0].is_up);
    assert!(changed[0].ports[0].endpoints.is_empty());
    assert_eq!(changed[0].serving().count(), 0);
}

#[test]
fn a_mesh_identity_and_a_removal_are_told_to_every_machine() {
    let mut world = World::new();
    let mesh = Some(MeshIdentity { public_key: "key".to_owned(), port: 51820 });
    let survey = longshore_model::node::NodeFingerprint {
        platform: longshore_model::Platform::default(),
        capacity: longshore_model::Capacity::default(),
        drivers: BTreeSet::new(),
        engine_labels: BTreeMap::new(),
        plugins: BTreeSet::new(),
        flags: longshore_model::NodeAttributes::default(),
        network: Some(NodeNetwork { mesh: mesh.clone(), gives_addresses: true, ..NodeNetwork::default() }),
    };
    let told = world.apply(Command::Refresh { node: "a".into(), fingerprint: Box::new(survey) });
    let NetworkFeed::Changes { nodes, .. } = &told["b"] else { panic!("{told:?}") };
    assert_eq!((nodes[0].mesh.clone(), nodes[0].block), (mesh, Some(1)));
    let intent = longshore_model::Intent::Removed;
    let told = world.apply(Command::SetIntent { node: "a".into(), intent, at: Time(80) });
    let NetworkFeed::Changes { nodes_gone, .. } = &told["b"] else { panic!("{told:?}") };
    assert_eq!(nodes_gone, &["a".into()]);
}

#[test]
fn an_external_network_is_a_shared_scope_once_a_deployment_of_the_namespace_declares_it() {
    let network = |name: &str, reach| NetworkSpec { name: name.to_owned(), reach, ..NetworkSpec::default() };
    let mut world = World::new();
    world.deploy("blog", &[("hub", network("backbone", NetworkReach::External))], &[("web", on(&["hub"]))]);
    world.place(&group("blog", "web"), "a");
    assert!(world.sent("a").is_empty(), "an engine's network is no scope");
    world.deploy("shop", &[("hub", network("backbone", NetworkReach::Internal))], &[("web", on(&["hub"]))]);
    assert_eq!(world.sent("a"), ["blog/web", "shop/web"]);
    let service = &world.machines["a"].sent[&group("blog", "web")];
    assert_eq!(service.scopes[0].name.to_string(), "default//backbone");
    assert!(service.scopes[0].internal);
}

#[test]
fn words_of_the_manifest_reach_the_machines() {
    let mut world = World::new();
    let mut spec = on(&["front"]);
    spec.networks.get_mut("front").unwrap().aliases = ["www".to_owned()].into();
    spec.endpoint_mode = EndpointMode::Dnsrr;
    spec.container.hostname = Some("box".to_owned());
    spec.container.resolver.dns = vec!["192.0.2.53".to_owned()];
    let mut host = on(&[]);
    host.container.namespaces.network = Some("host".to_owned());
    let network = NetworkSpec { name: "shop_front".to_owned(), enable_ipv6: true, ..NetworkSpec::default() };
    world.deploy("shop", &[("front", network)], &[("web", spec), ("probe", host)]);
    world.place(&group("shop", "web"), "a");
    assert_eq!(world.sent("a"), ["shop/web"], "a service on the host's network is in no scope");
    let service = &world.machines["a"].sent[&group("shop", "web")];
    let scope = &service.scopes[0];
    assert_eq!((scope.name.to_string().as_str(), scope.ipv6), ("default/shop/front", true));
    assert_eq!(scope.aliases, BTreeSet::from(["www".to_owned()]));
    assert_eq!((service.endpoint_mode, service.hostname.as_deref()), (EndpointMode::Dnsrr, Some("box")));
    assert_eq!(service.dns.len(), 1);
}
