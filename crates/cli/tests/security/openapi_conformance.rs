//! Answers conform to the `OpenAPI` document; events arrive in order; health endpoints and metrics are complete.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    raw_http::{Encrypted, ask, connect, over_other_listeners, request, unauthenticated},
    test_cluster::{Cluster, Node, eventually},
};

const MANIFEST: &str = "\
name: shop
services:
  web: { image: none, command: [sleep, \"600\"], x-longshore: { driver: exec } }
  big: { image: none, command: [sleep, \"600\"], x-longshore: { driver: exec }, deploy: { placement: { constraints: [\"node.hostname == n9\"] } } }
";

/// The first mismatch between a value and its schema: a wrong type, a missing field, or an undocumented one.
fn wrong(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return wrong(document, &document["components"]["schemas"][name], value, at);
    }
    if let Some(either) = schema["anyOf"].as_array() {
        let tried: Vec<String> = either.iter().filter_map(|schema| wrong(document, schema, value, at)).collect();
        return if tried.len() < either.len() { None } else { tried.into_iter().next() };
    }
    let fits = match schema["type"].as_str() {
        None => return None,
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("array") => {
            let Some(items) = value.as_array() else { return Some(format!("{at} is {value}, not a list")) };
            return items.iter().find_map(|item| wrong(document, &schema["items"], item, &format!("{at}[]")));
        }
        Some("object") => return wrong_object(document, schema, value, at),
        Some(other) => panic!("the description knows a kind `{other}`"),
    };
    let listed = schema["enum"].as_array().is_none_or(|words| words.contains(value));
    (!fits || !listed).then(|| format!("{at} is {value}, not {schema}"))
}

fn wrong_object(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let Some(fields) = value.as_object() else { return Some(format!("{at} is {value}, not an object")) };
    if schema["properties"].is_null() {
        let inner = &schema["additionalProperties"];
        return fields.iter().find_map(|(name, value)| wrong(document, inner, value, &format!("{at}.{name}")));
    }
    let mut required = schema["required"].as_array().unwrap().iter().filter_map(Value::as_str);
    if let Some(missing) = required.find(|name| !fields.contains_key(*name)) {
        return Some(format!("{at}.{missing} is missing"));
    }
    fields.iter().find_map(|(name, value)| {
        let described = &schema["properties"][name];
        let at = format!("{at}.{name}");
        if described.is_null() {
            Some(format!("{at} is not described"))
        } else {
            wrong(document, described, value, &at)
        }
    })
}

fn send(node: &Node, token: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n");
    let answer = ask(node, format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
    (answer.status, answer.body)
}

/// Requests to every path, in an order that works.
fn questions() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let manifest = json!({ "files": ["/c.yaml"], "texts": { "/c.yaml": MANIFEST }, "working_directory": "/" });
    let nothing = Value::Null;
    vec![
        ("POST", "/v1/plan", "/v1/plan", manifest.clone()),
        ("POST", "/v1/deployments", "/v1/deployments", manifest.clone()),
        ("GET", "/v1/deployments", "/v1/deployments", nothing.clone()),
        ("GET", "/v1/deployments/{name}", "/v1/deployments/shop", nothing.clone()),
        ("GET", "/v1/status", "/v1/status", nothing.clone()),
        ("GET", "/v1/status", "/v1/status?deployment=shop", nothing.clone()),
        ("GET", "/v1/replicas", "/v1/replicas", nothing.clone()),
        ("GET", "/v1/replicas/{replica}/history", "/v1/replicas/shop-web-0/history", nothing.clone()),
        ("GET", "/v1/pending", "/v1/pending", nothing.clone()),
        ("GET", "/v1/why/{replica}", "/v1/why/shop-web-0", nothing.clone()),
        ("GET", "/v1/why/{replica}", "/v1/why/shop-big-0", nothing.clone()),
        ("POST", "/v1/whatif", "/v1/whatif", json!({ "down": ["n1"] })),
        (
            "POST",
            "/v1/deployments/{name}/services/{service}/scale",
            "/v1/deployments/shop/services/web/scale",
            json!({ "replicas": 2 }),
        ),
        (
            "POST",
            "/v1/deployments/{name}/services/{service}/restart",
            "/v1/deployments/shop/services/web/restart",
            nothing.clone(),
        ),
        ("POST", "/v1/deployments/{name}/rollback", "/v1/deployments/shop/rollback", json!({})),
        ("POST", "/v1/deployments/{name}/stop", "/v1/deployments/shop/stop", nothing.clone()),
        ("GET", "/v1/replicas", "/v1/replicas", nothing.clone()),
        ("POST", "/v1/deployments/{name}/start", "/v1/deployments/shop/start", nothing.clone()),
        ("GET", "/v1/deployments", "/v1/deployments", nothing.clone()),
        ("DELETE", "/v1/deployments/{name}", "/v1/deployments/shop", nothing.clone()),
        ("POST", "/v1/nodes/{name}/labels", "/v1/nodes/n1/labels", json!({ "labels": { "zone": "a" } })),
        ("POST", "/v1/nodes/{name}/drain", "/v1/nodes/n1/drain", json!({ "deadline_secs": 5 })),
        ("GET", "/v1/nodes", "/v1/nodes", nothing.clone()),
        ("GET", "/v1/nodes/{name}", "/v1/nodes/n1", nothing.clone()),
        ("POST", "/v1/nodes/{name}/{word}", "/v1/nodes/n1/activate", nothing.clone()),
        ("GET", "/v1/cluster", "/v1/cluster", nothing.clone()),
        ("POST", "/v1/join-tokens", "/v1/join-tokens", json!({ "worker": true })),
        ("POST", "/v1/tokens", "/v1/tokens", json!({ "name": "eyes", "role": "view", "valid_secs": 60 })),
        ("GET", "/v1/tokens", "/v1/tokens", nothing.clone()),
        ("PUT", "/v1/secrets/{name}", "/v1/secrets/db-pass", json!({ "contents": "x" })),
        ("GET", "/v1/secrets", "/v1/secrets", nothing.clone()),
        ("DELETE", "/v1/secrets/{name}", "/v1/secrets/db-pass", nothing.clone()),
        ("POST", "/v1/cluster/settings", "/v1/cluster/settings", json!({ "drain_timeout": "10m" })),
        ("GET", "/v1/cluster/settings", "/v1/cluster/settings", nothing.clone()),
        ("POST", "/v1/cluster/rotate-key", "/v1/cluster/rotate-key", nothing.clone()),
        ("GET", "/v1/audit", "/v1/audit?most=1000", nothing.clone()),
    ]
}

#[test]
fn every_answer_conforms_to_the_openapi_document() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["ops", "--role", "admin"]);
    eventually("the node is known", || (!node.json(&["node", "ls"])?.as_array()?.is_empty()).then_some(()));
    let document: Value = serde_json::from_str(&send(node, &token, "GET", "/v1/openapi.json", &Value::Null).1).unwrap();
    let asked = questions();
    let mut covered = BTreeSet::new();
    for (method, template, path, body) in &asked {
        let operation = &document["paths"][template][method.to_lowercase()];
        assert!(operation.is_object(), "{method} {template} is not described");
        if !body.is_null() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert_eq!(wrong(&document, schema, body, "request"), None, "{method} {path}");
        }
        let mut answered = send(node, &token, method, path, body);
        // Replicas appear shortly after their deployment is applied.
        for _ in 0..100 {
            if answered.0 != 404 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            answered = send(node, &token, method, path, body);
        }
        let (status, answer) = answered;
        assert_eq!(status, 200, "{method} {path}: {answer}");
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(wrong(&document, schema, &answer, "answer"), None, "{method} {path}: {answer:#}");
        covered.insert(format!("{method} {template}"));
    }
    let (status, refused) = send(node, &token, "GET", "/v1/nodes/n9", &Value::Null);
    let schema = &document["paths"]["/v1/nodes/{name}"]["get"]["responses"]["default"]["content"]["application/json"];
    let refused: Value = serde_json::from_str(&refused).unwrap();
    assert_eq!((status, wrong(&document, &schema["schema"], &refused, "refusal")), (404, None));
    assert!(covered.len() >= 26, "{covered:?}");
}

