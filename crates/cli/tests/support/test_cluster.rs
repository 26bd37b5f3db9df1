//! A cluster of daemons as real processes: on loopback addresses, or each in a network namespace of its own.
//!
//! Owns: starting, asking, killing and disconnecting them, and cleaning up afterwards.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const MANIFEST: &str = "\
name: shop
services:
  web:
    image: none
    command: [sleep, \"600\"]
    x-longshore:
      driver: exec
    deploy:
      replicas: 3
";

pub(crate) struct Cluster {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) nodes: Vec<Node>,
    network: Option<Network>,
    engines: Engines,
    exposure: Exposure,
}

/// What the daemons of a cluster offer besides their TLS and Unix sockets.
#[derive(Clone, Copy)]
enum Exposure {
    None,
    /// An HTTP listener each, and logs at level `trace`: the largest surface to attack, and everything a log may leak.
    HttpAndTraceLog,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) data: PathBuf,
    pub(crate) daemon: Option<Child>,
    /// Its network namespace, if it has one of its own.
    pub(crate) namespace: Option<String>,
    /// Its container engine, if it has one.
    pub(crate) engine: Option<Engine>,
    /// Its HTTP listener for browsers, if it has one.
    pub(crate) http: Option<String>,
    /// Further environment variables of the daemon.
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Node {
    /// The binary, in the network namespace of the node.
    fn program(&self) -> Command {
        let Some(namespace) = &self.namespace else { return longshore() };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}")).arg(env!("CARGO_BIN_EXE_longshore"));
        command
    }

    /// Sets the network link of the node `up` or `down`.
    pub(crate) fn cable(&self, state: &str) {
        let namespace = self.namespace.as_ref().unwrap();
        run("ip", &["-n", namespace, "link", "set", "eth0", state]);
    }

    pub(crate) fn start(&mut self) {
        let mut command = self.program();
        command.args(["server", "--node", &self.name, "--listen", &self.address]);
        command.arg("--data-dir").arg(&self.data);
        if let Some(engine) = &self.engine {
            command.arg("--docker").arg(engine.socket());
        }
        if let Some(address) = &self.http {
            command.args(["--http", address]);
        }
        command.envs(self.variables.iter().cloned());
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_file()).unwrap();
        self.daemon = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.data.with_extension("log")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.data.join("longshore.sock")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let daemon = self.daemon.as_ref().unwrap();
        kill_process(Pid::from_raw(i32::try_from(daemon.id()).unwrap()).unwrap(), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        longshore().args(arguments).env("LONGSHORE_SOCKET", self.socket()).output().unwrap()
    }

    /// The answer of a command; `None` if it fails.
    pub(crate) fn json(&self, arguments: &[&str]) -> Option<Value> {
        let output = self.ask(&[arguments, &["-o", "json"]].concat());
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// The answer of a command that must succeed.
    pub(crate) fn expect_json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(&[arguments, &["-o", "json"]].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {error}", self.name);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The trimmed standard output of a command that must succeed.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A new API token; `arguments` are those of `token create`.
    pub(crate) fn token(&self, arguments: &[&str]) -> String {
        self.text(&[&["token", "create"], arguments].concat())
    }

    /// Writes a manifest into a folder and applies it.
    pub(crate) fn apply(&self, folder: &Path, manifest: &str) -> Output {
        let file = folder.join("compose.yaml");
        fs::write(&file, manifest).unwrap();
        self.ask(&["apply", "-f", file.to_str().unwrap()])
    }
}

impl Cluster {
    /// A cluster of so many servers, once it has all the voters it gets.
    pub(crate) fn of(count: usize) -> Self {
        Self::empty(None, Engines::None, Exposure::None).with_servers(count)
    }

    /// The same, with an HTTP listener and a `trace` log on each node.
    pub(crate) fn exposed(count: usize) -> Self {
        Self::empty(None, Engines::None, Exposure::HttpAndTraceLog).with_servers(count)
    }

    /// One server and one worker, both exposed.
    pub(crate) fn exposed_with_worker() -> Self {
        let mut cluster = Self::exposed(1);
        let token = cluster.nodes[0].text(&["cluster", "token", "--worker"]);
        cluster.add(Some(&token));
        eventually("the worker is ready", || {
            let nodes = cluster.nodes[0].json(&["node", "ls"])?;
            (nodes.as_array()?.iter().filter(|node| node["health"] == "ready").count() == 2).then_some(())
        });
        cluster
    }

    /// One node with an HTTP listener for browsers at this address.
    pub(crate) fn with_browsers(address: &str) -> Self {
        let mut cluster = Self::empty(None, Engines::None, Exposure::None);
        let mut node = cluster.new_node("n1");
        node.http = Some(address.to_owned());
        node.start();
        cluster.nodes.push(node);
        cluster
    }

    /// A cluster with a network namespace for each node. Needs root.
    pub(crate) fn in_namespaces(count: usize) -> Self {
        Self::empty(Some(Network::new(count)), Engines::None, Exposure::None).with_servers(count)
    }

    /// Servers in namespaces of their own, and the worker `n2`, which joined when there was only one server.
    pub(crate) fn with_early_worker(servers: usize) -> Self {
        let mut cluster = Self::empty(Some(Network::new(servers + 1)), Engines::None, Exposure::None);
        cluster.add(None);
        let token = eventually("a token", || {
            let output = cluster.nodes[0].ask(&["cluster", "token", "--worker"]);
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        });
        cluster.add(Some(&token));
        cluster.add_servers(servers - 1);
        cluster
    }

    /// The same, with a container engine for each node.
    pub(crate) fn on_engines(count: usize) -> Self {
        Self::empty(Some(Network::new(count)), Engines::OneEach, Exposure::None).with_servers(count)
    }

    fn empty(network: Option<Network>, engines: Engines, exposure: Exposure) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("compose.yaml"), MANIFEST).unwrap();
        Self { folder, nodes: Vec::new(), network, engines, exposure }
    }

    fn with_servers(mut self, count: usize) -> Self {
        self.add(None);
        self.add_servers(count - 1);
        self
    }

    /// Adds servers to the first, and waits until the cluster has all the voters it gets.
    fn add_servers(&mut self, count: usize) {
        for _ in 0..count {
            let token = eventually("a token", || {
                let output = self.nodes[0].ask(&["cluster", "token"]);
                output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
            });
            self.add(Some(&token));
        }
        let voters = [0, 1, 1, 3, 3, 5, 5].get(count + 1).copied().unwrap_or(7);
        eventually("enough voters", || (self.members(0, "votes").len() == voters).then_some(()));
    }

    /// A node that has not joined and has not been started.
    pub(crate) fn new_node(&self, name: &str) -> Node {
        let (http, variables) = match self.exposure {
            Exposure::None => (None, Vec::new()),
            Exposure::HttpAndTraceLog => (Some(free_address()), vec![("LONGSHORE_LOG", "trace".to_owned())]),
        };
        Node {
            name: name.to_owned(),
            address: free_address(),
            data: self.folder.path().join(name),
            daemon: None,
            namespace: None,
            engine: None,
            http,
            variables,
        }
    }

    pub(crate) fn add(&mut self, token: Option<&str>) {
        let name = format!("n{}", self.nodes.len() + 1);
        let mut node = self.new_node(&name);
        if let Some(network) = &self.network {
            (node.namespace, node.address) = network.address_of(self.nodes.len());
        }
        if let (Engines::OneEach, Some(namespace)) = (self.engines, &node.namespace) {
            node.engine = Some(Engine::start(&self.folder.path().join(format!("engine-{}", node.name)), namespace));
        }
        if let Some(token) = token {
            let joined = join(&node, &self.nodes[0].address, token);
            assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
        }
        node.start();
        eventually("the new node listens", || node.socket().exists().then_some(()));
        self.nodes.push(node);
        eventually("the first node answers", || self.nodes[0].json(&["cluster", "status"]));
    }

    /// Names of the members whose field `what` is true, as a node sees them.
    pub(crate) fn members(&self, node: usize, what: &str) -> Vec<String> {
        let Some(status) = self.nodes[node].json(&["cluster", "status"]) else { return Vec::new() };
        let members = status["members"].as_array().unwrap().iter().filter(|member| member[what] == true);
        members.map(|member| member["node"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn leader(&self) -> usize {
        eventually("a leader", || {
            let alive = (0..self.nodes.len()).find(|at| self.nodes[*at].daemon.is_some()).unwrap();
            let leader = self.members(alive, "leads").pop()?;
            self.nodes.iter().position(|node| node.name == leader && node.daemon.is_some())
        })
    }

    pub(crate) fn apply(&self, at: usize) {
        self.nodes[at].expect_json(&["apply", "-f", self.folder.path().join("compose.yaml").to_str().unwrap()]);
    }

    /// The nodes of the running replicas, once there are so many.
    pub(crate) fn running(&self, at: usize, expected: usize) -> Vec<String> {
        eventually("everything runs", || {
            let status = self.nodes[at].json(&["status"])?;
            let running = status["replicas"].as_array()?.iter().filter(|replica| replica["state"] == "running");
            let nodes: Vec<String> = running.map(|replica| replica["node"].as_str().unwrap().to_owned()).collect();
            (nodes.len() == expected).then_some(nodes)
        })
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
            // The secrets of replicas are on a tmpfs.
            let _ = rustix::mount::unmount(node.data.join("agent/secrets"), rustix::mount::UnmountFlags::DETACH);
        }
        // Those of plain processes with a user are outside of the data folder, named after it.
        let mark = self.folder.path().file_name().unwrap_or_default().to_string_lossy().replace('.', "-");
        for folder in fs::read_dir("/run/longshore/secrets").into_iter().flatten().flatten() {
            if folder.file_name().to_string_lossy().contains(&mark) {
                let _ = rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::DETACH);
                let _ = fs::remove_dir(folder.path());
            }
        }
        if std::thread::panicking() {
            for node in &self.nodes {
                let log = fs::read_to_string(node.log_file()).unwrap_or_default();
                // A log at level `trace` is long; its end shows what happened last.
                let end = match self.exposure {
                    Exposure::None => log.as_str(),
                    Exposure::HttpAndTraceLog => &log[log.len().saturating_sub(4000)..],
                };
                eprintln!("--- {} ---\n{end}", node.name);
            }
        }
    }
}

