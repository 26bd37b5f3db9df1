//! Logs and exec of a replica, on whichever node it runs.
//!
//! ```text
//! client ── HTTP ──▶ server ── agent of this process
//!                      └───── /peer/logs, /peer/exec ──▶ the node it runs on ── its agent
//! ```
//!
//! Owns: finding the agent, and relaying between it and the caller.
//! Must not touch: authorisation. Invariant: a node answers for its own replicas only and forwards nothing.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use longshore_agent::{
    AgentHandle, ExecInput, ExecOutput, ExecRequest, ExecSession, LogLine, LogOptions, LogStream, ReplicaAccessError,
    RuntimeError, Terminal,
};
use longshore_api::{Frame, LogSource};
use longshore_model::{Attempt, NodeName, ReplicaKey, Time};
use longshore_store::State;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};

use crate::{
    api::logs::merge::Timestamped,
    clock,
    lifecycle::node_context::NodeContext,
    node_rpc::{
        CallError, ServerAddress,
        control_link::{LinkState, StreamEnd, read_messages},
        pack,
    },
};

/// Time a node has to start its answer; exec may have to wait for the engine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Lines buffered.
const LINE_BUFFER: usize = 256;

/// One attempt of a generation, and its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) node: NodeName,
    pub(crate) key: ReplicaKey,
    pub(crate) attempt: Attempt,
}

/// A request for the log of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerLogRequest {
    pub(crate) target: Target,
    #[serde(default)]
    pub(crate) follow: bool,
    #[serde(default)]
    pub(crate) since: Option<Time>,
    #[serde(default)]
    pub(crate) tail: Option<u64>,
}

/// A request to run a command in one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerExecRequest {
    pub(crate) target: Target,
    pub(crate) request: longshore_api::ExecRequest,
}

/// One log line between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerLogLine {
    pub(crate) at: Time,
    #[serde(rename = "outlet")]
    pub(crate) source: LogSource,
    pub(crate) text: String,
}

/// An item of a log stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogItem {
    /// A line it wrote.
    Line(PeerLogLine),
    /// The stream broke off, although there may be more.
    Interrupted { at: Time, why: LogsExecError },
}

impl Timestamped for LogItem {
    fn at(&self) -> Time {
        match self {
            Self::Line(line) => line.at,
            Self::Interrupted { at, .. } => *at,
        }
    }
}

impl From<LogLine> for PeerLogLine {
    fn from(line: LogLine) -> Self {
        let source = match line.stream {
            LogStream::Stdout => LogSource::Stdout,
            LogStream::Stderr => LogSource::Stderr,
        };
        Self { at: line.at, source, text: String::from_utf8_lossy(&line.text).into_owned() }
    }
}

/// Why a replica cannot be attached to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogsExecError {
    /// It never started there, or was removed.
    #[error("the replica is not on this node")]
    NotFound,
    /// Its node or its driver does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The node refused.
    #[error("{0}")]
    Refused(String),
}

impl From<ReplicaAccessError> for LogsExecError {
    fn from(error: ReplicaAccessError) -> Self {
        match error {
            ReplicaAccessError::NotFound(_) | ReplicaAccessError::Runtime(RuntimeError::NotFound) => Self::NotFound,
            ReplicaAccessError::Runtime(
                RuntimeError::Refused(why) | RuntimeError::NoSubnet(why) | RuntimeError::DependencyNotReady(why),
            ) => Self::Refused(why),
            ReplicaAccessError::Runtime(away @ RuntimeError::Unavailable { .. }) => Self::Unreachable(away.to_string()),
        }
    }
}

impl Target {
    /// Address of the node; an error if it is no member of the cluster.
    fn server(&self, state: &State) -> Result<ServerAddress, LogsExecError> {
        let membership = state.access().membership(&self.node);
        let membership =
            membership.ok_or_else(|| LogsExecError::Unreachable(format!("`{}` has no address", self.node)))?;
        Ok(ServerAddress { name: self.node.clone(), address: membership.address.clone() })
    }

