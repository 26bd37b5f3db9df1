//! Ambiguous requests, path tricks, oversized bodies and slow clients.

use std::{
    io::Write as _,
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::{
    raw_http::{ask, connect, exchange, over_other_listeners, request, unauthenticated},
    test_cluster::Cluster,
};

/// Name of the case, HTTP version, rest of the request, and the expected status; `None` if closing the connection is
/// fine too.
const AMBIGUOUS: &[(&str, &str, &str, Option<u16>)] = &[
    (
        "length, then chunks",
        "1.1",
        "Content-Length: LENGTH\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHIDDEN",
        Some(411),
    ),
    (
        "chunks, then length",
        "1.1",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nCHUNK\r\nHIDDEN\r\n0\r\n\r\n",
        Some(411),
    ),
    ("chunks alone", "1.1", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nHIDDEN", Some(411)),
    ("chunks by another name", "1.1", "Transfer-Encoding: xchunked\r\n\r\nHIDDEN", Some(400)),
    ("chunks with a tab", "1.1", "Transfer-Encoding:\tchunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\nHIDDEN", Some(411)),
    ("two lengths", "1.1", "Content-Length: 0\r\nContent-Length: LENGTH\r\n\r\nHIDDEN", Some(400)),
    ("a list of lengths", "1.1", "Content-Length: 0, LENGTH\r\n\r\nHIDDEN", Some(400)),
    ("a length with a sign", "1.1", "Content-Length: +0\r\n\r\nHIDDEN", Some(400)),
    ("a negative length", "1.1", "Content-Length: -1\r\n\r\nHIDDEN", Some(400)),
    ("a header on two lines", "1.1", "Content-Length: 0\r\nX:\r\n a\r\n\r\nHIDDEN", Some(400)),
    ("a space before the colon", "1.1", "Content-Length : 0\r\n\r\nHIDDEN", Some(400)),
    ("a zero byte in a header", "1.1", "X: a\0b\r\n\r\nHIDDEN", Some(400)),
    ("a bare CR in a header", "1.1", "X: a\rContent-Length: 3\r\n\r\nHIDDEN", Some(400)),
    ("chunks of HTTP/1.0", "1.0", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nHIDDEN", Some(400)),
    ("another protocol", "2.0", "\r\nHIDDEN", None),
];

#[test]
fn an_ambiguous_request_is_refused_and_the_bytes_after_it_are_not_read() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["ops", "--role", "admin"]);
    // A request hidden in the body of another; if it were carried out, the audit log would show it.
    let hidden = String::from_utf8(request("DELETE /v1/deployments/shop", Some(&token))).unwrap();
    for (what, version, rest, wanted) in AMBIGUOUS {
        let rest = rest.replace("LENGTH", &hidden.len().to_string()).replace("CHUNK", &format!("{:x}", hidden.len()));
        let rest = rest.replace("HIDDEN", &hidden);
        let head = format!("POST /v1/join-tokens HTTP/{version}\r\nHost: x\r\nAuthorization: Bearer {token}\r\n");
        let Some(answer) = ask(node, format!("{head}{rest}").as_bytes()) else {
            assert_eq!(*wanted, None, "{what}: hung up without a word");
            continue;
        };
        assert!(answer.status >= 400, "{what}: {answer:?}");
        assert!(wanted.is_none_or(|wanted| wanted == answer.status), "{what}: {answer:?}");
        assert!(!answer.body.contains("HTTP/1.1 "), "{what}: what follows was read: {answer:?}");
        assert!(!answer.body.contains(&token) && !answer.body.contains("longshore-join-"), "{what}: {answer:?}");
    }
    for entry in node.expect_json(&["audit"]).as_array().unwrap() {
        assert!(entry["action"] != "deployment_removed" && entry["action"] != "join_granted", "{entry:#}");
    }
}

#[test]
fn no_spelling_of_a_path_bypasses_authorisation() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let scoped = node.token(&["blog", "--role", "deploy", "--deployment", "blog"]);
    let guarded = ["v1/nodes", "v1/tokens", "v1/backup", "metrics", "v1/audit", "peer/raft"];
    let tricks: [&dyn Fn(&str) -> String; 14] = [
        &|path| format!("/{path}"),
        &|path| format!("//{path}"),
        &|path| format!("/./{path}"),
        &|path| format!("/healthz/../{path}"),
        &|path| format!("/healthz/%2e%2e/{path}"),
        &|path| format!("/healthz%2f..%2f{path}"),
        &|path| format!("/healthz/..;/{path}"),
        &|path| format!("/{path}/"),
        &|path| format!("/{path}%00"),
        &|path| format!("/{path}%20"),
        &|path| format!("/{}", path.to_uppercase()),
        &|path| format!("/{}", path.replace('/', "%2f")),
        &|path| format!("http://localhost/{path}"),
        &|path| format!("/v1/deployments/..%2f..%2f{path}"),
    ];
    for path in guarded {
        for trick in tricks {
            let target = trick(path);
            for token in [None, Some(scoped.as_str())] {
                let answer = ask(node, &request(&format!("GET {target}"), token)).unwrap();
                assert!((400..500).contains(&answer.status), "{target} with {token:?}: {answer:?}");
                assert!(!answer.code().is_empty(), "{target}: no envelope: {answer:?}");
            }
        }
    }
    for line in ["GET /v1/nodes\0", "GET /v1/nodes#x", "GET v1/nodes", "GET *", "CONNECT 127.0.0.1:22", "GET /v1/nödes"]
    {
        let answer = ask(node, &request(line, Some(&scoped)));
        assert!(answer.is_none_or(|answer| answer.status >= 400), "{line}");
    }
    for (name, value) in [
        ("X-Original-URL", "/healthz"),
        ("X-Rewrite-URL", "/healthz"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-HTTP-Method-Override", "GET"),
        ("longshore-node", "n1"),
        ("Cookie", "token=x"),
    ] {
        let bytes = String::from_utf8(request("GET /v1/nodes", None)).unwrap();
        let answer = ask(node, bytes.replace("\r\n\r\n", &format!("\r\n{name}: {value}\r\n\r\n")).as_bytes()).unwrap();
        assert_eq!(answer.code(), "unauthenticated", "{name}");
    }
    let [local, plain] = over_other_listeners(node, &request("GET /v1/nodes", None));
    assert_eq!((local.unwrap().status, plain.unwrap().code().as_str()), (200, "unauthenticated"));
}

#[test]
fn an_oversized_body_is_refused_before_it_is_read() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["ops", "--role", "admin"]);
    let announce = |line: &str, proof: &str, length: u64| {
        format!("{line} HTTP/1.1\r\nHost: x\r\n{proof}Content-Length: {length}\r\n\r\n")
    };
    let proof = format!("Authorization: Bearer {token}\r\n");
    let huge = 100 * 1024 * 1024;
    for (line, proof, length, wanted) in [
        ("POST /v1/deployments", proof.as_str(), huge, (413, "request_too_large")),
        ("PUT /v1/secrets/a", proof.as_str(), huge, (413, "request_too_large")),
        ("POST /v1/deployments", "", huge, (401, "unauthenticated")),
        ("POST /join", "", huge, (413, "request_too_large")),
        ("POST /join", "", 70_000, (413, "request_too_large")),
        ("POST /peer/raft", "", huge, (401, "unauthenticated")),
        ("POST /v1/deployments", proof.as_str(), 17 * 1024 * 1024, (413, "request_too_large")),
    ] {
        // Only announced by `Content-Length`: a server that reads the body before refusing would wait forever.
        let answer = ask(node, announce(line, proof, length).as_bytes()).unwrap();
        assert_eq!((answer.status, answer.code().as_str()), wanted, "{line} {length}");
    }
    // Now with the body sent as well.
    let mut stream = connect(node, unauthenticated(node));
    let started = Instant::now();
    let bytes = [announce("POST /v1/deployments", &proof, huge).as_bytes(), &vec![b' '; 100 * 1024 * 1024]].concat();
    let answer = exchange(&mut stream, &bytes);
    assert!(answer.is_none_or(|answer| answer.status == 413));
    assert!(started.elapsed() < Duration::from_secs(20));
    let secret = format!("{{\"contents\":\"{}\"}}", "s".repeat(600 * 1024));
    let put = format!(
        "{}{secret}",
        announce("PUT /v1/secrets/a", &proof, secret.len() as u64).replace("Host: x", "Host: x\r\nConnection: close")
    );
    assert_eq!(ask(node, put.as_bytes()).unwrap().code(), "request_too_large");
    let long_head = format!("GET /v1/nodes HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(200_000));
    assert!(ask(node, long_head.as_bytes()).is_none_or(|answer| answer.status == 431));
    node.expect_json(&["node", "ls"]);
}

