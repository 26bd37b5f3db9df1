//! Nodes that are none of ours: without a certificate, with another cluster's, with one that counts no longer.

use std::fs;

use serde::Serialize;

use crate::{
    rig::{Cluster, Node, join},
    wire::{Answer, PROTOCOL, connect, exchange, holder, message, stranger, through_other_doors, upgraded},
};

const PATHS: [&str; 13] = [
    "/peer/raft",
    "/peer/promote",
    "/peer/demote",
    "/peer/logs",
    "/peer/exec",
    "/peer/trace",
    "/peer/hello",
    "/peer/work",
    "/peer/report",
    "/peer/file",
    "/peer/registry",
    "/peer/vouch",
    "/join",
];

fn told(answer: Option<Answer>) -> (u16, String) {
    let answer = answer.unwrap();
    (answer.status, answer.code())
}

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[test]
fn nodes_are_heard_over_tls_alone_and_only_with_a_certificate_in_their_own_name() {
    let cluster = Cluster::with_worker();
    let (server, worker) = (&cluster.nodes[0], &cluster.nodes[1]);
    for path in PATHS {
        // Root of this machine and a browser on it are somebody; no node is.
        for answer in through_other_doors(server, &message(path, Some("n2"), b"")) {
            assert_eq!(told(answer), refusal(401, "unauthenticated"), "{path}");
        }
    }
    for path in &PATHS[..12] {
        let said = |config, name| told(exchange(&mut connect(server, config), &message(path, name, b"")));
        let unproven = refusal(401, "unauthenticated");
        assert_eq!(said(stranger(server), Some("n2")), unproven, "{path} without a certificate");
        assert_eq!(said(holder(worker, server), None), unproven, "{path} without a name");
        assert_eq!(said(holder(worker, server), Some("n1")), unproven, "{path} in another's name");
        assert_eq!(said(holder(worker, server), Some("n2\u{a0}")), unproven, "{path} in a name that looks alike");
    }
    for path in &PATHS[..6] {
        let answer = exchange(&mut connect(server, holder(worker, server)), &message(path, Some("n2"), b"\x80"));
        assert_eq!(told(answer), refusal(403, "forbidden"), "{path} is for servers");
    }
    // A server that would entrust a worker with the log does not exist; one that was taken over must not get far.
    let answer =
        exchange(&mut connect(worker, holder(server, server)), &message("/peer/promote", Some("n1"), &promotion()));
    assert_eq!(told(answer), refusal(403, "forbidden"));
}

#[derive(Serialize)]
struct Promotion {
    member: u64,
    vault: Vault,
}

#[derive(Serialize)]
struct Vault {
    keys: std::collections::BTreeMap<u32, String>,
}

fn promotion() -> Vec<u8> {
    let vault = Vault { keys: [(1, "00".repeat(32))].into() };
    rmp_serde::to_vec_named(&Promotion { member: 2, vault }).unwrap()
}

#[test]
fn only_a_server_with_a_seat_may_ask_on_behalf_of_its_users() {
    let mut cluster = Cluster::with_worker();
    let asked = |node: &str, uid: &str| {
        let head = "GET /v1/tokens HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
        format!("{head}{PROTOCOL}longshore-node: {node}\r\nlongshore-on-behalf-of: {uid}\r\n\r\n").into_bytes()
    };
    let unproven = refusal(401, "unauthenticated");
    {
        let (server, worker) = (&cluster.nodes[0], &cluster.nodes[1]);
        let by = |config, node: &str, uid: &str| told(exchange(&mut connect(server, config), &asked(node, uid)));
        assert_eq!(by(stranger(server), "n1", "0"), unproven, "without a certificate");
        assert_eq!(by(holder(worker, server), "n1", "0"), unproven, "in another's name");
        assert_eq!(by(holder(worker, server), "n2", "0"), refusal(403, "forbidden"), "a worker");
        assert_eq!(by(holder(server, server), "n1", "root"), unproven, "no user");
        let two = String::from_utf8(asked("n1", "0\r\nlongshore-on-behalf-of: 1")).unwrap();
        assert_eq!(told(exchange(&mut connect(server, holder(server, server)), two.as_bytes())), unproven, "two users");
        assert_eq!(by(holder(server, server), "n1", "0").0, 200, "it could say so itself");
        let [local, plain] = through_other_doors(worker, &asked("n1", "0"));
        assert_eq!(told(local), refusal(421, "not_a_server"), "the socket of a worker");
        assert_eq!(told(plain), unproven, "plain HTTP");
    }
    let token = cluster.nodes[0].text(&["cluster", "token"]);
    cluster.add(Some(&token));
    let (server, second) = (&cluster.nodes[0], &cluster.nodes[2]);
    let by_second = || told(exchange(&mut connect(server, holder(second, server)), &asked("n3", "0")));
    assert_eq!(by_second().0, 200, "a server that has just come");
    server.told(&["node", "rm", "--force", "n3"]);
    assert_eq!(by_second(), refusal(403, "node_removed"));
}

