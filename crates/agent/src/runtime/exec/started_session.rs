//! The agent's side of attaching to a plain process.
//!
//! Owns: translating a session's channels to the frames of [`crate::shim::attach`]. Invariant: leaving a session leaves
//! the process running.

use std::{fs::File, path::Path};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};

use crate::{
    logs_exec::{CHANNEL_CAPACITY, ExecInput, ExecOutput, ExecSession, LogStream, Output},
    shim::process_input::{frame, kind, socket_path},
};

/// The session of the process in that folder; `None` if nobody can attach to it, or somebody has.
pub(super) async fn attach(folder: &Path) -> Option<ExecSession> {
    let directory = File::open(folder).ok()?;
    let (from, to) = UnixStream::connect(socket_path(&directory)).await.ok()?.into_split();
    let (to_process, inputs) = mpsc::channel(CHANNEL_CAPACITY);
    let (to_reader, output) = mpsc::channel(CHANNEL_CAPACITY);
    let writer = tokio::spawn(write(inputs, to));
    tokio::spawn(async move {
        tokio::select! {
            () = read(from, &to_reader) => {}
            () = to_reader.closed() => {}
        }
        writer.abort();
    });
    Some(ExecSession { input: to_process, output })
}

async fn write(mut inputs: mpsc::Receiver<ExecInput>, mut to: OwnedWriteHalf) {
    while let Some(input) = inputs.recv().await {
        let bytes = match input {
            ExecInput::Bytes(bytes) => frame(kind::INPUT, &bytes),
            ExecInput::Resize { columns, rows } => {
                frame(kind::RESIZE, &[columns.to_be_bytes(), rows.to_be_bytes()].concat())
            }
            ExecInput::End => frame(kind::END_OF_INPUT, &[]),
        };
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // Keeps the connection: the caller may still read.
    std::future::pending::<()>().await;
}

async fn read(mut from: OwnedReadHalf, to: &mpsc::Sender<ExecOutput>) {
    while let Ok(kind) = from.read_u8().await {
        let Ok(length) = from.read_u32().await else { return };
        let mut payload = vec![0; length as usize];
        if from.read_exact(&mut payload).await.is_err() {
            return;
        }
        let bytes = |stream| ExecOutput::Bytes(Output { stream, bytes: Bytes::from(payload.clone()) });
        let output = match kind {
            kind::OUTPUT => bytes(LogStream::Stdout),
            kind::ERRORS => bytes(LogStream::Stderr),
            kind::EXIT => ExecOutput::Exit(<[u8; 8]>::try_from(&payload[..]).ok().map(i64::from_be_bytes)),
            _ => return,
        };
        if to.send(output).await.is_err() {
            return;
        }
    }
}
