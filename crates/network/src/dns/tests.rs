//! Questions of replicas, answered from a state made by hand; where sockets are used, the pool is a part of loopback.

use std::{
    net::{Ipv4Addr, Ipv6Addr, UdpSocket as StdUdp},
    time::Instant,
};

use hickory_proto::{
    op::{Edns, Message, Query, ResponseCode},
    rr::{Name, RData, RecordType},
};
use longshore_model::{AddressPlan, Attempt, Cursor, Generation, GroupKey, StateIndex};
use proptest::prelude::*;

use super::*;
use crate::{
    EndpointMode, MeshMode, NetworkFeed, NetworkNode, NetworkReplica, NetworkService, NetworkSettings, Scope, ScopeName,
};

const PREFIX: Ipv6Addr = Ipv6Addr::new(0xfd4c, 0x6f6e, 0x6773, 0, 0, 0, 0, 0);

fn plan() -> AddressPlan {
    AddressPlan { prefix: PREFIX, pool: "127.128.0.0/10".parse().unwrap() }
}

fn scope(name: &str, aliases: &[&str]) -> Scope {
    let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
    Scope { name: ScopeName(name.to_owned()), internal: false, ipv6: false, aliases }
}

/// A service with replicas at these host numbers of block 1, each serving.
fn service(deployment: &str, name: &str, vip: Option<u32>, hosts: &[u64], scopes: Vec<Scope>) -> NetworkService {
    let group = GroupKey { namespace: "default".into(), deployment: deployment.into(), service: name.into() };
    let replica = |(slot, host): (usize, &u64)| NetworkReplica {
        id: format!("{deployment}-{name}-{slot}"),
        generation: Generation(1),
        attempt: Attempt(0),
        node: "here".into(),
        address: plan().replica_ipv6(1, *host),
        serves: true,
    };
    let replicas = hosts.iter().enumerate().map(replica).collect();
    NetworkService { vip, scopes, replicas, ..NetworkService::new(group) }
}

fn state(services: Vec<NetworkService>) -> NetworkState {
    let mut state = NetworkState::default();
    let cursor = Cursor { incarnation: 0, index: StateIndex(1) };
    let node = NetworkNode { name: "here".into(), block: Some(1), ip: None, mesh: None, is_up: true };
    let settings =
        NetworkSettings { cluster: "c".to_owned(), addresses: plan(), mesh: MeshMode::Off, mesh_port: 51_820 };
    state.apply(NetworkFeed::Snapshot { cursor, services, nodes: vec![node], settings: Some(settings) });
    state
}

/// Two deployments with a `web` each, and one scope that `shop` and `blog` share.
fn two_deployments() -> Vec<NetworkService> {
    let shop = |aliases: &[&str]| scope("default/shop/default", aliases);
    let mut db = service("shop", "db", Some(2), &[3], vec![shop(&["database"]), scope("default//data", &[])]);
    db.hostname = Some("postgres".to_owned());
    let mut web = service("shop", "web", Some(1), &[1, 2], vec![shop(&[])]);
    web.links.insert("store".to_owned(), "db".to_owned());
    web.dns = vec!["192.0.2.9".parse().unwrap()];
    let mut queue = service("shop", "queue", Some(3), &[4, 5, 6], vec![shop(&[])]);
    queue.endpoint_mode = EndpointMode::Dnsrr;
    queue.replicas[1].serves = false;
    let other =
        service("blog", "web", Some(4), &[7], vec![scope("default/blog/default", &[]), scope("default//data", &[])]);
    vec![web, db, queue, other]
}

const WEB: &str = "127.128.4.1";
const BLOG: &str = "127.128.4.7";

fn index(services: Vec<NetworkService>) -> NameIndex {
    let mut index = NameIndex::default();
    index.update(&state(services), &TouchedServices::All);
    index
}

fn ask_at(index: &NameIndex, source: &str, name: &str, kind: RecordType, turn: usize) -> Answer {
    let mut name = Name::from_ascii(name).unwrap();
    name.set_fqdn(true);
    answer::answer(index, source.parse().unwrap(), &name, kind, turn)
}

