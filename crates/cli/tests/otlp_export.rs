//! A daemon with an OTLP endpoint exports traces and metrics to it.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::Stdio,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use test_cluster::{Cluster, eventually, longshore};

/// Received requests: paths and bodies.
type Arrived = Arc<Mutex<Vec<(String, Value)>>>;

/// Accepts every request.
fn collector() -> (String, Arrived) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let arrived = Arrived::default();
    let kept = Arc::clone(&arrived);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut head = Vec::new();
            while !head.ends_with(&["\r\n".to_owned()]) {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    break;
                }
                head.push(line.to_lowercase());
            }
            let length = head.iter().find_map(|line| line.strip_prefix("content-length:")).unwrap_or("0");
            let mut body = vec![0; length.trim().parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            assert!(head.iter().any(|line| line == "x-key: sesame\r\n"), "{head:?}");
            assert!(head.iter().any(|line| line == "content-type: application/json\r\n"), "{head:?}");
            let path = head[0].split(' ').nth(1).unwrap().to_owned();
            kept.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        }
    });
    (address, arrived)
}

fn start(cluster: &mut Cluster, variables: &[(&str, &str)]) {
    let mut node = cluster.new_node("n1");
    let log = fs::File::create(node.data.with_extension("log")).unwrap();
    let mut command = longshore();
    command.args(["server", "--node", "n1", "--data-dir"]).arg(&node.data).envs(variables.iter().copied());
    node.daemon = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    cluster.nodes = vec![node];
    eventually("it answers", || cluster.nodes[0].json(&["node", "ls"]));
}

fn spans(arrived: &Arrived) -> Vec<Value> {
    let arrived = arrived.lock().unwrap();
    let traces = arrived.iter().filter(|(path, _)| path == "/v1/traces");
    traces
        .flat_map(|(_, body)| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone())
        .collect()
}

/// The newest value of a metric: counters are sums, the others gauges.
fn figure(arrived: &Arrived, name: &str) -> Option<Value> {
    let arrived = arrived.lock().unwrap();
    let newest = &arrived.iter().rfind(|(path, _)| path == "/v1/metrics")?.1;
    let metrics = newest["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array()?;
    let metric = metrics.iter().find(|metric| metric["name"] == name)?;
    let shape = if name.ends_with("_total") { "sum" } else { "gauge" };
    metric[shape]["dataPoints"].as_array()?.first().cloned()
}

/// The spans from the start of a replica back to the request.
fn chain(arrived: &Arrived) -> Option<[Value; 4]> {
    let spans = spans(arrived);
    let parent = |of: &Value| spans.iter().find(|span| span["spanId"] == of["parentSpanId"]).cloned();
    spans.iter().filter(|span| span["name"] == "replica.start").find_map(|start| {
        let plan = parent(start)?;
        let commit = parent(&plan)?;
        let request = parent(&commit)?;
        Some([start.clone(), plan, commit, request])
    })
}

#[test]
fn a_request_to_a_follower_and_the_decision_of_the_leader_share_one_trace() {
    let (address, arrived) = collector();
    let mut cluster = Cluster::of(3);
    for node in &mut cluster.nodes {
        node.kill();
        node.variables = vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=sesame".to_owned()),
            ("OTEL_BSP_SCHEDULE_DELAY", "200".to_owned()),
        ];
        node.start();
    }
    // All nodes are ready first, so that the request triggers the pass that places its replicas.
    let leader = eventually("a leader that hears all", || {
        let nodes = cluster.nodes[0].json(&["node", "ls"])?;
        let ready = nodes.as_array()?.iter().filter(|node| node["health"] == "ready").count();
        (ready == 3).then(|| cluster.leader())
    });
    let follower = &cluster.nodes[(leader + 1) % 3];
    cluster.apply((leader + 1) % 3);
    // The trace context may arrive after the decision on a busy machine, so replicas are requested one by one.
    let mut count = 3;
    let chain = eventually("the whole story", || {
        cluster.running(leader, count);
        chain(&arrived).or_else(|| {
            count += 1;
            follower.expect_json(&["scale", "shop", &format!("web={count}")]);
            None
        })
    });
    let names: Vec<&str> = chain.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["replica.start", "plan", "commit"]);
    assert!(names[3].starts_with("POST /v1/deployments"), "{names:?}");
    assert!(chain.iter().all(|span| span["traceId"] == chain[0]["traceId"]), "{chain:#?}");
    cluster.nodes[0].expect_json(&["rm", "shop"]);
}

#[test]
fn one_trace_spans_the_request_the_plan_and_the_start_of_the_replica() {
    let (address, arrived) = collector();
    let mut cluster = Cluster::of(1);
    cluster.nodes[0].kill();
    let endpoint = format!("http://{address}");
    start(
        &mut cluster,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=sesame"),
            ("OTEL_BSP_SCHEDULE_DELAY", "200"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "500"),
        ],
    );
    // Requests before the first pass of a leader have no trace of their own.
    eventually("a pass was made", || {
        (figure(&arrived, "longshore_scheduler_passes_total")?["asInt"] != "0").then_some(())
    });
    cluster.apply(0);
    cluster.running(0, 3);
    let chain = eventually("the whole story", || chain(&arrived));
    let names: Vec<&str> = chain.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["replica.start", "plan", "commit", "POST /v1/deployments"]);
    assert!(chain.iter().all(|span| span["traceId"] == chain[0]["traceId"]), "{chain:#?}");
    let time = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    for span in &chain {
        assert!(time(span, "startTimeUnixNano") <= time(span, "endTimeUnixNano"), "{span:#}");
    }

    eventually("figures", || {
        let point = figure(&arrived, "longshore_replicas")?;
        (point["asInt"] == "3" && point["attributes"][0]["value"]["stringValue"] == "running").then_some(())
    });
    cluster.nodes[0].expect_json(&["rm", "shop"]);
    eventually("gone", || cluster.nodes[0].json(&["status"])?["replicas"].as_array()?.is_empty().then_some(()));
}

#[test]
fn an_unusable_or_unreachable_collector_is_logged_and_changes_nothing() {
    let mut cluster = Cluster::of(1);
    cluster.nodes[0].kill();
    fs::remove_dir_all(&cluster.nodes[0].data).unwrap();
    start(&mut cluster, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1")]);
    let log = |cluster: &Cluster| fs::read_to_string(cluster.nodes[0].data.with_extension("log")).unwrap();
    assert!(log(&cluster).contains("only `http://HOST:PORT` is sent to"), "{}", log(&cluster));
    cluster.nodes[0].kill();

    let away = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), ("OTEL_BSP_SCHEDULE_DELAY", "100")];
    start(&mut cluster, &away);
    for _ in 0..5 {
        cluster.nodes[0].expect_json(&["status"]);
    }
    eventually("the failed export is logged", || {
        log(&cluster).contains("traces and metrics cannot be sent").then_some(())
    });
    cluster.nodes[0].expect_json(&["node", "ls"]);
    assert_eq!(log(&cluster).matches("cannot be sent").count(), 1, "once: {}", log(&cluster));
}
