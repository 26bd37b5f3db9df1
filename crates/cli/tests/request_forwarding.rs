//! Nodes without a log forward requests: a server for its local users and for clients with a token, a worker for the
//! latter only. A request to a server that is still opening its log waits.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    process::{Output, Stdio},
    time::Duration,
};

use test_cluster::{Cluster, Node, eventually, longshore, refused};

const TALK: &str = "\
name: talk
services:
  web:
    image: none
    command: [sh, -c, \"while :; do echo hello from $$LONGSHORE_NODE; sleep 0.2; done\"]
    x-longshore: { driver: exec }
    deploy: { replicas: 2 }
";

fn with(node: &Node, token: &str, arguments: &[&str]) -> Output {
    longshore().args(arguments).args(["--address", &node.address, "--token", token]).output().unwrap()
}

/// Sends a raw request and returns the whole answer.
fn raw(node: &Node, head: &str) -> String {
    let mut stream = UnixStream::connect(node.data.join("longshore.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The first line of a command that does not end by itself.
fn first_line(node: &Node, arguments: &[&str]) -> String {
    let socket = node.data.join("longshore.sock");
    let mut following =
        longshore().args(arguments).env("LONGSHORE_SOCKET", socket).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(following.stdout.take().unwrap()).read_line(&mut line).unwrap();
    following.kill().unwrap();
    following.wait().unwrap();
    line
}

#[test]
fn a_server_without_a_log_answers_like_any_other() {
    let mut cluster = Cluster::of(10);
    let keeping = eventually("nine keep the log", || {
        let keeping = cluster.members(0, "keeps_log");
        (keeping.len() == 9).then_some(keeping)
    });
    let last = cluster.nodes.iter().position(|node| !keeping.contains(&node.name)).unwrap();
    let (edge, name) = (&cluster.nodes[last], cluster.nodes[last].name.clone());
    assert!(raw(edge, "GET /readyz HTTP/1.1").starts_with("HTTP/1.1 200"), "it can answer, so it is ready");

    // Writes, reads of these writes, streams and sessions.
    let file = cluster.folder.path().join("talk.yaml");
    std::fs::write(&file, TALK).unwrap();
    assert_eq!(edge.expect_json(&["apply", "-f", file.to_str().unwrap()])["revision"], 1);
    assert_eq!(edge.expect_json(&["status"])["deployments"][0]["name"], "talk");
    edge.expect_json(&["scale", "talk", "web=3"]);
    assert_eq!(edge.expect_json(&["status"])["deployments"][0]["revision"], 2, "what it has written it reads");
    cluster.running(last, 3);
    let status = edge.expect_json(&["status"]);
    let replica = status["replicas"][0]["id"].as_str().unwrap().to_owned();
    let node = status["replicas"][0]["node"].as_str().unwrap().to_owned();
    eventually("lines", || edge.text(&["logs", "talk"]).contains(&format!("hello from {node}")).then_some(()));
    assert!(first_line(edge, &["logs", "-f", "talk"]).contains("hello from"));
    assert_eq!(edge.text(&["exec", &replica, "sh", "-c", "echo $LONGSHORE_NODE"]), node);
    assert_eq!(edge.ask(&["exec", &replica, "sh", "-c", "exit 7"]).status.code(), Some(7));
    let said = refused(&edge.ask(&["scale", "talk", "nothing=3"]));
    assert!(said.contains("unknown_service"), "a refusal comes back as it was: {said}");
    let noted = edge.expect_json(&["audit"]);
    let mine = noted.as_array().unwrap().iter().filter(|entry| entry["actor"].as_str().unwrap().contains("root"));
    assert!(mine.count() >= 3, "{noted:#}");

    // A token grants its role; headers that claim an identity grant nothing.
    let viewer = edge.text(&["token", "create", "eyes", "--role", "view"]);
    assert!(with(edge, &viewer, &["status"]).status.success());
    assert!(refused(&with(edge, &viewer, &["scale", "talk", "web=1"])).contains("forbidden"));
    edge.expect_json(&["token", "rm", viewer.split('-').nth(2).unwrap()]);
    assert!(refused(&with(edge, &viewer, &["status"])).contains("unauthenticated"), "revoked");

    // The servers it forwards to may fail.
    let leader = cluster.leader();
    cluster.nodes[leader].kill();
    let edge = &cluster.nodes[last];
    eventually("writes again", || edge.json(&["scale", "talk", "web=2"]));
    assert_eq!(edge.expect_json(&["status"])["deployments"][0]["revision"], 3);

    // A removed server says so, and accepts no more requests.
    edge.expect_json(&["rm", "talk"]);
    let other = (0..10).find(|at| *at != last && *at != leader).unwrap();
    cluster.nodes[other].expect_json(&["node", "rm", "--force", &name]);
    let said = refused(&cluster.nodes[last].ask(&["token", "create", "late", "--role", "admin"]));
    assert!(said.contains("node_removed"), "{said}");
}

#[test]
fn a_request_to_a_starting_server_is_answered_once_it_has_started() {
    let mut cluster = Cluster::of(1);
    eventually("ready", || cluster.nodes[0].json(&["node", "ls"]));
    for _ in 0..5 {
        let node = &mut cluster.nodes[0];
        node.kill();
        node.start();
        let socket = node.data.join("longshore.sock");
        eventually("it listens", || UnixStream::connect(&socket).ok());
        let answer = raw(node, "GET /v1/deployments HTTP/1.1");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[test]
fn a_worker_forwards_requests_with_a_token_and_none_of_its_local_users() {
    let mut cluster = Cluster::of(1);
    eventually("ready", || cluster.nodes[0].json(&["node", "ls"]));
    let token = cluster.nodes[0].text(&["cluster", "token", "--worker"]);
    cluster.add(Some(&token));
    let worker = &cluster.nodes[1];
    eventually("n2 is ready", || {
        let nodes = cluster.nodes[0].json(&["node", "ls"])?;
        nodes.as_array()?.iter().any(|node| node["name"] == "n2" && node["health"] == "ready").then_some(())
    });
    assert!(refused(&worker.ask(&["status"])).contains("not_a_server"));
    for claim in ["longshore-on-behalf-of: 0", "longshore-on-behalf-of: 0\r\nlongshore-node: n1"] {
        let answer = raw(worker, &format!("GET /v1/deployments HTTP/1.1\r\n{claim}"));
        assert!(answer.contains("not_a_server"), "{answer}");
    }

    let admin = cluster.nodes[0].text(&["token", "create", "ops", "--role", "admin"]);
    assert!(with(worker, &admin, &["node", "ls"]).status.success());
    let wrong = admin.replacen(admin.split('-').nth(3).unwrap(), &"0".repeat(32), 1);
    assert!(refused(&with(worker, &wrong, &["status"])).contains("unauthenticated"));

    cluster.nodes[0].kill();
    let said = refused(&with(&cluster.nodes[1], &admin, &["status"]));
    assert!(said.contains("node_unreachable"), "{said}");
}