fn follow(node: &Node, token: &str, query: &str) -> Encrypted {
    let mut stream = connect(node, unauthenticated(node));
    stream.write_all(&request(&format!("GET /v1/events{query}"), Some(token))).unwrap();
    stream
}

/// Reads a stream until it contains a text.
fn read_until(stream: &mut Encrypted, wanted: &str, so_far: &mut String) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !so_far.contains(wanted) {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0 && Instant::now() < patience, "never `{wanted}`: {so_far}");
        so_far.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

#[test]
fn events_arrive_in_order_from_an_index_on_and_a_client_too_far_behind_resyncs() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["ops", "--role", "view"]);
    let index = |node: &Node| node.expect_json(&["cluster", "status"])["index"].as_u64().unwrap();
    let before = index(node);
    let mut live = follow(node, &token, "");
    let mut told = String::new();
    read_until(&mut live, "text/event-stream", &mut told);
    for name in ["a", "b", "c"] {
        node.token(&[name, "--role", "view"]);
    }
    let after = index(node);
    read_until(&mut live, &format!("id: {after}"), &mut told);
    let mut late = String::new();
    read_until(&mut follow(node, &token, &format!("?after={before}")), &format!("id: {after}"), &mut late);
    let ids = |text: &str| -> Vec<u64> {
        text.lines().filter_map(|line| line.strip_prefix("id: ")?.trim().parse().ok()).collect()
    };
    assert_eq!(ids(&late), (before + 1..=after).collect::<Vec<u64>>(), "{late}");
    assert!(ids(&told).ends_with(&[after - 2, after - 1, after]), "{told}");
    assert!(late.contains("event: change") && late.contains("\"kind\":\"access_changed\""), "{late}");
    // Without events the stream sends keep-alive comments, so that proxies do not close it.
    read_until(&mut live, "\n:", &mut told);

    // An index of another history, such as the one before a restore.
    let mut missed = String::new();
    let mut stream = follow(node, &token, "?after=999999");
    read_until(&mut stream, "event: resync", &mut missed);
    assert!(!missed.contains("event: change"), "{missed}");
}

