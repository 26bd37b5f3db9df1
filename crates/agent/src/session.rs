//! Looking over a replica's shoulder: its output, and commands run beside it.
//!
//! Owns: the shapes both drivers give them, so that whoever asks cannot tell which driver answered.

use bytes::Bytes;
use longshore_model::Time;
use tokio::sync::mpsc;

/// Which part of a replica's output is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether lines that come later are wanted too.
    pub follow: Follow,
    /// Nothing older than this, as milliseconds since 1970.
    pub since: Option<Time>,
    /// At most so many lines of what is already there.
    pub tail: Option<u64>,
}

/// Whether a reader waits for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// What is there, and no more.
    #[default]
    No,
    /// Until the replica ends or the reader leaves.
    Yes,
}

/// One line of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written, as milliseconds since 1970.
    pub at: Time,
    /// Where to.
    pub stream: LogStream,
    /// Without its line end.
    pub text: Bytes,
}

/// Which of a process's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A command to run beside a replica's process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment on top of the replica's, each `NAME=value`.
    pub environment: Vec<String>,
    /// User, where not the replica's.
    pub user: Option<String>,
    /// Directory, where not the replica's.
    pub working_dir: Option<String>,
    /// Whether it gets a terminal.
    pub terminal: Terminal,
}

/// Whether a command runs on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Terminal {
    /// Its outputs are told apart.
    #[default]
    None,
    /// Of this size, which can change.
    Size {
        /// Characters in a row.
        columns: u16,
        /// Rows.
        rows: u16,
    },
}

/// Both ends of a running command.
#[derive(Debug)]
pub struct ExecSession {
    /// What it is told. Dropping the sender closes its input.
    pub input: mpsc::Sender<ExecInput>,
    /// What it says, its exit last.
    pub output: mpsc::Receiver<ExecOutput>,
}

impl ExecSession {
    /// A command that could not be run, as a shell tells it: in words, and by the code that says which kind of no it was.
    pub(crate) fn not_run(reason: &str, code: u8) -> Self {
        let (input, _) = mpsc::channel(1);
        let (to, output) = mpsc::channel(2);
        let bytes = Bytes::from(format!("{reason}\n"));
        // There is room for both.
        let _ = to.try_send(ExecOutput::Bytes(Output { stream: LogStream::Stderr, bytes }));
        let _ = to.try_send(ExecOutput::Exit(Some(code.into())));
        Self { input, output }
    }
}

/// What a shell exits with where there is no such command, and where there is one that cannot be run.
pub(crate) const NOT_FOUND: u8 = 127;
pub(crate) const NOT_RUNNABLE: u8 = 126;

/// Something for a running command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecInput {
    /// Bytes for its standard input.
    Bytes(Bytes),
    /// Its terminal changed size.
    Resize {
        /// Characters in a row.
        columns: u16,
        /// Rows.
        rows: u16,
    },
    /// Nothing more will come.
    End,
}

/// Something from a running command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOutput {
    /// Bytes it wrote.
    Bytes(Output),
    /// Its exit code; nothing follows. `None` where the driver lost sight of it.
    Exit(Option<i64>),
}

/// Bytes, and which output they came from. A terminal has only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where they were written.
    pub stream: LogStream,
    /// The bytes.
    pub bytes: Bytes,
}
