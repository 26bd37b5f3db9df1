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
pub(crate) mod process_input;
pub(crate) mod protocol;

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::fd::OwnedFd,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpid, ioctl_tiocsctty, kill_process, kill_process_group, setrlimit, setsid};

use crate::{
    file_limit,
    logs_exec::{LogStream, NOT_FOUND, NOT_RUNNABLE},
    pseudo_terminal,
};
use log::LogFiles;
use process_input::{AttachMode, AttachPoint, ProcessInput};
use protocol::{ProcessExit, ProcessId, ProcessSpec, ProcessStatus};

/// The variable that tells a shim the limit of open files for its process: its own is that of the daemon.
pub(crate) const SOFT_FILE_LIMIT: &str = "LONGSHORE_SOFT_FILE_LIMIT";
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
        Ok(started) => supervise(folder, &spec, started, status),
        Err(error) => {
            status.error = Some(format!("{}: {error}", spec.argv.first().map_or("no command", String::as_str)));
            let _ = status.write(folder);
            answer(&format!("error {}", status.error.unwrap_or_default()));
            ExitCode::FAILURE
        }
    }
}

/// A started process and its ends of pipes or terminal.
struct Started {
    child: Child,
    outputs: Vec<(Box<dyn Read + Send>, LogStream)>,
    input: Option<ProcessInput>,
}

fn start(spec: &ProcessSpec) -> io::Result<Started> {
    // A session of its own, so that a hang-up or stop of the agent's session does not end this process.
    let _ = setsid();
    for group in &spec.cgroups {
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
    }
    if let Some(limit) = std::env::var(SOFT_FILE_LIMIT).ok().and_then(|limit| limit.parse().ok()) {
        file_limit::lower_to(limit);
    }
    for (resource, limit) in spec.rlimits() {
        setrlimit(resource, limit)?;
    }
    let started = match spec.attach {
        Some(AttachMode::Terminal) => spawn_on_terminal(spec)?,
        Some(AttachMode::Piped) => spawn_piped(spec, Stdio::piped())?,
        None => spawn_piped(spec, Stdio::null())?,
    };
    let _ = std::fs::write(format!("/proc/{}/oom_score_adj", started.child.id()), spec.oom_score_adj.to_string());
    Ok(started)
}

fn spawn_piped(spec: &ProcessSpec, input: Stdio) -> io::Result<Started> {
    let mut command = spec.command(&spec.argv).ok_or_else(no_command)?;
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let out = child.stdout.take().map(|pipe| (Box::new(pipe) as Box<dyn Read + Send>, LogStream::Stdout));
    let err = child.stderr.take().map(|pipe| (Box::new(pipe) as Box<dyn Read + Send>, LogStream::Stderr));
    let input =
        child.stdin.take().map(|pipe| ProcessInput { file: OwnedFd::from(pipe).into(), mode: AttachMode::Piped });
    Ok(Started { child, outputs: out.into_iter().chain(err).collect(), input })
}

/// The process acquires its terminal as it becomes the program, which only itself can do; a session of its own is part
/// of that.
fn spawn_on_terminal(spec: &ProcessSpec) -> io::Result<Started> {
    let mut own: Vec<String> = std::env::args().collect();
    // The last two are `run FOLDER`.
    own.truncate(own.len().saturating_sub(2));
    own[0] = std::env::current_exe()?.to_string_lossy().into_owned();
    own.push("tty".to_owned());
    own.extend(spec.argv.iter().cloned());
    let (controller, terminal) = pseudo_terminal::open()?;
    let mut command = spec.command(&own).ok_or_else(no_command)?;
    command.stdin(terminal.try_clone()?).stdout(terminal.try_clone()?).stderr(terminal);
    let child = command.spawn()?;
    let input = ProcessInput { file: controller.try_clone()?, mode: AttachMode::Terminal };
    Ok(Started { child, outputs: vec![(Box::new(controller), LogStream::Stdout)], input: Some(input) })
}

fn no_command() -> io::Error {
    io::Error::other("there is no command")
}

fn supervise(folder: &Path, spec: &ProcessSpec, started: Started, mut status: ProcessStatus) -> ExitCode {
    let Started { mut child, outputs, input } = started;
    // If the shim were killed for memory, the exit code would be lost.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    status.child = pid.and_then(ProcessId::of);
    let attach = input.and_then(|input| AttachPoint::open(folder, input).ok());
    let written = status.write(folder);
    answer(if written.is_ok() { "ok" } else { "error the status could not be written" });
    let log = Arc::new(Mutex::new(LogFiles::open(folder, spec.log)));
    let copies = outputs.into_iter().map(|(from, stream)| {
        let (log, attach) = (Arc::clone(&log), attach.clone());
        thread::spawn(move || copy(from, stream, &log, attach.as_ref()))
    });
    let readers: Vec<thread::JoinHandle<()>> = copies.collect();
    let code = child.wait().ok().and_then(exit_code);
    kill_remaining(pid, &spec.cgroups);
    // Who learns of the end reads the last lines next.
    drain(&readers, LAST_LINES_DRAIN);
    status.ended = Some(ProcessExit { code });
    let _ = status.write(folder);
    drain(&readers, OUTPUT_DRAIN);
    if let Some(attach) = attach {
        attach.finish(code);
    }
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
const MAX_LINE: usize = 64 * 1024;

fn copy(pipe: impl Read, stream: LogStream, log: &Mutex<LogFiles>, attach: Option<&AttachPoint>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    // A terminal whose last process has ended gives an error, which is its end of file.
    while let Ok(chunk @ [_, ..]) = pipe.fill_buf() {
        if let Some(attach) = attach {
            attach.publish(stream, chunk);
        }
        let length = chunk.len();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.ends_with(b"\n") || line.len() >= MAX_LINE {
                write_line(log, stream, &line);
                line.clear();
            }
        }
        pipe.consume(length);
    }
    if !line.is_empty() {
        write_line(log, stream, &line);
    }
}

fn write_line(log: &Mutex<LogFiles>, stream: LogStream, line: &[u8]) {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    if let Ok(mut log) = log.lock() {
        log.write(stream, text);
    }
}