/// Whether nodes have container engines.
#[derive(Clone, Copy)]
enum Engines {
    None,
    OneEach,
}

/// A container engine in a namespace, with one image: `busybox:1`.
pub(crate) struct Engine {
    folder: PathBuf,
    daemon: Child,
}

impl Engine {
    fn start(folder: &Path, namespace: &str) -> Self {
        fs::create_dir_all(folder).unwrap();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let log = fs::File::create(folder.join("log")).unwrap();
        let daemon = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{namespace}"))
            .args(["dockerd", "--data-root", &path("data"), "--exec-root", &path("exec"), "--pidfile", &path("pid")])
            .args(["--host", &format!("unix://{}", path("docker.sock")), "--bridge", "none"])
            .args(["--insecure-registry", "10.213.77.0/24"])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let engine = Self { folder: folder.to_owned(), daemon };
        eventually("the engine answers", || engine.try_docker(&["version"]).status.success().then_some(()));
        let root = folder.join("root");
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("tmp")).unwrap();
        let busybox = Command::new("sh").args(["-c", "command -v busybox"]).output().unwrap();
        fs::copy(String::from_utf8(busybox.stdout).unwrap().trim(), root.join("bin/busybox")).unwrap();
        for applet in ["sh", "httpd", "sleep", "echo", "cat", "mkdir", "trap"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        run("tar", &["-C", root.to_str().unwrap(), "-cf", &path("root.tar"), "."]);
        engine.docker(&["import", &path("root.tar"), "busybox:1"]);
        engine
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("docker.sock")
    }

