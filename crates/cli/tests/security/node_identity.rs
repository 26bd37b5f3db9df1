//! Peers without a certificate, with another cluster's, or with a revoked one; and join tokens.

use std::fs;

use serde::Serialize;

use crate::{
    raw_http::{
        Answer, PROTOCOL, connect, exchange, message, over_other_listeners, unauthenticated, upgraded,
        with_certificate_of,
    },
    test_cluster::{Cluster, Node, join},
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

fn status_and_code(answer: Option<Answer>) -> (u16, String) {
    let answer = answer.unwrap();
    (answer.status, answer.code())
}

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[test]
fn node_requests_need_tls_and_a_certificate_for_the_claimed_name() {
    let cluster = Cluster::exposed_with_worker();
    let (server, worker) = (&cluster.nodes[0], &cluster.nodes[1]);
    for path in PATHS {
        // The Unix socket and the HTTP listener authenticate local users, never nodes.
        for answer in over_other_listeners(server, &message(path, Some("n2"), b"")) {
            assert_eq!(status_and_code(answer), refusal(401, "unauthenticated"), "{path}");
        }
    }
    for path in &PATHS[..12] {
        let said = |config, name| status_and_code(exchange(&mut connect(server, config), &message(path, name, b"")));
        let unproven = refusal(401, "unauthenticated");
        assert_eq!(said(unauthenticated(server), Some("n2")), unproven, "{path} without a certificate");
        assert_eq!(said(with_certificate_of(worker, server), None), unproven, "{path} without a name");
        assert_eq!(said(with_certificate_of(worker, server), Some("n1")), unproven, "{path} in another's name");
        assert_eq!(
            said(with_certificate_of(worker, server), Some("n2\u{a0}")),
            unproven,
            "{path} in a name that looks alike"
        );
    }
    for path in &PATHS[..6] {
        let answer =
            exchange(&mut connect(server, with_certificate_of(worker, server)), &message(path, Some("n2"), b"\x80"));
        assert_eq!(status_and_code(answer), refusal(403, "forbidden"), "{path} is for servers");
    }
    // No honest server promotes a worker; a compromised one must not be able to.
    let answer = exchange(
        &mut connect(worker, with_certificate_of(server, server)),
        &message("/peer/promote", Some("n1"), &promotion()),
    );
    assert_eq!(status_and_code(answer), refusal(403, "forbidden"));
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
fn only_a_member_server_may_act_on_behalf_of_its_users() {
    let mut cluster = Cluster::exposed_with_worker();
    let asked = |node: &str, uid: &str| {
        let head = "GET /v1/tokens HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
        format!("{head}{PROTOCOL}longshore-node: {node}\r\nlongshore-on-behalf-of: {uid}\r\n\r\n").into_bytes()
    };
    let unproven = refusal(401, "unauthenticated");
    {
        let (server, worker) = (&cluster.nodes[0], &cluster.nodes[1]);
        let by =
            |config, node: &str, uid: &str| status_and_code(exchange(&mut connect(server, config), &asked(node, uid)));
        assert_eq!(by(unauthenticated(server), "n1", "0"), unproven, "without a certificate");
        assert_eq!(by(with_certificate_of(worker, server), "n1", "0"), unproven, "in another's name");
        assert_eq!(by(with_certificate_of(worker, server), "n2", "0"), refusal(403, "forbidden"), "a worker");
        assert_eq!(by(with_certificate_of(server, server), "n1", "root"), unproven, "no user");
        let two = String::from_utf8(asked("n1", "0\r\nlongshore-on-behalf-of: 1")).unwrap();
        assert_eq!(
            status_and_code(exchange(&mut connect(server, with_certificate_of(server, server)), two.as_bytes())),
            unproven,
            "two users"
        );
        assert_eq!(by(with_certificate_of(server, server), "n1", "0").0, 200, "it could say so itself");
        let [local, plain] = over_other_listeners(worker, &asked("n1", "0"));
        assert_eq!(status_and_code(local), refusal(421, "not_a_server"), "the socket of a worker");
        assert_eq!(status_and_code(plain), unproven, "plain HTTP");
    }
    let token = cluster.nodes[0].text(&["cluster", "token"]);
    cluster.add(Some(&token));
    let (server, second) = (&cluster.nodes[0], &cluster.nodes[2]);
    let by_second =
        || status_and_code(exchange(&mut connect(server, with_certificate_of(second, server)), &asked("n3", "0")));
    assert_eq!(by_second().0, 200, "a server that has just come");
    server.expect_json(&["node", "rm", "--force", "n3"]);
    assert_eq!(by_second(), refusal(403, "node_removed"));
}

#[test]
fn certificates_of_another_cluster_and_of_removed_nodes_are_refused() {
    let (mut cluster, elsewhere) = (Cluster::exposed_with_worker(), Cluster::exposed(1));
    let foreign = with_certificate_of(&elsewhere.nodes[0], &cluster.nodes[0]);
    let answer = exchange(&mut connect(&cluster.nodes[0], foreign), &message("/peer/hello", Some("n1"), b""));
    assert!(answer.is_none(), "a foreign certificate was accepted: {answer:?}");

    let token = elsewhere.nodes[0].text(&["cluster", "token"]);
    let joining = cluster.new_node("n3");
    let joined = join(&joining, &cluster.nodes[0].address, &token);
    let said = String::from_utf8_lossy(&joined.stderr).into_owned();
    assert!(!joined.status.success() && said.contains("not a server of the cluster that the token names"), "{said}");
    assert!(!joining.data.join("place.json").exists(), "a refused node keeps no record of a cluster");

    cluster.nodes[0].expect_json(&["node", "rm", "--force", "n2"]);
    for path in &PATHS[..12] {
        let (server, worker) = (&cluster.nodes[0], &cluster.nodes[1]);
        let answer =
            exchange(&mut connect(server, with_certificate_of(worker, server)), &message(path, Some("n2"), b""));
        assert_eq!(status_and_code(answer), refusal(403, "node_removed"), "{path}");
    }
    let token = cluster.nodes[0].text(&["cluster", "token"]);
    cluster.add(Some(&token));
}

#[test]
fn a_node_with_another_protocol_version_is_refused_and_changes_nothing() {
    let cluster = Cluster::exposed_with_worker();
    let (server, worker) = (&cluster.nodes[0], &cluster.nodes[1]);
    for other in ["", "longshore-protocol: 1\r\n", "longshore-protocol: 3\r\n", "longshore-protocol: two\r\n"] {
        let said = String::from_utf8(message("/peer/report", Some("n2"), b"")).unwrap().replace(PROTOCOL, other);
        let answer = exchange(&mut connect(server, with_certificate_of(worker, server)), said.as_bytes());
        assert_eq!(status_and_code(answer), refusal(426, "protocol_mismatch"), "{other:?}");
        let said = String::from_utf8(message("/join", None, b"")).unwrap().replace(PROTOCOL, other);
        let answer = exchange(&mut connect(server, unauthenticated(server)), said.as_bytes());
        assert_eq!(status_and_code(answer), refusal(426, "protocol_mismatch"), "{other:?} at the door");
    }
}

#[derive(Clone, Serialize)]
struct JoinRequest {
    token: String,
    node: String,
    address: String,
    public_key: Vec<u8>,
}

fn send_join(server: &Node, request: &JoinRequest) -> (u16, String) {
    let body = rmp_serde::to_vec_named(request).unwrap();
    status_and_code(exchange(&mut connect(server, unauthenticated(server)), &message("/join", None, &body)))
}

/// A point of P-256: its generator.
const GENERATOR: [u8; 64] = [
    0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2, 0x77, 0x03, 0x7d,
    0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a,
    0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb,
    0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
];

#[test]
fn a_join_token_admits_one_node_and_its_id_alone_none() {
    let cluster = Cluster::exposed(1);
    let server = &cluster.nodes[0];
    let token = server.text(&["cluster", "token", "--worker"]);
    let mut public_key = vec![4];
    public_key.extend(GENERATOR);
    let request =
        JoinRequest { token: token.clone(), node: "n2".to_owned(), address: "127.0.0.1:9".to_owned(), public_key };
    let invalid = refusal(401, "join_token_invalid");

    let secret = crate::test_cluster::token_part(&token, 3);
    let guess = JoinRequest { token: token.replace(&secret, &"0".repeat(32)), ..request.clone() };
    assert_eq!(send_join(server, &guess), invalid);
    for name in ["", "a\nb", "../n1", &"n".repeat(1000)] {
        let odd = JoinRequest { node: name.to_owned(), ..request.clone() };
        assert_eq!(send_join(server, &odd), refusal(400, "request_invalid"), "{name:?}");
    }
    // Neither of these keys could ever be used, and neither uses up the token.
    let beside_the_curve = [vec![4], vec![7; 64]].concat();
    for public_key in [vec![1; 65], beside_the_curve] {
        let spoiled = JoinRequest { public_key, ..request.clone() };
        assert_eq!(send_join(server, &spoiled), refusal(400, "request_invalid"));
    }
    assert_eq!(send_join(server, &request).0, 200);
    // An answer may be lost: the same node with the same key and token may retry, and nobody else may.
    assert_eq!(send_join(server, &request).0, 200);
    assert_eq!(send_join(server, &guess), invalid, "id and public key are known to anybody who listens");
    let mut other_key = request.public_key.clone();
    other_key[9] ^= 1;
    assert_eq!(send_join(server, &JoinRequest { public_key: other_key, ..request.clone() }), invalid);
    assert_eq!(send_join(server, &JoinRequest { node: "n3".to_owned(), ..request.clone() }), invalid);
    server.expect_json(&["node", "ls"]);
}

#[test]
fn guessing_join_tokens_is_rate_limited_and_blocks_no_valid_join() {
    let cluster = Cluster::exposed(1);
    let server = &cluster.nodes[0];
    let token = server.text(&["cluster", "token"]);
    let guess = JoinRequest {
        token: token.replace(&crate::test_cluster::token_part(&token, 2), &"0".repeat(16)),
        node: "n2".to_owned(),
        address: "127.0.0.1:9".to_owned(),
        public_key: vec![4; 65],
    };
    let mut codes: Vec<String> = (0..60).map(|_| send_join(server, &guess).1).collect();
    codes.sort();
    codes.dedup();
    assert_eq!(codes, ["join_token_invalid", "too_many_requests"]);
    let joining = cluster.new_node("n2");
    let joined = join(&joining, &server.address, &token);
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
}

#[test]
fn a_removed_server_is_refused_by_nodes_that_keep_no_log() {
    let mut cluster = Cluster::exposed(3);
    let token = cluster.nodes[0].text(&["cluster", "token"]);
    let taken_over = with_certificate_of(&cluster.nodes[2], &cluster.nodes[2]);
    cluster.nodes[0].expect_json(&["node", "rm", "--force", "n3"]);
    // A fourth server without a log yet: it must be healthy for three seconds before it gets one.
    cluster.add(Some(&token));
    let promotion = {
        let vault = Vault { keys: [(1, "00".repeat(32))].into() };
        rmp_serde::to_vec_named(&Promotion { member: 4, vault }).unwrap()
    };
    // Nor may it read logs or run commands of replicas.
    for path in ["/peer/promote", "/peer/logs", "/peer/exec"] {
        let bytes = upgraded(&message(path, Some("n3"), &promotion));
        let answer = exchange(&mut connect(&cluster.nodes[3], taken_over.clone()), &bytes);
        // On a slow machine it has the log by now, and knows which node was removed.
        let refused = [refusal(403, "forbidden"), refusal(403, "node_removed")];
        let answer = status_and_code(answer);
        assert!(refused.contains(&answer), "{path}: {answer:?}");
    }
    let vault = fs::read_to_string(cluster.nodes[3].data.join("vault.json")).unwrap_or_default();
    assert!(!vault.contains(&"00".repeat(32)), "a key of a stranger is in its folder");
}