    fn unreachable(&self, why: impl std::fmt::Display) -> LogsExecError {
        LogsExecError::Unreachable(format!("`{}` does not answer: {why}", self.node))
    }

    fn call_failed(&self, error: CallError) -> LogsExecError {
        match error {
            CallError::Refused(envelope) if envelope.code == "not_found" => LogsExecError::NotFound,
            CallError::Refused(envelope) if envelope.code == "exec_failed" => LogsExecError::Refused(envelope.message),
            CallError::Refused(envelope) => self.unreachable(envelope),
            CallError::NoAnswer { why, .. } => self.unreachable(why),
        }
    }
}

/// Streams the log of a replica until it ends or the receiver is dropped.
pub(crate) async fn stream_logs(
    ctx: Arc<NodeContext>,
    state: State,
    wanted: PeerLogRequest,
    to: mpsc::Sender<LogItem>,
) {
    if let Err(why) = stream_logs_inner(&ctx, state, &wanted, &to).await {
        let _ = to.send(LogItem::Interrupted { at: clock::now(), why }).await;
    }
}

async fn stream_logs_inner(
    ctx: &NodeContext,
    state: State,
    wanted: &PeerLogRequest,
    to: &mpsc::Sender<LogItem>,
) -> Result<(), LogsExecError> {
    if let Some(agent) = local_agent(ctx, &wanted.target)? {
        relay_lines(local_logs(&agent, wanted).await?, to).await;
        return Ok(());
    }
    let (target, server) = (&wanted.target, wanted.target.server(&state)?);
    // A log may be followed for days; the state must not be kept that long.
    drop(state);
    let message = pack(wanted).map_err(LogsExecError::Refused)?;
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, ctx.peers.stream(&server, "/peer/logs", message)).await;
    let body = asked.map_err(|_| target.unreachable("it timed out"))?.map_err(|error| target.call_failed(error))?;
    let (arrived, lines) = mpsc::channel(LINE_BUFFER);
    let (finish, ()) = tokio::join!(read_messages(body, arrived), relay_lines(lines, to));
    match finish {
        StreamEnd::Complete => Ok(()),
        StreamEnd::Broken => Err(LogsExecError::Unreachable(format!("the connection to `{}` broke", target.node))),
    }
}

async fn relay_lines(mut lines: mpsc::Receiver<PeerLogLine>, to: &mpsc::Sender<LogItem>) {
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            () = to.closed() => return,
        };
        let Some(line) = line else { return };
        if to.send(LogItem::Line(line)).await.is_err() {
            return;
        }
    }
}

/// The log of a replica of this process.
pub(crate) async fn local_logs(
    agent: &AgentHandle,
    wanted: &PeerLogRequest,
) -> Result<mpsc::Receiver<PeerLogLine>, LogsExecError> {
    let options = LogOptions { follow: wanted.follow, since: wanted.since, tail: wanted.tail };
    let mut from = agent.logs(&wanted.target.key, wanted.target.attempt, options).await?;
    let (to, lines) = mpsc::channel(LINE_BUFFER);
    tokio::spawn(async move {
        loop {
            let line = tokio::select! {
                line = from.recv() => line,
                () = to.closed() => return,
            };
            let Some(line) = line else { return };
            if to.send(line.into()).await.is_err() {
                return;
            }
        }
    });
    Ok(lines)
}

/// A running exec session.
pub(crate) enum ExecConnection {
    /// On an agent of this process.
    Local(ExecSession),
    /// On another node.
    Remote(Box<Upgraded>),
}

