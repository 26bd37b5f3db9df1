//! From one manifest text to its spec: the most common keys and their errors.

use longshore_compose::{Diagnostics, load_text};
use longshore_model::{
    DeploymentSpec, ServiceKind, ServiceSpec, Strategy,
    service::{MountSource, PortMode},
    volume::Sharing,
};

fn load(text: &str) -> DeploymentSpec {
    load_text("compose.yaml", text, "shop", "default").unwrap_or_else(|problems| panic!("{problems}")).0
}

fn service(text: &str) -> ServiceSpec {
    let text = format!("services:\n  web:\n    image: web:1\n{}", indent(text, 4));
    (**load(&text).services.get("web").expect("the service")).clone()
}

fn indent(text: &str, by: usize) -> String {
    text.lines().flat_map(|line| [" ".repeat(by), line.to_owned(), "\n".to_owned()]).collect()
}

fn refused(text: &str) -> Diagnostics {
    match load_text("compose.yaml", text, "shop", "default") {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(problems) => problems,
    }
}

#[test]
fn a_flow_mapping_on_one_line_is_a_deployment() {
    let spec = load("services: { web: { image: \"web:1\", deploy: { replicas: 3 } } }");
    let web = &spec.services["web"];
    assert_eq!((web.replicas, web.container.image.as_str(), web.kind), (3, "web:1", ServiceKind::Service));
    assert_eq!(web.spec_hash.0.len(), 64);
}

#[test]
fn global_with_replicas_is_refused_with_the_specified_message() {
    let problems =
        refused("services:\n  web:\n    image: a\n    deploy:\n      mode: global\n      replicas: 2\n").to_string();
    assert!(
        problems.starts_with(
            "compose.yaml:6:17: error: service \"web\" uses placement=global; remove replicas (global runs one replica per \
             ready node)"
        ),
        "{problems}"
    );
}

#[test]
fn short_and_long_syntax_give_the_same_hash() {
    let short = "services: {web: {image: a, ports: ['8080:80', '53:53/udp'], volumes: ['data:/data:ro'],
      command: echo 'a b', environment: [A=1], secrets: [s]}}\nvolumes: {data: }\nsecrets: {s: {external: true}}\n";
    let long = "# another way to say it\nsecrets: {s: {external: true}}\nvolumes: {data: {}}\nservices:\n  web:\n    secrets: [{source: s}]
    environment: {A: '1'}\n    command: [echo, a b]\n    volumes: [{type: volume, target: /data, source: data, read_only: true}]
    ports:\n      - {target: 53, published: 53, protocol: udp}\n      - {target: 80, published: '8080', mode: ingress}
    image: \"a\"\n";
    assert_eq!(load(short).services["web"], load(long).services["web"]);
}

