//! The process that serves published ports: it outlives the daemon, is replaced by a newer one without a failed request,
//! and is started again when it is killed.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "cli/machine.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod machine;

#[path = "support/load.rs"]
mod load;

#[path = "cli/terminal.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod terminal;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use load::{Load, get};
use machine::Machine;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

fn manifest(machine: &Machine) -> String {
    format!(
        "\
name: shop
services:
  web:
    image: none
    command: [longshore, hello]
    environment:
      GREETING: one
    ports: [\"{}:80\"]
    stop_grace_period: 2s
    deploy:
      replicas: 2
    x-longshore:
      driver: exec
",
        machine.port
    )
}

fn served(machine: &Machine) -> bool {
    get(("127.0.0.1", machine.port)).is_ok()
}

/// A machine whose published port answers.
fn serving() -> Machine {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    machine.write("compose.yaml", &manifest(&machine));
    let applied = machine.ask(&["apply", "-f", "compose.yaml", "--wait"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    machine.wait_for("served", || served(&machine));
    machine
}

/// The dataplane processes of a machine.
fn dataplanes(machine: &Machine) -> Vec<Pid> {
    let data = machine.path("data");
    let data = data.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let words: Vec<&str> = line.split('\0').collect();
        (words.get(1) == Some(&"dataplane") && words.contains(&data)).then(|| Pid::from_raw(pid).unwrap())
    });
    pids.collect()
}

fn only_dataplane(machine: &Machine) -> Pid {
    let running = dataplanes(machine);
    assert_eq!(running.len(), 1, "{running:?}");
    running[0]
}

#[test]
fn a_daemon_that_is_killed_and_started_again_fails_no_request() {
    let mut machine = serving();
    let (dataplane, replicas) = (only_dataplane(&machine), machine.processes());
    let load = Load::start(([127, 0, 0, 1], machine.port));
    for _ in 0..2 {
        machine.kill_daemon();
        std::thread::sleep(Duration::from_secs(1));
        machine.start_daemon(1);
    }
    let outcome = load.end();
    println!("a daemon killed twice: {outcome:?}");
    assert!(outcome.requests > 300, "too few requests to prove anything: {outcome:?}");
    assert_eq!(outcome.failed, 0, "{outcome:?}");
    assert_eq!(only_dataplane(&machine), dataplane);
    assert_eq!(machine.processes(), replicas);
    assert!(machine.json(&["status"])["conditions"].as_array().is_none_or(Vec::is_empty));
}

#[test]
fn the_process_holds_nothing_of_the_daemon_that_started_it() {
    let machine = serving();
    let pid = only_dataplane(&machine).as_raw_nonzero();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let files: Vec<String> =
        open.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_str()?.to_owned())).collect();
    let data = machine.path("data");
    let of_daemon = files.iter().filter(|file| file.starts_with(data.to_str().unwrap()));
    let of_daemon: Vec<&String> = of_daemon.filter(|file| !file.ends_with("/dataplane.log")).collect();
    assert!(of_daemon.is_empty(), "{of_daemon:?}");
}

#[test]
fn a_newer_binary_takes_the_sockets_over_without_a_failed_request() {
    let mut machine = serving();
    let before = only_dataplane(&machine);
    // A connection that is open all the time; the server waits for its request.
    let mut slow = TcpStream::connect(("127.0.0.1", machine.port)).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let load = Load::start(([127, 0, 0, 1], machine.port));
    machine.kill_daemon();
    let newer = machine.path("longshore-newer");
    fs::copy(env!("CARGO_BIN_EXE_longshore"), &newer).unwrap();
    machine.program = newer;
    machine.start_daemon(1);
    machine.wait_for("replaced", || dataplanes(&machine).iter().any(|pid| *pid != before));
    std::thread::sleep(Duration::from_secs(1));
    let outcome = load.end();
    println!("the dataplane upgraded: {outcome:?}");
    assert!(outcome.requests > 200, "too few requests to prove anything: {outcome:?}");
    assert_eq!(outcome.failed, 0, "{outcome:?}");
    assert!(test_kill_process(before).is_ok(), "it waits for its last connection");
    slow.write_all(b"Host: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    slow.read_to_string(&mut page).unwrap();
    assert!(page.contains("one from shop-web-"), "{page}");
    drop(slow);
    machine.wait_for("ended", || dataplanes(&machine).iter().all(|pid| *pid != before));
    assert!(served(&machine));
}

#[test]
fn a_process_that_is_killed_is_back_within_a_second_and_no_replica_is_touched() {
    let machine = serving();
    let (before, replicas) = (only_dataplane(&machine), machine.processes());
    kill_process(before, Signal::KILL).unwrap();
    let killed = Instant::now();
    machine.wait_for("back", || served(&machine));
    let away = killed.elapsed();
    println!("a dataplane killed: away for {away:?}");
    // A second on a quiet machine; tests share one.
    assert!(away < Duration::from_secs(5), "{away:?}");
    assert_ne!(only_dataplane(&machine), before);
    assert_eq!(machine.processes(), replicas);
}

#[test]
fn it_ends_with_the_last_published_port_and_with_its_folder() {
    let mut machine = serving();
    let pid = only_dataplane(&machine);
    assert!(machine.ask(&["rm", "shop"]).status.success());
    machine.wait_for("ended", || dataplanes(&machine).is_empty() && test_kill_process(pid).is_err());
    machine.write("compose.yaml", &manifest(&machine));
    assert!(machine.ask(&["apply", "-f", "compose.yaml", "--wait"]).status.success());
    machine.wait_for("served", || served(&machine));
    assert!(machine.ask(&["stop", "shop"]).status.success());
    machine.kill_daemon();
    fs::rename(machine.path("data"), machine.path("moved")).unwrap();
    machine.wait_for("ended", || dataplanes(&machine).is_empty());
}

#[test]
fn a_daemon_in_the_foreground_takes_the_ports_over_from_the_process() {
    let mut machine = serving();
    let before = only_dataplane(&machine);
    machine.kill_daemon();
    assert!(served(&machine));
    let data = machine.path("data");
    let (data, file) = (data.to_str().unwrap(), machine.path("compose.yaml"));
    let arguments = ["up", "-f", file.to_str().unwrap(), "--node", "n", "--data-dir", data];
    let mut up = terminal::Terminal::run(&arguments, |command| machine.prepare(command));
    machine.wait_for("ended", || dataplanes(&machine).iter().all(|pid| *pid != before));
    machine.wait_for("served", || served(&machine));
    up.press(b"\x03");
    machine.wait_for("closed", || TcpStream::connect(("127.0.0.1", machine.port)).is_err());
}
