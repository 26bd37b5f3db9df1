//! One machine with a container engine in a network namespace of its own, a registry beside it, Docker Compose, and
//! `longshore` run in a folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The longest a test waits for something.
const TIMEOUT: Duration = Duration::from_mins(2);
/// The registry, as the engine reaches it: a loopback registry needs no TLS.
pub(crate) const REGISTRY: &str = "127.0.0.1:5000";

pub(crate) struct Machine {
    pub(crate) folder: tempfile::TempDir,
    namespace: String,
    engine: Child,
    daemon: Option<Child>,
    registry: Option<Child>,
}

impl Machine {
    /// Starts an engine that has the image `busybox:1`, and a daemon that uses it.
    pub(crate) fn start() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let namespace = format!("lone{:x}{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        run("ip", &["netns", "add", &namespace]);
        run("ip", &["-n", &namespace, "link", "set", "lo", "up"]);
        let folder = tempfile::TempDir::with_prefix("longshore-lone-").unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let log = fs::File::create(folder.path().join("engine.log")).unwrap();
        let mut engine = in_namespace(&namespace, "dockerd");
        engine.args(["--data-root", &path("engine"), "--exec-root", &path("exec"), "--pidfile", &path("pid")]);
        engine.args(["--host", &format!("unix://{}", path("docker.sock")), "--bridge", "none"]);
        engine.args(["--default-address-pool", "base=10.90.0.0/20,size=24"]);
        let engine = engine.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut machine = Self { folder, namespace, engine, daemon: None, registry: None };
        machine.eventually("the engine answers", || machine.try_docker(&["version"]).status.success().then_some(()));
        machine.import_busybox();
        machine.start_daemon();
        machine
    }

    fn import_busybox(&self) {
        let root = self.path("root");
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("tmp")).unwrap();
        let busybox = Command::new("sh").args(["-c", "command -v busybox"]).output().unwrap();
        fs::copy(String::from_utf8(busybox.stdout).unwrap().trim(), root.join("bin/busybox")).unwrap();
        for applet in ["sh", "sleep", "echo", "cat", "mkdir", "true"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        let archive = self.path("root.tar").to_str().unwrap().to_owned();
        run("tar", &["-C", root.to_str().unwrap(), "-cf", &archive, "."]);
        self.docker(&["import", &archive, "busybox:1"]);
    }

    pub(crate) fn start_daemon(&mut self) {
        let mut command = self.longshore();
        command.args(["server", "--node", "n1", "--data-dir", self.path("data").to_str().unwrap()]);
        command.arg("--docker").arg(self.path("docker.sock"));
        let log = fs::File::create(self.path("daemon.log")).unwrap();
        self.daemon = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        self.eventually("the node offers Docker", || {
            let nodes = self.json(&["node", "ls"])?;
            nodes[0]["drivers"].as_array()?.iter().any(|driver| driver == "docker").then_some(())
        });
    }

    /// Starts the registry; its contents outlive [`Machine::stop_registry`].
    pub(crate) fn start_registry(&mut self) {
        let store = self.path("registry");
        let config = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\nhttp: {{ addr: \"{REGISTRY}\" }}\n",
            store.display()
        );
        fs::write(self.path("registry.yml"), config).unwrap();
        let mut command = in_namespace(&self.namespace, "docker-registry");
        command.arg("serve").arg(self.path("registry.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        self.registry = Some(command.spawn().unwrap());
    }

    pub(crate) fn stop_registry(&mut self) {
        if let Some(mut registry) = self.registry.take() {
            registry.kill().unwrap();
            registry.wait().unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of a project and returns the project's folder.
    pub(crate) fn write(&self, project: &str, name: &str, text: &str) -> PathBuf {
        let folder = self.path(project);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
        folder
    }

    pub(crate) fn try_docker(&self, arguments: &[&str]) -> Output {
        let host = format!("unix://{}", self.path("docker.sock").display());
        Command::new("docker").args(["--host", &host]).args(arguments).output().unwrap()
    }

    pub(crate) fn docker(&self, arguments: &[&str]) -> String {
        said(&format!("docker {arguments:?}"), &self.try_docker(arguments))
    }

    /// Runs Debian's `docker-compose` in a project's folder.
    pub(crate) fn compose(&self, folder: &Path, arguments: &[&str]) -> String {
        let host = format!("unix://{}", self.path("docker.sock").display());
        let output =
            Command::new("docker-compose").current_dir(folder).env("DOCKER_HOST", host).args(arguments).output();
        said(&format!("docker-compose {arguments:?}"), &output.unwrap())
    }

    pub(crate) fn longshore(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.env("LONGSHORE_SOCKET", self.path("data/longshore.sock")).env_remove("DOCKER_HOST");
        command.env("LONGSHORE_DATA_DIR", self.path("other")).stdin(Stdio::null());
        command
    }

    /// Runs `longshore` in a folder.
    pub(crate) fn ask_in(&self, folder: &Path, arguments: &[&str]) -> Output {
        self.longshore().current_dir(folder).args(arguments).output().unwrap()
    }

    /// The output of a command that must succeed, standard error first.
    pub(crate) fn tell(&self, folder: &Path, arguments: &[&str]) -> String {
        let output = self.ask_in(folder, arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned() + &said(&format!("{arguments:?}"), &output);
        println!("$ longshore {}\n{words}", arguments.join(" "));
        words
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Option<Value> {
        let output = self.ask_in(self.folder.path(), &[arguments, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success())
    }

    /// The row of a replica's newest generation.
    pub(crate) fn replica(&self, id: &str) -> Option<Value> {
        let status = self.json(&["status"])?;
        let rows = status["replicas"].as_array()?.iter().filter(|row| row["id"] == id);
        rows.max_by_key(|row| row["generation"].as_u64()).cloned()
    }

    /// What a file in a running replica says.
    pub(crate) fn file_in(&self, replica: &str, file: &str) -> String {
        self.eventually(&format!("{file} of {replica}"), || {
            let output = self.ask_in(self.folder.path(), &["exec", replica, "cat", file]);
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        })
    }

    pub(crate) fn eventually<T>(&self, what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = holds() {
                return found;
            }
            if Instant::now() > until {
                let status = self.ask_in(self.folder.path(), &["status"]);
                let log = fs::read_to_string(self.path("daemon.log")).unwrap_or_default();
                panic!("never {what}\n{}\n{log}", String::from_utf8_lossy(&status.stdout));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let containers = self.try_docker(&["ps", "-aq"]);
        for id in String::from_utf8_lossy(&containers.stdout).lines() {
            self.try_docker(&["rm", "-f", id]);
        }
        self.stop_registry();
        let _ = kill_process(Pid::from_raw(i32::try_from(self.engine.id()).unwrap()).unwrap(), Signal::TERM);
        let _ = self.engine.wait();
        let secrets = self.path("data/agent/secrets");
        for mount in [secrets, self.path("engine")] {
            let _ = rustix::mount::unmount(mount, rustix::mount::UnmountFlags::DETACH);
        }
        run("ip", &["netns", "del", &self.namespace]);
    }
}

fn in_namespace(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).arg(program).stdin(Stdio::null());
    command
}

fn said(what: &str, output: &Output) -> String {
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn run(program: &str, arguments: &[&str]) {
    said(&format!("{program} {arguments:?}"), &Command::new(program).args(arguments).output().unwrap());
}