#[test]
fn another_clusters_certificate_is_no_certificate_and_a_removed_nodes_is_worth_nothing() {
    let (mut cluster, elsewhere) = (Cluster::with_worker(), Cluster::of(1));
    let foreign = holder(&elsewhere.nodes[0], &cluster.nodes[0]);
    let answer = exchange(&mut connect(&cluster.nodes[0], foreign), &message("/peer/hello", Some("n1"), b""));
    assert!(answer.is_none(), "a stranger's certificate was accepted: {answer:?}");

    let token = elsewhere.nodes[0].text(&["cluster", "token"]);
    let newcomer = cluster.newcomer("n3");
    let joined = join(&newcomer, &cluster.nodes[0].address, &token);
    let said = String::from_utf8_lossy(&joined.stderr).into_owned();
    assert!(!joined.status.success() && said.contains("not of the cluster the token names"), "{said}");
    assert!(!newcomer.data.join("place.json").exists(), "it belongs somewhere all the same");

    cluster.nodes[0].told(&["node", "rm", "--force", "n2"]);
    for path in &PATHS[..12] {
        let (server, worker) = (&cluster.nodes[0], &cluster.nodes[1]);
        let answer = exchange(&mut connect(server, holder(worker, server)), &message(path, Some("n2"), b""));
        assert_eq!(told(answer), refusal(403, "node_removed"), "{path}");
    }
    let token = cluster.nodes[0].text(&["cluster", "token"]);
    cluster.add(Some(&token));
}

#[test]
fn a_node_of_another_protocol_is_refused_by_that_name_and_changes_nothing() {
    let cluster = Cluster::with_worker();
    let (server, worker) = (&cluster.nodes[0], &cluster.nodes[1]);
    for other in ["", "longshore-protocol: 1\r\n", "longshore-protocol: 3\r\n", "longshore-protocol: two\r\n"] {
        let said = String::from_utf8(message("/peer/report", Some("n2"), b"")).unwrap().replace(PROTOCOL, other);
        let answer = exchange(&mut connect(server, holder(worker, server)), said.as_bytes());
        assert_eq!(told(answer), refusal(426, "protocol_mismatch"), "{other:?}");
        let said = String::from_utf8(message("/join", None, b"")).unwrap().replace(PROTOCOL, other);
        let answer = exchange(&mut connect(server, stranger(server)), said.as_bytes());
        assert_eq!(told(answer), refusal(426, "protocol_mismatch"), "{other:?} at the door");
    }
}

#[derive(Clone, Serialize)]
struct Coming {
    token: String,
    node: String,
    address: String,
    public_key: Vec<u8>,
}

fn come(server: &Node, coming: &Coming) -> (u16, String) {
    let body = rmp_serde::to_vec_named(coming).unwrap();
    told(exchange(&mut connect(server, stranger(server)), &message("/join", None, &body)))
}