/// Starts a command in a replica, on whichever node it runs.
pub(crate) async fn exec(
    ctx: &NodeContext,
    state: &State,
    wanted: &PeerExecRequest,
) -> Result<ExecConnection, LogsExecError> {
    if let Some(agent) = local_agent(ctx, &wanted.target)? {
        return exec_local(&agent, wanted).await;
    }
    let (target, server) = (&wanted.target, wanted.target.server(state)?);
    let message = pack(wanted).map_err(LogsExecError::Refused)?;
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, ctx.peers.open_session(&server, "/peer/exec", message)).await;
    let stream = asked.map_err(|_| target.unreachable("it timed out"))?.map_err(|error| target.call_failed(error))?;
    Ok(ExecConnection::Remote(Box::new(stream)))
}

/// Starts a command in a replica of this process.
pub(crate) async fn exec_local(agent: &AgentHandle, wanted: &PeerExecRequest) -> Result<ExecConnection, LogsExecError> {
    let longshore_api::ExecRequest { command, environment, user, working_dir, terminal, attach } =
        wanted.request.clone();
    let terminal = terminal.map_or(Terminal::None, |size| Terminal::Size { columns: size.columns, rows: size.rows });
    let Target { key, attempt, .. } = &wanted.target;
    if attach {
        return Ok(ExecConnection::Local(agent.attach(key, *attempt, terminal).await?));
    }
    let request = ExecRequest { command, environment, user, working_dir, terminal };
    Ok(ExecConnection::Local(agent.exec(key, *attempt, request).await?))
}

/// The agent of the target's node, if it is one of this process.
pub(crate) fn local_agent(ctx: &NodeContext, target: &Target) -> Result<Option<Arc<AgentHandle>>, LogsExecError> {
    match ctx.agents.of(&target.node) {
        Some((agent, LinkState::Connected)) => Ok(Some(agent)),
        Some((_, LinkState::Isolated)) => Err(target.unreachable("it is isolated")),
        None => Ok(None),
    }
}

impl ExecConnection {
    /// Relays both directions until the command has ended or the client has disconnected.
    pub(crate) async fn relay(self, with: Upgraded) {
        let mut with = TokioIo::new(with);
        match self {
            Self::Local(session) => relay_local(session, with).await,
            Self::Remote(stream) => {
                // Either side closing ends the session; the error adds nothing.
                let _ = tokio::io::copy_bidirectional(&mut with, &mut TokioIo::new(*stream)).await;
            }
        }
    }
}

async fn relay_local(session: ExecSession, with: impl AsyncRead + AsyncWrite) {
    let ExecSession { input, output } = session;
    let (from, to) = tokio::io::split(with);
    tokio::select! {
        () = forward_input(from, input) => {}
        () = forward_output(output, to) => {}
    }
}

/// Forwards input frames. Returns when the client disconnects or sends an invalid frame.
async fn forward_input(mut from: impl AsyncRead + Unpin, input: mpsc::Sender<ExecInput>) {
    let mut arrived = BytesMut::new();
    loop {
        let said = match Frame::decode(&mut arrived) {
            Ok(Some(Frame::Input(bytes))) => ExecInput::Bytes(bytes),
            Ok(Some(Frame::EndOfInput)) => ExecInput::End,
            Ok(Some(Frame::Resize(size))) => ExecInput::Resize { columns: size.columns, rows: size.rows },
            Ok(Some(Frame::Output(_) | Frame::Errors(_) | Frame::Exit(_))) | Err(_) => return,
            Ok(None) => match from.read_buf(&mut arrived).await {
                Ok(1..) => continue,
                Ok(0) | Err(_) => return,
            },
        };
        // A command that no longer reads its input may still write output.
        let _ = input.send(said).await;
    }
}

async fn forward_output(mut output: mpsc::Receiver<ExecOutput>, mut to: impl AsyncWrite + Unpin) {
    while let Some(said) = output.recv().await {
        let frame = match said {
            ExecOutput::Bytes(said) => match said.stream {
                LogStream::Stdout => Frame::Output(said.bytes),
                LogStream::Stderr => Frame::Errors(said.bytes),
            },
            ExecOutput::Exit(code) => Frame::Exit(code),
        };
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
