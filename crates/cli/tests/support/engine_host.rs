//! One host: a container engine in a network namespace, and a daemon beside it, each of which can be ended and started
//! again in any order, alone or with everything else on the host.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) struct Host {
    pub(crate) folder: tempfile::TempDir,
    namespace: String,
    engine: Option<Child>,
    daemon: Option<Child>,
}

impl Host {
    /// A host on which nothing runs yet.
    pub(crate) fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let namespace = format!("lsh{:x}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        run("ip", &["netns", "add", &namespace]);
        run("ip", &["-n", &namespace, "link", "set", "lo", "up"]);
        Self { folder: tempfile::tempdir().unwrap(), namespace, engine: None, daemon: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Starts the engine and waits until it answers. After a crash it may need a second start.
    pub(crate) fn start_engine(&mut self, settings: &[&str]) {
        for _ in 0..4 {
            self.engine = Some(self.spawn_engine(settings));
            let deadline = Instant::now() + Duration::from_mins(1);
            while Instant::now() < deadline && self.engine.as_mut().unwrap().try_wait().unwrap().is_none() {
                if self.try_docker(&["version"]).status.success() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            self.kill_engine();
        }
        panic!("the engine does not start: {}", self.text("engine/log"));
    }

    fn spawn_engine(&self, settings: &[&str]) -> Child {
        let folder = self.path("engine");
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace));
        command.args([
            "dockerd",
            "--data-root",
            &path("data"),
            "--exec-root",
            &path("exec"),
            "--pidfile",
            &path("pid"),
        ]);
        command.args(["--host", &format!("unix://{}", path("docker.sock")), "--bridge", "none"]).args(settings);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    /// Ends the engine as a service manager does; its containers end with it unless it restores them.
    pub(crate) fn stop_engine(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            signal(&engine, Signal::TERM);
            engine.wait().unwrap();
        }
    }

    pub(crate) fn kill_engine(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            let _ = engine.kill();
            engine.wait().unwrap();
        }
    }

    /// Imports the image `busybox:1`.
    pub(crate) fn import_image(&self) {
        let root = self.path("root");
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("tmp")).unwrap();
        let busybox = Command::new("sh").args(["-c", "command -v busybox"]).output().unwrap();
        fs::copy(String::from_utf8(busybox.stdout).unwrap().trim(), root.join("bin/busybox")).unwrap();
        for applet in ["sh", "httpd", "sleep", "echo", "mkdir", "wget", "true"] {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        let archive = self.path("root.tar");
        run("tar", &["-C", root.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "."]);
        self.docker(&["import", archive.to_str().unwrap(), "busybox:1"]);
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("engine/docker.sock")
    }

    pub(crate) fn try_docker(&self, arguments: &[&str]) -> Output {
        let host = format!("unix://{}", self.socket().display());
        Command::new("docker").args(["--host", &host]).args(arguments).output().unwrap()
    }

    pub(crate) fn docker(&self, arguments: &[&str]) -> String {
        let output = self.try_docker(arguments);
        assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Id and start of every container that runs.
    pub(crate) fn running(&self) -> Vec<String> {
        let ids = self.docker(&["ps", "-q", "--no-trunc"]);
        let inspect = |id: &str| self.docker(&["inspect", "-f", "{{.Id}} {{.State.StartedAt}}", id]);
        let mut running: Vec<String> = ids.lines().map(inspect).collect();
        running.sort();
        running
    }

    pub(crate) fn start_daemon(&mut self, further: &[&str]) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("daemon.log")).unwrap();
        let mut command = self.longshore(&["server", "--node", "box", "--docker"]);
        command.arg(self.socket()).args(further);
        self.daemon = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    pub(crate) fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            daemon.wait().unwrap();
        }
    }

    /// Ends everything at once and empties what is kept in memory, as a power failure does. Data on disk stays.
    pub(crate) fn power_off(&mut self) {
        let containers = self.docker(&["ps", "-q"]);
        let pids = containers.lines().map(|id| self.docker(&["inspect", "-f", "{{.State.Pid}}", id]).parse().unwrap());
        let mut pids: Vec<i32> = pids.collect();
        self.kill_daemon();
        self.kill_engine();
        pids.extend(self.text("engine/exec/containerd/containerd.pid").trim().parse::<i32>());
        self.kill_shims();
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        self.unmount_all();
        for name in ["engine/exec", "engine/pid", "engine/docker.sock"] {
            let path = self.path(name);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        let links = Command::new("ip").args(["-n", &self.namespace, "-o", "link", "show", "type", "bridge"]).output();
        for line in String::from_utf8_lossy(&links.unwrap().stdout).lines() {
            run("ip", &["-n", &self.namespace, "link", "del", line.split(": ").nth(1).unwrap()]);
        }
    }

    fn kill_shims(&self) {
        let folder = self.folder.path().to_string_lossy().into_owned();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
            if let Some(pid) = pid.filter(|_| line.contains("containerd-shim") && line.contains(&folder)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    fn unmount_all(&self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let places = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(self.folder.path())) {
            let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
        }
    }

    /// The binary with the data folder of this host.
    pub(crate) fn longshore(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(arguments).current_dir(self.folder.path());
        command.env("LONGSHORE_DATA_DIR", self.path("data")).env_remove("DOCKER_HOST");
        command.env("LONGSHORE_SOCKET", self.path("data/longshore.sock"));
        command
    }

    /// The answer of a command; `None` if it fails.
    pub(crate) fn json(&self, arguments: &[&str]) -> Option<Value> {
        let output = self.longshore(&[arguments, &["-o", "json"]].concat()).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(crate) fn apply(&self, manifest: &str) {
        fs::write(self.path("compose.yaml"), manifest).unwrap();
        self.eventually("the manifest is applied", || self.json(&["apply", "-f", "compose.yaml"]));
    }

    /// Polls until `look` finds something, and fails after 30 seconds.
    pub(crate) fn eventually<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = look() {
                return found;
            }
            let in_time = Instant::now() < deadline;
            assert!(in_time, "never: {what}: {:#?}\n{}", self.json(&["status"]), self.text("daemon.log"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill_daemon();
        let containers = self.try_docker(&["ps", "-aq"]);
        for id in String::from_utf8_lossy(&containers.stdout).lines() {
            self.try_docker(&["rm", "-f", id]);
        }
        self.stop_engine();
        self.kill_shims();
        self.unmount_all();
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

pub(crate) fn signal(process: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap(), signal);
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
