//! Listeners with real sockets of this machine.

use std::net::{SocketAddr, TcpListener as StdListener, UdpSocket as StdUdp};

use longshore_model::{Cursor, GroupKey, StateIndex};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    time::{Instant, sleep, timeout},
};

use super::*;
use crate::{NetworkFeed, NetworkService};

fn free_tcp() -> u16 {
    StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn free_udp() -> u16 {
    StdUdp::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn endpoint(replica: &str, address: SocketAddr) -> Endpoint {
    Endpoint {
        replica: replica.to_owned(),
        node: "here".into(),
        node_ip: None,
        own: None,
        bound: vec![address],
        overlay: None,
    }
}

fn port(protocol: Protocol, port: u16, endpoints: Vec<Endpoint>) -> PublishedPort {
    PublishedPort { protocol, port, host_ip: None, process_may_bind: false, endpoints }
}

/// A state with one service of these ports; a later call replaces an earlier one.
fn state(ports: Vec<PublishedPort>) -> NetworkState {
    let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
    let mut state = NetworkState::default();
    let cursor = Cursor { incarnation: 0, index: StateIndex(1) };
    let services = vec![NetworkService { ports, ..NetworkService::new(group) }];
    state.apply(NetworkFeed::Snapshot { cursor, services, nodes: Vec::new(), settings: None });
    state
}

fn proxy() -> PortProxy {
    PortProxy::start(BTreeSet::from(["here".into()]), Arc::default(), InheritedSockets::default())
}

/// A server that sends its name, then echoes until the client stops sending, then says goodbye.
async fn echo(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                client.write_all(name.as_bytes()).await.unwrap();
                let mut text = Vec::new();
                client.read_to_end(&mut text).await.unwrap();
                client.write_all(&text).await.unwrap();
                client.write_all(b" bye").await.unwrap();
            });
        }
    });
    address
}

async fn ask(to: impl tokio::net::ToSocketAddrs, text: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_published_port_answers_on_both_families_and_half_closed_connections_end_properly() {
    let (proxy, number) = (proxy(), free_tcp());
    let server = echo("a:").await;
    proxy.update(&state(vec![port(Protocol::Tcp, number, vec![endpoint("a", server)])]), &TouchedServices::All);
    assert_eq!(ask(("127.0.0.1", number), "hello").await, "a:hello bye");
    if StdListener::bind("[::1]:0").is_ok() {
        assert_eq!(ask(("::1", number), "six").await, "a:six bye");
    }
    assert!(proxy.conditions().is_empty());
}

#[tokio::test]
async fn a_named_address_is_the_only_one_that_answers() {
    let (proxy, number) = (proxy(), free_tcp());
    let mut published = port(Protocol::Tcp, number, vec![endpoint("a", echo("a:").await)]);
    published.host_ip = Some([127, 0, 0, 2].into());
    proxy.update(&state(vec![published]), &TouchedServices::All);
    assert_eq!(ask(("127.0.0.2", number), "x").await, "a:x bye");
    assert!(TcpStream::connect(("127.0.0.1", number)).await.is_err());
}

#[tokio::test]
async fn an_address_of_another_machine_is_no_condition_of_this_one() {
    let (proxy, number) = (proxy(), free_tcp());
    let mut published = port(Protocol::Tcp, number, Vec::new());
    published.host_ip = Some([192, 0, 2, 7].into());
    proxy.update(&state(vec![published]), &TouchedServices::All);
    assert!(proxy.conditions().is_empty());
}

#[tokio::test]
async fn a_port_that_another_program_has_is_a_condition_and_opens_once_it_is_free() {
    let holder = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let number = holder.local_addr().unwrap().port();
    let proxy = proxy();
    proxy.update(
        &state(vec![port(Protocol::Tcp, number, vec![endpoint("a", echo("a:").await)])]),
        &TouchedServices::All,
    );
    let conditions = proxy.conditions();
    assert_eq!(conditions.len(), 1);
    assert_eq!((conditions[0].code, conditions[0].port), (NodeConditionCode::PortTakenOnNode, Some(number)));
    assert!(conditions[0].message.contains("taken by another program"), "{}", conditions[0].message);
    drop(holder);
    let until = Instant::now() + RETRY_INTERVAL * 5;
    while !proxy.conditions().is_empty() {
        assert!(Instant::now() < until, "it never opened");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(ask(("127.0.0.1", number), "x").await, "a:x bye");
}

#[tokio::test]
async fn a_connection_outlives_the_listener_and_the_endpoint_it_began_with() {
    let (proxy, number) = (proxy(), free_tcp());
    proxy.update(
        &state(vec![port(Protocol::Tcp, number, vec![endpoint("a", echo("a:").await)])]),
        &TouchedServices::All,
    );
    let mut stream = TcpStream::connect(("127.0.0.1", number)).await.unwrap();
    let mut name = [0; 2];
    stream.read_exact(&mut name).await.unwrap();
    proxy.update(&state(Vec::new()), &TouchedServices::All);
    sleep(Duration::from_millis(50)).await;
    assert!(TcpStream::connect(("127.0.0.1", number)).await.is_err());
    stream.write_all(b"still here").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "still here bye");
}

#[tokio::test]
async fn a_port_that_the_process_itself_may_bind_is_left_to_it_until_it_listens_elsewhere() {
    let (proxy, number) = (proxy(), free_tcp());
    let published = |endpoints| PublishedPort { process_may_bind: true, ..port(Protocol::Tcp, number, endpoints) };
    proxy.update(&state(vec![published(Vec::new())]), &TouchedServices::All);
    let own = TcpListener::bind(("127.0.0.1", number)).await.expect("nobody else has the port");
    proxy.update(&state(vec![published(vec![endpoint("own", own.local_addr().unwrap())])]), &TouchedServices::All);
    assert!(proxy.conditions().is_empty());
    drop(own);
    proxy.update(&state(vec![published(vec![endpoint("elsewhere", echo("a:").await)])]), &TouchedServices::All);
    assert_eq!(ask(("127.0.0.1", number), "x").await, "a:x bye");
}

/// A server that answers every datagram with its name and the datagram.
async fn udp_echo(name: &'static str) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut buffer = [0; 1024];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let answer = format!("{name}:{}", String::from_utf8_lossy(&buffer[..length]));
            socket.send_to(answer.as_bytes(), from).await.unwrap();
        }
    });
    (address, task)
}