#[test]
fn a_join_token_is_good_for_one_node_and_its_id_for_nothing() {
    let cluster = Cluster::of(1);
    let server = &cluster.nodes[0];
    let token = server.text(&["cluster", "token", "--worker"]);
    let mut public_key = vec![4];
    public_key.extend([7; 64]);
    let coming = Coming { token: token.clone(), node: "n2".to_owned(), address: "127.0.0.1:9".to_owned(), public_key };
    let invalid = refusal(401, "join_token_invalid");

    let secret = crate::rig::part(&token, 3);
    let guess = Coming { token: token.replace(&secret, &"0".repeat(32)), ..coming.clone() };
    assert_eq!(come(server, &guess), invalid);
    for name in ["", "a\nb", "../n1", &"n".repeat(1000)] {
        let odd = Coming { node: name.to_owned(), ..coming.clone() };
        assert_eq!(come(server, &odd), refusal(400, "request_invalid"), "{name:?}");
    }
    assert_eq!(come(server, &Coming { public_key: vec![1; 65], ..coming.clone() }), refusal(400, "request_invalid"));
    assert_eq!(come(server, &coming).0, 200);
    // An answer may be lost: the same node with the same key and the same token gets it again, and nobody else does.
    assert_eq!(come(server, &coming).0, 200);
    assert_eq!(come(server, &guess), invalid, "id and public key are known to anybody who listens");
    let mut other_key = coming.public_key.clone();
    other_key[9] ^= 1;
    assert_eq!(come(server, &Coming { public_key: other_key, ..coming.clone() }), invalid);
    assert_eq!(come(server, &Coming { node: "n3".to_owned(), ..coming.clone() }), invalid);
    server.told(&["node", "ls"]);
}

#[test]
fn those_who_guess_join_tokens_are_slowed_down_and_keep_nobody_out() {
    let cluster = Cluster::of(1);
    let server = &cluster.nodes[0];
    let token = server.text(&["cluster", "token"]);
    let guess = Coming {
        token: token.replace(&crate::rig::part(&token, 2), &"0".repeat(16)),
        node: "n2".to_owned(),
        address: "127.0.0.1:9".to_owned(),
        public_key: vec![4; 65],
    };
    let mut codes: Vec<String> = (0..60).map(|_| come(server, &guess).1).collect();
    codes.sort();
    codes.dedup();
    assert_eq!(codes, ["join_token_invalid", "too_many_requests"]);
    let newcomer = cluster.newcomer("n2");
    let joined = join(&newcomer, &server.address, &token);
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
}

#[test]
fn a_server_that_was_removed_is_not_obeyed_by_those_who_cannot_know() {
    let mut cluster = Cluster::of(3);
    let token = cluster.nodes[0].text(&["cluster", "token"]);
    let taken_over = holder(&cluster.nodes[2], &cluster.nodes[2]);
    cluster.nodes[0].told(&["node", "rm", "--force", "n3"]);
    // A fourth that may keep the log and does not yet: it has to be well for three seconds before it is trusted with it.
    cluster.add(Some(&token));
    let promotion = {
        let vault = Vault { keys: [(1, "00".repeat(32))].into() };
        rmp_serde::to_vec_named(&Promotion { member: 4, vault }).unwrap()
    };
    // Nor may it look over the shoulder of what others run, or lay hands on it.
    for path in ["/peer/promote", "/peer/logs", "/peer/exec"] {
        let bytes = upgraded(&message(path, Some("n3"), &promotion));
        let answer = exchange(&mut connect(&cluster.nodes[3], taken_over.clone()), &bytes);
        // On a slow machine it keeps the log by now, and knows who was removed.
        let refused = [refusal(403, "forbidden"), refusal(403, "node_removed")];
        let answer = told(answer);
        assert!(refused.contains(&answer), "{path}: {answer:?}");
    }
    let vault = fs::read_to_string(cluster.nodes[3].data.join("vault.json")).unwrap_or_default();
    assert!(!vault.contains(&"00".repeat(32)), "a key of a stranger is in its folder");
}
