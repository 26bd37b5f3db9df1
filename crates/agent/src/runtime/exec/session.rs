//! Commands run beside a plain process: hooks, and what a person asks for.
//!
//! Owns: giving a command the process's user, folder and environment, and a terminal where one is wanted.

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::Path,
    process::Stdio,
    time::Duration,
};

use bytes::Bytes;
use longshore_model::container::Hook;
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    process::{Child, Command},
    sync::mpsc,
};

use super::Exec;
use crate::{
    runtime::{Handle, RuntimeError},
    session::{ExecInput, ExecOutput, ExecRequest, ExecSession, LogStream, NOT_FOUND, NOT_RUNNABLE, Output, Terminal},
    shim::{exit_code, order::Order},
};

/// Time a hook may take.
const HOOK: Duration = Duration::from_mins(5);
const QUEUE: usize = 256;
const CHUNK: usize = 16 * 1024;

/// A command as the replica's own process would start it.
pub(super) fn command(order: &Order, argv: &[String]) -> Option<Command> {
    let (program, arguments) = argv.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(order.environment.iter().cloned());
    if let Some(folder) = &order.working_dir {
        command.current_dir(folder);
    }
    if let Some(gid) = order.gid {
        command.gid(gid);
    }
    if let Some(uid) = order.uid {
        command.uid(uid);
    }
    Some(command)
}

pub(super) async fn hook(order: &Order, hook: &Hook) -> Result<i64, RuntimeError> {
    let mut command = command(order, &hook.command).ok_or_else(|| refused("a hook has no command"))?;
    command.envs(hook.environment.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))));
    if let Some(folder) = &hook.working_dir {
        command.current_dir(folder);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| refused(&error.to_string()))?;
    let ended = tokio::time::timeout(HOOK, child.wait()).await;
    let ended = ended.map_err(|_| refused(&format!("a hook took longer than {} s", HOOK.as_secs())))?;
    Ok(ended.ok().and_then(|status| status.code()).map_or(-1, i64::from))
}

impl Exec {
    #[expect(clippy::unused_async, reason = "the contract is the same for a driver that must ask somebody")]
    pub(crate) async fn session(&self, handle: &Handle, request: ExecRequest) -> Result<ExecSession, RuntimeError> {
        let mut order = Order::read(Path::new(&handle.0)).map_err(|_| RuntimeError::Gone)?;
        if request.user.is_some() {
            return Err(refused("a command beside a plain process runs as that process's user"));
        }
        let extra = request.environment.iter().filter_map(|text| text.split_once('='));
        order.environment.extend(extra.map(|(name, value)| (name.to_owned(), value.to_owned())));
        order.working_dir = request.working_dir.clone().or(order.working_dir);
        match request.terminal {
            Terminal::None => piped(&order, &request.command),
            Terminal::Size { columns, rows } => self.on_terminal(&order, &request.command, columns, rows),
        }
    }

    fn on_terminal(
        &self,
        order: &Order,
        argv: &[String],
        columns: u16,
        rows: u16,
    ) -> Result<ExecSession, RuntimeError> {
        // A terminal can only be taken by the process that is to have it, so the shim takes it and becomes the command.
        let through_shim: Vec<String> =
            self.config.shim.iter().cloned().chain(["tty".to_owned()]).chain(argv.iter().cloned()).collect();
        let mut command = command(order, &through_shim).ok_or_else(|| refused("there is no command"))?;
        let (ours, theirs) = terminal().map_err(|error| refused(&error.to_string()))?;
        resize(&ours, columns, rows);
        let copy = || theirs.try_clone().map_err(|error| refused(&error.to_string()));
        command.stdin(copy()?).stdout(copy()?).stderr(copy()?).kill_on_drop(true);
        let child = command.spawn().map_err(|error| refused(&error.to_string()))?;
        drop((command, theirs));
        let clone = || ours.try_clone().map_err(|error| refused(&error.to_string()));
        let (reader, writer) = (tokio::fs::File::from_std(clone()?), tokio::fs::File::from_std(clone()?));
        Ok(joined(child, Some(writer), [Some((reader, LogStream::Stdout)), None], Some(ours)))
    }
}

