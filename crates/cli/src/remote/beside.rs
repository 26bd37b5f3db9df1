//! What replicas write, and commands beside them.
//!
//! Owns: names in front of lines, and the terminal in front of which somebody sits while a command runs elsewhere.
//! Invariant: the terminal is as it was when this ends, however it ends; the exit code of a command is that command's.

use std::{
    io::{self, IsTerminal as _, Read as _},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use clap::Args;
use longshore_api::{Client, ExecRequest, Frame, LogEntry, LogQuery, LogSource, SessionInput, TerminalSize};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{Scoped, Shown, ask};
use crate::{
    calendar,
    exit::Exit,
    input,
    print::{self, Reader},
    style::{Colour, Tone},
};

pub(super) const LOGS_EXAMPLES: &str = "Examples:
  longshore logs shop-web-0
  longshore logs shop/web -f --tail 20
  longshore logs shop --since 10m";

/// Show what replicas have written, each line with its replica. Of one that was started again that is also what the start
/// before wrote.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    #[command(flatten)]
    scope: Scoped,
    /// A replica, `DEPLOYMENT/SERVICE`, or a whole deployment.
    name: String,
    /// Stay until Ctrl-C, also with replicas that come later.
    #[arg(short, long)]
    follow: bool,
    /// Nothing older than this: `90s`, `10m`, `2h`, `1d`.
    #[arg(long, value_name = "AGE", value_parser = input::time)]
    since: Option<Duration>,
    /// At most so many lines of each start of a replica, of those that are there already.
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
    /// Show when each line was written.
    #[arg(short, long)]
    timestamps: bool,
}

pub(super) fn logs(options: &Logs) -> anyhow::Result<Exit> {
    let Logs { scope, name, follow, since, tail, timestamps: _ } = options;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since_ms = since.map(|age| u64::try_from(now.saturating_sub(age).as_millis()).unwrap_or_default());
    let query =
        LogQuery { of: name.clone(), namespace: scope.namespace().to_owned(), follow: *follow, since_ms, tail: *tail };
    ask(&scope.connection, async |client| {
        let mut lines = client.logs(&query).await?;
        let mut width = 0;
        loop {
            let entry = tokio::select! {
                entry = lines.next() => entry?,
                _ = tokio::signal::ctrl_c() => None,
                () = print::reader_gone() => None,
            };
            let Some(entry) = entry else { return Ok(Exit::Success) };
            width = width.max(entry.replica.len());
            if show(options, &entry, width)? == Reader::Gone {
                return Ok(Exit::Success);
            }
        }
    })
}

fn show(options: &Logs, entry: &LogEntry, width: usize) -> anyhow::Result<Reader> {
    let text = match options.scope.connection.output() {
        Shown::Json => serde_json::to_string(entry)? + "\n",
        Shown::Yaml => format!("---\n{}", longshore_compose::yaml::emit::emit(&serde_json::to_value(entry)?)),
        Shown::Text if entry.source == LogSource::Note => {
            print::note(&format!("{}: {}", entry.replica, entry.text));
            return Ok(Reader::There);
        }
        Shown::Text => {
            let name = Colour::of_stdout().paint(Tone::Strong, &format!("{:width$}", entry.replica));
            let at =
                if options.timestamps { format!("{} ", calendar::millisecond(entry.at_ms)) } else { String::new() };
            format!("{name} | {at}{}\n", entry.text)
        }
    };
    print::offer(text.as_bytes())
}

pub(super) const EXEC_EXAMPLES: &str = "Examples:
  longshore exec shop-web-0 cat /etc/hostname
  longshore exec -it shop-web-0 sh
  longshore exec -e LEVEL=debug shop-web-0 env";

/// The code of a command that nobody reads any more, as shells have it: 128 and SIGPIPE.
const UNREAD: u8 = 141;