#[test]
fn slow_clients_are_disconnected_and_delay_nobody() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let token = node.token(&["ops", "--role", "admin"]);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let silent = scope.spawn(|| {
            let mut stream = TcpStream::connect(&node.address).unwrap();
            (exchange(&mut stream, b"").map(|answer| answer.status), begun.elapsed())
        });
        let head = scope.spawn(|| {
            (ask(node, b"GET /v1/nodes HTTP/1.1\r\nHost: x\r\nX: ").map(|answer| answer.status), begun.elapsed())
        });
        let idle = scope.spawn(|| (ask(node, b"").map(|answer| answer.status), begun.elapsed()));
        let body = scope.spawn(|| {
            let bytes = format!("POST /v1/deployments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n{{");
            let answer = ask(node, bytes.as_bytes()).unwrap();
            assert_eq!(answer.code(), "request_timed_out");
            (Some(answer.status), begun.elapsed())
        });
        let trickle = scope.spawn(|| {
            let mut stream = connect(node, unauthenticated(node));
            let head = format!("POST /v1/deployments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            // One byte per second never triggers a read timeout, and never completes.
            while begun.elapsed() < Duration::from_secs(29) {
                stream.write_all(b" ").and_then(|()| stream.flush()).unwrap();
                std::thread::sleep(Duration::from_secs(1));
            }
            (exchange(&mut stream, b"").map(|answer| answer.status), begun.elapsed())
        });
        // Many idle connections must not delay other clients.
        let crowd: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(&node.address).unwrap()).collect();
        let asked = Instant::now();
        assert_eq!(ask(node, &request("GET /v1/nodes", Some(&token))).unwrap().status, 200);
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
        drop(crowd);
        for (what, dawdler, most) in
            [("silent", silent, 8), ("head", head, 14), ("idle", idle, 14), ("body", body, 9), ("trickle", trickle, 36)]
        {
            let (status, took) = dawdler.join().unwrap();
            assert!(took < Duration::from_secs(most), "{what} was waited for: {took:?}");
            assert!(status.is_none_or(|status| status == 408), "{what}: {status:?}");
        }
    });
}
