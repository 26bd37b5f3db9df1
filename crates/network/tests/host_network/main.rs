//! The host side of the overlay on real kernels: each test is a machine in a network namespace of its own, and replicas
//! are further namespaces on its bridge.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

mod namespaces;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    time::{Duration, Instant},
};

use longshore_model::{AddressPlan, Attempt, Cursor, Generation, GroupKey, NodeConditionCode, NodeName, StateIndex};
use longshore_network::{
    HostNetwork, HostNetworkConfig, LocalOverlay, MeshIdentity, MeshMode, NetworkFeed, NetworkNode, NetworkReplica,
    NetworkService, NetworkSettings, NetworkState, OverlayMode, Scope, ScopeName, attach_namespace,
};

use namespaces::{Namespace, on_a_machine, run};

const PORT: u16 = 8080;

fn plan() -> AddressPlan {
    AddressPlan { prefix: "fd4c:6f6e:6773::".parse().unwrap(), pool: "10.128.0.0/10".parse().unwrap() }
}

/// A service with replicas on node `a`, given by their host numbers.
fn service(name: &str, vip: u32, scope: &str, hosts: &[u64]) -> NetworkService {
    let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: name.into() };
    let replica = |host: &u64| NetworkReplica {
        id: format!("shop-{name}-{host}"),
        generation: Generation(1),
        attempt: Attempt(0),
        node: "a".into(),
        address: plan().replica_ipv6(1, *host),
        serves: true,
    };
    let scope = Scope {
        name: ScopeName(format!("default/shop/{scope}")),
        internal: scope == "internal",
        ipv6: false,
        aliases: BTreeSet::new(),
    };
    let replicas = hosts.iter().map(replica).collect();
    NetworkService { vip: Some(vip), scopes: vec![scope], replicas, ..NetworkService::new(group) }
}

fn state(services: Vec<NetworkService>) -> NetworkState {
    let mesh = Some(MeshIdentity { public_key: String::new(), port: 51820 });
    let node = NetworkNode { name: "a".into(), block: Some(1), ip: None, mesh, is_up: true };
    let settings =
        NetworkSettings { cluster: "test".to_owned(), addresses: plan(), mesh: MeshMode::Off, mesh_port: 51_820 };
    let mut state = NetworkState::default();
    state.apply(NetworkFeed::Snapshot {
        cursor: Cursor { incarnation: 0, index: StateIndex(1) },
        services,
        nodes: vec![node],
        settings: Some(settings),
    });
    state
}

fn config(mode: OverlayMode) -> HostNetworkConfig {
    let local_nodes = BTreeSet::from([NodeName::from("a")]);
    HostNetworkConfig { machine: "a".into(), local_nodes, address: None, mode }
}

/// A machine with node `a` in block 1.
struct Host {
    network: HostNetwork,
    overlay: LocalOverlay,
}

impl Host {
    async fn with(services: Vec<NetworkService>) -> Self {
        let network = HostNetwork::start(config(OverlayMode::Auto));
        network.update(&state(services));
        let overlay = network.handle().overlay(&"a".into()).await;
        let overlay = overlay.unwrap_or_else(|| panic!("{:?}", network.conditions()));
        Self { network, overlay }
    }

    /// A replica that answers with its host number.
    async fn replica(&self, host: u64) -> Namespace {
        let namespace = Namespace::new();
        let address = plan().replica_ipv6(1, host);
        self.network.handle().wait_for(address).await;
        let descriptor = namespace.descriptor.try_clone().unwrap();
        attach_namespace(descriptor, &self.overlay, address).await.unwrap();
        namespace.serve(PORT, &host.to_string());
        namespace
    }
}

fn ipv4(host: u64) -> Ipv4Addr {
    plan().ipv4_of(plan().replica_ipv6(1, host)).unwrap()
}

fn ipv6(host: u64) -> Ipv6Addr {
    plan().replica_ipv6(1, host)
}

fn vips(number: u32) -> [IpAddr; 2] {
    [plan().vip_ipv4(number).unwrap().into(), plan().vip_ipv6(number).into()]
}

