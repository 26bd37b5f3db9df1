//! `longshore run`: commands run once beside a service, with containers on a real engine and with plain processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/lone_engine.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod lone_engine;

use std::{
    io::Write as _,
    path::Path,
    process::{Output, Stdio},
};

use lone_engine::Machine;

const SHOP: &str = "\
name: shop
services:
  db:
    image: busybox:1
    pull_policy: never
    command: [sh, -c, \"echo kept > /data/row; exec sleep 600\"]
    environment: { LEVEL: service }
    volumes: [ \"data:/data\" ]
    stop_grace_period: 0s
  tool:
    image: none
    x-longshore: { driver: exec }
    command: [sleep, \"600\"]
    environment: { LEVEL: service }
    depends_on: [ db ]
    stop_grace_period: 0s
volumes: { data: {} }
";

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn done(text: &str) -> (i32, String, String) {
    (0, text.to_owned(), String::new())
}

/// Runs a command of the deployment with something on its standard input.
fn with_input(machine: &Machine, folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = machine.longshore();
    command.current_dir(folder).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The deployments there are, by name.
fn deployments(machine: &Machine) -> Vec<String> {
    let status = machine.json(&["status"]).unwrap();
    let rows = status["deployments"].as_array().unwrap().iter();
    rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_command_is_run_once_with_what_its_service_has_and_leaves_nothing_behind() {
    let machine = Machine::start();
    let folder = machine.write("shop", "compose.yaml", SHOP);
    machine.tell(&folder, &["apply", "--wait"]);
    let run = |arguments: &[&str]| said(&machine.ask_in(&folder, &[&["run", "--rm", "-T"], arguments].concat()));
    for service in ["db", "tool"] {
        assert_eq!(run(&[service, "sh", "-c", "echo out; echo err >&2; exit 3"]), (3, "out".into(), "err".into()));
        assert_eq!(run(&["-e", "LEVEL=mine", service, "sh", "-c", "echo $LEVEL"]), done("mine"));
        assert_eq!(run(&[service, "sh", "-c", "echo $LEVEL"]), done("service"));
        let (code, _, error) = run(&[service, "no-such-program"]);
        assert_eq!(code, 127, "{error}");
        let fed = with_input(&machine, &folder, &["run", "--rm", "-T", service, "cat"], "one\ntwo");
        assert_eq!(said(&fed), done("one\ntwo"));
    }
    // The volume is in use by the service, and is the same one.
    assert_eq!(run(&["db", "cat", "/data/row"]), done("kept"));
    assert_eq!(run(&["db", "sh", "-c", "echo changed > /data/row"]), done(""));
    assert_eq!(machine.file_in("shop-db-0", "/data/row"), "changed");
    assert_eq!(machine.replica("shop-db-0").unwrap()["restarts"], 0);
    assert_eq!(deployments(&machine), ["shop"], "nothing is left of the jobs");
    let containers = machine.docker(&["ps", "-a", "--format", "{{.Names}}"]);
    assert_eq!(containers.lines().count(), 1, "{containers}");
    assert_eq!(machine.docker(&["volume", "ls", "-q"]).lines().count(), 1);
}

#[test]
fn without_rm_the_output_of_a_job_stays_until_down_and_one_in_the_background_has_an_id() {
    let machine = Machine::start();
    let folder = machine.write("shop", "compose.yaml", SHOP);
    machine.tell(&folder, &["apply", "--wait"]);
    for service in ["db", "tool"] {
        let started = said(&machine.ask_in(&folder, &["run", "-d", service, "sh", "-c", "echo in the background"]));
        let id = started.1.clone();
        assert!(started.0 == 0 && id.starts_with("shop-run-"), "{started:?}");
        machine.eventually("the job is completed", || (machine.replica(&id)?["state"] == "completed").then_some(()));
        let logs = machine.tell(&folder, &["logs", &id]);
        assert!(logs.contains("in the background"), "{logs}");
        let failed = said(&machine.ask_in(&folder, &["run", "-T", service, "sh", "-c", "echo alas; exit 9"]));
        assert_eq!((failed.0, failed.1.as_str()), (9, "alas"));
    }
    assert_eq!(deployments(&machine).len(), 5);
    // The folder still means its own project.
    machine.tell(&folder, &["down"]);
    assert!(deployments(&machine).is_empty());
}

#[test]
fn a_job_waits_for_what_its_service_depends_on_unless_told_otherwise() {
    let machine = Machine::start();
    let folder = machine.write("shop", "compose.yaml", SHOP);
    machine.tell(&folder, &["apply", "--wait"]);
    machine.tell(&folder, &["stop"]);
    let at_once = said(&machine.ask_in(&folder, &["run", "--rm", "-T", "--no-deps", "tool", "echo", "now"]));
    assert_eq!(at_once, done("now"));
    let waiting = machine.ask_in(&folder, &["run", "-d", "tool", "echo", "later"]);
    let id = said(&waiting).1;
    machine.eventually("the job waits for its dependency", || {
        (machine.replica(&id)?["code"] == "dependency_not_ready").then_some(())
    });
    machine.tell(&folder, &["up", "-d"]);
    machine.eventually("the job is completed", || (machine.replica(&id)?["state"] == "completed").then_some(()));
}
