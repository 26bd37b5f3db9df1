//! The difference between two manifests, under the fields' manifest names, checked against the spec hash.

use std::sync::{Arc, LazyLock};

use longshore_compose::{hash::spec_hash, load_text};
use longshore_model::{DeploymentSpec, Effect, ServiceDiff, ServiceSpec};
use longshore_scheduler::diff;
use proptest::{prelude::*, sample::Index};
use serde_json::Value;

use proptest_config::cases;

#[path = "../src/proptest_config.rs"]
mod proptest_config;

fn manifest(text: &str) -> DeploymentSpec {
    let (spec, _) =
        load_text("f.yaml", text, "shop", "default").unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    spec
}

/// The difference as text, one line per service and field.
fn summary(old: &str, new: &str) -> String {
    let found = diff(&manifest(old), &manifest(new));
    let mut lines = Vec::new();
    for (service, change) in &found.services {
        lines.push(format!("{service} {}", change.as_str()));
        lines.extend(change.fields().iter().map(|field| format!("  {field}")));
    }
    lines.extend(found.shared.iter().map(ToString::to_string));
    lines.join("\n")
}

#[test]
fn services_are_added_removed_changed_or_unchanged() {
    let found = summary(
        "services: { api: { image: 'api:1' }, web: { image: 'web:1' }, old: { image: 'old:1' } }",
        "services: { api: { image: 'api:1' }, web: { image: 'web:2' }, new: { image: 'new:1' } }",
    );
    insta::assert_snapshot!(found, @r"
    api unchanged
    new added
    old removed
    web destructive
      image: web:1 → web:2
    ");
}

#[test]
fn an_environment_variable_is_listed_by_its_name() {
    let found = summary(
        "services: { web: { image: w, environment: { A: '1', B: x }, labels: { team: a }, deploy: { replicas: 2 } } }",
        "services: { web: { image: w, environment: { A: '2', C: y }, labels: { team: a }, deploy: { replicas: 3 } } }",
    );
    insta::assert_snapshot!(found, @r"
    web destructive
      deploy.replicas: 2 → 3
      environment.A: 1 → 2
      environment.B: x → (none)
      environment.C: (none) → y
    ");
}

#[test]
fn counts_placement_policies_and_service_labels_change_in_place() {
    let found = summary(
        "services: { web: { image: w, deploy: { replicas: 2, labels: { tier: a }, placement: { constraints: \
         ['node.labels.zone == east'] }, update_config: { parallelism: 1 } } } }",
        "services: { web: { image: w, deploy: { replicas: 5, labels: { tier: b }, placement: { constraints: \
         ['node.labels.zone == west'] }, update_config: { parallelism: 2, order: start-first }, restart_policy: \
         { condition: on-failure } }, x-longshore: { priority: 70, rebalance: on-join } } }",
    );
    insta::assert_snapshot!(found, @r#"
    web in_place
      deploy.labels.tier: a → b
      deploy.placement.constraints: ["node.labels.zone == east"] → ["node.labels.zone == west"]
      deploy.replicas: 2 → 5
      deploy.restart_policy.condition: any → on-failure
      deploy.update_config.order: (none) → start-first
      deploy.update_config.parallelism: 1 → 2
      x-longshore.priority: 50 → 70
      x-longshore.rebalance: on → on-join
    "#);
}

#[test]
fn a_changed_limit_is_destructive() {
    let found = summary(
        "services: { web: { image: w, deploy: { resources: { limits: { cpus: '0.5', memory: 256M } } } } }",
        "services: { web: { image: w, deploy: { resources: { limits: { cpus: '1.25', memory: 1G } } } } }",
    );
    insta::assert_snapshot!(found, @r"
    web destructive
      deploy.resources.limits.cpus: 0.5 → 1.25
      deploy.resources.limits.memory: 256 MiB → 1 GiB
    ");
}

#[test]
fn a_secret_is_listed_by_its_name_only() {
    let found = summary(
        "services: { web: { image: w, secrets: [one] } }\nsecrets: { one: { environment: ONE } }",
        "services: { web: { image: w, secrets: [two] } }\nsecrets: { two: { environment: TWO } }",
    );
    insta::assert_snapshot!(found, @r"
    web destructive
      secrets./run/secrets/one.source: shop_one → (none)
      secrets./run/secrets/two.source: (none) → shop_two
    ");
}

#[test]
fn another_kind_is_destructive_even_with_the_same_hash() {
    let old = "services: { web: { image: w } }";
    let new = "services: { web: { image: w, deploy: { mode: global } } }";
    let (before, after) = (manifest(old), manifest(new));
    assert_eq!(before.services["web"].spec_hash, after.services["web"].spec_hash);
    insta::assert_snapshot!(summary(old, new), @r"
    web destructive
      deploy.mode: replicated → global
      deploy.replicas: 1 → (none)
      x-longshore.placement: spread → global
    ");
}

#[test]
fn the_order_and_notation_of_ports_are_not_significant() {
    let old = "services: { web: { image: w, ports: ['8080:80', '53:53/udp'] } }";
    let new = "services: { web: { image: w, ports: [{ target: 53, published: '53', protocol: udp }, '8080:80/tcp'] } }";
    assert_eq!(summary(old, new), "web unchanged");
}

#[test]
fn changes_outside_of_services_are_listed_and_destroy_nothing() {
    let found = summary(
        "services: { web: { image: w } }\nnetworks: { default: { labels: { a: '1' } } }",
        "services: { web: { image: w } }\nnetworks: { default: { labels: { a: '2' } } }",
    );
    insta::assert_snapshot!(found, @r"
    web unchanged
    networks.default.labels.a: 1 → 2
    ");
}

/// A service with a value in every field.
const EVERYTHING: &str = r#"
services:
  db: { image: db }
  init: { image: init, deploy: { mode: replicated-job } }
  web:
    image: web:1
    command: [serve, --port, "80"]
    entrypoint: [/entry]
    environment: { A: "1", B: two, C: }
    labels: { team: core }
    annotations: { note: x }
    healthcheck: { test: [CMD, check], interval: 10s, timeout: 3s, retries: 4, start_period: 5s, start_interval: 2s }
    stop_signal: SIGINT
    stop_grace_period: 20s
    user: "1000"
    group_add: [audio]
    working_dir: /app
    hostname: h
    domainname: example.com
    ports: ["8080:80", { target: 53, published: "53", protocol: udp, mode: host, host_ip: 10.0.0.1 }]
    volumes: ["data:/data", "/host:/host:ro", "/anonymous"]
    tmpfs: ["/tmp:size=64m"]
    networks: { default: { aliases: [w], priority: 3 } }
    secrets: [{ source: s, target: t, mode: "0400", uid: "1", gid: "2" }]
    configs: [c]
    cap_add: [A]
    cap_drop: [ALL]
    security_opt: ["x:y"]
    devices: ["/dev/a:/dev/a"]
    device_cgroup_rules: ["c 1:3 mr"]
    sysctls: { net.a: "1" }
    ulimits: { nofile: 5 }
    storage_opt: { size: 1g }
    shm_size: 64m
    memswap_limit: 200m
    mem_swappiness: 10
    cpu_shares: 100
    cpuset: "0,1"
    oom_score_adj: 5
    pids_limit: 10
    dns: [1.1.1.1]
    dns_search: [a.example]
    dns_opt: [rotate]
    extra_hosts: ["a=1.2.3.4"]
    read_only: true
    init: true
    logging: { driver: json-file, options: { max-size: 1m } }
    pid: host
    ipc: host
    uts: host
    userns_mode: host
    cgroup: host
    cgroup_parent: p
    runtime: r
    pull_policy: always
    platform: linux/amd64
    gpus: [{ count: 1, driver: d, capabilities: [gpu], options: { a: b } }]
    post_start: [{ command: [a], user: root, working_dir: /, environment: { X: "1" }, privileged: true }]
    pre_stop: [{ command: [b] }]
    depends_on: { db: { condition: service_healthy, restart: true }, init: { condition: service_started, required: false } }
    deploy:
      replicas: 1
      labels: { tier: web }
      placement: { constraints: ["node.labels.zone == east"], preferences: [{ spread: node.labels.zone }], max_replicas_per_node: 2 }
      resources:
        limits: { cpus: "0.5", memory: 256M }
        reservations: { cpus: "0.25", memory: 128M, generic_resources: [{ discrete_resource_spec: { kind: ssd, value: 2 } }] }
      update_config: { parallelism: 2, delay: 3s, order: start-first, monitor: 6s, failure_action: pause, max_failure_ratio: 0.25 }
      rollback_config: { parallelism: 3, delay: 1s, order: stop-first, monitor: 2s, failure_action: continue, max_failure_ratio: 0.5 }
      restart_policy: { condition: on-failure, delay: 2s, max_attempts: 4, window: 9s }
    x-longshore:
      affinities: [{ match: "node.labels.disk == ssd", weight: 50 }]
      spread: [{ over: node.labels.zone, weight: 60, targets: { east: 70, west: 30 } }]
      priority: 60
      canary: 1
      auto_promote: true
      step_timeout: 90s
      disconnect: { lost_after: 5m, replace: false, reconcile: keep_original }
      reschedule: { attempts: 3, interval: 1h, delay: 10s, delay_function: fibonacci, max_delay: 5m }
      rebalance: off
      distinct_property: [{ attribute: node.labels.rack, limit: 2 }]
      near: [db]
      away_from: [{ service: init, weight: 20 }]
      max_skew: 2
      devices: [{ device: nvidia/gpu, count: 1, constraints: ["memory >= 4"], affinities: [{ match: "name == a100", weight: 10 }] }]
volumes: { data: { x-longshore: { exclusive: true } } }
secrets: { s: { environment: S } }
configs: { c: { content: x } }
"#;

static BASE: LazyLock<Arc<ServiceSpec>> = LazyLock::new(|| Arc::clone(&manifest(EVERYTHING).services["web"]));

/// The path of every value that can be mutated, as keys and positions.
fn paths(value: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    if !path.is_empty() {
        found.push(path.clone());
    }
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, child)| (key.clone(), child)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, child)| (at.to_string(), child)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (key, child) in children {
        path.push(key);
        paths(child, path, found);
        path.pop();
    }
}

fn at<'v>(value: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, key| match value {
        Value::Object(map) => map.get_mut(key),
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Names of enum variants; wherever an enum is expected some of them are valid.
const VARIANT_NAMES: &[&str] = &[
    "x",
    "exec",
    "batch",
    "system",
    "tcp",
    "ingress",
    "read_write",
    "deployment",
    "secret",
    "pack",
    "global",
    "all",
    "no",
    "as_many_as_fit",
    "start-first",
    "stop-first",
    "rollback",
    "pause",
    "any",
    "none",
    "manual",
    "yes",
    "keep_replacement",
    "constant",
    "on",
    "on-join",
    "service_completed_successfully",
    "never",
    "tty",
    "hard",
];

/// Other values to try in place of a value, most similar first.
fn others(value: &Value) -> Vec<Value> {
    let names = VARIANT_NAMES.iter().map(|word| Value::from(*word));
    let mut others = match value {
        Value::Null => vec![Value::from(1), Value::from("x")],
        Value::Bool(is) => vec![Value::from(!is)],
        Value::Number(number) => vec![Value::from(number.as_i64().unwrap_or(0) + 1)],
        Value::String(text) => {
            let mut others = vec![Value::from(format!("{text}x"))];
            others.extend(names);
            others
        }
        Value::Array(items) => match items.as_slice() {
            [first, .., last] if first != last => vec![Value::from(items[1..].to_vec())],
            _ => Vec::new(),
        },
        Value::Object(map) => {
            let less = |key: &String| {
                let mut map = map.clone();
                map.remove(key);
                Value::from(map)
            };
            map.keys().map(less).collect()
        }
    };
    others.push(Value::Null);
    others.retain(|other| other != value);
    others
}

/// The spec with one value changed; `None` if no other value is valid there.
fn changed(spec: &ServiceSpec, place: Index, other: Index) -> Option<ServiceSpec> {
    let value = serde_json::to_value(spec).expect("a spec serialises");
    let mut found = Vec::new();
    paths(&value, &mut Vec::new(), &mut found);
    found.retain(|path| path[0] != "spec_hash");
    let path = place.get(&found);
    let candidates = others(at(&mut value.clone(), path)?);
    let first = if candidates.is_empty() { return None } else { other.index(candidates.len()) };
    (0..candidates.len()).find_map(|offset| {
        let mut changed = value.clone();
        *at(&mut changed, path)? = candidates[(first + offset) % candidates.len()].clone();
        let mut spec: ServiceSpec = serde_json::from_value(changed).ok()?;
        // A per-node service has no replica count, and the manifest reader rejects one.
        if spec.kind.is_per_node() {
            spec.replicas = 1;
        }
        spec.spec_hash = spec_hash(&spec);
        Some(spec)
    })
}

fn deployment(spec: &ServiceSpec) -> DeploymentSpec {
    DeploymentSpec { services: [("web".into(), Arc::new(spec.clone()))].into(), ..DeploymentSpec::default() }
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn a_change_is_destructive_exactly_if_the_spec_hash_or_kind_differs(
        changes in prop::collection::vec((any::<Index>(), any::<Index>()), 0..4),
    ) {
        let old = ServiceSpec::clone(&BASE);
        let mut new = old.clone();
        for (place, other) in changes {
            new = changed(&new, place, other).unwrap_or(new);
        }
        let found = diff(&deployment(&old), &deployment(&new));
        let change = &found.services["web"];
        let recreates = change.fields().iter().any(|field| field.effect == Effect::Recreates);
        let program = (&old.spec_hash, old.kind) != (&new.spec_hash, new.kind);
        prop_assert_eq!(program, matches!(change, ServiceDiff::Destructive(_)), "{:?}", change);
        prop_assert_eq!(program, recreates, "{:?}", change);
        prop_assert_eq!(!program && old != new, matches!(change, ServiceDiff::InPlace(_)), "{:?}", change);
        prop_assert_eq!(old == new, *change == ServiceDiff::Unchanged);
        prop_assert_eq!(old == new, found.is_empty());
    }
}
