//! A machine for a test: a temporary folder, a free port, and `longshore` run in it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::terminal::{TIMEOUT, Terminal};

pub(crate) struct Machine {
    folder: tempfile::TempDir,
    pub(crate) port: u16,
    pub(crate) daemon: Option<Child>,
    /// The binary of the next daemon.
    pub(crate) program: PathBuf,
    /// Searched for programs before everything else.
    tools: Option<PathBuf>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        // The kernel does not hand out the same port again soon.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self {
            folder: tempfile::tempdir().unwrap(),
            port,
            daemon: None,
            program: env!("CARGO_BIN_EXE_longshore").into(),
            tools: None,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Sets the working directory and the environment of a command.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.current_dir(self.folder.path()).env("LONGSHORE_SOCKET", self.path("data/longshore.sock"));
        // A command without `--data-dir` must not use the real default.
        command.env("LONGSHORE_DATA_DIR", self.path("other"));
        if let Some(tools) = &self.tools {
            let usual = std::env::var_os("PATH").unwrap_or_default();
            let all = std::iter::once(tools.clone()).chain(std::env::split_paths(&usual));
            command.env("PATH", std::env::join_paths(all).unwrap());
        }
        command.env("HELLO_PORT", self.port.to_string()).env_remove("DOCKER_HOST");
    }

    /// Lets the daemon find the programs of a folder first.
    pub(crate) fn add_to_path(&mut self, tools: PathBuf) {
        self.tools = Some(tools);
    }

    /// Path of the example in the repository.
    pub(crate) fn example() -> String {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello/compose.yaml").to_str().unwrap().to_owned()
    }

    /// `longshore up` of the example on a terminal, with further arguments.
    pub(crate) fn up(&self, further: &[&str]) -> Terminal {
        let (data, example) = (self.path("data"), Self::example());
        let fixed = ["up", "-f", &example, "--node", "n", "--data-dir", data.to_str().unwrap()];
        Terminal::run(&[&fixed[..], further].concat(), |command| self.prepare(command))
    }

    /// Starts a daemon with so many nodes.
    pub(crate) fn start_daemon(&mut self, nodes: u16) {
        self.start_daemon_of("n", nodes);
    }

    /// The same, with a name for the first node.
    pub(crate) fn start_daemon_of(&mut self, node: &str, nodes: u16) {
        self.start_daemon_with(node, nodes, &[]);
    }

    /// The same, with further arguments.
    pub(crate) fn start_daemon_with(&mut self, node: &str, nodes: u16, further: &[&str]) {
        let mut command = Command::new(&self.program);
        let data = self.path("data");
        command.args(["server", "--node", node, "--nodes", &nodes.to_string(), "--data-dir", data.to_str().unwrap()]);
        command.args(further);
        self.prepare(&mut command);
        self.daemon = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        self.wait_for("all nodes", || {
            let known: Option<Value> = serde_json::from_slice(&self.ask(&["node", "ls", "-o", "json"]).stdout).ok();
            known.and_then(|known| Some(known.as_array()?.len())) == Some(usize::from(nodes))
        });
    }

    /// Kills the daemon; replicas keep running.
    pub(crate) fn kill_daemon(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        self.prepare(&mut command);
        command.args(arguments).output().unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(&[arguments, &["-o", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The HTTP response of the example page; `None` if nothing listens.
    pub(crate) fn page(&self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    pub(crate) fn wait_for(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + TIMEOUT;
        while !holds() {
            assert!(Instant::now() < until, "never {what}: {}", self.status());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn status(&self) -> String {
        String::from_utf8_lossy(&self.ask(&["status"]).stdout).into_owned()
    }

    /// Running processes of replicas on all nodes, with the folder of each attempt.
    pub(crate) fn processes(&self) -> Vec<(String, Pid)> {
        let further = fs::read_dir(self.path("data/agents")).into_iter().flatten().flatten().map(|entry| entry.path());
        let agents = further.chain([self.path("data/agent")]);
        let attempts = agents.flat_map(|agent| fs::read_dir(agent.join("exec")).into_iter().flatten().flatten());
        let mut found: Vec<(String, Pid)> = attempts
            .filter_map(|attempt| {
                let status = fs::read(attempt.path().join("status.json")).ok()?;
                let status: Value = serde_json::from_slice(&status).ok()?;
                let pid = Pid::from_raw(i32::try_from(status["child"]["pid"].as_i64()?).ok()?)?;
                Some((attempt.file_name().to_str()?.to_owned(), pid))
            })
            .filter(|(_, pid)| test_kill_process(*pid).is_ok())
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }
}

/// Replaces what differs between machines and runs (amounts, times, ids), and collapses spaces.
pub(crate) fn steady(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_unit = |at: usize| words.get(at).is_some_and(|word| matches!(*word, "MiB" | "GiB" | "TiB" | "bytes"));
        let rest = (0..words.len()).filter(|at| !is_unit(*at));
        let is_index = |at: usize| at > 0 && words[at - 1] == "index" && words[at].parse::<u64>().is_ok();
        // The age of a running replica, in the table of `status`.
        let is_age = |at: usize| at == 5 && words[1] == "running";
        let word = |at: usize| match at {
            at if is_unit(at + 1) || is_index(at) => "#",
            at if is_age(at) => "[AGE]",
            at => steady_word(words[at]),
        };
        let steady: Vec<&str> = rest.map(word).collect();
        out.push_str(&steady.join(" "));
        out.push('\n');
    }
    out
}

fn steady_word(word: &str) -> &str {
    let bare = word.trim_end_matches([',', ';', ':']);
    let of = |pattern: &str| {
        let fits = |(letter, like): (char, char)| if like == '9' { letter.is_ascii_digit() } else { letter == like };
        bare.len() == pattern.len() && bare.chars().zip(pattern.chars()).all(fits)
    };
    if of("9999-99-99") {
        return "[DATE]";
    }
    if of("99:99:99Z") {
        return "[TIME]";
    }
    if bare.starts_with("longshore-operator-") || bare.starts_with("longshore-join-") {
        return "[TOKEN]";
    }
    // A new cluster draws it.
    if bare.starts_with("fd") && bare.ends_with("/64") {
        return "[BLOCK]";
    }
    if bare.starts_with("fd") && bare.ends_with("::/48") {
        return "[PREFIX]";
    }
    let is_id = bare.len() >= 16 && bare.chars().all(|letter| letter.is_ascii_hexdigit());
    if is_id { "[ID]" } else { word }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for (_, process) in self.processes() {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}
