//! The output of a container, and commands run inside it.
//!
//! Owns: turning the engine's streams into lines and bytes.

use std::time::Duration;

use bollard::{
    container::LogOutput,
    exec::{CreateExecOptions, StartExecOptions, StartExecResults},
    query_parameters::{LogsOptionsBuilder, ResizeExecOptionsBuilder},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use longshore_model::{Time, container::Hook};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{io::AsyncWriteExt, sync::mpsc};

use super::{Docker, LONG, SHORT};
use crate::{
    logs_exec::{
        CHANNEL_CAPACITY, ExecInput, ExecOutput, ExecRequest, ExecSession, LogLine, LogOptions, LogStream, NOT_FOUND,
        NOT_RUNNABLE, Output, Terminal,
    },
    runtime::{HOOK_TIMEOUT, Handle, Runtime as _, RuntimeError, hook_timed_out},
};

/// Five seconds in all: an engine that takes longer to start a command is overloaded, and the command ends with its
/// container at the latest.
const PID_POLLS: u32 = 50;
const PID_POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn logs(
    docker: &Docker,
    handle: &Handle,
    options: LogOptions,
) -> Result<mpsc::Receiver<LogLine>, RuntimeError> {
    let client = docker.connection.client().await?;
    // Inspected first: the stream of a container that does not exist is empty and not an error.
    docker.inspect(handle).await?;
    let query = LogsOptionsBuilder::new()
        .follow(options.follow)
        .stdout(true)
        .stderr(true)
        .timestamps(true)
        .since(options.since.map_or(0, |since| i32::try_from(since.0 / 1000).unwrap_or(i32::MAX)))
        .tail(&options.tail.map_or_else(|| "all".to_owned(), |lines| lines.to_string()))
        .build();
    let (to, lines) = mpsc::channel(CHANNEL_CAPACITY);
    let id = handle.0.clone();
    tokio::spawn(async move {
        let mut chunks = std::pin::pin!(client.logs(&id, Some(query)));
        while let Some(Ok(chunk)) = chunks.next().await {
            // The engine filters by whole seconds; the rest of the first second is filtered here.
            let is_recent = |line: &LogLine| options.since.is_none_or(|since| line.at >= since);
            if let Some(line) = log_line(chunk).filter(is_recent)
                && to.send(line).await.is_err()
            {
                return;
            }
        }
    });
    Ok(lines)
}

pub(super) async fn exec(docker: &Docker, handle: &Handle, request: ExecRequest) -> Result<ExecSession, RuntimeError> {
    let client = docker.connection.client().await?;
    let tty = matches!(request.terminal, Terminal::Size { .. });
    let options = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(tty),
        env: Some(request.environment),
        cmd: Some(request.command),
        user: request.user,
        working_dir: request.working_dir,
        ..CreateExecOptions::default()
    };
    let created = docker.call(SHORT, async |client| client.create_exec(&handle.0, options).await).await?;
    let start = StartExecOptions { detach: false, tty, output_capacity: None };
    let started = match docker.call(LONG, async |client| client.start_exec(&created.id, Some(start)).await).await {
        Err(RuntimeError::Refused(reason)) => return not_run(reason),
        started => started?,
    };
    let StartExecResults::Attached { output, input } = started else {
        return Err(RuntimeError::Refused("the engine did not attach to the command".to_owned()));
    };
    let (to_command, inputs) = mpsc::channel(CHANNEL_CAPACITY);
    let (to_reader, outputs) = mpsc::channel(CHANNEL_CAPACITY);
    if let Terminal::Size { columns, rows } = request.terminal {
        resize(&client, &created.id, columns, rows).await;
    }
    let writer = tokio::spawn(write(client.clone(), created.id.clone(), inputs, input));
    let container = handle.0.clone();
    tokio::spawn(async move {
        let mut output = output;
        loop {
            let chunk = tokio::select! {
                chunk = output.next() => chunk,
                () = to_reader.closed() => return kill(&client, &created.id, &container).await,
            };
            let Some(Ok(chunk)) = chunk else { break };
            let _ = to_reader.send(ExecOutput::Bytes(bytes_of(chunk))).await;
        }
        writer.abort();
        let code = client.inspect_exec(&created.id).await.ok().and_then(|exec| exec.exit_code);
        let _ = to_reader.send(ExecOutput::Exit(code)).await;
    });
    Ok(ExecSession { input: to_command, output: outputs })
}

/// Some engines refuse a command that does not exist instead of attaching to it and reporting its exit code.
fn not_run(reason: String) -> Result<ExecSession, RuntimeError> {
    let contains = |messages: &[&str]| messages.iter().any(|message| reason.contains(message));
    if contains(&["executable file not found", "no such file or directory"]) {
        return Ok(ExecSession::not_run(&reason, NOT_FOUND));
    }
    if contains(&["permission denied", "is a directory", "exec format error"]) {
        return Ok(ExecSession::not_run(&reason, NOT_RUNNABLE));
    }
    Err(RuntimeError::Refused(reason))
}

