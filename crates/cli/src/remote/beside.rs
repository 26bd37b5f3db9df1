//! What replicas write, and commands beside them.
//!
//! Owns: names in front of lines, and the terminal in front of which somebody sits while a command runs elsewhere.
//! Invariant: the terminal is as it was when this ends, however it ends; the exit code of a command is that command's.

use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
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

use super::{Connection, Scoped, Shown, ask};
use crate::{
    cluster,
    exit::Exit,
    print,
    style::{Colour, Tone},
};

pub(super) const LOGS_EXAMPLES: &str = "Examples:
  longshore logs shop-web-0
  longshore logs shop/web -f --tail 20
  longshore logs shop --since 10m";

/// Show what replicas have written, each line with its replica.
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
    #[arg(long, value_name = "AGE", value_parser = cluster::time)]
    since: Option<Duration>,
    /// At most so many lines of each replica, of those that are there already.
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
        LogQuery { of: name.clone(), namespace: scope.namespace.clone(), follow: *follow, since_ms, tail: *tail };
    ask(&scope.connection, async |client| {
        let mut lines = client.logs(&query).await?;
        let mut width = 0;
        loop {
            let entry = tokio::select! {
                entry = lines.next() => entry?,
                _ = tokio::signal::ctrl_c() => None,
            };
            let Some(entry) = entry else { return Ok(Exit::Success) };
            width = width.max(entry.replica.len());
            if show(options, &entry, width)? == Reader::Gone {
                return Ok(Exit::Success);
            }
        }
    })
}

/// Whether anybody reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    There,
    Gone,
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
            let at = if options.timestamps { format!("{} ", date(entry.at_ms)) } else { String::new() };
            format!("{name} | {at}{}\n", entry.text)
        }
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error.into()),
    }
}

/// A time as people and programs write it: `2026-01-31T23:59:59.123Z`.
fn date(at_ms: u64) -> String {
    let (days, rest) = (at_ms / 86_400_000, at_ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1000)
}

/// Year, month and day of a day counted from 1970, by counting in eras of 400 years that begin in March, so that the leap
/// day is the last of its year.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + if month <= 2 { 1 } else { 0 }, month, day)
}

pub(super) const EXEC_EXAMPLES: &str = "Examples:
  longshore exec shop-web-0 cat /etc/hostname
  longshore exec -it shop-web-0 sh
  longshore exec -e LEVEL=debug shop-web-0 env";

/// Run a command beside a replica, wherever that runs.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    connection: Connection,
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
    ask(&options.connection, async |client| converse(client, options).await)
}

async fn converse(client: &Client, options: &Exec) -> anyhow::Result<Exit> {
    let request = ExecRequest {
        command: options.command.clone(),
        environment: options.environment.clone(),
        user: options.user.clone(),
        working_dir: options.workdir.clone(),
        terminal: options.tty.then(size),
    };
    let (input, mut output) = client.exec(&options.replica, &request).await?;
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
            Some(Frame::Output(bytes)) => write(&mut io::stdout().lock(), &bytes),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(date(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(date(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(date(1_798_761_599_123), "2026-12-31T23:59:59.123Z");
    }
}