/// The addresses and the TTL, or the other kind of answer, as text.
fn ask(index: &NameIndex, source: &str, name: &str) -> String {
    match ask_at(index, source, name, RecordType::A, 0) {
        Answer::Addresses { ttl, addresses } => {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            format!("{} for {ttl}", addresses.join(" "))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn who_asks_decides_what_a_name_means() {
    let index = index(two_deployments());
    assert_eq!(ask(&index, WEB, "web"), "127.188.0.1 for 5");
    assert_eq!(ask(&index, BLOG, "web"), "127.188.0.4 for 5");
    assert_eq!(ask(&index, WEB, "WeB."), "127.188.0.1 for 5");
    assert_eq!(ask(&index, BLOG, "queue"), "NameUnknown", "its scope is not shared");
    assert_eq!(ask(&index, "127.128.4.99", "web"), "Failed", "nobody knows who asks");
    let over_ipv6 = plan().replica_ipv6(1, 7).to_string();
    assert_eq!(ask(&index, &over_ipv6, "web"), "127.188.0.4 for 5");
}

#[test]
fn aliases_links_host_names_and_replicas_have_names() {
    let index = index(two_deployments());
    assert_eq!(ask(&index, WEB, "database"), "127.188.0.2 for 5");
    assert_eq!(ask(&index, BLOG, "database"), "NameUnknown", "an alias is of one scope");
    assert_eq!(ask(&index, WEB, "store"), "127.188.0.2 for 5");
    assert_eq!(ask(&index, "127.128.4.3", "store"), "NameUnknown", "a link is of one service");
    assert_eq!(ask(&index, WEB, "postgres"), "127.128.4.3 for 1");
    assert_eq!(ask(&index, WEB, "shop-queue-1"), "127.128.4.5 for 1");
    assert_eq!(ask(&index, BLOG, "shop-queue-1"), "NameUnknown");
}

#[test]
fn tasks_and_dnsrr_are_the_serving_replicas_in_turn() {
    let index = index(two_deployments());
    assert_eq!(ask(&index, WEB, "tasks.web"), "127.128.4.1 127.128.4.2 for 1");
    assert_eq!(ask(&index, WEB, "queue"), "127.128.4.4 127.128.4.6 for 1");
    assert_eq!(ask(&index, WEB, "tasks.queue"), ask(&index, WEB, "queue"));
    let first = |turn| match ask_at(&index, WEB, "queue", RecordType::A, turn) {
        Answer::Addresses { addresses, .. } => addresses[0].to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!([first(0), first(1), first(2)], ["127.128.4.4", "127.128.4.6", "127.128.4.4"]);
}

#[test]
fn long_names_reach_other_deployments_through_a_shared_scope() {
    let index = index(two_deployments());
    for name in ["db.shop", "db.shop.default", "db.shop.default.longshore.internal", "db.shop.longshore.internal"] {
        assert_eq!(ask(&index, BLOG, name), "127.188.0.2 for 5", "{name}");
    }
    assert_eq!(ask(&index, BLOG, "tasks.db.shop"), "127.128.4.3 for 1");
    assert_eq!(ask(&index, BLOG, "shop-db-0.shop"), "127.128.4.3 for 1");
    assert_eq!(ask(&index, BLOG, "web.shop"), "Forward([])", "not shared, so it may be anybody's");
    assert_eq!(ask(&index, BLOG, "web.shop.longshore.internal"), "NameUnknown");
}

#[test]
fn foreign_names_are_passed_on_and_single_labels_never() {
    let index = index(two_deployments());
    assert_eq!(ask(&index, WEB, "example.com"), "Forward([192.0.2.9])");
    assert_eq!(ask(&index, BLOG, "example.com"), "Forward([])");
    assert_eq!(ask(&index, WEB, "nowhere"), "NameUnknown");
    assert_eq!(ask(&index, WEB, "nowhere.longshore.internal"), "NameUnknown");
}

#[test]
fn other_types_of_a_known_name_are_empty_and_ipv6_is_for_scopes_with_it() {
    let mut services = two_deployments();
    let kinds = |index: &NameIndex, kind| ask_at(index, WEB, "web", kind, 0);
    let plain = index(services.clone());
    for kind in [RecordType::AAAA, RecordType::MX, RecordType::TXT, RecordType::ANY] {
        assert_eq!(kinds(&plain, kind), Answer::NoData, "{kind}");
    }
    services[0].scopes[0].ipv6 = true;
    let addresses = vec![plan().vip_ipv6(1).into()];
    assert_eq!(kinds(&index(services), RecordType::AAAA), Answer::Addresses { ttl: 5, addresses });
}

#[test]
fn addresses_have_names_as_far_as_the_asker_may_know() {
    let index = index(two_deployments());
    let pointer = |source, name| match ask_at(&index, source, name, RecordType::PTR, 0) {
        Answer::Pointer(name) => name,
        other => format!("{other:?}"),
    };
    assert_eq!(pointer(WEB, "3.4.128.127.in-addr.arpa"), "shop-db-0.shop.default.longshore.internal.");
    assert_eq!(pointer(WEB, "1.0.188.127.in-addr.arpa"), "web.shop.default.longshore.internal.");
    assert_eq!(pointer(BLOG, "1.4.128.127.in-addr.arpa"), "NameUnknown");
    assert_eq!(pointer(WEB, "1.2.0.192.in-addr.arpa"), "Forward([192.0.2.9])");
    let nibbles: String = plan()
        .replica_ipv6(1, 3)
        .octets()
        .iter()
        .rev()
        .fold(String::new(), |text, byte| format!("{text}{:x}.{:x}.", byte & 0xf, byte >> 4));
    assert_eq!(pointer(WEB, &format!("{nibbles}ip6.arpa")), "shop-db-0.shop.default.longshore.internal.");
}

#[test]
fn a_change_of_one_service_changes_its_names_only() {
    let mut services = two_deployments();
    let mut index = index(services.clone());
    let (web, moved) = (services[0].group.clone(), &mut services[0]);
    moved.replicas.pop();
    moved.vip = Some(9);
    moved.scopes[0].aliases.insert("front".to_owned());
    index.update(&state(services.clone()), &TouchedServices::These(BTreeSet::from([web.clone()])));
    assert_eq!(ask(&index, WEB, "web"), "127.188.0.9 for 5");
    assert_eq!(ask(&index, WEB, "front"), "127.188.0.9 for 5");
    assert_eq!(ask(&index, WEB, "shop-web-1"), "NameUnknown");
    assert_eq!(ask(&index, "127.128.4.2", "web"), "Failed", "it is gone");
    services.remove(0);
    index.update(&state(services.clone()), &TouchedServices::These(BTreeSet::from([web])));
    assert_eq!(ask(&index, "127.128.4.4", "web"), "NameUnknown");
    let mut fresh = NameIndex::default();
    fresh.update(&state(services), &TouchedServices::All);
    assert_eq!(format!("{:?}", ask(&index, BLOG, "web")), format!("{:?}", ask(&fresh, BLOG, "web")));
}

fn question(name: &str, kind: RecordType, udp_bytes: Option<u16>) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    if let Some(bytes) = udp_bytes {
        let mut edns = Edns::new();
        edns.set_max_payload(bytes);
        message.set_edns(edns);
    }
    message.to_vec().unwrap()
}

/// A name server on loopback, and the files that name its upstreams.
struct TestServer {
    server: NameServer,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

/// Every test has a port of its own, because all use the same address.
fn serve(services: Vec<NetworkService>, upstream: Option<SocketAddr>) -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    let files = ResolverFiles { resolv_conf: folder.path().join("resolv.conf"), resolved: folder.path().join("none") };
    let text = upstream.map(|upstream| format!("nameserver {}\n", upstream.ip())).unwrap_or_default();
    std::fs::write(&files.resolv_conf, text).unwrap();
    let gateway = IpAddr::from([127, 128, 7, 254]);
    let port = StdUdp::bind((gateway, 0)).unwrap().local_addr().unwrap().port();
    let upstream_port = upstream.map_or(1, |upstream| upstream.port());
    let server = NameServer::start_with(port, upstream_port, files, InheritedSockets::default());
    server.update(&state(services), &TouchedServices::All, &BTreeSet::from(["here".into()]));
    TestServer { server, address: SocketAddr::new(gateway, port), _folder: folder }
}

async fn ask_udp(to: SocketAddr, source: &str, bytes: &[u8]) -> Message {
    let socket = UdpSocket::bind((source.parse::<Ipv4Addr>().unwrap(), 0)).await.unwrap();
    socket.send_to(bytes, to).await.unwrap();
    let mut buffer = [0; 4096];
    let length = timeout(Duration::from_secs(10), socket.recv(&mut buffer)).await.unwrap().unwrap();
    Message::from_vec(&buffer[..length]).unwrap()
}

async fn ask_tcp(to: SocketAddr, source: &str, bytes: &[u8]) -> Message {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    forward::write_framed(&mut stream, bytes).await.unwrap();
    Message::from_vec(&forward::read_framed(&mut stream).await.unwrap()).unwrap()
}

#[tokio::test]
async fn three_hundred_answers_are_truncated_over_udp_and_whole_over_tcp() {
    let hosts: Vec<u64> = (1..=300).collect();
    let many = service("shop", "web", Some(1), &hosts, vec![scope("default/shop/default", &[])]);
    let test = serve(vec![many], None);
    for (udp_bytes, limit) in [(None, 512), (Some(1232), 1232), (Some(4096), 1232)] {
        let bytes = question("tasks.web.", RecordType::A, udp_bytes);
        let answer = ask_udp(test.address, WEB, &bytes).await;
        assert!(answer.metadata.truncation, "{udp_bytes:?}");
        assert!(answer.answers.len() > 20, "as many as fit: {}", answer.answers.len());
        assert!(answer.to_vec().unwrap().len() <= limit);
    }
    let whole = ask_tcp(test.address, WEB, &question("tasks.web.", RecordType::A, None)).await;
    assert!(!whole.metadata.truncation);
    assert_eq!(whole.answers.len(), 300);
    assert!(whole.answers.iter().all(|record| record.ttl == 1));
}

/// An upstream that answers everything with one address, and counts.
async fn upstream() -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            count.fetch_add(1, Ordering::Relaxed);
            let mut answer = Message::from_vec(&buffer[..length]).unwrap().into_response();
            let name = answer.queries[0].name.clone();
            let data = RData::A(hickory_proto::rr::rdata::A(Ipv4Addr::new(192, 0, 2, 80)));
            answer.add_answer(hickory_proto::rr::Record::from_rdata(name, 300, data));
            socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    });
    (address, asked)
}