/// Either output of a command; they are of two types that do the same.
type Pipe = Box<dyn AsyncRead + Send + Unpin>;

fn piped(order: &Order, argv: &[String]) -> Result<ExecSession, RuntimeError> {
    let mut command = command(order, argv).ok_or_else(|| refused("there is no command"))?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
            return Ok(ExecSession::not_run(&format!("{}: {error}", argv[0]), code));
        }
    };
    let input = child.stdin.take();
    let out = child.stdout.take().map(|pipe| (Box::new(pipe) as Pipe, LogStream::Stdout));
    let err = child.stderr.take().map(|pipe| (Box::new(pipe) as Pipe, LogStream::Stderr));
    Ok(joined(child, input, [out, err], None))
}

/// Ties a child's pipes to the two ends of a session.
fn joined<W, R>(
    mut child: Child,
    input: Option<W>,
    outputs: [Option<(R, LogStream)>; 2],
    terminal: Option<File>,
) -> ExecSession
where
    W: AsyncWrite + Send + Unpin + 'static,
    R: AsyncRead + Send + Unpin + 'static,
{
    let (to_command, inputs) = mpsc::channel(QUEUE);
    let (to_reader, from_command) = mpsc::channel(QUEUE);
    let writer = tokio::spawn(write(inputs, input, terminal));
    let readers: Vec<_> = outputs
        .into_iter()
        .flatten()
        .map(|(pipe, stream)| tokio::spawn(read(pipe, stream, to_reader.clone())))
        .collect();
    tokio::spawn(async move {
        // Whoever stops reading has left, and a command nobody reads is ended.
        let code = tokio::select! {
            ended = child.wait() => ended.ok().and_then(exit_code),
            () = to_reader.closed() => None,
        };
        for reader in readers {
            let _ = tokio::time::timeout(Duration::from_secs(1), reader).await;
        }
        writer.abort();
        let _ = to_reader.send(ExecOutput::Exit(code)).await;
    });
    ExecSession { input: to_command, output: from_command }
}

async fn write(mut inputs: mpsc::Receiver<ExecInput>, mut to: Option<impl AsyncWrite + Unpin>, terminal: Option<File>) {
    while let Some(input) = inputs.recv().await {
        match (input, to.as_mut()) {
            (ExecInput::Bytes(bytes), Some(to)) => {
                if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
                    return;
                }
            }
            (ExecInput::Resize { columns, rows }, _) => terminal.iter().for_each(|ours| resize(ours, columns, rows)),
            // A terminal has no end of input but the character for it.
            (ExecInput::End, Some(to)) if terminal.is_some() => drop(to.write_all(&[4]).await),
            (ExecInput::End, _) => to = None,
            (ExecInput::Bytes(_), None) => {}
        }
    }
}

async fn read(mut pipe: impl AsyncRead + Unpin, stream: LogStream, to: mpsc::Sender<ExecOutput>) {
    let mut chunk = vec![0; CHUNK];
    // The other end of a terminal that is gone is an error, and the end.
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        let bytes = Bytes::copy_from_slice(&chunk[..count]);
        if to.send(ExecOutput::Bytes(Output { stream, bytes })).await.is_err() {
            return;
        }
    }
}

fn terminal() -> io::Result<(File, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let path = name.to_str().map_err(io::Error::other)?;
    let theirs = OpenOptions::new().read(true).write(true).open(path)?;
    Ok((File::from(ours), theirs.into()))
}

fn resize(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // Only a terminal that is gone refuses, and then nobody looks at it.
    let _ = tcsetwinsize(terminal, size);
}

fn refused(reason: &str) -> RuntimeError {
    RuntimeError::Refused(reason.to_owned())
}