    fn try_docker(&self, arguments: &[&str]) -> Output {
        let host = format!("unix://{}", self.socket().display());
        Command::new("docker").args(["--host", &host]).args(arguments).output().unwrap()
    }

    pub(crate) fn docker(&self, arguments: &[&str]) -> String {
        let output = self.try_docker(arguments);
        assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Ids and start times of all that runs.
    pub(crate) fn running(&self) -> Vec<String> {
        // A container that ends between `ps` and `inspect` makes `inspect` fail: then both are repeated.
        eventually("the engine lists what runs", || {
            let ids = self.docker(&["ps", "-q", "--no-trunc"]);
            let ids: Vec<&str> = ids.lines().collect();
            if ids.is_empty() {
                return Some(Vec::new());
            }
            let output = self.try_docker(&[&["inspect", "-f", "{{.Id}} {{.State.StartedAt}}"], &ids[..]].concat());
            let mut started: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
            started.sort();
            output.status.success().then_some(started)
        })
    }
}

/// Kills the containerd shims of a stopped engine: a container that could not be started leaves its shim behind.
fn end_shims(folder: &Path) {
    let folder = folder.to_string_lossy().into_owned();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        if let Some(pid) = pid.filter(|_| line.contains("containerd-shim") && line.contains(&folder)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Engine {
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_raw(i32::try_from(self.daemon.id()).unwrap()).unwrap(), signal);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let containers = self.try_docker(&["ps", "-aq"]);
        for id in String::from_utf8_lossy(&containers.stdout).lines() {
            self.try_docker(&["rm", "-f", id]);
        }
        self.signal(Signal::TERM);
        let _ = self.daemon.wait();
        end_shims(&self.folder);
        let _ = rustix::mount::unmount(self.folder.join("data"), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Namespaces on one bridge.
struct Network {
    bridge: String,
    namespaces: Vec<String>,
}

impl Network {
    fn new(count: usize) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{:x}{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let bridge = format!("lb{mark}");
        run("ip", &["link", "add", &bridge, "type", "bridge"]);
        run("ip", &["addr", "add", "10.213.77.254/24", "dev", &bridge]);
        run("ip", &["link", "set", &bridge, "up"]);
        let mut network = Self { bridge, namespaces: Vec::new() };
        for at in 0..count {
            let (namespace, outside) = (format!("ls{mark}n{at}"), format!("lv{mark}{at}"));
            run("ip", &["netns", "add", &namespace]);
            network.namespaces.push(namespace.clone());
            run("ip", &["link", "add", &outside, "type", "veth", "peer", "name", "eth0", "netns", &namespace]);
            run("ip", &["link", "set", &outside, "master", &network.bridge, "up"]);
            run("ip", &["-n", &namespace, "addr", "add", &format!("10.213.77.{}/24", at + 1), "dev", "eth0"]);
            run("ip", &["-n", &namespace, "link", "set", "eth0", "up"]);
            run("ip", &["-n", &namespace, "link", "set", "lo", "up"]);
        }
        network
    }

    fn address_of(&self, at: usize) -> (Option<String>, String) {
        (Some(self.namespaces[at].clone()), format!("10.213.77.{}:7474", at + 1))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "del", namespace]).status();
        }
        let _ = Command::new("ip").args(["link", "del", &self.bridge]).status();
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn longshore() -> Command {
    Command::new(env!("CARGO_BIN_EXE_longshore"))
}

pub(crate) fn join(node: &Node, server: &str, token: &str) -> Output {
    let file = node.data.with_extension("token");
    fs::write(&file, token).unwrap();
    let mut command = node.program();
    command.args(["cluster", "join", server, "--node", &node.name, "--advertise", &node.address]);
    command.arg("--token-file").arg(file).arg("--data-dir").arg(&node.data);
    command.output().unwrap()
}

/// A free loopback address. Another process could take it before it is used, which is unlikely.
pub(crate) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Polls until `look` finds something, and fails after a minute.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The error of a command that must be refused.
pub(crate) fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A part of a token: 2 is its public id, 3 its secret.
pub(crate) fn token_part(token: &str, number: usize) -> String {
    token.split('-').nth(number).unwrap().to_owned()
}

/// Files below a folder that contain these bytes.
pub(crate) fn files_containing(folder: &Path, needle: &[u8]) -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(path) = open.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if metadata.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            found.extend(bytes.windows(needle.len()).any(|window| window == needle).then_some(path));
        }
    }
    found
}
