//! The JSON of `sim` commands, field by field.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Tour;

#[derive(Serialize, Deserialize)]
struct Report {
    placements: BTreeMap<String, String>,
    replicas: Vec<Replica>,
    pending: Vec<Pending>,
    deployments: Vec<Deployment>,
    timeline: Vec<Entry>,
    stats: Stats,
    violations: Vec<Violation>,
}

#[derive(Serialize, Deserialize)]
struct Replica {
    id: String,
    deployment: String,
    service: String,
    node: Option<String>,
    state: String,
    code: Option<String>,
    details: BTreeMap<String, Value>,
    generation: u32,
    attempt: u32,
    revision: u64,
    restarts: u32,
}

#[derive(Serialize, Deserialize)]
struct Pending {
    deployment: String,
    service: String,
    count: u32,
    reason: String,
    refused: BTreeMap<String, u32>,
    explain: String,
}

#[derive(Serialize, Deserialize)]
struct Deployment {
    name: String,
    status: String,
    reasons: Vec<String>,
    revision: u64,
    rollout: Option<Rollout>,
}

#[derive(Serialize, Deserialize)]
struct Rollout {
    from: u64,
    to: u64,
    state: String,
    kind: String,
    total_steps: u32,
    current_step: u32,
    failed_steps: u32,
    services: BTreeMap<String, Value>,
    failure_reason: Option<String>,
    failed_replica: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<Awaited>,
}

#[derive(Serialize, Deserialize)]
struct Awaited {
    replica: String,
    code: String,
}

/// An entry of the timeline; fields that do not apply are absent.
#[derive(Serialize, Deserialize)]
struct Entry {
    at_ms: u64,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deployment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    details: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignment: Option<Assignment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Assignment {
    address: String,
    revision: u64,
    spec_hash: String,
    cpu_millis: u64,
    memory_bytes: u64,
    overhead_bytes: u64,
    disk_bytes: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    devices: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    host_ports: Vec<HostPort>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volumes: Vec<Volume>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    secret_versions: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
struct HostPort {
    protocol: String,
    port: u16,
}

#[derive(Serialize, Deserialize)]
struct Volume {
    namespace: String,
    name: String,
}

#[derive(Serialize, Deserialize)]
struct Stats {
    passes: u64,
    placements: u64,
    moves: u64,
    decide_us: u64,
}

#[derive(Serialize, Deserialize)]
struct Violation {
    at_ms: u64,
    invariant: String,
    message: String,
}

#[derive(Serialize, Deserialize)]
struct Why {
    replica: String,
    node: String,
    bucket: String,
    strategy: String,
    nodes: u32,
    candidates: u32,
    refused: BTreeMap<String, u32>,
    best: Vec<Ranked>,
}

#[derive(Serialize, Deserialize)]
struct Ranked {
    node: String,
    keys: Vec<(String, i64)>,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    nodes: u32,
    services: u32,
    replicas: u32,
    placed: usize,
    decide_ms: f64,
    ns_per_replica: f64,
    noop_us: f64,
    one_more_us: f64,
    max_rss_mib: u64,
}

#[derive(Serialize, Deserialize)]
struct Summary {
    seeds: u64,
    events: u64,
    passes: u64,
    seconds: f64,
    failures: Vec<Failed>,
}

#[derive(Serialize, Deserialize)]
struct Failed {
    seed: u64,
    rule: String,
    message: String,
    scenario: String,
}

pub(super) fn shapes(tour: &mut Tour) {
    let report = tour.shape::<Report>("sim run scenario.yaml");
    assert_eq!(report["placements"]["shop-web-0"], "a");
    tour.shape::<Why>("sim run scenario.yaml --why shop-web-0");
    // A scenario with pending replicas, a lost node and a rollout.
    let everything = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/demo.yaml");
    let report = tour.shape::<Report>(&format!("sim run {everything}"));
    for part in ["placements", "replicas", "deployments", "timeline"] {
        assert!(!report[part].as_array().is_some_and(Vec::is_empty), "{part}: {report:#}");
    }
    tour.shape::<Figures>("sim bench --nodes 10 --services 2 --replicas 20");
    let summary = tour.shape::<Summary>("sim fuzz --seeds 0..2");
    assert_eq!((&summary["seeds"], &summary["failures"]), (&2.into(), &serde_json::json!([])));
}