/// Run a command beside a replica, wherever that runs.
///
/// Its exit code is the command's.
#[derive(Debug, Args)]
// What a command writes has no other form.
#[command(mut_arg("output", |output| output.hide(true)))]
pub(crate) struct Exec {
    #[command(flatten)]
    scope: Scoped,
    /// Hand on what is typed or piped in.
    #[arg(short, long)]
    interactive: bool,
    /// Give the command a terminal as large as this one.
    #[arg(short, long)]
    tty: bool,
    /// A variable on top of the replica's.
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Run as this user.
    #[arg(short, long)]
    user: Option<String>,
    /// Run in this folder.
    #[arg(short, long, value_name = "PATH")]
    workdir: Option<String>,
    /// The replica as `status` prints it.
    replica: String,
    /// The command.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub(super) fn exec(options: &Exec) -> anyhow::Result<Exit> {
    if options.tty && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        print::note("error: there is no terminal here to give to the command\n\nhint: leave out `-t`");
        return Ok(Exit::Trouble);
    }
    ask(&options.scope.connection, async |client| converse(client, options).await)
}

async fn converse(client: &Client, options: &Exec) -> anyhow::Result<Exit> {
    let request = ExecRequest {
        command: options.command.clone(),
        environment: options.environment.clone(),
        user: options.user.clone(),
        working_dir: options.workdir.clone(),
        terminal: options.tty.then(size),
    };
    let (input, mut output) = client.exec(&options.scope.printed(&options.replica), &request).await?;
    let _raw = options.tty.then(Raw::enter).transpose().context("the terminal cannot be handed over")?;
    let (to, said) = mpsc::channel(16);
    if options.interactive {
        read_along(to.clone());
    } else {
        let _ = to.send(Frame::EndOfInput).await;
    }
    let resizing = options.tty.then(|| to.clone());
    drop(to);
    // Beside the output, never before it: a command that writes while it reads would wait for us, and we for it.
    tokio::spawn(hand_on(input, said));
    let mut resized = signal(SignalKind::window_change())?;
    loop {
        let frame = tokio::select! {
            frame = output.next() => frame?,
            _ = resized.recv(), if resizing.is_some() => {
                if let Some(to) = &resizing {
                    let _ = to.send(Frame::Resize(size())).await;
                }
                continue;
            }
        };
        match frame {
            Some(Frame::Output(bytes)) => match print::offer(&bytes)? {
                Reader::There => {}
                // It may write for ever, and ends with us.
                Reader::Gone => return Ok(Exit::Of(UNREAD)),
            },
            Some(Frame::Errors(bytes)) => write(&mut io::stderr().lock(), &bytes),
            Some(Frame::Exit(Some(code))) => return Ok(Exit::Of(u8::try_from(code & 0xff).unwrap_or(u8::MAX))),
            Some(Frame::Exit(None)) | None => {
                print::note("error: nobody saw how the command ended");
                return Ok(Exit::Trouble);
            }
            // These are ours to say.
            Some(Frame::Input(_) | Frame::EndOfInput | Frame::Resize(_)) => {}
        }
    }
}

async fn hand_on(mut input: SessionInput, mut said: mpsc::Receiver<Frame>) {
    while let Some(frame) = said.recv().await {
        if input.say(&frame).await.is_err() {
            return;
        }
    }
    // Kept: whoever drops it has left.
    std::future::pending::<()>().await;
}

/// Reads what is typed, on a thread of its own: nothing can take back a read that waits for a key.
fn read_along(to: mpsc::Sender<Frame>) {
    std::thread::spawn(move || {
        let mut part = [0; 16 * 1024];
        while let Ok(length @ 1..) = io::stdin().lock().read(&mut part) {
            if to.blocking_send(Frame::Input(part[..length].to_vec().into())).is_err() {
                return;
            }
        }
        let _ = to.blocking_send(Frame::EndOfInput);
    });
}

fn write(to: &mut impl io::Write, bytes: &[u8]) {
    // Nobody is left to be told when what is written to is closed; the command's code is still worth having.
    let _ = to.write_all(bytes).and_then(|()| to.flush());
}

fn size() -> TerminalSize {
    let found = tcgetwinsize(io::stdout()).map(|size| TerminalSize { columns: size.ws_col, rows: size.ws_row });
    found.unwrap_or(TerminalSize { columns: 80, rows: 24 })
}

/// A terminal that hands on every key, until this is dropped.
struct Raw {
    before: Termios,
}

impl Raw {
    fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs no tidying.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
