//! The daemon as a real process: what it runs outlives it, and what it acknowledged is there when it is back.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

const MANIFEST: &str = "\
name: shop
services:
  web:
    image: none
    command: [sleep, \"600\"]
    x-longshore:
      driver: exec
    deploy:
      replicas: 2
";

/// A temporary folder with a running daemon.
struct Machine {
    folder: tempfile::TempDir,
    daemon: Child,
}

impl Machine {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("compose.yaml"), MANIFEST).unwrap();
        let daemon = daemon(folder.path());
        let mut machine = Self { folder, daemon };
        machine.wait_until_ready();
        machine
    }

    fn again(&mut self) {
        self.daemon = daemon(self.folder.path());
        self.wait_until_ready();
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("data/longshore.sock")
    }

    fn wait_until_ready(&mut self) {
        let patience = Instant::now() + Duration::from_secs(20);
        while !self.http("GET /readyz HTTP/1.1").starts_with("HTTP/1.1 200") {
            assert_eq!(self.daemon.try_wait().unwrap(), None, "the daemon ended");
            assert!(Instant::now() < patience, "the daemon is not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The raw answer to one request; empty if nothing listens.
    fn http(&self, head: &str) -> String {
        let Ok(mut stream) = UnixStream::connect(self.socket()) else { return String::new() };
        let request = format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let asked = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        asked.map_or(String::new(), |_| answer)
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(arguments).env("LONGSHORE_SOCKET", self.socket()).current_dir(self.folder.path());
        command.output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(&[arguments, &["-o", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The nodes, once this one has joined.
    fn wait_for_node(&self) -> Value {
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let nodes = self.json(&["node", "ls"]);
            if nodes.as_array().is_some_and(|nodes| !nodes.is_empty()) {
                return nodes;
            }
            assert!(Instant::now() < patience, "the node never joins");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Polls the status until it satisfies `wanted`.
    fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.json(&["status"]);
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < patience, "never {what}: {status:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The processes of the replicas, by the folder of each attempt.
    fn processes(&self) -> Vec<(String, i32)> {
        let folder = self.folder.path().join("data/agent/exec");
        let attempts = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut found: Vec<(String, i32)> = attempts
            .filter_map(|attempt| {
                let status: Value = serde_json::from_slice(&fs::read(attempt.join("status.json")).ok()?).ok()?;
                let pid = i32::try_from(status["child"]["pid"].as_i64()?).ok()?;
                Some((attempt.file_name()?.to_str()?.to_owned(), pid))
            })
            .collect();
        found.sort();
        found
    }

    fn end_by(&mut self, signal: Signal) -> std::process::ExitStatus {
        kill_process(pid(i32::try_from(self.daemon.id()).unwrap()), signal).unwrap();
        self.daemon.wait().unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        for (_, process) in self.processes() {
            let _ = kill_process(pid(process), Signal::KILL);
        }
    }
}

fn daemon(folder: &Path) -> Child {
    server(folder).spawn().unwrap()
}

fn server(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.args(["server", "--node", "n1", "--data-dir"]).arg(folder.join("data"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn pid(number: i32) -> Pid {
    Pid::from_raw(number).unwrap()
}

fn alive(processes: &[(String, i32)]) -> bool {
    processes.iter().all(|(_, process)| test_kill_process(pid(*process)).is_ok())
}

fn is_active(status: &Value) -> bool {
    status["deployments"][0]["status"] == "active"
}

#[test]
fn replicas_outlive_a_killed_daemon_and_are_adopted_without_a_restart() {
    let mut machine = Machine::start();
    let applied = machine.json(&["apply", "-f", "compose.yaml"]);
    assert_eq!((&applied["deployment"], &applied["revision"]), (&"shop".into(), &1.into()));
    machine.wait_for("active", is_active);
    let before = machine.processes();
    assert_eq!(before.len(), 2);
    machine.json(&["scale", "shop", "web=3"]);
    machine.end_by(Signal::KILL);
    assert!(alive(&before), "a killed daemon took its replicas along");

    machine.again();
    let status = machine.wait_for("active with three", |status| {
        is_active(status) && status["replicas"].as_array().is_some_and(|replicas| replicas.len() == 3)
    });
    assert_eq!(status["deployments"][0]["revision"], 2, "an acknowledged command was lost");
    for replica in status["replicas"].as_array().unwrap() {
        assert_eq!((&replica["restarts"], &replica["generation"]), (&0.into(), &1.into()), "{replica:#}");
    }
    let after = machine.processes();
    assert!(before.iter().all(|process| after.contains(process)), "{before:?} became {after:?}");

    machine.json(&["rm", "shop"]);
    machine.wait_for("gone", |status| status["deployments"].as_array().is_some_and(Vec::is_empty));
    assert!(before.iter().all(|(_, process)| test_kill_process(pid(*process)).is_err()), "a removed replica runs on");
}

#[test]
fn sigterm_ends_the_daemon_cleanly_and_leaves_replicas_running() {
    let mut machine = Machine::start();
    machine.json(&["apply", "-f", "compose.yaml"]);
    machine.wait_for("active", is_active);
    let before = machine.processes();
    assert!(machine.end_by(Signal::TERM).success());
    assert!(alive(&before));
    let nobody = machine.ask(&["status"]);
    let said = String::from_utf8(nobody.stderr).unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    assert!(said.contains("no daemon answers") && said.contains("hint: start it with `longshore server`"), "{said}");

    machine.again();
    machine.wait_for("active", is_active);
    assert_eq!(machine.processes(), before);
    machine.json(&["rm", "shop"]);
    machine.wait_for("gone", |status| status["deployments"].as_array().is_some_and(Vec::is_empty));
}

#[test]
fn a_deployment_is_never_called_active_beside_a_replica_that_does_not_run() {
    let machine = Machine::start();
    machine.json(&["apply", "-f", "compose.yaml"]);
    machine.wait_for("active", is_active);
    for count in [6, 2, 6, 2] {
        machine.json(&["scale", "shop", &format!("web={count}")]);
        // Every intermediate answer must be consistent in itself.
        machine.wait_for("active again", |status| {
            let (desired, rows) = (&status["deployments"][0]["services"][0]["desired"], &status["replicas"]);
            let rows = rows.as_array().unwrap();
            let run = rows.iter().filter(|row| row["state"] == "running").count();
            let all = *desired == run && rows.len() == run;
            assert!(all || !is_active(status), "{status:#}");
            is_active(status) && run == count
        });
    }
    machine.json(&["rm", "shop"]);
    machine.wait_for("gone", |status| status["deployments"].as_array().is_some_and(Vec::is_empty));
}

#[test]
fn every_query_is_answered_and_every_error_has_the_envelope() {
    let machine = Machine::start();
    let nodes = machine.wait_for_node();
    assert_eq!((&nodes[0]["name"], &nodes[0]["health"]), (&"n1".into(), &"ready".into()));
    machine.json(&["node", "pause", "n1"]);
    machine.json(&["apply", "-f", "compose.yaml"]);
    machine.wait_for("waiting", |status| status["replicas"].as_array().is_some_and(|replicas| replicas.len() == 2));
    let why = machine.json(&["why", "shop-web-0"]);
    assert_eq!(why["pending"]["explain"], "0 of 1 node fit: n1 is paused");
    machine.json(&["node", "activate", "n1"]);
    machine.wait_for("active", is_active);
    assert_eq!(machine.json(&["why", "shop-web-0"])["node"], "n1");
    let audit = machine.json(&["audit"]);
    let actions: Vec<&str> = audit.as_array().unwrap().iter().filter_map(|entry| entry["action"].as_str()).collect();
    assert_eq!(
        actions,
        [
            "cluster_configured",
            "cluster_founded",
            "node_joined",
            "node_intent_set",
            "deployment_applied",
            "node_intent_set"
        ]
    );

    for (head, status, code) in [
        ("GET /v1/nodes/n9 HTTP/1.1", 404, "not_found"),
        ("GET /v1/nothing HTTP/1.1", 404, "not_found"),
        ("PUT /v1/nodes HTTP/1.1", 405, "method_not_allowed"),
        ("POST /v1/nodes/n9/drain HTTP/1.1", 404, "unknown_node"),
        ("GET /v1/audit?after=x HTTP/1.1", 400, "request_invalid"),
        ("POST /v1/deployments/shop/services/web/scale HTTP/1.1", 400, "request_invalid"),
        ("POST /v1/deployments HTTP/1.1", 422, "manifest_invalid"),
    ] {
        let answer = machine.http(head);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {answer}");
        assert!(answer.contains(&format!("{{\"code\":\"{code}\",\"message\":")), "{head}: {answer}");
    }
    let metrics = machine.http("GET /metrics HTTP/1.1");
    assert!(metrics.contains("longshore_leading 1") && metrics.contains("longshore_replicas{state=\"running\"} 2"));
    machine.json(&["rm", "shop"]);
    machine.wait_for("gone", |status| status["deployments"].as_array().is_some_and(Vec::is_empty));
}

/// The operator token that is valid in the recorded folder.
const RECORDED_TOKEN: &str =
    "longshore-operator-0e0c015597f2457f-024fc8428eaa6ca5636763a696a8fc65-ca19a4bf9c247358eadba0e52a662a7a";

impl Machine {
    /// A daemon on the data folder that commit 362d0fa wrote before its files, stored fields and states were renamed. It
    /// was killed in the last step of a rollout. Its processes ran on another machine, so they are gone.
    fn on_recorded_folder(listen: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/data_folder_before_renames.tar.gz");
        let unpacked = Command::new("tar").args(["-xzf", archive, "-C"]).arg(folder.path()).status().unwrap();
        assert!(unpacked.success());
        let mut command = server(folder.path());
        let daemon = command.args(["--listen", listen]).spawn().unwrap();
        let mut machine = Self { folder, daemon };
        machine.wait_until_ready();
        machine
    }
}

#[test]
fn a_folder_written_before_the_renames_is_read_whole() {
    let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let machine = Machine::on_recorded_folder(&listen);
    let status = machine.wait_for("active with all four", |status| {
        is_active(status)
            && status["replicas"].as_array().is_some_and(|all| all.iter().all(|one| one["state"] == "running"))
    });
    let deployment = &status["deployments"][0];
    assert_eq!((&deployment["name"], &deployment["revision"]), (&"shop".into(), &4.into()), "{deployment:#}");
    assert_eq!(deployment["revisions"].as_array().unwrap().len(), 4, "{deployment:#}");
    let replicas = status["replicas"].as_array().unwrap();
    let generations: Vec<_> = replicas.iter().map(|one| format!("{} {}", one["id"], one["generation"])).collect();
    assert_eq!(generations, ["\"shop-api-0\" 2", "\"shop-web-0\" 1", "\"shop-web-1\" 1", "\"shop-web-2\" 1"]);

    assert_eq!(machine.json(&["node", "ls"])[0]["labels"]["rack"], "r1");
    let secret = &machine.json(&["secret", "ls"])[0];
    assert_eq!((&secret["name"], &secret["version"]), (&"db_password".into(), &1.into()));
    let namespaces = machine.json(&["namespace", "ls"]);
    let team = namespaces.as_array().unwrap().iter().find(|row| row["name"] == "team").unwrap();
    assert_eq!(team["quota"]["replicas"], 7, "{team:#}");
    let audit = machine.json(&["audit"]);
    let actions: Vec<_> =
        audit.as_array().unwrap().iter().filter_map(|entry| entry["action"].as_str()).take(10).collect();
    let recorded = [
        "cluster_founded",
        "node_joined",
        "deployment_applied",
        "service_scaled",
        "secret_put",
        "token_issued",
        "quota_set",
        "node_labelled",
        "deployment_applied",
        "service_scaled",
    ];
    assert_eq!(actions, recorded);

    // The token proves the node's key and certificate, the authority it pins, and the stored digest.
    let as_operator = machine.ask(&["scale", "shop", "web=2", "--address", &listen, "--token", RECORDED_TOKEN]);
    assert!(as_operator.status.success(), "{}", String::from_utf8_lossy(&as_operator.stderr));
    machine.wait_for("active with three", |status| {
        is_active(status) && status["replicas"].as_array().is_some_and(|all| all.len() == 3)
    });
}
