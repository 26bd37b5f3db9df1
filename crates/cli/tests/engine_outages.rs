//! One host whose engine is absent, stopped, killed or rebooted, and several nodes on one engine: what a user of one
//! server does to it.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/engine_host.rs"]
mod engine_host;

use std::{collections::BTreeSet, fs, process::Stdio, time::Instant};

use engine_host::{Host, signal};
use rustix::process::Signal;
use serde_json::Value;

/// A service, and a job that has done its work.
const MANIFEST: &str = "\
name: shop
services:
  web:
    image: busybox:1
    pull_policy: never
    command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 1 & wait $$!; done\"]
    deploy:
      replicas: 3
  migrate:
    image: busybox:1
    pull_policy: never
    command: [\"true\"]
    deploy:
      mode: replicated-job
";

fn replicas(status: &Value, service: &str) -> Vec<Value> {
    status["replicas"].as_array().unwrap().iter().filter(|row| row["service"] == service).cloned().collect()
}

/// Waits until the service runs at full strength, which was never restarted by the control plane.
fn all_run(host: &Host, when: &str) -> Vec<String> {
    let since = Instant::now();
    let status = host.eventually(when, || {
        let status = host.json(&["status"])?;
        let runs = |row: &Value| row["state"] == "running" && row["code"].is_null();
        let is_up = replicas(&status, "web").iter().filter(|row| runs(row)).count() == 3
            && replicas(&status, "migrate").iter().all(|row| row["state"] == "completed")
            && host.running().len() == 3;
        is_up.then_some(status)
    });
    println!("{when}: everything runs {:.1} s after the engine's return", since.elapsed().as_secs_f32());
    for row in replicas(&status, "web") {
        assert_eq!((&row["restarts"], &row["generation"]), (&0.into(), &1.into()), "{when}: {row:#}");
    }
    host.running()
}

#[test]
fn an_engine_that_comes_goes_and_returns_in_any_order_costs_no_replica() {
    let mut host = Host::new();
    host.start_daemon(&[]);
    host.apply(MANIFEST);
    let drivers = |host: &Host| host.json(&["node", "inspect", "box"]).map(|node| node["drivers"].clone());
    host.eventually("the node is there without an engine", || {
        drivers(&host).filter(|drivers| *drivers == serde_json::json!(["exec"]))
    });
    host.start_engine(&[]);
    host.import_image();
    all_run(&host, "docker was installed after longshore");

    host.stop_engine();
    host.start_engine(&[]);
    all_run(&host, "docker was restarted");

    host.kill_engine();
    host.start_engine(&[]);
    all_run(&host, "docker was killed");

    host.stop_engine();
    host.eventually("the driver is left out of a node whose engine stays away", || {
        drivers(&host).filter(|drivers| *drivers == serde_json::json!(["exec"]))
    });
    host.start_engine(&[]);
    all_run(&host, "docker was away for long");

    host.power_off();
    host.start_engine(&[]);
    host.start_daemon(&[]);
    all_run(&host, "rebooted, docker first");

    host.power_off();
    host.start_daemon(&[]);
    host.eventually("the daemon answers", || host.json(&["status"]));
    host.start_engine(&[]);
    all_run(&host, "rebooted, longshore first");

    host.stop_engine();
    host.start_engine(&["--live-restore"]);
    let before = all_run(&host, "docker was upgraded");
    host.stop_engine();
    host.start_engine(&["--live-restore"]);
    assert_eq!(all_run(&host, "docker was upgraded and kept its containers"), before, "something was restarted");
    host.kill_daemon();
    host.start_daemon(&[]);
    assert_eq!(all_run(&host, "longshore was upgraded"), before, "something was restarted");
}

/// Containers that know each other by name, with a page each.
const PAGES: &str = "\
name: shop
services:
  web:
    image: busybox:1
    pull_policy: never
    command: [sh, -c, \"mkdir -p /tmp/www; echo hello > /tmp/www/index.html; httpd -p 80 -h /tmp/www; trap 'exit 0' TERM; while :; do sleep 1 & wait $$!; done\"]
    deploy:
      replicas: 6
";

fn nodes_of_replicas(host: &Host) -> Option<(usize, BTreeSet<String>)> {
    let status = host.json(&["status"])?;
    let rows = replicas(&status, "web").into_iter().filter(|row| row["state"] == "running");
    let nodes: Vec<String> = rows.map(|row| row["node"].as_str().unwrap().to_owned()).collect();
    Some((nodes.len(), nodes.into_iter().collect()))
}

#[test]
fn three_nodes_on_one_engine_run_containers_and_fewer_nodes_are_what_the_next_up_says() {
    let mut host = Host::new();
    host.start_engine(&[]);
    host.import_image();
    fs::write(host.path("compose.yaml"), PAGES).unwrap();
    let up = |further: &[&str]| {
        let mut command = host.longshore(&["up", "--node", "box", "--docker"]);
        command.arg(host.socket()).args(further).stdin(Stdio::null());
        let file = |name: &str| fs::File::create(host.path(name)).unwrap();
        command.stdout(file("out")).stderr(file("daemon.log")).spawn().unwrap()
    };
    let mut three = up(&["--nodes", "3"]);
    host.eventually("active", || host.text("out").contains("shop is active").then_some(()));
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(nodes_of_replicas(&host), Some((6, named(&["box", "box-2", "box-3"]))));
    let networks = host.docker(&["network", "ls", "-q", "--filter", "name=longshore_shop_default"]);
    assert_eq!(networks.lines().count(), 1, "{networks}");
    for id in host.docker(&["ps", "-q"]).lines() {
        assert_eq!(host.docker(&["exec", id, "wget", "-qO-", "http://web/"]), "hello");
    }
    let memory = |host: &Host| -> Vec<u64> {
        let nodes = host.json(&["node", "ls"]).unwrap();
        nodes.as_array().unwrap().iter().map(|node| node["memory_bytes"].as_u64().unwrap()).collect()
    };
    let thirds = memory(&host);
    // Leaves everything running.
    signal(&three, Signal::TERM);
    assert!(three.wait().unwrap().success());

    let mut one = up(&[]);
    host.eventually("one node has all the work", || {
        let nodes = host.json(&["node", "ls"])?;
        let is_alone = nodes.as_array()?.len() == 1 && nodes_of_replicas(&host)? == (6, named(&["box"]));
        (is_alone && host.running().len() == 6).then_some(())
    });
    let said = host.text("daemon.log");
    assert!(said.contains("--nodes is 1 now: nodes box-2, box-3 of this machine will be removed"), "{said}");
    let whole = memory(&host);
    assert!(whole[0] >= thirds.iter().sum(), "{whole:?} {thirds:?}");
    host.eventually("their folders are gone", || {
        fs::read_dir(host.path("data/agents")).unwrap().next().is_none().then_some(())
    });
    signal(&one, Signal::INT);
    assert!(one.wait().unwrap().success(), "{}", host.text("daemon.log"));
    assert_eq!(host.running(), [""; 0]);

    let mut again = up(&["--nodes", "2"]);
    host.eventually("two nodes again", || {
        nodes_of_replicas(&host).filter(|found| *found == (6, named(&["box", "box-2"])))
    });
    signal(&again, Signal::INT);
    assert!(again.wait().unwrap().success(), "{}", host.text("daemon.log"));
}

#[test]
fn disk_is_shown_and_only_counted_where_the_operator_gave_it() {
    let manifest = "\
name: many
services:
  web:
    image: none
    command: [sleep, \"600\"]
    x-longshore: { driver: exec }
    deploy: { replicas: 12 }
";
    let mut host = Host::new();
    let running = |host: &Host| {
        let status = host.json(&["status"])?;
        Some(replicas(&status, "web").iter().filter(|row| row["state"] == "running").count())
    };
    host.start_daemon(&["--disk", "20GiB"]);
    host.apply(manifest);
    host.eventually("4 GiB are counted for each", || running(&host).filter(|count| *count == 5));
    let node = host.json(&["node", "inspect", "box"]).unwrap();
    assert_eq!(node["disk_bytes"], 20_u64 << 30);
    let status = host.json(&["status"]).unwrap();
    let waits = replicas(&status, "web").iter().filter(|row| row["code"] == "no_capacity_disk").count();
    assert_eq!(waits, 7, "{status:#}");
    // A node that was recorded with a disk is refreshed.
    host.kill_daemon();
    host.start_daemon(&[]);
    host.eventually("everything runs", || running(&host).filter(|count| *count == 12));
    let node = host.eventually("the free disk is shown", || {
        host.json(&["node", "inspect", "box"]).filter(|node| node["load"]["disk"].is_object())
    });
    assert_eq!(node["disk_bytes"], Value::Null);
    let disk = &node["load"]["disk"];
    assert!(disk["free_bytes"].as_u64() <= disk["total_bytes"].as_u64() && disk["short"].is_boolean(), "{node:#}");
    let text = String::from_utf8(host.longshore(&["node", "inspect", "box"]).output().unwrap().stdout).unwrap();
    assert!(text.lines().any(|line| line.trim_start().starts_with("disk ") && line.contains(" free")), "{text}");
    host.json(&["rm", "many", "--wait"]).unwrap();
}
