//! A Docker Engine of the test run, in its own network namespace, with an image; and registries next to it.
//!
//! The host's own engine, networks and firewall are not touched: the engine's bridges and rules live in the namespace,
//! and one veth pair connects it to the host.

use std::{
    fmt::Write as _,
    fs,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// A small image with a shell, on the engine from the start.
pub(crate) const IMAGE: &str = "box:1";

pub(crate) struct Engine {
    folder: TempDir,
    namespace: String,
    veth: String,
    /// Where the engine reaches this process.
    pub(crate) host: Ipv4Addr,
    /// Where this process reaches the engine's published ports.
    pub(crate) inside: Ipv4Addr,
    daemon: Mutex<Option<Child>>,
}

/// A started engine, or why this machine cannot run one.
pub(crate) type Started = Result<Engine, String>;

impl Engine {
    /// Starts an engine. The outer error is a failure on a machine that should be able to run one.
    pub(crate) fn start() -> Result<Started, String> {
        if !geteuid().is_root() {
            return Ok(Err("only root can start an engine, and this is not root".to_owned()));
        }
        for program in ["dockerd", "docker", "ip", "nsenter", "busybox", "docker-registry"] {
            if !on_path(program) {
                return Err(format!("`{program}` is missing; make test installs it"));
            }
        }
        let number = std::process::id();
        let network = |last: u8| {
            let [.., third, fourth] = number.to_be_bytes();
            Ipv4Addr::new(10, 128 | (third & 63), fourth, last)
        };
        let engine = Self {
            folder: TempDir::with_prefix("longshore-engine-").map_err(|error| error.to_string())?,
            namespace: format!("longshore-{number}"),
            veth: format!("ls{number}"),
            host: network(1),
            inside: network(2),
            daemon: Mutex::new(None),
        };
        engine.make_network()?;
        engine.launch()?;
        engine.import_image()?;
        Ok(Ok(engine))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("docker.sock")
    }

    /// Runs the `docker` command and returns its output.
    pub(crate) fn docker(&self, arguments: &[&str]) -> String {
        let output = self.try_docker(arguments);
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker {arguments:?}: {problem}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(crate) fn try_docker(&self, arguments: &[&str]) -> Output {
        Command::new("docker")
            .arg("-H")
            .arg(format!("unix://{}", self.socket().display()))
            .args(arguments)
            .output()
            .unwrap()
    }

    /// One value of a container, by the engine's template language.
    pub(crate) fn inspect(&self, container: &str, template: &str) -> String {
        self.docker(&["inspect", "--format", template, container])
    }

    /// Stops the daemon; containers of an engine without live-restore stop with it.
    pub(crate) fn stop_daemon(&self) {
        let Some(mut daemon) = self.daemon.lock().unwrap().take() else { return };
        let pid = Pid::from_raw(i32::try_from(daemon.id()).unwrap()).unwrap();
        let _ = kill_process(pid, Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(40);
        while daemon.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = daemon.kill();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the daemon; its containers keep running until the next daemon starts.
    pub(crate) fn kill_daemon(&self) {
        if let Some(mut daemon) = self.daemon.lock().unwrap().take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    /// Ends everything at once, as a power failure does: the daemon, its containerd, every container, and what is kept in
    /// memory. Data on disk stays.
    pub(crate) fn power_off(&self) {
        let containers = self.docker(&["ps", "-q"]);
        let pids = containers.lines().map(|id| self.inspect(id, "{{.State.Pid}}").parse().unwrap());
        let mut pids: Vec<i32> = pids.collect();
        self.kill_daemon();
        let runtime_pid = fs::read_to_string(self.folder.path().join("exec/containerd/containerd.pid")).unwrap();
        pids.push(runtime_pid.trim().parse().unwrap());
        kill_shims(self.folder.path());
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let places = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(self.folder.path())) {
            let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir_all(self.folder.path().join("exec"));
        let _ = fs::remove_file(self.folder.path().join("pid"));
        let _ = fs::remove_file(self.socket());
        let links = output("ip", &["-n", &self.namespace, "-o", "link", "show", "type", "bridge"]).unwrap();
        for name in String::from_utf8_lossy(&links).lines().filter_map(|line| line.split(": ").nth(1)) {
            let _ = run("ip", &["-n", &self.namespace, "link", "del", name]);
        }
    }

    pub(crate) fn launch(&self) -> Result<(), String> {
        self.launch_with(&["--default-address-pool", "base=10.90.0.0/20,size=24"])
    }

    /// Starts the daemon with additional arguments.
    pub(crate) fn launch_with(&self, settings: &[&str]) -> Result<(), String> {
        let log = fs::File::create(self.folder.path().join("dockerd.log")).map_err(|error| error.to_string())?;
        let path = |name: &str| self.folder.path().join(name).to_string_lossy().into_owned();
        let daemon = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.namespace))
            .args(["dockerd", "--data-root", &path("data"), "--exec-root", &path("exec"), "--pidfile", &path("pid")])
            .args(["--host", &format!("unix://{}", path("docker.sock")), "--bridge", "none"])
            .args(["--insecure-registry", "10.128.0.0/9"])
            .args(settings)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|error| error.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|error| error.to_string())?;
        *self.daemon.lock().unwrap() = Some(daemon);
        let deadline = Instant::now() + Duration::from_mins(1);
        while !self.try_docker(&["version"]).status.success() {
            let ended = self.daemon.lock().unwrap().as_mut().is_some_and(|daemon| daemon.try_wait().unwrap().is_some());
            if ended || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.path().join("dockerd.log")).unwrap_or_default();
                let end: Vec<&str> = log.lines().rev().take(5).collect();
                return Err(format!("dockerd does not answer; its last log lines, newest first: {end:#?}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn make_network(&self) -> Result<(), String> {
        let (namespace, veth) = (self.namespace.as_str(), self.veth.as_str());
        let (host, inside) = (format!("{}/24", self.host), format!("{}/24", self.inside));
        run("ip", &["netns", "add", namespace])?;
        run("ip", &["link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", namespace])?;
        run("ip", &["addr", "add", &host, "dev", veth])?;
        run("ip", &["link", "set", veth, "up"])?;
        run("ip", &["-n", namespace, "addr", "add", &inside, "dev", "eth0"])?;
        run("ip", &["-n", namespace, "link", "set", "eth0", "up"])?;
        run("ip", &["-n", namespace, "link", "set", "lo", "up"])
    }

    fn import_image(&self) -> Result<(), String> {
        let root = self.folder.path().join("root");
        let bin = root.join("bin");
        for folder in ["bin", "etc", "tmp", "run"] {
            fs::create_dir_all(root.join(folder)).map_err(|error| error.to_string())?;
        }
        let busybox = String::from_utf8_lossy(&output("sh", &["-c", "command -v busybox"])?).trim().to_owned();
        fs::copy(busybox, bin.join("busybox")).map_err(|error| error.to_string())?;
        for applet in
            String::from_utf8_lossy(&output("busybox", &["--list"])?).lines().filter(|name| *name != "busybox")
        {
            symlink("busybox", bin.join(applet)).map_err(|error| error.to_string())?;
        }
        let archive = self.folder.path().join("root.tar");
        let (archive, root) = (archive.to_string_lossy(), root.to_string_lossy());
        run("tar", &["-C", &root, "-cf", &archive, "."])?;
        self.docker(&["import", &archive, IMAGE]);
        Ok(())
    }
}

/// Kills the containerd shims of this engine: a crashed engine leaves them behind, and so does one whose container
/// failed to start.
fn kill_shims(folder: &Path) {
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

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop_daemon();
        kill_shims(self.folder.path());
        // An engine with live-restore leaves this mount behind.
        let _ = rustix::mount::unmount(self.folder.path().join("data"), rustix::mount::UnmountFlags::DETACH);
        let _ = run("ip", &["link", "del", &self.veth]);
        let _ = run("ip", &["netns", "del", &self.namespace]);
    }
}

/// A registry on the host's side of the engine's network. Stopped when dropped.
pub(crate) struct Registry {
    server: Child,
}

impl Registry {
    /// The only user is `ann`, with the password `sesame`.
    const PASSWORDS: &str = "ann:$2b$04$nfNxnfQmP7.7O7yWq9xCMOXj8PT/6184dzoX7FiAVEfFMG/5AmEPO\n";

    pub(crate) fn start(folder: &Path, address: &str, auth: RegistryAuth) -> Self {
        fs::create_dir_all(folder).unwrap();
        let folder_name = folder.to_string_lossy();
        let mut config = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {folder_name}/store }} }}\nhttp: {{ addr: \"{address}\" }}\n"
        );
        if auth == RegistryAuth::Password {
            fs::write(folder.join("passwords"), Self::PASSWORDS).unwrap();
            let _ = writeln!(config, "auth: {{ htpasswd: {{ realm: story, path: {folder_name}/passwords }} }}");
        }
        fs::write(folder.join("config.yml"), config).unwrap();
        let server = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.join("config.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the registry does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { server }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Whether a registry requires a login.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegistryAuth {
    Open,
    Password,
}

fn on_path(program: &str) -> bool {
    std::env::var("PATH").unwrap_or_default().split(':').any(|folder| Path::new(folder).join(program).exists())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    output(program, arguments).map(drop)
}

fn output(program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let done = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr).trim()))
}
