//! Rate limits per client, which do not affect other clients.

use std::io::{Read as _, Write as _};

use crate::{
    raw_http::{Encrypted, ask, connect, request, unauthenticated},
    test_cluster::Cluster,
};

#[test]
fn a_client_over_its_rate_limit_gets_retry_after_and_others_are_served() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let (busy, calm) = (node.token(&["busy", "--role", "view"]), node.token(&["calm", "--role", "view"]));
    // Pipelined on one connection.
    let one = format!("GET /v1/why/nothing HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {busy}\r\n\r\n");
    let many = [one.repeat(4000).into_bytes(), request("GET /v1/why/nothing", Some(&busy))].concat();
    let mut stream = connect(node, unauthenticated(node));
    let mut heard = Vec::new();
    for part in many.chunks(16 * 1024) {
        stream.write_all(part).unwrap();
        stream.flush().unwrap();
        stream.sock.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            heard.extend_from_slice(&buffer[..count]);
        }
    }
    stream.sock.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let _ = stream.read_to_end(&mut heard);
    let heard = String::from_utf8(heard).unwrap();
    let (served, refused) = (heard.matches("HTTP/1.1 404").count(), heard.matches("HTTP/1.1 429").count());
    assert!(served >= 500 && refused > 100, "{served} served, {refused} refused");
    assert!(heard.contains("too_many_requests") && heard.contains("retry-after: 1"), "nobody said when to come back");
    assert_eq!(ask(node, &request("GET /v1/nodes", Some(&calm))).unwrap().status, 200, "another pays for it");
    node.expect_json(&["node", "ls"]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(ask(node, &request("GET /v1/nodes", Some(&busy))).unwrap().status, 200, "it is never forgiven");
    let figures = ask(node, &request("GET /metrics", Some(&calm))).unwrap().body;
    assert!(figures.contains("longshore_requests_refused_total{code=\"too_many_requests\"}"), "{figures}");
}

#[test]
fn event_streams_are_limited_per_client() {
    let cluster = Cluster::exposed(1);
    let node = &cluster.nodes[0];
    let (greedy, calm) = (node.token(&["greedy", "--role", "view"]), node.token(&["calm", "--role", "view"]));
    let follow = |token: &str| {
        let mut stream = connect(node, unauthenticated(node));
        stream.write_all(&request("GET /v1/events", Some(token))).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (String::from_utf8(head.to_vec()).unwrap(), stream)
    };
    let mut open: Vec<(String, Encrypted)> = (0..64).map(|_| follow(&greedy)).collect();
    assert!(open.iter().all(|(status, _)| status == "HTTP/1.1 200"));
    assert_eq!(follow(&greedy).0, "HTTP/1.1 429");
    assert_eq!(follow(&calm).0, "HTTP/1.1 200");
    assert_eq!(ask(node, &request("GET /v1/nodes", Some(&greedy))).unwrap().status, 200, "asking is something else");
    open.truncate(60);
    crate::test_cluster::eventually("those that left make room", || {
        (follow(&greedy).0 == "HTTP/1.1 200").then_some(())
    });
}