#[test]
fn health_endpoints_need_no_token_and_reveal_nothing_and_metrics_are_complete() {
    let cluster = Cluster::exposed_with_worker();
    let (server, worker) = (&cluster.nodes[0], &cluster.nodes[1]);
    let token = server.token(&["ops", "--role", "view"]);
    for (node, ready) in [(server, 200), (worker, 421)] {
        let alive = ask(node, &request("GET /healthz", None)).unwrap();
        assert_eq!((alive.status, alive.body.as_str()), (200, "ok\n"));
        let answer = ask(node, &request("GET /readyz", None)).unwrap();
        assert_eq!(answer.status, ready);
        for secret in [&server.address, &server.name, &worker.name] {
            assert!(!answer.body.contains(secret.as_str()), "a stranger learns of `{secret}`: {}", answer.body);
        }
        for answer in over_other_listeners(node, &request("GET /healthz", None)) {
            assert_eq!(answer.unwrap().status, 200);
        }
    }
    let figures = ask(server, &request("GET /metrics", Some(&token))).unwrap().body;
    for line in [
        "longshore_leading 1",
        "longshore_leader_known 1",
        "longshore_voters 1",
        "longshore_members 1",
        "longshore_node_memberships 2",
        "longshore_tokens 1",
        "longshore_log_failed 0",
        "longshore_nodes{health=\"ready\"} 2",
        "longshore_deployments 0",
    ] {
        assert!(figures.lines().any(|found| found == line), "`{line}` is not in\n{figures}");
    }
    for line in figures.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let bare = name.split('{').next().unwrap();
        assert!(value.parse::<u64>().is_ok() && figures.contains(&format!("# TYPE {bare} ")), "{line}");
    }
}
