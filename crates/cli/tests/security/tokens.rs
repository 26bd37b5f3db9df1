//! API tokens: wrong, revoked, expired and out of scope.

use std::{
    io::{Read as _, Write as _},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    raw_http::{Answer, ask, connect, request, unauthenticated, upgraded},
    test_cluster::{Cluster, Node, eventually, token_part},
};

const MANIFEST: &str = "\
name: shop
services:
  web: { image: none, command: [sleep, \"600\"], x-longshore: { driver: exec } }
";

#[test]
fn invalid_tokens_are_refused_alike_and_valid_ones_only_allow_their_scope() {
    let (cluster, elsewhere) = (Cluster::exposed(1), Cluster::exposed(1));
    let (node, folder) = (&cluster.nodes[0], cluster.folder.path());
    assert!(node.apply(folder, MANIFEST).status.success());
    let viewer = node.token(&["eyes", "--role", "view"]);
    let revoked = node.token(&["old", "--role", "admin"]);
    node.expect_json(&["token", "rm", &token_part(&revoked, 2)]);
    let expired = node.token(&["late", "--role", "admin", "--valid", "0s"]);
    let foreign = elsewhere.nodes[0].token(&["theirs", "--role", "admin"]);
    let joining = node.text(&["cluster", "token"]);
    let wrong_secret = viewer.replace(&token_part(&viewer, 3), &"0".repeat(32));
    let invalid = [&revoked, &expired, &foreign, &joining, &wrong_secret, "hunter2", "", "longshore-operator-a-b-c"];
    let refusals = invalid.map(|token| ask(node, &request("GET /v1/replicas", Some(token))).unwrap());
    let twice = String::from_utf8(request("GET /v1/replicas", Some(&viewer))).unwrap();
    let twice = twice.replace("\r\n\r\n", &format!("\r\nAuthorization: Bearer {viewer}\r\n\r\n"));
    let others = [ask(node, &request("GET /v1/replicas", None)).unwrap(), ask(node, twice.as_bytes()).unwrap()];
    for refused in refusals.iter().chain(&others) {
        assert_eq!((refused.status, refused.code().as_str()), (401, "unauthenticated"));
        assert_eq!(refused.body, refusals[0].body, "the answer tells which part was right");
    }

    let blog = node.token(&["blog", "--role", "deploy", "--deployment", "blog"]);
    let team = node.token(&["team", "--role", "admin", "--namespace", "team"]);
    for (line, token, status, code) in [
        ("GET /v1/replicas", &viewer, 200, ""),
        ("POST /v1/deployments/shop/services/web/restart", &viewer, 403, "forbidden"),
        ("DELETE /v1/nodes/n1", &viewer, 403, "forbidden"),
        ("GET /v1/tokens", &viewer, 403, "forbidden"),
        ("GET /v1/backup", &viewer, 403, "forbidden"),
        ("GET /v1/logs?of=shop", &viewer, 200, ""),
        ("POST /v1/replicas/shop-web-0/exec", &viewer, 403, "forbidden"),
        ("GET /v1/logs?of=shop", &blog, 404, "not_found"),
        ("GET /v1/logs?of=shop-web-0", &blog, 404, "not_found"),
        ("DELETE /v1/deployments/shop", &blog, 403, "forbidden"),
        ("GET /v1/deployments/shop", &blog, 403, "forbidden"),
        ("GET /v1/status?deployment=shop", &blog, 403, "forbidden"),
        ("GET /v1/status?deployment=none", &viewer, 404, "not_found"),
        ("GET /v1/why/shop-web-0", &blog, 404, "not_found"),
        ("GET /v1/events", &blog, 403, "forbidden"),
        ("GET /metrics", &blog, 403, "forbidden"),
        ("DELETE /v1/deployments/shop", &team, 403, "forbidden"),
        ("DELETE /v1/deployments/shop?namespace=default", &team, 403, "forbidden"),
        ("POST /v1/join-tokens", &team, 403, "forbidden"),
        ("GET /v1/backup", &team, 403, "forbidden"),
    ] {
        let answer = ask(node, &request(line, Some(token))).unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{line}: {}", answer.body);
    }
    let shop = node.token(&["shop", "--role", "deploy", "--deployment", "shop"]);
    let admin = node.token(&["ops", "--role", "admin"]);
    eventually("it runs", || (exec_answer(node, &admin).status == 101).then_some(()));
    assert_eq!(exec_answer(node, &shop).code(), "policy_denied", "the process is root's");
    let answer = exec_answer(node, &blog);
    assert_eq!((answer.status, answer.code().as_str()), (404, "not_found"), "{}", answer.body);
    node.expect_json(&["rm", "shop"]);
}

/// The answer to an `exec` request for a replica of `shop`.
fn exec_answer(node: &Node, token: &str) -> Answer {
    let body = "{\"command\":[\"true\"]}";
    let head = String::from_utf8(request("POST /v1/replicas/shop-web-0/exec", Some(token))).unwrap();
    let whole = head.replace("\r\n\r\n", &format!("\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    ask(node, &upgraded(whole.as_bytes())).unwrap()
}

#[test]
fn a_revoked_token_is_refused_by_every_server_and_its_streams_end_within_a_second() {
    let cluster = Cluster::exposed(3);
    let token = cluster.nodes[1].token(&["ops", "--role", "admin"]);
    let mut streams: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| {
            // Created through another server a moment ago, and valid everywhere.
            assert_eq!(ask(node, &request("GET /v1/nodes", Some(&token))).unwrap().status, 200);
            let mut stream = connect(node, unauthenticated(node));
            stream.write_all(&request("GET /v1/events", Some(&token))).unwrap();
            let mut head = [0; 15];
            stream.read_exact(&mut head).unwrap();
            assert_eq!(&head, b"HTTP/1.1 200 OK");
            stream
        })
        .collect();
    cluster.nodes[2].expect_json(&["token", "rm", &token_part(&token, 2)]);
    let revoked = Instant::now();
    for node in &cluster.nodes {
        assert_eq!(ask(node, &request("GET /v1/nodes", Some(&token))).unwrap().code(), "unauthenticated");
    }
    for stream in &mut streams {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(revoked.elapsed() < Duration::from_secs(1), "{:?}", revoked.elapsed());
}

#[test]
fn a_suspended_server_accepts_no_revoked_token_and_refuses_no_new_one() {
    let cluster = Cluster::exposed(3);
    let status = cluster.nodes[0].expect_json(&["cluster", "status"]);
    let leads = |at: usize| status["members"][at]["leads"] == true;
    let sleeper = (0..3).find(|at| !leads(*at)).unwrap();
    let awake = (0..3).find(|at| *at != sleeper).unwrap();
    let old = cluster.nodes[awake].token(&["old", "--role", "view"]);
    assert_eq!(ask(&cluster.nodes[sleeper], &request("GET /v1/nodes", Some(&old))).unwrap().status, 200);
    for _ in 0..3 {
        cluster.nodes[sleeper].signal(Signal::STOP);
        let new = cluster.nodes[awake].token(&["new", "--role", "view"]);
        cluster.nodes[awake].ask(&["token", "rm", &token_part(&old, 2)]);
        // Sent while the server is suspended, answered when it resumes.
        let sleeping = &cluster.nodes[sleeper];
        let (of_old, of_new) = std::thread::scope(|scope| {
            let asked = [&old, &new].map(|token| scope.spawn(|| ask(sleeping, &request("GET /v1/nodes", Some(token)))));
            std::thread::sleep(Duration::from_millis(300));
            sleeping.signal(Signal::CONT);
            let [of_old, of_new] = asked.map(|asked| asked.join().unwrap().unwrap());
            (of_old, of_new)
        });
        assert_ne!(of_old.status, 200, "a revoked token was honoured");
        assert!(of_new.status == 200 || of_new.status == 503, "{of_new:?}");
        let again = ask(sleeping, &request("GET /v1/nodes", Some(&new))).unwrap();
        assert!(again.status == 200 || again.status == 503, "{again:?}");
    }
}

#[test]
fn a_session_of_a_browser_ends_with_the_token_it_came_from() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["ops", "--role", "admin"]);
    let said = |line: &str, more: &str, body: &str| {
        let length = body.len();
        let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}Content-Length: {length}\r\n\r\n");
        ask(node, format!("{head}{body}").as_bytes()).unwrap()
    };
    let cookie = |answer: &crate::raw_http::Answer| {
        let line = answer.head.lines().find(|line| line.to_lowercase().starts_with("set-cookie: ")).unwrap();
        assert!(line.contains("HttpOnly; SameSite=Strict") && line.contains("; Secure"), "{line}");
        format!("Cookie: {}\r\n", line["set-cookie: ".len()..].split(';').next().unwrap())
    };
    let link = said("POST /v1/login-links", &format!("Authorization: Bearer {token}\r\n"), "");
    let link: serde_json::Value = serde_json::from_str(&link.body).unwrap();
    let follow = format!("GET {}", link["path"].as_str().unwrap());
    let by_link = cookie(&said(&follow, "", ""));
    assert_eq!(said(&follow, "", "").code(), "unauthenticated", "a link is good once");
    let by_token = cookie(&said("POST /ui/login", "", &format!("{{\"token\":\"{token}\"}}")));
    for session in [&by_link, &by_token] {
        assert_eq!(said("GET /v1/nodes", session, "").status, 200);
        // A form on a foreign page sends the cookie, and cannot send the header.
        assert_eq!(said("POST /v1/join-tokens", session, "{}").code(), "unauthenticated");
    }
    let huge = said("POST /ui/login", "", &" ".repeat(5000));
    assert_eq!(huge.code(), "request_too_large", "a stranger is not listened to for long");
    let odd = said("POST /ui/login", "", "\"hunter2\"");
    assert!(odd.code() == "request_invalid" && !odd.body.contains("hunter2"), "{}", odd.body);
    assert_eq!(said("GET /ui/login", "", "").code(), "request_invalid", "a link without its code");
    node.expect_json(&["token", "rm", &token_part(&token, 2)]);
    for session in [&by_link, &by_token] {
        assert_eq!(said("GET /v1/nodes", session, "").code(), "unauthenticated");
    }
}
