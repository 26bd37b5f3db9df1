//! Commands that need no daemon, and the daemon itself.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Tour,
    output_formats::{assert_shape, parse_yaml},
    sim_formats,
};

/// An error or warning about a manifest.
#[derive(Serialize, Deserialize)]
struct Diagnostic {
    severity: String,
    message: String,
    file: String,
    line: u32,
    column: u32,
    length: u32,
    excerpt: Option<String>,
    hint: Option<String>,
}

/// A resolved manifest.
#[derive(Serialize, Deserialize)]
struct Resolved {
    name: String,
    networks: BTreeMap<String, Value>,
    services: BTreeMap<String, ResolvedService>,
}

#[derive(Serialize, Deserialize)]
struct ResolvedService {
    image: String,
    spec_hash: String,
    deploy: Value,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

pub(super) fn manifests(tour: &mut Tour) {
    tour.machine.write("wrong.yaml", "name: wrong\nservices: { web: { imag: web } }\n");
    insta::assert_snapshot!(tour.says("config -f compose.yaml"), @r#"
    exit 0
    name: shop
    networks:
    default:
    name: shop_default
    services:
    web:
    command:
    - sleep
    - "600"
    deploy:
    mode: replicated
    replicas: 2
    resources:
    limits:
    memory: "16777216"
    update_config:
    delay: 0s
    failure_action: rollback
    max_failure_ratio: "0"
    monitor: 50ms
    image: "none"
    networks:
    default: {}
    spec_hash: [ID]
    x-longshore:
    driver: exec
    "#);
    insta::assert_snapshot!(tour.says("validate -f compose.yaml"), @r"
    exit 0
    deployment `shop` is valid: 1 service
    ");
    insta::assert_snapshot!(tour.says("validate -f wrong.yaml"), @r"
    exit 2
    wrong.yaml:2:13: error: service `web` has neither `image` nor `build`
    |
    2 | services: { web: { imag: web } }
    | ^^^

    hint: say what to run, for instance `image: nginx:1.27`

    wrong.yaml:2:20: error: unknown key `imag` in service `web`
    |
    2 | services: { web: { imag: web } }
    | ^^^^

    hint: did you mean `image`?

    2 errors
    ");
    let problems = tour.machine.ask(&["validate", "-f", "wrong.yaml", "-o", "json"]);
    let problems: Value = serde_json::from_slice(&problems.stdout).unwrap();
    assert_shape::<Vec<Diagnostic>>(&problems);
    let in_yaml = tour.machine.ask(&["validate", "-f", "wrong.yaml", "-o", "yaml"]);
    assert_eq!(parse_yaml(&String::from_utf8(in_yaml.stdout).unwrap()), problems);
    tour.shape::<Vec<Diagnostic>>("validate -f compose.yaml");
    let resolved = tour.shape::<Resolved>("config -f compose.yaml");
    assert_eq!(resolved["services"]["web"]["deploy"]["replicas"], 2, "{resolved:#}");
    // The printed manifest is a valid Compose file, in which unknown keys are errors.
    tour.machine.write("resolved.yaml", &resolved.to_string());
    assert_eq!(tour.machine.json(&["config", "-f", "resolved.yaml"]), resolved);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = tour.says(&format!("completions {shell}"));
        assert!(script.contains("whatif") && script.contains("rollback"), "{shell}");
    }
    insta::assert_snapshot!(tour.says("completions csh"), @r"
    exit 2
    error: invalid value 'csh' for '<SHELL>'
    [possible values: bash, elvish, fish, powershell, zsh]

    tip: a similar value exists: 'zsh'

    For more information, try '--help'.
    ");
}

pub(super) fn simulations(tour: &mut Tour) {
    tour.machine.write(
        "scenario.yaml",
        "nodes: [ { name: a, cpu: 2, memory: 4GiB } ]\ndeployments: { shop: \"services: { web: { image: web } }\" }\n\
         until: 10s\n",
    );
    let run = tour.says("sim run scenario.yaml");
    let steady = run.lines().filter(|line| !line.starts_with("after")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(steady, @r"
    exit 0

    node is memory cpu on it
    a ready ░░░░░░░░░░ # ░░░░░░░░░░ 0/8 shop-web ●

    shop is active, revision 1

    0m00.000s node_ready a
    0m00.050s placed shop-web-0 on a
    0m02.050s running shop-web-0 on a
    ");
    insta::assert_snapshot!(tour.says("sim run scenario.yaml --why shop-web-0"), @r"
    exit 0
    shop-web-0 is on a: spread, 1 of 1 nodes fit

    NODE RECENT FAILURES SAME SERVICE AFFINITY PENALTY CPU RESERVED ALL REPLICAS
    > a no 0 0 0% 0
    ");
    insta::assert_snapshot!(tour.says("sim run missing.yaml"), @r"
    exit 2
    missing.yaml:1:1: error: the file does not exist

    hint: check the path
    ");
    let bench = tour.says("sim bench --nodes 10 --services 2 --replicas 20");
    assert!(bench.starts_with("exit 0\n20 replicas of 2 services on 10 nodes, 20 placed\n"), "{bench}");
    let fuzz = tour.says("sim fuzz --seeds 0..2");
    assert!(fuzz.starts_with("exit 0\n2 seeds"), "{fuzz}");
    sim_formats::shapes(tour);
}

pub(super) fn daemons(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("server --data-dir data"), @r"
    exit 1
    error: `HERE/data` is in use by another daemon
    ");
    // Without `--node`: the name is the one stored in the data directory.
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    tour.machine.prepare(&mut command);
    command.args(["server", "--data-dir", "made", "--log", "error"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let daemon = command.spawn().unwrap();
    let socket = tour.machine.path("made/longshore.sock");
    tour.machine.wait_for("a socket", || socket.exists());
    thread::sleep(Duration::from_millis(200));
    kill_process(Pid::from_raw(i32::try_from(daemon.id()).unwrap()).unwrap(), Signal::TERM).unwrap();
    let ended = daemon.wait_with_output().unwrap();
    let folder = tour.machine.path("");
    let said = String::from_utf8(ended.stderr).unwrap().replace(folder.to_str().unwrap().trim_end_matches('/'), "HERE");
    insta::assert_snapshot!(said, @r"
    node m1 listens at HERE/made/longshore.sock
    daemon stopped; replicas of this node keep running, and its published ports stay open
    ");
    assert!(ended.status.success());
}
