//! The input and output of a container's own process, for one-off jobs.
//!
//! Owns: sessions that were opened before their container started, until whoever started the job takes them.
//! Invariant: the engine is attached before it starts the container, so that no byte is lost, as `docker run` does it.
//! Leaving a session leaves the container running; its input ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bollard::{
    container::AttachContainerResults,
    query_parameters::{AttachContainerOptionsBuilder, ResizeContainerTTYOptionsBuilder},
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use longshore_model::{Work, container::Switch};
use tokio::{io::AsyncWriteExt as _, sync::mpsc};

use super::{Docker, LONG, SHORT, logs_exec::bytes_of};
use crate::{
    logs_exec::{CHANNEL_CAPACITY, ExecInput, ExecOutput, ExecSession, LogStream, Output},
    runtime::{Handle, RuntimeError},
};

/// How long a session waits to be taken. The process of the job may wait for it, too.
const UNTAKEN: Duration = Duration::from_mins(1);
/// A terminal can be resized once the container has started, which may be a moment after its session began.
const RESIZE_TRIES: u32 = 50;
/// Time between two looks at a container that has to start or to end.
const POLL: Duration = Duration::from_millis(100);
/// How long an attached container may run on after its output has ended.
const EXIT_POLLS: u32 = 100;

/// The sessions of this node's containers.
#[derive(Default)]
pub(super) struct AttachSessions(Mutex<Sessions>);

#[derive(Default)]
struct Sessions {
    /// Created containers that are attached to when they are started.
    expected: BTreeSet<Handle>,
    open: BTreeMap<Handle, ExecSession>,
}

impl AttachSessions {
    /// Remembers a created container that somebody will attach to.
    pub(super) fn expect(&self, work: &Work, handle: &Handle) {
        if work.spec.one_off.is_some() && work.spec.container.switches.contains(&Switch::StdinOpen) {
            self.lock().expected.insert(handle.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        // Each change is one operation on a collection, so a panic elsewhere leaves no partial update.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an attached session shows first.
enum FirstOutput {
    /// What the container wrote so far.
    SoFar,
    /// What it writes from now on.
    New,
}

impl Docker {
    /// Attaches to a container that is about to start, if somebody will ask for it.
    pub(super) async fn attach_before_start(&self, handle: &Handle) -> Result<(), RuntimeError> {
        if !self.sessions.lock().expected.contains(handle) {
            return Ok(());
        }
        let session = self.open_session(handle, FirstOutput::New).await?;
        let mut sessions = self.sessions.lock();
        sessions.expected.remove(handle);
        sessions.open.insert(handle.clone(), session);
        let (sessions, handle) = (Arc::clone(&self.sessions), handle.clone());
        tokio::spawn(async move {
            tokio::time::sleep(UNTAKEN).await;
            sessions.lock().open.remove(&handle);
        });
        Ok(())
    }

    /// The session opened at the start, else one that begins with the output so far; `None` if the container has ended.
    pub(super) async fn take_session(&self, handle: &Handle) -> Result<Option<ExecSession>, RuntimeError> {
        let opened = self.sessions.lock().open.remove(handle);
        if opened.is_some() {
            return Ok(opened);
        }
        let response = self.call(SHORT, async |client| client.inspect_container(&handle.0, None).await).await?;
        match response.state.and_then(|state| state.running) {
            Some(true) => self.open_session(handle, FirstOutput::SoFar).await.map(Some),
            Some(false) | None => Ok(None),
        }
    }

    async fn open_session(&self, handle: &Handle, first: FirstOutput) -> Result<ExecSession, RuntimeError> {
        let options = AttachContainerOptionsBuilder::new().stream(true).stdin(true).stdout(true).stderr(true);
        let options = options.logs(matches!(first, FirstOutput::SoFar)).build();
        let attached = self.call(LONG, async |client| client.attach_container(&handle.0, Some(options)).await).await?;
        Ok(session(self.connection.client().await?, handle.0.clone(), attached))
    }
}

fn session(client: bollard::Docker, container: String, attached: AttachContainerResults) -> ExecSession {
    let AttachContainerResults { mut output, input } = attached;
    let (to_process, inputs) = mpsc::channel(CHANNEL_CAPACITY);
    let (to_reader, outputs) = mpsc::channel(CHANNEL_CAPACITY);
    let writer = tokio::spawn(write(client.clone(), container.clone(), inputs, input));
    tokio::spawn(async move {
        loop {
            let chunk = tokio::select! {
                chunk = output.next() => chunk,
                () = to_reader.closed() => break,
            };
            let Some(Ok(chunk)) = chunk else { break };
            let _ = to_reader.send(ExecOutput::Bytes(bytes_of(chunk))).await;
        }
        writer.abort();
        for last in ending(&client, &container).await {
            let _ = to_reader.send(last).await;
        }
    });
    ExecSession { input: to_process, output: outputs }
}

/// The exit, which the engine knows a moment after the output has ended; before it why a program could not be started.
async fn ending(client: &bollard::Docker, container: &str) -> Vec<ExecOutput> {
    for _ in 0..EXIT_POLLS {
        let inspected = client.inspect_container(container, None).await.ok().and_then(|found| found.state);
        let Some(state) = inspected else { break };
        let has_started = state.started_at.is_some_and(|at| !at.starts_with("0001"));
        let error = state.error.filter(|error| !error.is_empty() && !has_started);
        if state.running == Some(false) && (has_started || error.is_some()) {
            let bytes = error.map(|error| Bytes::from(format!("{error}\n")));
            let said = bytes.map(|bytes| ExecOutput::Bytes(Output { stream: LogStream::Stderr, bytes }));
            return said.into_iter().chain([ExecOutput::Exit(state.exit_code)]).collect();
        }
        tokio::time::sleep(POLL).await;
    }
    vec![ExecOutput::Exit(None)]
}

async fn write(
    client: bollard::Docker,
    container: String,
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
            ExecInput::Resize { columns, rows } => resize(&client, &container, columns, rows).await,
            ExecInput::End => drop(to.shutdown().await),
        }
    }
    // Keeps the connection: a terminal is resized, and output read, after the input has ended.
    std::future::pending::<()>().await;
}

async fn resize(client: &bollard::Docker, container: &str, columns: u16, rows: u16) {
    for _ in 0..RESIZE_TRIES {
        let size = ResizeContainerTTYOptionsBuilder::new().w(i32::from(columns)).h(i32::from(rows)).build();
        match tokio::time::timeout(SHORT, client.resize_container_tty(container, size)).await {
            Ok(Ok(())) => return,
            Ok(Err(_)) | Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}
