//! Logs and exec: reading a replica's output, and running commands next to its process.
//!
//! Owns: the types every driver uses for them, so that a caller need not know the driver. A running command is an exec
//! session; the module is called `logs_exec` in every crate.

use std::sync::Arc;

use bytes::Bytes;
use longshore_model::Time;
use tokio::sync::mpsc;

use crate::runtime::{Handle, Phase, Runtime, RuntimeError};

/// Which part of a replica's output to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether to wait for further lines until the replica ends or the receiver is dropped.
    pub follow: bool,
    /// Only lines of this time or later.
    pub since: Option<Time>,
    /// At most this many of the existing lines, the newest.
    pub tail: Option<u64>,
}

/// One line of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written.
    pub at: Time,
    /// What it was written to.
    pub stream: LogStream,
    /// The line without its line end.
    pub text: Bytes,
}

/// An output of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A command to run next to a replica's process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables in addition to the replica's environment, each `NAME=value`.
    pub environment: Vec<String>,
    /// The user; `None` for the replica's own.
    pub user: Option<String>,
    /// The directory; `None` for the replica's own.
    pub working_dir: Option<String>,
    /// The terminal it runs on, if any.
    pub terminal: Terminal,
}

/// Whether a command runs on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Terminal {
    /// No terminal: standard output and standard error are separate.
    #[default]
    None,
    /// A terminal of this size, which [`ExecInput::Resize`] changes.
    Size {
        /// Characters per row.
        columns: u16,
        /// Number of rows.
        rows: u16,
    },
}

/// The channels of a running command. Dropping `output` kills it.
#[derive(Debug)]
pub struct ExecSession {
    /// Its input. Dropping the sender closes it.
    pub input: mpsc::Sender<ExecInput>,
    /// Its output, then its exit.
    pub output: mpsc::Receiver<ExecOutput>,
}

impl ExecSession {
    /// The session of a command that could not be run, as a shell reports it: a message on standard error and a code.
    pub(crate) fn not_run(reason: &str, code: u8) -> Self {
        let (input, _) = mpsc::channel(1);
        let (to, output) = mpsc::channel(2);
        let bytes = Bytes::from(format!("{reason}\n"));
        // The channel has room for both messages.
        let _ = to.try_send(ExecOutput::Bytes(Output { stream: LogStream::Stderr, bytes }));
        let _ = to.try_send(ExecOutput::Exit(Some(code.into())));
        Self { input, output }
    }

    /// The session of a process nobody can attach to any more: what it wrote, then its exit.
    pub(crate) async fn replay(runtime: Arc<dyn Runtime>, handle: Handle) -> Result<Self, RuntimeError> {
        match runtime.inspect(&handle).await?.phase {
            Phase::StartFailed { reason } => {
                let is_missing = ["not found", "o such file"].iter().any(|sign| reason.contains(sign));
                return Ok(Self::not_run(&reason, if is_missing { NOT_FOUND } else { NOT_RUNNABLE }));
            }
            Phase::Created => return Err(RuntimeError::Refused("it has not started yet".to_owned())),
            Phase::Running(_) | Phase::Exited(_) => {}
        }
        let mut lines = runtime.logs(&handle, LogOptions { follow: true, ..LogOptions::default() }).await?;
        let (input, _) = mpsc::channel(1);
        let (to, output) = mpsc::channel(CHANNEL_CAPACITY);
        tokio::spawn(async move {
            while let Some(LogLine { stream, text, .. }) = lines.recv().await {
                let bytes = Bytes::from([&text[..], b"\n"].concat());
                if to.send(ExecOutput::Bytes(Output { stream, bytes })).await.is_err() {
                    return;
                }
            }
            let phase = runtime.inspect(&handle).await.map(|inspection| inspection.phase);
            let code = if let Ok(Phase::Exited(exit)) = phase { exit.code } else { None };
            let _ = to.send(ExecOutput::Exit(code)).await;
        });
        Ok(Self { input, output })
    }
}

/// Messages that a channel of a session or a log reader holds before its sender waits.
pub(crate) const CHANNEL_CAPACITY: usize = 256;

/// A shell's exit code for a command that does not exist.
pub(crate) const NOT_FOUND: u8 = 127;
/// A shell's exit code for a command that exists and cannot be run.
pub(crate) const NOT_RUNNABLE: u8 = 126;

/// A message to a running command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecInput {
    /// Bytes for its standard input.
    Bytes(Bytes),
    /// The new size of its terminal.
    Resize {
        /// Characters per row.
        columns: u16,
        /// Number of rows.
        rows: u16,
    },
    /// The end of its standard input.
    End,
}

/// A message from a running command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOutput {
    /// Bytes it wrote.
    Bytes(Output),
    /// Its exit code, the last message. `None` if the driver does not know it.
    Exit(Option<i64>),
}

/// Output of a command. On a terminal all output is `Stdout`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// What they were written to.
    pub stream: LogStream,
    /// The bytes.
    pub bytes: Bytes,
}
