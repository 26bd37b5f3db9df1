//! Requests repeated with their idempotency key are carried out once.

use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::{
    raw_http::{Answer, exchange},
    test_cluster::{Cluster, Node},
};

const MANIFEST: &str = "\
name: shop
services:
  web:
    image: none
    command: [sleep, \"600\"]
    secrets: [pass]
    x-longshore: { driver: exec }
secrets:
  pass: { file: pass.txt }
";

fn ask(node: &Node, line: &str, key: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: {key}\r\n");
    let bytes = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    exchange(&mut UnixStream::connect(node.socket()).unwrap(), bytes.as_bytes()).unwrap()
}

fn manifest(pass: &str) -> Value {
    json!({
        "files": ["/m/compose.yaml"],
        "texts": { "/m/compose.yaml": MANIFEST, "/m/pass.txt": pass },
        "overlay": null, "working_directory": "/m", "project_directory": null, "environment": {},
        "env_files": [], "profiles": [], "name": null, "namespace": null,
    })
}

fn answer_json(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn a_request_repeated_with_its_key_is_carried_out_once_and_answered_the_same() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    // The time of the command and the nonce of an encrypted secret do not make it another request.
    let twice = |line: &str, key: &str, body: &Value| {
        let answers = [ask(node, line, key, body), ask(node, line, key, body)].map(|answer| answer_json(&answer));
        assert_eq!(answers[0], answers[1], "{line}");
        answers[0].clone()
    };

    let applied = twice("POST /v1/deployments", "apply", &manifest("one"));
    assert_eq!((&applied["revision"], &applied["changed"]), (&json!(1), &json!("yes")));
    assert_eq!(twice("PUT /v1/secrets/db", "put", &json!({ "contents": "two" })), json!({ "version": 1 }));
    twice("POST /v1/deployments/shop/services/web/restart", "restart", &json!({}));
    let stored = node.expect_json(&["secret", "ls"]);
    assert!(stored.as_array().unwrap().iter().all(|secret| secret["version"] == 1), "{stored}");
    let asked = node
        .expect_json(&["audit"])
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["action"] == "service_restarted")
        .count();
    assert_eq!(asked, 1, "a restart asked twice");
}

#[test]
fn a_late_repeat_restores_no_old_secret_and_a_refused_manifest_stores_none() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let version =
        || node.expect_json(&["secret", "ls"]).as_array().unwrap().first().map(|secret| secret["version"].clone());
    for (key, pass) in [("k1", "one"), ("k2", "two"), ("k1", "one")] {
        answer_json(&ask(node, "POST /v1/deployments", key, &manifest(pass)));
    }
    assert_eq!(version(), Some(json!(2)), "the first one was asked again after the second");

    node.expect_json(&["quota", "set", "default", "--replicas", "0"]);
    node.expect_json(&["rm", "shop"]);
    let refused = ask(node, "POST /v1/deployments", "k3", &manifest("three"));
    assert_eq!((refused.status, refused.code().as_str()), (409, "quota_exceeded"));
    assert_ne!(version(), Some(json!(3)), "what was refused stored its secret");
}

#[test]
fn another_request_with_the_same_key_is_refused_and_a_token_is_shown_once() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    answer_json(&ask(node, "POST /v1/deployments", "k", &manifest("one")));
    let other = ask(node, "POST /v1/deployments", "k", &manifest("two"));
    assert_eq!((other.status, other.code().as_str()), (409, "idempotency_key_reused"));

    let wanted = json!({ "name": "ci", "role": "deploy" });
    answer_json(&ask(node, "POST /v1/tokens", "t", &wanted));
    let again = ask(node, "POST /v1/tokens", "t", &wanted);
    assert_eq!((again.status, again.code().as_str()), (409, "idempotency_key_reused"));
    assert_eq!(node.expect_json(&["token", "ls"]).as_array().unwrap().len(), 1, "no token nobody has seen");

    answer_json(&ask(node, "POST /v1/join-tokens", "j", &json!({ "worker": true })));
    let again = ask(node, "POST /v1/join-tokens", "j", &json!({ "worker": true }));
    assert_eq!((again.status, again.code().as_str()), (409, "idempotency_key_reused"));

    let rotated = answer_json(&ask(node, "POST /v1/cluster/rotate-key", "r", &json!({})));
    assert_eq!(answer_json(&ask(node, "POST /v1/cluster/rotate-key", "r", &json!({}))), rotated, "no third key");
    let other = ask(node, "POST /v1/cluster/rotate-key", "k", &json!({}));
    assert_eq!((other.status, other.code().as_str()), (409, "idempotency_key_reused"));
}