/// Sends until there is an answer, as clients of UDP do.
async fn ask_udp(client: &UdpSocket, number: u16, text: &str) -> String {
    let mut buffer = [0; 1024];
    for _ in 0..20 {
        client.send_to(text.as_bytes(), ("127.0.0.1", number)).await.unwrap();
        if let Ok(Ok((length, from))) = timeout(Duration::from_millis(250), client.recv_from(&mut buffer)).await {
            assert_eq!(from.port(), number, "the answer comes from the published port");
            return String::from_utf8_lossy(&buffer[..length]).into_owned();
        }
    }
    panic!("no answer to `{text}`");
}

#[tokio::test]
async fn datagrams_are_answered_from_the_published_port_and_a_session_keeps_its_endpoint() {
    let (proxy, number) = (proxy(), free_udp());
    let ((a, _), (b, _)) = (udp_echo("a").await, udp_echo("b").await);
    proxy.update(
        &state(vec![port(Protocol::Udp, number, vec![endpoint("a", a), endpoint("b", b)])]),
        &TouchedServices::All,
    );
    let (first, second) =
        (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let served = [ask_udp(&first, number, "x").await, ask_udp(&second, number, "x").await];
    assert_ne!(served[0], served[1], "two clients, two endpoints");
    for _ in 0..5 {
        assert_eq!(ask_udp(&first, number, "x").await, served[0]);
    }
}

#[tokio::test]
async fn a_udp_session_moves_on_when_its_endpoint_leaves_or_refuses() {
    let (proxy, number) = (proxy(), free_udp());
    let ((a, task), (b, _)) = (udp_echo("a").await, udp_echo("b").await);
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    proxy.update(&state(vec![port(Protocol::Udp, number, vec![endpoint("a", a)])]), &TouchedServices::All);
    assert_eq!(ask_udp(&client, number, "1").await, "a:1");
    proxy.update(&state(vec![port(Protocol::Udp, number, vec![endpoint("b", b)])]), &TouchedServices::All);
    assert_eq!(ask_udp(&client, number, "2").await, "b:2");
    task.abort();
    let _ = task.await;
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    proxy.update(
        &state(vec![port(Protocol::Udp, number, vec![endpoint("a", a), endpoint("b", b)])]),
        &TouchedServices::All,
    );
    assert_eq!(ask_udp(&other, number, "3").await, "b:3", "the one that refuses is passed over");
}