#[test]
fn members_of_a_scope_reach_each_other_and_nobody_else_does() {
    on_a_machine(async || {
        let host = Host::with(vec![service("web", 1, "front", &[1, 2]), service("other", 2, "elsewhere", &[3])]).await;
        let (_one, two, three) = (host.replica(1).await, host.replica(2).await, host.replica(3).await);
        assert_eq!(two.ask(ipv4(1), PORT), Ok(("1".to_owned(), ipv4(2).to_string())), "the callee sees its caller");
        assert_eq!(two.ask(ipv6(1), PORT), Ok(("1".to_owned(), ipv6(2).to_string())));
        for target in [IpAddr::V4(ipv4(1)), ipv6(1).into()] {
            assert_eq!(three.ask(target, PORT), Err("timed out".to_owned()));
        }
        for vip in vips(1) {
            assert!(two.ask(vip, PORT).is_ok(), "{vip}");
            assert!(three.ask(vip, PORT).is_err(), "{vip}");
        }
        assert!(run("bridge", &["-d", "link"]).matches("isolated on").count() >= 3);
    });
}

#[test]
fn a_vip_spreads_connections_and_a_replica_that_meets_itself_is_answered() {
    on_a_machine(async || {
        let host =
            Host::with(vec![service("web", 1, "front", &[1, 2, 3, 4]), service("client", 2, "front", &[9])]).await;
        let replicas = [host.replica(1).await, host.replica(2).await, host.replica(3).await, host.replica(4).await];
        let client = host.replica(9).await;
        let mut answers: BTreeMap<String, u32> = BTreeMap::new();
        for number in 0..1000 {
            let (name, peer) = client.ask(vips(1)[number % 2], PORT).unwrap();
            assert!([ipv4(9).to_string(), ipv6(9).to_string()].contains(&peer), "{peer}");
            *answers.entry(name).or_default() += 1;
        }
        assert_eq!(answers.len(), 4);
        assert!(answers.values().all(|count| (150..=350).contains(count)), "{answers:?}");
        for number in 0..100 {
            assert!(replicas[0].ask(vips(1)[number % 2], PORT).is_ok(), "hairpin {number}");
        }
    });
}

#[test]
fn a_service_without_a_serving_replica_refuses_at_once() {
    on_a_machine(async || {
        let mut silent = service("silent", 1, "front", &[1]);
        silent.replicas[0].serves = false;
        let host = Host::with(vec![silent, service("client", 2, "front", &[9])]).await;
        let client = host.replica(9).await;
        for vip in vips(1) {
            let began = Instant::now();
            assert_eq!(client.ask(vip, PORT), Err("connection refused".to_owned()), "{vip}");
            assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        }
    });
}

#[test]
fn members_of_internal_networks_have_no_way_out() {
    on_a_machine(async || {
        let host = Host::with(vec![service("db", 1, "internal", &[1]), service("web", 2, "front", &[2])]).await;
        // A host on the outside, and the machine's own address there.
        let outside = Namespace::new();
        run("ip", &["link", "add", "out0", "type", "veth", "peer", "name", "far0"]);
        let thread = outside.run(|| rustix::thread::gettid().as_raw_nonzero().to_string());
        run("ip", &["link", "set", "far0", "netns", &thread]);
        run("ip", &["address", "add", "192.0.2.1/24", "dev", "out0"]);
        run("ip", &["-6", "address", "add", "2001:db8::1/64", "dev", "out0", "nodad"]);
        run("ip", &["link", "set", "out0", "up"]);
        outside.run(|| {
            run("ip", &["address", "add", "192.0.2.2/24", "dev", "far0"]);
            run("ip", &["-6", "address", "add", "2001:db8::2/64", "dev", "far0", "nodad"]);
            run("ip", &["link", "set", "far0", "up"]);
        });
        outside.serve(PORT, "outside");
        let machine: std::net::TcpListener = std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 7070)).unwrap();
        let (internal, other) = (host.replica(1).await, host.replica(2).await);
        let targets: [IpAddr; 2] = ["192.0.2.2".parse().unwrap(), "2001:db8::2".parse().unwrap()];
        for (target, source) in targets.into_iter().zip(["192.0.2.1", "2001:db8::1"]) {
            assert_eq!(other.ask(target, PORT), Ok(("outside".to_owned(), source.to_owned())), "masqueraded");
            assert!(internal.ask(target, PORT).is_err(), "{target}");
        }
        // Nor to services of the machine itself, nor to published ports on it.
        let reaches = |from: &Namespace, ip: IpAddr| {
            let target = std::net::SocketAddr::new(ip, 7070);
            from.run(move || std::net::TcpStream::connect_timeout(&target, Duration::from_secs(1)).is_ok())
        };
        assert!(reaches(&other, host.overlay.ipv4_gateway.into()));
        for ip in ["192.0.2.1".parse().unwrap(), host.overlay.ipv4_gateway.into(), host.overlay.ipv6_gateway.into()] {
            assert!(!reaches(&internal, ip), "{ip}");
        }
        // The outside reaches no replica by its address.
        outside.run(|| run("ip", &["route", "add", "10.128.0.0/10", "via", "192.0.2.1"]));
        assert!(outside.ask(ipv4(2), PORT).is_err());
        drop(machine);
    });
}

