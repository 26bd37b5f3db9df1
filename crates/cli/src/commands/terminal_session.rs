//! A session with a remote command: the local terminal, standard input and output.
//!
//! Owns: the local terminal while the command uses it. Must not touch: what the command is.
//! Invariant: the terminal settings are restored however this ends; the exit code is the command's.

use std::io::{self, Read as _};

use anyhow::Context as _;
use longshore_api::{Frame, SessionInput, SessionOutput, TerminalSize};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::{
    exit::Exit,
    output::print::{self, Pipe},
};

/// Exit code when the output of the command has no reader: 128 plus SIGPIPE, as in a shell.
const SIGPIPE: u8 = 141;

/// What of this terminal a session uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionIo {
    /// Whether standard input is forwarded.
    pub(super) interactive: bool,
    /// Whether the command has a terminal, which this one stands for.
    pub(super) tty: bool,
}

/// Relays both directions until the command has ended.
pub(super) async fn drive(input: SessionInput, mut output: SessionOutput, io: SessionIo) -> anyhow::Result<Exit> {
    let _raw = io.tty.then(RawMode::enter).transpose().context("the terminal cannot be set to raw mode")?;
    let (to, frames) = mpsc::channel(16);
    if io.interactive {
        forward_stdin(to.clone());
    } else {
        let _ = to.send(Frame::EndOfInput).await;
    }
    let resizing = io.tty.then(|| to.clone());
    drop(to);
    // Concurrent with reading the output: a command that writes while it reads would deadlock otherwise.
    tokio::spawn(send_frames(input, frames));
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
            Some(Frame::Output(bytes)) => match print::stream(&bytes)? {
                Pipe::Open => {}
                // The command may write forever; it ends with this session.
                Pipe::Closed => return Ok(Exit::Command(SIGPIPE)),
            },
            Some(Frame::Errors(bytes)) => write(&mut io::stderr().lock(), &bytes),
            Some(Frame::Exit(Some(code))) => return Ok(Exit::Command(u8::try_from(code & 0xff).unwrap_or(u8::MAX))),
            Some(Frame::Exit(None)) | None => {
                print::stderr("error: the exit code of the command is unknown");
                return Ok(Exit::Error);
            }
            // Sent by this side only.
            Some(Frame::Input(_) | Frame::EndOfInput | Frame::Resize(_)) => {}
        }
    }
}

async fn send_frames(mut input: SessionInput, mut frames: mpsc::Receiver<Frame>) {
    while let Some(frame) = frames.recv().await {
        if input.send(&frame).await.is_err() {
            return;
        }
    }
    // Keeps `input` alive: dropping it would end the session.
    std::future::pending::<()>().await;
}

/// Reads standard input on its own thread, because a blocking read cannot be cancelled.
fn forward_stdin(to: mpsc::Sender<Frame>) {
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
    // A closed stream has no reader to report the error to; the exit code of the command still counts.
    let _ = to.write_all(bytes).and_then(|()| to.flush());
}

/// The size of this terminal.
pub(super) fn size() -> TerminalSize {
    let found = tcgetwinsize(io::stdout()).map(|size| TerminalSize { columns: size.ws_col, rows: size.ws_row });
    found.unwrap_or(TerminalSize { columns: 80, rows: 24 })
}

/// The terminal in raw mode, until this is dropped.
struct RawMode {
    before: Termios,
}

impl RawMode {
    fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