#[test]
fn volumes_are_named_after_the_deployment_unless_they_have_a_name() {
    let spec = load(
        "services: {db: {image: a, volumes: ['d:/d', 'e:/e', 'f:/f']}}
volumes: {d: , e: {external: true, name: real}, f: {name: mine, driver: nfs, x-longshore: {exclusive: true}}}\n",
    );
    let mounts = &spec.services["db"].mounts;
    let name = |at: usize| match &mounts[at].source {
        MountSource::Volume { key, sharing, driver } => (key.to_string(), *sharing, driver.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(name(0), ("shop_d".to_owned(), Sharing::Deployment, None));
    assert_eq!(name(1).0, "real");
    assert_eq!(name(2), ("mine".to_owned(), Sharing::Exclusive, Some("nfs".to_owned())));
    assert!(spec.services["db"].placement.plugins.contains("volume/nfs"));
}

#[test]
fn devices_are_requested_by_type_vendor_model_and_attributes() {
    let spec = service(
        "x-longshore:
  devices:
    - {device: nvidia/gpu/a100, count: 2, constraints: ['memory >= 40 GiB', 'cuda version >= 12.0'], affinities: [{match: 'clock > 1 GHz', weight: -20}, {match: mig is_set}]}
    - {device: nvidia/gpu}
    - {device: fpga}",
    );
    let asked = spec.resources.device_requests.iter().map(|request| format!("{} {request}", request.count));
    let asked: Vec<String> = asked.collect();
    let model = "2 nvidia/gpu/a100 with cuda version >= 12.0 and memory >= 40 GiB";
    assert_eq!(asked, ["1 fpga", "1 nvidia/gpu", model]);
    let liked = spec.resources.device_requests[2].affinities.iter().map(|like| (like.matches.to_string(), like.weight));
    let liked: Vec<(String, i32)> = liked.collect();
    assert_eq!(liked, [("clock > 1 GHz".to_owned(), -20), ("mig is_set".to_owned(), 50)]);
    assert!(spec.resources.devices.is_empty(), "a plain count is another thing");
}

#[test]
fn target_shares_without_binpack_give_a_warning() {
    let file = |placement: &str| {
        format!(
            "services:
  web:
    image: a
    x-longshore:
      spread: [{{over: node.labels.zone, targets: {{east: 60}}}}]
      placement: {placement}
"
        )
    };
    let warned = |placement: &str| {
        let (_, warnings) = load_text("compose.yaml", &file(placement), "shop", "default").unwrap();
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(warned("binpack"), "");
    let said = warned("spread");
    assert!(said.contains(":5:41:") && said.contains("`targets` of service `web` have no effect"), "{said}");
}

#[test]
fn each_error_in_devices_has_its_location() {
    let problems = refused(
        "services:
  web:
    image: a
    x-longshore:
      devices:
        - {count: 1}
        - {device: nvidia//a100}
        - {device: a/b/c/d}
        - {device: gpu, count: 0}
        - {device: gpu, constraints: ['>= 40', memory, 'memory = 40', 'memory is_set 4']}
        - {device: gpu, model: t4}
        - gpu
",
    );
    let locations: Vec<(u32, u32)> =
        problems.iter().map(|found| (found.location.line, found.location.column)).collect();
    let constraints = [(10, 39), (10, 48), (10, 56), (10, 71)];
    assert_eq!(locations[..4], [(6, 11), (7, 20), (8, 20), (9, 32)], "{problems}");
    assert_eq!(locations[4..8], constraints, "{problems}");
    assert_eq!(locations[8..], [(11, 25), (12, 11)], "{problems}");
    let text = problems.to_string();
    for said in [
        "`nvidia//a100` names no device",
        "hint: write `type`, `vendor/type` or `vendor/type/name`, for instance `nvidia/gpu/a100`",
        "`>= 40` does not begin with an attribute of a device, such as `memory`",
    ] {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn every_key_of_x_longshore_is_read() {
    let spec = service(
        "deploy: {mode: replicated-job, replicas: 4}
x-longshore:
  placement: binpack
  pool: batch
  priority: 80
  driver: microvm
  affinities: [{match: node.labels.ssd == yes, weight: -20}]
  spread: [{over: node.labels.zone, targets: {east: 60, west: 40}}]
  distinct_hosts: true
  distinct_property: [{attribute: node.labels.rack, limit: 2}]
  max_skew: 1
  all_or_nothing: true
  secrets_required: [key]
  max_concurrent: 2
  step_timeout: 2m
  canary: 1
  auto_promote: true
  rebalance: on-join
  disconnect: {lost_after: 1m, replace: false, reconcile: best_score}
  reschedule: {attempts: 2, interval: 1h, delay: 5s, delay_function: fibonacci, max_delay: 1m}",
    );
    assert_eq!((spec.kind, spec.placement.strategy, spec.priority), (ServiceKind::Batch, Strategy::Binpack, 80));
    assert_eq!(spec.placement.affinities[0].weight, -20);
    assert_eq!(spec.placement.spread_targets[0].percent["east"], 60);
    assert_eq!((spec.max_concurrent, spec.canary.count), (Some(2), 1));
    assert!(spec.secrets_required.contains("key"));
}

#[test]
fn ports_of_every_form_are_read() {
    let spec = service("ports: [80, '8080:80', '127.0.0.1:9000-9001:90-91', {target: 5, published: 6, mode: host}]");
    let ports: Vec<_> = spec.ports.iter().map(|port| (port.target, port.published, port.mode)).collect();
    assert_eq!(
        ports,
        [
            (5, Some(6), PortMode::Host),
            (80, None, PortMode::Ingress),
            (80, Some(8080), PortMode::Ingress),
            (90, Some(9000), PortMode::Ingress),
            (91, Some(9001), PortMode::Ingress),
        ]
    );
}

#[test]
fn all_problems_of_a_file_are_reported_at_once_with_their_locations() {
    let problems = refused(
        "services:
  web:
    image: a
    helthcheck: {test: x}
    ports: ['99999:80']
    cpu_quota: 5
    deploy:
      replicas: -1
      placement: {constraints: ['node.abc == x']}
    volumes: ['data:/data']
  db:
    image: b
    depends_on: [web, cache]
",
    );
    let locations: Vec<(u32, u32)> =
        problems.iter().map(|found| (found.location.line, found.location.column)).collect();
    assert_eq!(locations, [(4, 5), (5, 13), (6, 5), (8, 17), (9, 33), (10, 15), (13, 23)], "{problems}");
    assert_eq!(
        problems.iter().next().map(ToString::to_string).as_deref(),
        Some(
            "compose.yaml:4:5: error: unknown key `helthcheck` in service `web`\n  |\n4 |     helthcheck: {test: x}\n  |     \
             ^^^^^^^^^^\n\nhint: did you mean `healthcheck`?"
        )
    );
}

#[test]
fn a_named_volume_allows_one_replica() {
    let problems = refused("services: {db: {image: a, deploy: {replicas: 2}, volumes: ['d:/d:ro']}}\nvolumes: {d: }\n")
        .to_string();
    assert!(problems.contains("a service with a named volume has at most one"), "{problems}");
    load("services: {db: {image: a, deploy: {mode: global}, volumes: ['d:/d']}}\nvolumes: {d: }\n");
}

#[test]
fn network_health_checks_are_for_plain_processes_only() {
    for test in ["[HTTP, \"http://localhost:8080/health\"]", "[TCP, \"localhost:8080\"]"] {
        let asked = service(&format!("x-longshore: {{ driver: exec }}\nhealthcheck: {{ test: {test} }}\n"));
        assert_eq!(asked.container.healthcheck.map(|check| check.test.len()), Some(2), "{test}");
        let text = format!("services: {{ web: {{ image: web, healthcheck: {{ test: {test} }} }} }}");
        assert!(
            refused(&text).to_string().contains("asks over the network, which only plain processes have"),
            "{test}"
        );
    }
    let nowhere = "services: { web: { image: web, x-longshore: { driver: exec }, healthcheck: { test: [HTTP] } } }";
    assert!(refused(nowhere).to_string().contains("a URL after `HTTP`"));
}
