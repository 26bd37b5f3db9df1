//! The small process that stands between the agent and a plain process, and outlives the agent.
//!
//! Owns: one child: its session, its output in files that are rotated, and how it ended.
//! Must not touch: the network, the control plane, other children. It has no runtime and one order.
//! Invariant: whatever happens to the agent, the child runs on, its output is kept and its exit code is written down.
//!
//! ```text
//! agent ──spawns──▶ shim (own session) ──spawns──▶ the replica's process (own group)
//!   ▲                 │ pipes: output ─▶ out.log, out.log.1, …
//!   └── reads ◀── status.json
//! ```

pub(crate) mod log;
pub(crate) mod order;

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

use crate::session::{LogStream, NOT_FOUND, NOT_RUNNABLE};
use log::LogFiles;
use order::{Ended, Order, ProcessId, Status};

/// Time the output may still be read after the process has ended; something it left behind may hold the pipe open.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);

/// Enters the shim. `run FOLDER` carries out the order in the folder; `tty PROGRAM ARGS…` becomes the program, on the
/// terminal that is its input.
pub fn main(arguments: &[String]) -> ExitCode {
    match arguments {
        [mode, folder] if mode == "run" => run(Path::new(folder)),
        [mode, program, rest @ ..] if mode == "tty" => on_terminal(program, rest),
        _ => ExitCode::from(2),
    }
}

fn on_terminal(program: &str, arguments: &[String]) -> ExitCode {
    let taken = setsid().and_then(|_| ioctl_tiocsctty(io::stdin()));
    let error = match taken {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error.into(),
    };
    eprintln!("{program}: {error}");
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE })
}

fn run(folder: &Path) -> ExitCode {
    let Ok(order) = Order::read(folder) else { return ExitCode::from(2) };
    let Some(_lock) = order::lock(folder) else {
        // Another shim has this order: the agent was killed between starting it and reading that it had started.
        tell("ok");
        return ExitCode::SUCCESS;
    };
    let mut status = Status { shim: ProcessId::of(getpid()), ..Status::default() };
    match start(&order) {
        Ok(child) => supervise(folder, &order, child, status),
        Err(error) => {
            status.error = Some(format!("{}: {error}", order.argv.first().map_or("no command", String::as_str)));
            let _ = status.write(folder);
            tell(&format!("error {}", status.error.unwrap_or_default()));
            ExitCode::FAILURE
        }
    }
}

fn start(order: &Order) -> io::Result<Child> {
    // A session of its own: what ends the agent's terminal or service must not end this.
    let _ = setsid();
    for group in &order.cgroups {
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
    }
    for (resource, limit) in order.rlimits() {
        setrlimit(resource, limit)?;
    }
    let (program, arguments) = order.argv.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(order.environment.iter().cloned());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    if let Some(folder) = &order.working_dir {
        command.current_dir(folder);
    }
    if let Some(gid) = order.gid {
        command.gid(gid);
    }
    if let Some(uid) = order.uid {
        command.uid(uid);
    }
    let child = command.spawn()?;
    let _ = std::fs::write(format!("/proc/{}/oom_score_adj", child.id()), order.oom_score_adj.to_string());
    Ok(child)
}

fn supervise(folder: &Path, order: &Order, mut child: Child, mut status: Status) -> ExitCode {
    // Killed for memory it would take the exit code with it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    status.child = pid.and_then(ProcessId::of);
    let written = status.write(folder);
    tell(if written.is_ok() { "ok" } else { "error the status could not be written" });
    let log = Arc::new(Mutex::new(LogFiles::open(folder, order.log)));
    let readers = [
        child.stdout.take().map(|pipe| copy(pipe, LogStream::Stdout, Arc::clone(&log))),
        child.stderr.take().map(|pipe| copy(pipe, LogStream::Stderr, Arc::clone(&log))),
    ];
    let ended = child.wait().map_or(Ended { code: None }, ended);
    end_leftovers(pid, &order.cgroups);
    status.ended = Some(ended);
    let _ = status.write(folder);
    let deadline = Instant::now() + LAST_WORDS;
    for reader in readers.into_iter().flatten() {
        while !reader.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
    ExitCode::SUCCESS
}

/// A shell's way to tell an exit from a signal, and a container's.
pub(crate) fn exit_code(status: ExitStatus) -> Option<i64> {
    let by_signal = status.signal().map(|signal| 128 + i64::from(signal));
    status.code().map(i64::from).or(by_signal)
}

fn ended(status: ExitStatus) -> Ended {
    Ended { code: exit_code(status) }
}

/// When the process of a replica has ended the replica has, as in a container: what it started goes with it.
fn end_leftovers(group: Option<Pid>, cgroups: &[PathBuf]) {
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for pid in order::members(cgroups).into_iter().filter(|pid| *pid != getpid()) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Tells the agent how the start went, if it still listens, and lets go of the pipe.
fn tell(word: &str) {
    let _ = writeln!(io::stdout(), "{word}");
    if let Ok(null) = std::fs::File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Longest line kept in one piece; a program that never ends its lines must not fill the memory.
const LONGEST_LINE: u64 = 64 * 1024;

fn copy(pipe: impl Read + Send + 'static, stream: LogStream, log: Arc<Mutex<LogFiles>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while (&mut pipe).take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if let Ok(mut log) = log.lock() {
                log.write(stream, line.strip_suffix(b"\n").unwrap_or(&line));
            }
            line.clear();
        }
    })
}