#[tokio::test]
async fn foreign_names_reach_the_upstream_and_unknown_labels_do_not() {
    let (address, asked) = upstream().await;
    let test = serve(two_deployments(), Some(address));
    let foreign = question("example.com.", RecordType::A, None);
    let answer = ask_udp(test.address, BLOG, &foreign).await;
    assert_eq!(answer.metadata.id, Message::from_vec(&foreign).unwrap().metadata.id);
    assert_eq!((answer.answers.len(), answer.answers[0].ttl), (1, 300));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let unknown = ask_udp(test.address, BLOG, &question("nowhere.", RecordType::A, None)).await;
    assert_eq!(unknown.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!((unknown.authorities.len(), unknown.authorities[0].ttl), (1, 1));
    assert_eq!(asked.load(Ordering::Relaxed), 1, "nothing was sent upstream");
}

#[tokio::test]
async fn a_dead_upstream_fails_foreign_names_in_time_and_nothing_else() {
    // It takes datagrams and never answers; TCP is refused.
    let silent = StdUdp::bind("127.0.0.1:0").unwrap();
    let test = serve(two_deployments(), Some(silent.local_addr().unwrap()));
    let (address, began) = (test.address, Instant::now());
    let foreign =
        tokio::spawn(async move { ask_udp(address, BLOG, &question("example.com.", RecordType::A, None)).await });
    for _ in 0..50 {
        let own = ask_udp(test.address, BLOG, &question("web.", RecordType::A, None)).await;
        assert_eq!(own.answers.len(), 1);
    }
    let failed = foreign.await.unwrap();
    assert_eq!(failed.metadata.response_code, ResponseCode::ServFail);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn sockets_are_handed_over_while_questions_wait() {
    let test = serve(two_deployments(), None);
    let (old, new) = std::os::unix::net::UnixStream::pair().unwrap();
    let handed_over = test.server.hand_over();
    assert_eq!(handed_over.len(), 2);
    let socket = UdpSocket::bind((WEB.parse::<Ipv4Addr>().unwrap(), 0)).await.unwrap();
    socket.send_to(&question("web.", RecordType::A, None), test.address).await.unwrap();
    let sent = std::thread::spawn(move || crate::socket_handover::send(&old, &handed_over).unwrap());
    let inherited = InheritedSockets::receive(&new).unwrap();
    sent.join().unwrap();
    let next = NameServer::start_with(test.address.port(), 1, ResolverFiles::default(), inherited);
    next.update(&state(two_deployments()), &TouchedServices::All, &BTreeSet::from(["here".into()]));
    let mut buffer = [0; 512];
    let length = timeout(Duration::from_secs(5), socket.recv(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(Message::from_vec(&buffer[..length]).unwrap().answers.len(), 1);
}

/// The slowest of a hundred, for each of two servers asked in turn.
async fn slowest_of_hundred(first: SocketAddr, second: SocketAddr, rounds: usize) -> [Duration; 2] {
    let bytes = question("web.", RecordType::A, None);
    let socket = UdpSocket::bind((WEB.parse::<Ipv4Addr>().unwrap(), 0)).await.unwrap();
    let (mut taken, mut buffer) = ([Vec::new(), Vec::new()], [0; 512]);
    for round in 0..rounds * 2 {
        let began = Instant::now();
        socket.send_to(&bytes, [first, second][round % 2]).await.unwrap();
        socket.recv(&mut buffer).await.unwrap();
        taken[round % 2].push(began.elapsed());
    }
    taken.map(|mut taken| {
        taken.sort_unstable();
        taken[taken.len() * 99 / 100]
    })
}

#[tokio::test]
async fn an_answer_takes_little_longer_than_an_echo() {
    let test = serve(two_deployments(), None);
    let echo = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = echo.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = echo.recv_from(&mut buffer).await {
            let _ = echo.send_to(&buffer[..length], from).await;
        }
    });
    let [echoed, answered] = slowest_of_hundred(address, test.address, 2000).await;
    println!("p99: echo {echoed:?}, name server {answered:?}");
    // Nothing here is optimised, and the machine is shared; the bar of three is held by the benchmark.
    assert!(answered < echoed * 3 + Duration::from_millis(5), "echo {echoed:?}, name server {answered:?}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let index = index(two_deployments());
        check_reply(&index, &bytes);
    }

    #[test]
    fn no_damaged_question_makes_it_panic(
        name in "[a-zA-Z0-9._-]{0,60}",
        kind in any::<u16>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let index = index(two_deployments());
        let Ok(name) = Name::from_ascii(&name) else { return Ok(()) };
        let mut message = Message::query();
        message.add_query(Query::query(name, RecordType::from(kind)));
        let mut bytes = message.to_vec().unwrap();
        for (at, byte) in damage {
            *at.get_mut(&mut bytes) = byte;
        }
        check_reply(&index, &bytes);
    }
}

/// Whatever it answers can be read, has the question's id and fits into the transport.
fn check_reply(index: &NameIndex, bytes: &[u8]) {
    let Arrived::Question(question) = message::read(bytes) else { return };
    let (name, kind) = (&question.query.name, question.query.query_type);
    let answer = answer::answer(index, WEB.parse().unwrap(), name, kind, 7);
    for (transport, limit) in [(Transport::Udp, 1232), (Transport::Tcp, 65_535)] {
        let reply = question.reply(&answer, transport);
        assert!(reply.len() <= limit);
        assert_eq!(reply[..2], bytes[..2]);
    }
}
