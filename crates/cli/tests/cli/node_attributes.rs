//! What an operator declares about a node, by flags and by command, and what the daemon finds by itself.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::Value;

use crate::machine::Machine;

/// A process that needs a node of this pool and data centre, with so many GPUs.
fn manifest(name: &str, pool: &str, gpus: u32) -> String {
    format!(
        "\
name: {name}
services:
  work:
    image: none
    command: [sleep, '600']
    deploy:
      placement: {{ constraints: [node.datacenter == east] }}
      resources:
        limits: {{ memory: 64MiB }}
        reservations:
          generic_resources: [{{ discrete_resource_spec: {{ kind: gpu, value: {gpus} }} }}]
    x-longshore:
      driver: exec
      pool: {pool}
"
    )
}

fn apply(machine: &Machine, name: &str, pool: &str, gpus: u32) {
    machine.write("compose.yaml", &manifest(name, pool, gpus));
    let applied = machine.ask(&["apply", "-f", "compose.yaml"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

fn wait_for_reason(machine: &Machine, name: &str, reason: Option<&str>) {
    let what = format!("{name} with {reason:?}");
    machine.wait_for(&what, || {
        let status = machine.json(&["status", name]);
        let reasons = &status["deployments"][0]["reasons"];
        let is_active = status["deployments"][0]["status"] == "active";
        reason.map_or(is_active, |reason| reasons.as_array().is_some_and(|all| all.contains(&Value::from(reason))))
    });
}

fn node(machine: &Machine) -> Value {
    machine.json(&["node", "inspect", "n"])
}

fn succeed(machine: &Machine, arguments: &[&str]) {
    let output = machine.ask(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

const FLAGS: [&str; 10] = [
    "--pool",
    "batch",
    "--datacenter",
    "east",
    "--label",
    "zone=a",
    "--reserve",
    "memory=1GiB,cpu=500m",
    "--device",
    "gpu=2,vendor=nvidia,model=a100",
];

#[test]
fn what_flags_declare_decides_about_placement_and_a_restart_keeps_what_was_set_since() {
    let mut machine = Machine::new();
    machine.start_daemon_with("n", 1, &FLAGS);
    let declared = node(&machine);
    assert_eq!((&declared["pool"], &declared["datacenter"]), (&"batch".into(), &"east".into()));
    assert_eq!((&declared["labels"]["zone"], &declared["devices"]["gpu"]), (&"a".into(), &2.into()));
    assert_eq!(declared["reserved_memory_bytes"], 1 << 30);
    assert_eq!(declared["device_groups"][0]["model"], "a100");
    apply(&machine, "one", "batch", 2);
    wait_for_reason(&machine, "one", None);
    apply(&machine, "more", "batch", 1);
    wait_for_reason(&machine, "more", Some("no_capacity_device"));
    apply(&machine, "other", "web", 0);
    wait_for_reason(&machine, "other", Some("pool_unavailable"));

    succeed(&machine, &["node", "set", "n", "--device", "gpu=3"]);
    wait_for_reason(&machine, "more", None);
    machine.kill_daemon();
    machine.start_daemon_with("n", 1, &FLAGS);
    assert_eq!(node(&machine)["devices"]["gpu"], 3, "the same flags again undo nothing");
    succeed(&machine, &["node", "set", "n", "--pool", "web"]);
    wait_for_reason(&machine, "other", None);

    let refused = machine.ask(&["node", "set", "n", "--pool", "two words"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("`two words` is no name"), "{message}");
}

#[test]
fn a_degraded_node_takes_new_work_only_by_override() {
    let mut machine = Machine::new();
    machine.start_daemon_with("n", 1, &["--datacenter", "east"]);
    apply(&machine, "before", "default", 0);
    wait_for_reason(&machine, "before", None);
    succeed(&machine, &["node", "degrade", "n"]);
    assert_eq!(node(&machine)["health"], "degraded");
    apply(&machine, "after", "default", 0);
    wait_for_reason(&machine, "after", Some("no_nodes_active"));
    wait_for_reason(&machine, "before", None);
    succeed(&machine, &["node", "override", "n"]);
    wait_for_reason(&machine, "after", None);
    succeed(&machine, &["node", "recover", "n"]);
    assert_eq!(node(&machine)["health"], "ready");
}

#[test]
fn a_node_without_memory_to_give_takes_no_work() {
    let mut machine = Machine::new();
    machine.start_daemon_with("n", 1, &["--datacenter", "east", "--reserve", "memory=100TiB"]);
    apply(&machine, "shop", "default", 0);
    wait_for_reason(&machine, "shop", Some("no_nodes_active"));
}

/// The tool is a stand-in: there is no such device here.
#[test]
fn graphics_processors_are_found_by_their_makers_tool() {
    let mut machine = Machine::new();
    let tools = machine.path("tools");
    fs::create_dir(&tools).unwrap();
    let tool = tools.join("nvidia-smi");
    fs::write(&tool, "#!/bin/sh\nprintf 'NVIDIA A100-SXM4-80GB, 81920\\nNVIDIA A100-SXM4-80GB, 81920\\n'\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    machine.add_to_path(tools);
    machine.start_daemon_with("n", 1, &["--datacenter", "east"]);
    let found = node(&machine);
    assert_eq!(found["devices"]["gpu"], 2);
    assert_eq!(found["device_groups"][0]["attributes"]["memory"], "81920MiB");
    apply(&machine, "shop", "default", 2);
    wait_for_reason(&machine, "shop", None);
    let shown = String::from_utf8(machine.ask(&["node", "inspect", "n"]).stdout).unwrap();
    assert!(shown.contains("2 gpu nvidia a100-sxm4-80gb memory=81920MiB"), "{shown}");
}
