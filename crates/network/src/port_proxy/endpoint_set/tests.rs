//! Choosing, retrying and ejecting, with real sockets of this machine.

use std::{collections::BTreeSet, net::TcpListener as StdListener};

use longshore_model::NodeName;
use tokio::net::TcpListener;

use super::*;

/// From loopback, so that nothing is transparent.
const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4000);

fn endpoint(replica: &str, node: &str, addresses: &[SocketAddr]) -> Endpoint {
    let node_ip = Some([127, 0, 0, 1].into());
    Endpoint {
        replica: replica.to_owned(),
        node: node.into(),
        node_ip,
        own: None,
        bound: addresses.to_vec(),
        overlay: None,
    }
}

fn nodes(names: &[&str]) -> Vantage {
    Vantage { local_nodes: names.iter().map(|name| NodeName::from(*name)).collect(), ..Vantage::default() }
}

fn set(endpoints: &[Endpoint]) -> EndpointSet {
    let set = EndpointSet::default();
    set.replace(endpoints, &nodes(&["here"]));
    set
}

/// A listener that accepts and never answers.
async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An address of this machine where nobody listens.
fn closed() -> SocketAddr {
    StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn equals_take_turns_and_the_busier_one_is_left_out() {
    let (a, b) = (closed(), closed());
    let set = set(&[endpoint("a", "here", &[a]), endpoint("b", "here", &[b])]);
    let first = set.choose(&[]).unwrap();
    let second = set.choose(&[]).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    let busy = first.lease();
    for _ in 0..4 {
        assert!(Arc::ptr_eq(&set.choose(&[]).unwrap(), &second));
    }
    drop(busy);
    let seen: BTreeSet<String> = (0..2).map(|_| set.choose(&[]).unwrap().replica.clone()).collect();
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn a_replica_of_this_machine_comes_first_unless_it_is_busier() {
    let set = set(&[endpoint("far", "there", &[closed()]), endpoint("near", "here", &[closed()])]);
    let mut leases = Vec::new();
    let mut chosen = Vec::new();
    for _ in 0..4 {
        let target = set.choose(&[]).unwrap();
        chosen.push(target.replica.clone());
        leases.push(target.lease());
    }
    assert_eq!(chosen, ["near", "far", "near", "far"]);
}

#[tokio::test]
async fn a_refusing_endpoint_costs_the_client_nothing_and_is_then_left_alone() {
    let (_open, address) = listener().await;
    let set = set(&[endpoint("dead", "here", &[closed()]), endpoint("alive", "here", &[address])]);
    for _ in 0..10 {
        let (stream, _lease) = set.connect(CLIENT).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }
    let now = Instant::now();
    let ejected = lock(&set.members).serving.iter().filter(|target| !target.admits(now)).count();
    assert_eq!(ejected, 1);
}

#[tokio::test]
async fn an_ejected_endpoint_is_tried_again_by_one_connection() {
    let set = set(&[endpoint("a", "here", &[closed()]), endpoint("b", "here", &[closed()])]);
    let a = set.choose(&[]).unwrap();
    a.failed();
    let chosen_at = |now: Instant| (0..10).filter(|_| Arc::ptr_eq(&set.choose_at(now, &[]).unwrap(), &a)).count();
    assert_eq!(chosen_at(Instant::now()), 0, "it is left alone");
    let later = Instant::now() + EJECTED_FOR;
    assert_eq!(chosen_at(later), 1, "one connection tries it");
    a.failed();
    assert_eq!(chosen_at(Instant::now()), 0, "it failed again");
    assert_eq!(chosen_at(Instant::now() + EJECTED_FOR), 1);
    a.succeeded();
    assert!(chosen_at(Instant::now()) > 1, "it is back");
}

#[tokio::test]
async fn the_only_endpoint_is_tried_even_while_it_is_ejected() {
    let address = closed();
    let set = Arc::new(set(&[endpoint("only", "here", &[address])]));
    let client = tokio::spawn({
        let set = Arc::clone(&set);
        async move { set.connect(CLIENT).await.is_some() }
    });
    // It restarts while the client waits.
    sleep(Duration::from_millis(300)).await;
    let _back = TcpListener::bind(address).await.unwrap();
    assert!(client.await.unwrap());
}

#[tokio::test]
async fn a_client_waits_for_the_first_endpoint() {
    let set = Arc::new(set(&[]));
    let (_open, address) = listener().await;
    let client = tokio::spawn({
        let set = Arc::clone(&set);
        async move { set.connect(CLIENT).await.is_some() }
    });
    sleep(Duration::from_millis(200)).await;
    set.replace(&[endpoint("new", "here", &[address])], &nodes(&["here"]));
    assert!(client.await.unwrap());
}

#[tokio::test]
async fn without_any_endpoint_a_client_is_turned_away_in_the_end() {
    assert!(set(&[]).connect(CLIENT).await.is_none());
}

#[tokio::test]
async fn an_endpoint_that_left_is_the_last_resort_for_the_second_it_serves_on() {
    let (_open, leaving) = listener().await;
    let both = [endpoint("old", "here", &[leaving]), endpoint("new", "here", &[closed()])];
    let set = set(&both);
    set.replace(&both[1..], &nodes(&["here"]));
    let (stream, lease) = set.connect(CLIENT).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), leaving);
    assert!(!set.serves(lease.target()));
    sleep(RETIRED_FOR).await;
    let left: Vec<String> = set.choose(&[]).into_iter().map(|target| target.replica.clone()).collect();
    assert_eq!(left, ["new"]);
}

#[tokio::test]
async fn an_endpoint_that_stays_keeps_its_connections_when_others_change() {
    let (stays, goes) = (endpoint("a", "here", &[closed()]), endpoint("b", "here", &[closed()]));
    let set = set(&[stays.clone(), goes]);
    let before = Arc::clone(&lock(&set.members).serving[0]);
    let _lease = before.lease();
    set.replace(&[stays, endpoint("c", "here", &[closed()])], &nodes(&["here"]));
    assert!(set.serves(&before));
    assert_eq!(set.choose(&[]).unwrap().replica, "c");
}

#[tokio::test]
async fn an_unreachable_address_is_passed_over_and_not_asked_first_again() {
    let (_open, answering) = listener().await;
    // No TCP connection leads to a multicast address.
    let unreachable: SocketAddr = "224.0.0.1:9".parse().unwrap();
    let set = set(&[endpoint("a", "here", &[unreachable, answering])]);
    let (stream, _lease) = set.connect(CLIENT).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), answering);
    assert_eq!(set.choose(&[]).unwrap().address(), answering);
}
