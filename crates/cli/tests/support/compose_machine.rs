//! A machine of a Compose user: a network namespace of its own, a Docker Engine, one image, and the tools to run projects.
//!
//! Owns: starting and ending the machine, and asking what runs on it. Must not touch: what the answers should be.
//! Invariant: `docker-compose` and `longshore` see the same engine, the same addresses and the same project folder.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream, UdpSocket},
    os::{fd::AsFd as _, unix::fs::symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use serde_json::Value;

/// An address of the machine that is not a loopback address.
pub(crate) const OUTSIDE: &str = "10.215.0.2";

/// Longest wait for one answer of a client.
const ANSWER: Duration = Duration::from_secs(5);

/// A program that runs Compose projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    DockerCompose,
    Longshore,
}

/// What a user asks to see whether a project works.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// The page at `address:port/path`.
    Page(&'static str),
    /// What a TCP server at this address says to one line.
    Line(&'static str, &'static str),
    /// What a UDP server at this address answers to one datagram.
    Datagram(&'static str, &'static str),
    /// What a command prints inside a service.
    Inside(&'static str, &'static [&'static str]),
    /// Names of the services that run.
    Services,
}

pub(crate) struct Machine {
    folder: tempfile::TempDir,
    engine: Child,
    _namespace: Namespace,
}

/// A network namespace that exists until it is dropped.
struct Namespace(String);

impl Namespace {
    /// Makes one with an address besides loopback, and moves this thread and what it starts into it.
    fn enter() -> Self {
        let name = format!("lc{:x}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let namespace = Self(name);
        let entry = fs::File::open(format!("/run/netns/{}", namespace.0)).unwrap();
        move_into_link_name_space(entry.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        run("ip", &["link", "set", "lo", "up"]);
        run("ip", &["link", "add", "lan", "type", "bridge"]);
        run("ip", &["addr", "add", &format!("{OUTSIDE}/24"), "dev", "lan"]);
        run("ip", &["link", "set", "lan", "up"]);
        namespace
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

impl Machine {
    /// Starts the machine, and moves this thread and what it starts into its network. Needs root.
    pub(crate) fn start() -> Self {
        let (namespace, folder) = (Namespace::enter(), tempfile::tempdir().unwrap());
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let log = fs::File::create(folder.path().join("engine.log")).unwrap();
        let engine = Command::new("dockerd")
            .args(["--data-root", &path("data"), "--exec-root", &path("exec"), "--pidfile", &path("pid")])
            .args(["--host", &format!("unix://{}", path("docker.sock")), "--bip", "10.214.0.1/24"])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let machine = Self { folder, engine, _namespace: namespace };
        eventually("the engine answers", || {
            machine.command("docker").arg("version").output().unwrap().status.success()
        });
        machine.import_tools();
        machine
    }

    /// Makes the image `tools:1` of programs of this system, since nothing can be pulled.
    fn import_tools(&self) {
        let root = self.folder.path().join("root");
        for folder in ["bin", "etc", "tmp", "usr/local/bin"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::copy(program("busybox"), root.join("bin/busybox")).unwrap();
        for applet in text(&Command::new("busybox").arg("--list").output().unwrap()).lines() {
            let _ = symlink("busybox", root.join("bin").join(applet));
        }
        for name in ["bash", "getent", "socat"] {
            let source = program(name);
            fs::copy(&source, root.join("bin").join(name)).unwrap();
            let libraries = text(&Command::new("ldd").arg(source).output().unwrap());
            for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
                let target = root.join(library.trim_start_matches('/'));
                fs::create_dir_all(target.parent().unwrap()).unwrap();
                fs::copy(library, target).unwrap();
            }
        }
        fs::write(root.join("etc/nsswitch.conf"), "hosts: files dns\n").unwrap();
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n").unwrap();
        for script in fs::read_dir(projects().join("image")).unwrap().flatten() {
            fs::copy(script.path(), root.join("usr/local/bin").join(script.file_name())).unwrap();
        }
        let archive = self.folder.path().join("root.tar");
        run("tar", &["-C", root.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "."]);
        let path = "ENV PATH=/usr/local/bin:/bin";
        expect(self.command("docker").args(["import", "--change", path]).arg(archive).arg("tools:1"));
    }

    /// A program that uses the engine of this machine.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("DOCKER_HOST", format!("unix://{}", self.folder.path().join("docker.sock").display()));
        command.env("LONGSHORE_DATA_DIR", self.folder.path().join("longshore")).stdin(Stdio::null());
        command
    }

    /// A copy of a project folder, so that no tool can change the original.
    pub(crate) fn project(&self, name: &str) -> ProjectFolder<'_> {
        let home = self.folder.path().join("home");
        fs::create_dir_all(&home).unwrap();
        run("cp", &["-r", projects().join(name).to_str().unwrap(), home.to_str().unwrap()]);
        ProjectFolder { machine: self, name: name.to_owned(), folder: home.join(name) }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let containers = self.command("docker").args(["ps", "-aq"]).output();
        for id in containers.as_ref().map(text).unwrap_or_default().lines() {
            let _ = self.command("docker").args(["rm", "-f", id]).output();
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("engine.log")).unwrap_or_default();
            eprintln!("--- engine ---\n{}", &log[log.len().saturating_sub(2000)..]);
        }
        let _ = kill_process(Pid::from_child(&self.engine), Signal::TERM);
        let _ = self.engine.wait();
        for mounted in ["data", "longshore/agent/secrets"] {
            let _ = rustix::mount::unmount(self.folder.path().join(mounted), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// A project in a folder of its own on a machine.
pub(crate) struct ProjectFolder<'a> {
    machine: &'a Machine,
    name: String,
    folder: PathBuf,
}

impl ProjectFolder<'_> {
    fn tool(&self, name: &str) -> Command {
        let mut command = self.machine.command(name);
        command.current_dir(&self.folder);
        command
    }

    /// `docker-compose` with these arguments, which must succeed.
    pub(crate) fn docker_compose(&self, options: &[&str], arguments: &[&str]) -> String {
        expect(self.tool("docker-compose").args(options).args(arguments))
    }

    /// `longshore` with these arguments, which must succeed.
    pub(crate) fn longshore(&self, arguments: &[&str]) -> String {
        expect(self.tool(env!("CARGO_BIN_EXE_longshore")).args(arguments))
    }

    /// `longshore up` in the foreground, once it says that the deployment is active, or what it says when it ends.
    pub(crate) fn longshore_up(&self, options: &[&str]) -> Result<LongshoreUp, String> {
        let outputs = ["out", "err"].map(|name| self.folder.with_extension(name));
        let [out, err] = outputs.clone().map(|path| fs::File::create(path).unwrap());
        let mut up = self.tool(env!("CARGO_BIN_EXE_longshore"));
        let process = up.arg("up").args(options).stdout(out).stderr(err).spawn().unwrap();
        let mut up = LongshoreUp { process, outputs };
        let mut ended = None;
        eventually(&format!("{} is active", self.name), || {
            ended = up.process.try_wait().unwrap();
            ended.is_some() || fs::read_to_string(&up.outputs[0]).unwrap().contains(" is active")
        });
        match ended {
            None => Ok(up),
            Some(status) => Err(format!("`longshore up` of {} ended with {status}: {}", self.name, up.errors())),
        }
    }

    /// The answer to a question, or why there is none.
    pub(crate) fn ask(&self, tool: Tool, options: &[&str], question: Question) -> String {
        let answer = match question {
            Question::Page(place) => page(place),
            Question::Line(address, line) => send_line(address, line),
            Question::Datagram(address, datagram) => send_datagram(address, datagram),
            Question::Inside(service, command) => return self.inside(tool, options, service, command),
            Question::Services => return self.services(tool, options),
        };
        match answer {
            Ok(answer) => answer.trim_end().to_owned(),
            Err(_) => "nobody answers".to_owned(),
        }
    }

    fn inside(&self, tool: Tool, options: &[&str], service: &str, command: &[&str]) -> String {
        let mut exec = match tool {
            Tool::DockerCompose => self.tool("docker-compose"),
            Tool::Longshore => self.tool(env!("CARGO_BIN_EXE_longshore")),
        };
        match tool {
            Tool::DockerCompose => exec.args(options).args(["exec", "-T", service]).args(command),
            Tool::Longshore => exec.args(["exec", service]).args(command),
        };
        let output = exec.output().unwrap();
        let code = output.status.code();
        if code == Some(0) { text(&output).trim_end().to_owned() } else { format!("exit code {code:?}") }
    }

    fn services(&self, tool: Tool, options: &[&str]) -> String {
        let mut names: Vec<String> = match tool {
            Tool::DockerCompose => {
                let running = self.docker_compose(options, &["ps", "--services", "--filter", "status=running"]);
                running.lines().map(str::to_owned).collect()
            }
            Tool::Longshore => {
                let status: Value =
                    serde_json::from_str(&self.longshore(&["status", &self.name, "-o", "json"])).unwrap();
                let replicas = status["replicas"].as_array().unwrap().iter();
                let running = replicas.filter(|replica| replica["state"] == "running");
                running.map(|replica| replica["service"].as_str().unwrap().to_owned()).collect()
            }
        };
        names.sort();
        names.join(" ")
    }
}

/// A running `longshore up`.
pub(crate) struct LongshoreUp {
    process: Child,
    outputs: [PathBuf; 2],
}

impl LongshoreUp {
    pub(crate) fn errors(&self) -> String {
        fs::read_to_string(&self.outputs[1]).unwrap()
    }

    /// The lines on standard error that warn or report an error.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let errors = self.errors();
        let told = errors.lines().filter(|line| ["warning:", "error:"].iter().any(|word| line.contains(word)));
        told.map(str::to_owned).collect()
    }

    /// Ctrl-C, which stops the project.
    pub(crate) fn interrupt(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.errors());
    }
}

impl Drop for LongshoreUp {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("--- longshore up ---\n{}", self.errors());
        }
    }
}

fn page(place: &str) -> std::io::Result<String> {
    let (address, path) = place.split_at(place.find('/').unwrap());
    let answer = converse(address, &format!("GET {path} HTTP/1.0\r\n\r\n"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok(if head.contains(" 200 ") { body.to_owned() } else { head.lines().next().unwrap_or_default().to_owned() })
}

fn send_line(address: &str, line: &str) -> std::io::Result<String> {
    converse(address, &format!("{line}\n"))
}

fn converse(address: &str, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address.parse().unwrap(), ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn send_datagram(address: &str, datagram: &str) -> std::io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.connect(address)?;
    socket.send(datagram.as_bytes())?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

fn projects() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compose_projects")
}

/// The file of a program of this system.
fn program(name: &str) -> PathBuf {
    let found = text(&Command::new("sh").args(["-c", "command -v \"$0\"", name]).output().unwrap());
    fs::canonicalize(found.trim()).unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(program: &str, arguments: &[&str]) {
    expect(Command::new(program).args(arguments));
}

/// The standard output of a command that must succeed.
fn expect(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    text(&output)
}

/// Polls for a minute.
fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !look() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