/// Kills a command whose session was dropped. The engine has no call for that, so the agent kills the process if it can
/// see it. The pid may belong to another process in the agent's pid namespace, so the process must be in the
/// container's cgroup.
async fn kill(client: &bollard::Docker, exec: &str, container: &str) {
    let Some(pid) = running_pid(client, exec).await else { return };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).unwrap_or_default();
    // Asked again: now that the pidfd pins the pid, it must still be the command's.
    if groups.contains(container) && running_pid(client, exec).await == Some(pid) {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
}

/// The pid of a command that runs; `None` once it has ended. The engine calls a command running a moment before it
/// knows its pid, so a missing pid is asked for again.
async fn running_pid(client: &bollard::Docker, exec: &str) -> Option<Pid> {
    for _ in 0..PID_POLLS {
        let exec = client.inspect_exec(exec).await.ok().filter(|exec| exec.running == Some(true))?;
        if let Some(pid) = exec.pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            return Some(pid);
        }
        tokio::time::sleep(PID_POLL_INTERVAL).await;
    }
    None
}

async fn write(
    client: bollard::Docker,
    exec: String,
    mut inputs: mpsc::Receiver<ExecInput>,
    mut to: std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>,
) {
    while let Some(input) = inputs.recv().await {
        match input {
            ExecInput::Bytes(bytes) => {
                if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
                    return;
                }
            }
            ExecInput::Resize { columns, rows } => resize(&client, &exec, columns, rows).await,
            ExecInput::End => break,
        }
    }
    let _ = to.shutdown().await;
}

async fn resize(client: &bollard::Docker, exec: &str, columns: u16, rows: u16) {
    let size = ResizeExecOptionsBuilder::new().w(i32::from(columns)).h(i32::from(rows)).build();
    // A command that has already ended has no terminal left to resize.
    let _ = tokio::time::timeout(SHORT, client.resize_exec(exec, size)).await;
}

/// Runs a hook to its end and returns its exit code.
pub(super) async fn run_hook(docker: &Docker, handle: &Handle, hook: &Hook) -> Result<i64, RuntimeError> {
    let environment = hook.environment.iter();
    let options = CreateExecOptions {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        env: Some(environment.filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?))).collect()),
        cmd: Some(hook.command.clone()),
        user: hook.user.clone(),
        working_dir: hook.working_dir.clone(),
        privileged: Some(hook.privileged),
        ..CreateExecOptions::default()
    };
    let created = docker.call(SHORT, async |client| client.create_exec(&handle.0, options).await).await?;
    let started = docker.call(LONG, async |client| client.start_exec(&created.id, None).await).await?;
    if let StartExecResults::Attached { mut output, .. } = started {
        let ended = async { while output.next().await.is_some() {} };
        tokio::time::timeout(HOOK_TIMEOUT, ended).await.map_err(|_| hook_timed_out())?;
    }
    let exec = docker.call(SHORT, async |client| client.inspect_exec(&created.id).await).await?;
    Ok(exec.exit_code.unwrap_or(-1))
}

pub(super) fn bytes_of(chunk: LogOutput) -> Output {
    match chunk {
        LogOutput::StdErr { message } => Output { stream: LogStream::Stderr, bytes: message },
        LogOutput::StdOut { message } | LogOutput::StdIn { message } | LogOutput::Console { message } => {
            Output { stream: LogStream::Stdout, bytes: message }
        }
    }
}

/// Parses a line `2026-01-02T03:04:05.678901234Z text`.
fn log_line(chunk: LogOutput) -> Option<LogLine> {
    let Output { stream, bytes } = bytes_of(chunk);
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    let at = std::str::from_utf8(&bytes[..space]).ok().and_then(timestamp)?;
    let mut text = BytesMut::from(&bytes[space + 1..]);
    while text.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        text.truncate(text.len() - 1);
    }
    Some(LogLine { at, stream, text: Bytes::from(text) })
}

/// Parses a UTC timestamp. Written by hand because nothing else here needs a calendar library.
pub(super) fn timestamp(stamp: &str) -> Option<Time> {
    let (date, time) = stamp.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    let millis: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    // Days since 1970, counted in years that begin in March so that the leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (month * 153 + 2) / 5 + day
            - 719_469;
    let total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    u64::try_from(total * 1000 + millis).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_parsed_to_the_millisecond() {
        assert_eq!(timestamp("1970-01-01T00:00:00Z"), Some(Time(0)));
        assert_eq!(timestamp("2024-02-29T12:00:00.5Z"), Some(Time(1_709_208_000_500)));
        assert_eq!(timestamp("2026-11-15T23:25:22.133033122Z"), Some(Time(1_794_785_122_133)));
        assert_eq!(timestamp("yesterday"), None);
    }

    #[test]
    fn a_log_line_is_split_into_timestamp_and_text() {
        let chunk = LogOutput::StdErr { message: Bytes::from_static(b"1970-01-01T00:00:01.000000000Z a b\r\n") };
        let line = log_line(chunk).unwrap();
        assert_eq!((line.at, line.stream, &line.text[..]), (Time(1000), LogStream::Stderr, &b"a b"[..]));
    }
}
