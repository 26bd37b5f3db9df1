//! Daemons as processes, each on a loopback address of its own.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) struct Cluster {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) nodes: Vec<Node>,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) http: String,
    pub(crate) data: PathBuf,
    pub(crate) daemon: Option<Child>,
}

impl Node {
    pub(crate) fn start(&mut self) {
        let mut command = longshore();
        command.args(["server", "--node", &self.name, "--listen", &self.address, "--http", &self.http]);
        command.arg("--data-dir").arg(&self.data).env("LONGSHORE_LOG", "trace");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_file()).unwrap();
        self.daemon = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.data.with_extension("log")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.data.join("longshore.sock")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let daemon = self.daemon.as_ref().unwrap();
        kill_process(Pid::from_raw(i32::try_from(daemon.id()).unwrap()).unwrap(), signal).unwrap();
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        longshore().args(arguments).env("LONGSHORE_SOCKET", self.socket()).output().unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Option<Value> {
        let output = self.ask(&[arguments, &["-o", "json"]].concat());
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(crate) fn told(&self, arguments: &[&str]) -> Value {
        let output = self.ask(&[arguments, &["-o", "json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {said}", self.name);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A token of an operator.
    pub(crate) fn token(&self, arguments: &[&str]) -> String {
        self.text(&[&["token", "create"], arguments].concat())
    }

    pub(crate) fn apply(&self, folder: &Path, manifest: &str) -> Output {
        let file = folder.join("compose.yaml");
        fs::write(&file, manifest).unwrap();
        self.ask(&["apply", "-f", file.to_str().unwrap()])
    }
}

impl Cluster {
    /// A cluster of so many servers, with as many voters as that makes.
    pub(crate) fn of(count: usize) -> Self {
        let mut cluster = Self { folder: tempfile::tempdir().unwrap(), nodes: Vec::new() };
        cluster.add(None);
        for _ in 1..count {
            let token = cluster.nodes[0].text(&["cluster", "token"]);
            cluster.add(Some(&token));
        }
        let voters = [0, 1, 1, 3][count];
        eventually("enough voters", || {
            let status = cluster.nodes[0].json(&["cluster", "status"])?;
            let members = status["members"].as_array()?.iter();
            (members.filter(|member| member["votes"] == true).count() == voters).then_some(())
        });
        cluster
    }

    /// A cluster of one server and one worker.
    pub(crate) fn with_worker() -> Self {
        let mut cluster = Self::of(1);
        let token = cluster.nodes[0].text(&["cluster", "token", "--worker"]);
        cluster.add(Some(&token));
        eventually("the worker is ready", || {
            let nodes = cluster.nodes[0].json(&["node", "ls"])?;
            (nodes.as_array()?.iter().filter(|node| node["health"] == "ready").count() == 2).then_some(())
        });
        cluster
    }

    pub(crate) fn add(&mut self, token: Option<&str>) {
        let mut node = self.newcomer(&format!("n{}", self.nodes.len() + 1));
        if let Some(token) = token {
            let joined = join(&node, &self.nodes[0].address, token);
            assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
        }
        node.start();
        eventually("it listens", || node.socket().exists().then_some(()));
        self.nodes.push(node);
        eventually("it knows itself", || self.nodes[0].json(&["cluster", "status"]));
    }

    /// A node that is not part of the cluster yet.
    pub(crate) fn newcomer(&self, name: &str) -> Node {
        let data = self.folder.path().join(name);
        Node { address: free_address(), http: free_address(), data, daemon: None, name: name.to_owned() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(daemon) = &mut node.daemon {
                let _ = daemon.kill();
                let _ = daemon.wait();
            }
            let attempts = fs::read_dir(node.data.join("agent/exec")).into_iter().flatten().flatten();
            for attempt in attempts {
                let Ok(status) = fs::read(attempt.path().join("status.json")) else { continue };
                let status: Value = serde_json::from_slice(&status).unwrap_or_default();
                let pid = status["child"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
                if let Some(pid) = pid.and_then(Pid::from_raw) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            // Where secrets were shown, memory is mounted.
            let _ = rustix::mount::unmount(node.data.join("agent/secrets"), rustix::mount::UnmountFlags::DETACH);
        }
        if std::thread::panicking() {
            for node in &self.nodes {
                let log = fs::read_to_string(node.log_file()).unwrap_or_default();
                eprintln!("--- {} ---\n{}", node.name, &log[log.len().saturating_sub(4000)..]);
            }
        }
    }
}

pub(crate) fn longshore() -> Command {
    Command::new(env!("CARGO_BIN_EXE_longshore"))
}

pub(crate) fn join(node: &Node, server: &str, token: &str) -> Output {
    let file = node.data.with_extension("token");
    fs::write(&file, token).unwrap();
    let mut command = longshore();
    command.args(["cluster", "join", server, "--node", &node.name, "--advertise", &node.address]);
    command.arg("--token-file").arg(file).arg("--data-dir").arg(&node.data);
    command.output().unwrap()
}

/// An address nobody listens at. Another could take it before we do; the ports are many and the time is short.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let patience = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A part of a token: 2 is the id, 3 what is secret of it.
pub(crate) fn part(token: &str, number: usize) -> String {
    token.split('-').nth(number).unwrap().to_owned()
}
