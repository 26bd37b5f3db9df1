//! Requests that ask for more than a server has: each is refused, and the server stays as it was.

use std::{fs, io::Write as _, net::TcpStream, time::Instant};

use rustix::process::{Pid, Resource, Rlimit};
use serde_json::{Value, json};

use crate::{
    raw_http::{Answer, ask, connect, request, unauthenticated},
    test_cluster::{Cluster, Node},
};

fn send(node: &Node, token: &str, line: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let head = String::from_utf8(request(line, Some(token))).unwrap();
    let fields = format!("\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    ask(node, head.replace("\r\n\r\n", &fields).as_bytes()).unwrap()
}

/// Ten services of a million replicas each, which fit nowhere.
fn ten_million(namespace: &str) -> Value {
    let services = (0..10).map(|number| {
        format!("  s{number}: {{image: none, user: nobody, command: [sleep, \"1\"], deploy: {{replicas: 1000000}}, x-longshore: {{driver: exec}}}}\n")
    });
    let manifest = format!("services:\n{}", services.collect::<String>());
    json!({
        "files": ["compose.yaml"], "texts": {"/w/big/compose.yaml": manifest}, "working_directory": "/w/big",
        "name": "big", "namespace": namespace,
    })
}

fn memory_mib(node: &Node) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn ten_million_replicas_are_refused_to_a_viewer_and_to_a_tenant_before_they_cost_anything() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let (eyes, tenant) =
        (node.token(&["eyes", "--role", "view"]), node.token(&["tenant", "--role", "deploy", "--namespace", "team"]));
    node.expect_json(&["policy", "set", "team", "exec_users=nobody"]);
    let (before, began) = (memory_mib(node), Instant::now());
    for (line, token, body) in [
        ("POST /v1/whatif", &eyes, json!({"apply": ten_million("default")})),
        ("POST /v1/deployments", &tenant, ten_million("team")),
        ("POST /v1/plan", &tenant, ten_million("team")),
    ] {
        let answer = send(node, token, line, &body);
        assert_eq!((answer.status, answer.code().as_str()), (409, "too_many_replicas"), "{line}: {}", answer.body);
    }
    let grown = memory_mib(node).saturating_sub(before);
    assert!(grown < 200, "{grown} MiB more after {:?}", began.elapsed());
    assert_eq!(node.expect_json(&["status"])["replicas"].as_array().map(Vec::len), Some(0));
}

#[test]
fn half_sent_bodies_take_a_bounded_part_of_memory() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["ci", "--role", "deploy"]);
    let before = memory_mib(node);
    let head = String::from_utf8(request("POST /v1/deployments", Some(&token))).unwrap();
    let length = 15 * 1024 * 1024;
    let head =
        head.replace("\r\n\r\n", &format!("\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"));
    let part = vec![b' '; length - 1];
    let open: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = connect(node, unauthenticated(node));
            // A server that refuses closes the connection while we still send.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&part));
            stream
        })
        .collect();
    let grown = memory_mib(node).saturating_sub(before);
    assert!(grown < 300, "{grown} MiB more with {} half-sent bodies of 15 MiB", open.len());
    drop(open);
    let other = node.token(&["other", "--role", "view"]);
    assert_eq!(ask(node, &request("GET /v1/deployments", Some(&other))).unwrap().status, 200);
}

#[test]
fn connections_leave_descriptors_for_the_log_and_for_this_machine() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let few = Rlimit { current: Some(300), maximum: Some(300) };
    let pid = Pid::from_raw(i32::try_from(node.pid()).unwrap());
    rustix::process::prlimit(pid, Resource::Nofile, few).unwrap();
    let strangers: Vec<_> = (0..600).filter_map(|_| TcpStream::connect(&node.address).ok()).collect();
    for number in 0..50 {
        let labelled = node.ask(&["node", "label", "n1", &format!("k={number}")]);
        assert!(labelled.status.success(), "{}", String::from_utf8_lossy(&labelled.stderr));
    }
    let open = fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap().count();
    assert!(open < 290, "{open} descriptors with {} strangers", strangers.len());
    drop(strangers);
    let log = fs::read_to_string(node.log_file()).unwrap();
    assert!(!log.contains("Too many open files"), "{log}");
}

#[test]
fn names_that_belong_to_somebody_else_are_refused() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let admin = node.token(&["ops", "--role", "admin"]);
    for name in ["root", "system", "uid-0", "o\u{200b}ps", ".."] {
        let answer = send(node, &admin, "POST /v1/tokens", &json!({"name": name, "role": "view"}));
        assert_eq!((answer.status, answer.code().as_str()), (400, "request_invalid"), "{name:?}: {}", answer.body);
    }
    let manifest = |secret: &str| {
        let text = format!(
            "services: {{w: {{image: none, user: nobody, command: [sleep, \"600\"], secrets: [s], x-longshore: {{driver: exec}}}}}}\n\
             secrets: {{s: {{{secret}}}}}"
        );
        json!({
            "files": ["compose.yaml"], "texts": {"/w/evil/compose.yaml": text}, "working_directory": "/w/evil",
            "name": "evil", "environment": {"X": "planted"},
        })
    };
    for secret in ["name: \"registry:docker.io\", environment: X", "name: \"registry:docker.io\", external: true"] {
        let answer = send(node, &admin, "POST /v1/deployments", &manifest(secret));
        assert_eq!(answer.code(), "manifest_invalid", "{secret}: {}", answer.body);
    }
    // A manifest takes a name first: what the operator stores later does not go to it.
    assert_eq!(send(node, &admin, "POST /v1/deployments", &manifest("name: bank_pass, environment: X")).status, 200);
    let put = send(node, &admin, "PUT /v1/secrets/bank_pass", &json!({"contents": "hunter2"}));
    assert_eq!((put.status, put.code().as_str()), (409, "secret_owned"), "{}", put.body);
    node.expect_json(&["rm", "evil"]);
}
