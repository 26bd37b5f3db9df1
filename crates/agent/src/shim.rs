//! The shim: a small process between the agent and a plain process, which outlives the agent.
//!
//! Owns: one child process, its session, its rotated output files, and its exit code.
//! Must not touch: the network, the control plane, other processes. It has no async runtime and runs one spec.
//! Invariant: whatever happens to the agent, the child keeps running, its output is kept and its exit code is written.
//!
//! ```text
//! agent ──spawns──▶ shim (own session) ──spawns──▶ the replica's process (own group)
//!   ▲                 │ pipes: output ─▶ out.log, out.log.1, …
//!   └── reads ◀── status.json
//! ```

pub(crate) mod log;
pub(crate) mod protocol;

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpid, ioctl_tiocsctty, kill_process, kill_process_group, setrlimit, setsid};

use crate::logs_exec::{LogStream, NOT_FOUND, NOT_RUNNABLE};
use log::LogFiles;
use protocol::{ProcessExit, ProcessId, ProcessSpec, ProcessStatus};

/// Time the shim reads output after the process has ended; a child it left behind may hold the pipe open.
pub(crate) const OUTPUT_DRAIN: Duration = Duration::from_secs(2);
/// Part of that time before the end is made known.
const LAST_LINES_DRAIN: Duration = Duration::from_millis(250);

/// Enters the shim. `run FOLDER` runs the spec in the folder; `tty PROGRAM ARGS…` becomes the program, with the
/// terminal on its standard input as controlling terminal.
pub fn main(arguments: &[String]) -> ExitCode {
    match arguments {
        [mode, folder] if mode == "run" => run(Path::new(folder)),
        [mode, program, rest @ ..] if mode == "tty" => on_terminal(program, rest),
        _ => ExitCode::from(2),
    }
}

fn on_terminal(program: &str, arguments: &[String]) -> ExitCode {
    let acquired = setsid().and_then(|_| ioctl_tiocsctty(io::stdin()));
    let error = match acquired {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error.into(),
    };
    eprintln!("{program}: {error}");
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE })
}

fn run(folder: &Path) -> ExitCode {
    let Ok(spec) = ProcessSpec::read(folder) else { return ExitCode::from(2) };
    let Some(_lock) = protocol::lock(folder) else {
        // Another shim runs this spec: the agent was killed after starting that shim and before reading its answer.
        answer("ok");
        return ExitCode::SUCCESS;
    };
    let mut status = ProcessStatus { shim: ProcessId::of(getpid()), ..ProcessStatus::default() };
    match start(&spec) {
        Ok(child) => supervise(folder, &spec, child, status),
        Err(error) => {
            status.error = Some(format!("{}: {error}", spec.argv.first().map_or("no command", String::as_str)));
            let _ = status.write(folder);
            answer(&format!("error {}", status.error.unwrap_or_default()));
            ExitCode::FAILURE
        }
    }
}

fn start(spec: &ProcessSpec) -> io::Result<Child> {
    // A session of its own, so that a hang-up or stop of the agent's session does not end this process.
    let _ = setsid();
    for group in &spec.cgroups {
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
    }
    for (resource, limit) in spec.rlimits() {
        setrlimit(resource, limit)?;
    }
    let mut command = spec.command(&spec.argv).ok_or_else(|| io::Error::other("there is no command"))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn()?;
    let _ = std::fs::write(format!("/proc/{}/oom_score_adj", child.id()), spec.oom_score_adj.to_string());
    Ok(child)
}

fn supervise(folder: &Path, spec: &ProcessSpec, mut child: Child, mut status: ProcessStatus) -> ExitCode {
    // If the shim were killed for memory, the exit code would be lost.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    status.child = pid.and_then(ProcessId::of);
    let written = status.write(folder);
    answer(if written.is_ok() { "ok" } else { "error the status could not be written" });
    let log = Arc::new(Mutex::new(LogFiles::open(folder, spec.log)));
    let readers = [
        child.stdout.take().map(|pipe| copy(pipe, LogStream::Stdout, Arc::clone(&log))),
        child.stderr.take().map(|pipe| copy(pipe, LogStream::Stderr, Arc::clone(&log))),
    ];
    let code = child.wait().ok().and_then(exit_code);
    kill_remaining(pid, &spec.cgroups);
    let readers: Vec<thread::JoinHandle<()>> = readers.into_iter().flatten().collect();
    // Who learns of the end reads the last lines next.
    drain(&readers, LAST_LINES_DRAIN);
    status.ended = Some(ProcessExit { code });
    let _ = status.write(folder);
    drain(&readers, OUTPUT_DRAIN);
    ExitCode::SUCCESS
}

/// Waits until all output is written, for so long at most: a process that escaped may hold the pipes for ever.
fn drain(readers: &[thread::JoinHandle<()>], limit: Duration) {
    let deadline = Instant::now() + limit;
    while !readers.iter().all(thread::JoinHandle::is_finished) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
}

/// The exit code, or 128 plus the number of the signal that ended the process, as shells and containers report it.
pub(crate) fn exit_code(status: ExitStatus) -> Option<i64> {
    let by_signal = status.signal().map(|signal| 128 + i64::from(signal));
    status.code().map(i64::from).or(by_signal)
}

/// Kills what the process started and left behind: as in a container, the replica ends with its main process.
fn kill_remaining(group: Option<Pid>, cgroups: &[PathBuf]) {
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for pid in protocol::members(cgroups).into_iter().filter(|pid| *pid != getpid()) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Tells the agent how the start went, if it still reads, and closes the pipe.
fn answer(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
    if let Ok(null) = std::fs::File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Longest line kept in one piece, in bytes, so that a program that never ends a line cannot exhaust memory.
const MAX_LINE: u64 = 64 * 1024;

fn copy(pipe: impl Read + Send + 'static, stream: LogStream, log: Arc<Mutex<LogFiles>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while (&mut pipe).take(MAX_LINE).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if let Ok(mut log) = log.lock() {
                log.write(stream, line.strip_suffix(b"\n").unwrap_or(&line));
            }
            line.clear();
        }
    })
}
