//! Commands run next to a plain process: hooks, and exec requests of users.
//!
//! Owns: running them with the process's user, directory and environment, and on a terminal if one is requested.

use std::{fs::File, io, process::Stdio, time::Duration};

use bytes::Bytes;
use longshore_model::container::Hook;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    process::{Child, Command},
    sync::mpsc,
};

use crate::{
    logs_exec::{
        CHANNEL_CAPACITY, ExecInput, ExecOutput, ExecRequest, ExecSession, LogStream, NOT_FOUND, NOT_RUNNABLE, Output,
        Terminal,
    },
    pseudo_terminal,
    runtime::{HOOK_TIMEOUT, RuntimeError, hook_timed_out},
    shim::{exit_code, protocol::ProcessSpec},
};

const CHUNK_BYTES: usize = 16 * 1024;
/// Time output may still arrive after a command has ended; a child it left behind may hold the pipe open.
const OUTPUT_DRAIN: Duration = Duration::from_secs(1);

/// A command with the user, directory and environment of the replica's own process. `None` if `argv` is empty.
pub(super) fn command(spec: &ProcessSpec, argv: &[String]) -> Option<Command> {
    spec.command(argv).map(Command::from)
}

pub(super) async fn run_hook(spec: &ProcessSpec, hook: &Hook) -> Result<i64, RuntimeError> {
    let mut command = command(spec, &hook.command).ok_or_else(|| refused("a hook has no command"))?;
    command.envs(hook.environment.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))));
    if let Some(folder) = &hook.working_dir {
        command.current_dir(folder);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| refused(&error.to_string()))?;
    let ended = tokio::time::timeout(HOOK_TIMEOUT, child.wait()).await;
    let ended = ended.map_err(|_| hook_timed_out())?;
    Ok(ended.ok().and_then(|status| status.code()).map_or(-1, i64::from))
}

/// Starts the requested command. `shim` is the command line that enters [`crate::shim::main`].
pub(super) fn exec(shim: &[String], mut spec: ProcessSpec, request: ExecRequest) -> Result<ExecSession, RuntimeError> {
    if request.user.is_some() {
        return Err(refused("a command next to a plain process runs as that process's user"));
    }
    let extra = request.environment.iter().filter_map(|text| text.split_once('='));
    spec.environment.extend(extra.map(|(name, value)| (name.to_owned(), value.to_owned())));
    spec.working_dir = request.working_dir.or(spec.working_dir);
    match request.terminal {
        Terminal::None => exec_piped(&spec, &request.command),
        Terminal::Size { columns, rows } => {
            // A controlling terminal can only be acquired by the process that uses it, so the shim acquires it and then
            // becomes the command.
            let mut argv = shim.to_vec();
            argv.push("tty".to_owned());
            argv.extend(request.command);
            exec_on_terminal(&spec, &argv, columns, rows)
        }
    }
}

fn exec_on_terminal(spec: &ProcessSpec, argv: &[String], columns: u16, rows: u16) -> Result<ExecSession, RuntimeError> {
    let failed = |error: io::Error| refused(&error.to_string());
    let mut command = command(spec, argv).ok_or_else(|| refused("there is no command"))?;
    let (controller, terminal) = pseudo_terminal::open().map_err(failed)?;
    resize(&controller, columns, rows);
    let copy = || terminal.try_clone().map_err(failed);
    command.stdin(copy()?).stdout(copy()?).stderr(copy()?).kill_on_drop(true);
    let child = command.spawn().map_err(failed)?;
    drop((command, terminal));
    let clone = || controller.try_clone().map(tokio::fs::File::from_std).map_err(failed);
    let (reader, writer) = (clone()?, clone()?);
    Ok(session(child, Some(writer), [Some((reader, LogStream::Stdout)), None], Some(controller)))
}

/// Standard output and standard error have different types with the same interface.
type Pipe = Box<dyn AsyncRead + Send + Unpin>;

fn exec_piped(spec: &ProcessSpec, argv: &[String]) -> Result<ExecSession, RuntimeError> {
    let mut command = command(spec, argv).ok_or_else(|| refused("there is no command"))?;
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
    Ok(session(child, input, [out, err], None))
}

/// Connects a child's pipes to the two channels of a session.
fn session<W, R>(
    mut child: Child,
    input: Option<W>,
    outputs: [Option<(R, LogStream)>; 2],
    terminal: Option<File>,
) -> ExecSession
where
    W: AsyncWrite + Send + Unpin + 'static,
    R: AsyncRead + Send + Unpin + 'static,
{
    let (to_command, inputs) = mpsc::channel(CHANNEL_CAPACITY);
    let (to_reader, from_command) = mpsc::channel(CHANNEL_CAPACITY);
    let writer = tokio::spawn(write(inputs, input, terminal));
    let readers: Vec<_> = outputs
        .into_iter()
        .flatten()
        .map(|(pipe, stream)| tokio::spawn(read(pipe, stream, to_reader.clone())))
        .collect();
    tokio::spawn(async move {
        // A command whose session was dropped is killed.
        let code = tokio::select! {
            ended = child.wait() => ended.ok().and_then(exit_code),
            () = to_reader.closed() => None,
        };
        for reader in readers {
            let _ = tokio::time::timeout(OUTPUT_DRAIN, reader).await;
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
            (ExecInput::Resize { columns, rows }, _) => {
                if let Some(controller) = &terminal {
                    resize(controller, columns, rows);
                }
            }
            // Closing a terminal would hang it up; the end of input is the character EOT.
            (ExecInput::End, Some(to)) if terminal.is_some() => drop(to.write_all(&[4]).await),
            (ExecInput::End, _) => to = None,
            (ExecInput::Bytes(_), None) => {}
        }
    }
}

async fn read(mut pipe: impl AsyncRead + Unpin, stream: LogStream, to: mpsc::Sender<ExecOutput>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    // A terminal whose last process has ended gives an error, which is its end of file.
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        let bytes = Bytes::copy_from_slice(&chunk[..count]);
        if to.send(ExecOutput::Bytes(Output { stream, bytes })).await.is_err() {
            return;
        }
    }
}

fn resize(controller: &File, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // Fails only if the terminal is gone, and then its size does not matter.
    let _ = tcsetwinsize(controller, size);
}

fn refused(reason: &str) -> RuntimeError {
    RuntimeError::Refused(reason.to_owned())
}