#[test]
fn rules_and_devices_that_somebody_removed_are_repaired_and_told() {
    on_a_machine(async || {
        let host = Host::with(vec![service("web", 1, "front", &[1, 2]), service("other", 2, "elsewhere", &[3])]).await;
        let (_one, two, three) = (host.replica(1).await, host.replica(2).await, host.replica(3).await);
        assert_eq!(host.network.conditions(), []);
        run("nft", &["flush", "ruleset"]);
        assert!(three.ask(ipv4(1), PORT).is_ok(), "without rules everybody reaches everybody");
        let began = Instant::now();
        while three.ask(ipv4(1), PORT).is_ok() {
            assert!(began.elapsed() < Duration::from_secs(45), "not repaired");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(two.ask(vips(1)[0], PORT).is_ok());
        let is_told = || host.network.conditions().iter().any(|told| told.code == NodeConditionCode::OverlayRepaired);
        while !is_told() {
            assert!(began.elapsed() < Duration::from_mins(1), "not told");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn a_udp_client_follows_when_its_replica_leaves() {
    on_a_machine(async || {
        let services = |second_serves: bool| {
            let mut web = service("web", 1, "front", &[1, 2]);
            web.replicas[0].serves = !second_serves;
            web.replicas[1].serves = second_serves;
            vec![web, service("client", 2, "front", &[9])]
        };
        let host = Host::with(services(false)).await;
        let (_one, _two, client) = (host.replica(1).await, host.replica(2).await, host.replica(9).await);
        for vip in vips(1) {
            let unspecified: IpAddr =
                if vip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let socket = client.run(move || UdpSocket::bind((unspecified, 0)).unwrap());
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let ask = || {
                let mut answer = [0; 8];
                socket.send_to(b"who", (vip, PORT)).unwrap();
                let read = socket.recv(&mut answer).unwrap_or_default();
                String::from_utf8_lossy(&answer[..read]).into_owned()
            };
            // A datagram may be lost while neighbours are found out; nobody repeats it for us.
            let first = Instant::now();
            while ask() != "1" {
                assert!(first.elapsed() < Duration::from_secs(10), "{vip}");
            }
            host.network.update(&state(services(true)));
            let began = Instant::now();
            while ask() != "2" {
                assert!(began.elapsed() < Duration::from_secs(10), "it sticks to the replica that left");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            host.network.update(&state(services(false)));
            while ask() != "1" {
                assert!(began.elapsed() < Duration::from_secs(20));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
}

#[test]
fn a_pool_that_overlaps_a_route_of_the_machine_is_refused_by_name() {
    on_a_machine(async || {
        run("ip", &["link", "add", "lan0", "type", "bridge"]);
        run("ip", &["address", "add", "10.130.0.1/16", "dev", "lan0"]);
        run("ip", &["link", "set", "lan0", "up"]);
        let network = HostNetwork::start(config(OverlayMode::Auto));
        network.update(&state(vec![service("web", 1, "front", &[1])]));
        assert_eq!(network.handle().overlay(&"a".into()).await, None);
        let conditions = network.conditions();
        assert_eq!(conditions[0].code, NodeConditionCode::OverlayUnavailable);
        assert!(conditions[0].message.contains("10.130.0.0/16"), "{}", conditions[0].message);
        assert!(!run("nft", &["list", "tables"]).contains("longshore"));
    });
}

#[test]
fn what_was_applied_outlives_the_worker_until_the_overlay_is_switched_off() {
    on_a_machine(async || {
        let services = || vec![service("web", 1, "front", &[1, 2])];
        let host = Host::with(services()).await;
        let (_one, two) = (host.replica(1).await, host.replica(2).await);
        drop(host);
        assert!(two.ask(vips(1)[0], PORT).is_ok(), "the kernel goes on without the daemon");
        let host = Host::with(services()).await;
        assert!(two.ask(ipv6(1), PORT).is_ok(), "and a daemon that starts again changes nothing");
        let bridge = host.overlay.bridge.clone();
        drop(host);
        let off = HostNetwork::start(config(OverlayMode::Off));
        off.update(&state(services()));
        let began = Instant::now();
        let is_left =
            || run("nft", &["list", "tables"]).contains("longshore") || run("ip", &["link"]).contains(&bridge);
        while is_left() {
            assert!(began.elapsed() < Duration::from_secs(10));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(!run("ip", &["route"]).contains("10.1"), "{}", run("ip", &["route"]));
        assert_eq!(off.conditions(), []);
    });
}
