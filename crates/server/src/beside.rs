//! Close to a replica, wherever it runs: what it writes, and commands beside it.
//!
//! ```text
//! client ── HTTP ──▶ server ── agent of this process
//!                      └───── /peer/logs, /peer/exec ──▶ the node it runs on ── its agent
//! ```
//!
//! Owns: finding the agent, and carrying what passes between it and whoever asks.
//! Must not touch: who may ask. Invariant: a node answers for itself alone and hands nothing on.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use longshore_agent::{
    AgentHandle, ExecInput, ExecOutput, ExecRequest, ExecSession, Follow, LogLine, LogOptions, LogStream,
    ReplicaUnknown, RuntimeError, Terminal,
};
use longshore_api::{Frame, LogSource};
use longshore_model::{Attempt, NodeName, Time, WorkKey};
use longshore_store::State;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};

use crate::{
    clock,
    hub::Hub,
    interleave::Dated,
    link::{Finish, Reach, hear},
    peer::{CallError, Server, pack},
};

/// Time a node has to begin its answer; a command may have to wait for an engine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Lines under way.
const LINES: usize = 256;

/// One start of a generation, on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) node: NodeName,
    pub(crate) key: WorkKey,
    pub(crate) attempt: Attempt,
}

/// Which of its lines are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogsWanted {
    pub(crate) target: Target,
    #[serde(default)]
    pub(crate) follow: bool,
    #[serde(default)]
    pub(crate) since: Option<Time>,
    #[serde(default)]
    pub(crate) tail: Option<u64>,
}

/// A command to run beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExecWanted {
    pub(crate) target: Target,
    pub(crate) request: longshore_api::ExecRequest,
}

/// A line on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) at: Time,
    pub(crate) outlet: Outlet,
    pub(crate) text: String,
}

/// What a line was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outlet {
    Stdout,
    Stderr,
}

/// What comes of listening to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A line it wrote.
    Line(Line),
    /// Why no more comes, although there may be more.
    NoMore { at: Time, why: BesideError },
}

impl Dated for Said {
    fn at(&self) -> Time {
        match self {
            Self::Line(line) => line.at,
            Self::NoMore { at, .. } => *at,
        }
    }
}

impl From<LogLine> for Line {
    fn from(line: LogLine) -> Self {
        let outlet = match line.stream {
            LogStream::Stdout => Outlet::Stdout,
            LogStream::Stderr => Outlet::Stderr,
        };
        Self { at: line.at, outlet, text: String::from_utf8_lossy(&line.text).into_owned() }
    }
}

impl From<Outlet> for LogSource {
    fn from(outlet: Outlet) -> Self {
        match outlet {
            Outlet::Stdout => Self::Stdout,
            Outlet::Stderr => Self::Stderr,
        }
    }
}

/// Why nobody can be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BesideError {
    /// It was never started there, or nothing is left of it.
    #[error("it is not there")]
    NotThere,
    /// Its node or its driver does not answer.
    #[error("{0}")]
    Away(String),
    /// The answer is no.
    #[error("{0}")]
    Refused(String),
}

impl From<ReplicaUnknown> for BesideError {
    fn from(error: ReplicaUnknown) -> Self {
        match error {
            ReplicaUnknown::NotHere(_) | ReplicaUnknown::Runtime(RuntimeError::Gone) => Self::NotThere,
            ReplicaUnknown::Runtime(
                RuntimeError::Refused(why) | RuntimeError::NoSubnet(why) | RuntimeError::NotYet(why),
            ) => Self::Refused(why),
            ReplicaUnknown::Runtime(away @ RuntimeError::Away { .. }) => Self::Away(away.to_string()),
        }
    }
}

impl Target {
    /// How the node is reached; nothing where it has no seat.
    fn server(&self, state: &State) -> Result<Server, BesideError> {
        let seat = state.access().seat(&self.node);
        let seat = seat.ok_or_else(|| BesideError::Away(format!("`{}` has no address", self.node)))?;
        Ok(Server { name: self.node.clone(), address: seat.address.clone() })
    }

    fn away(&self, why: impl std::fmt::Display) -> BesideError {
        BesideError::Away(format!("`{}` does not answer: {why}", self.node))
    }

    fn said(&self, error: CallError) -> BesideError {
        match error {
            CallError::Refused(envelope) if envelope.code == "not_found" => BesideError::NotThere,
            CallError::Refused(envelope) if envelope.code == "exec_failed" => BesideError::Refused(envelope.message),
            CallError::Refused(envelope) => self.away(envelope),
            CallError::Silent { why, .. } => self.away(why),
        }
    }
}

/// Carries the lines of a replica, from wherever it runs, until there are no more or nobody listens.
pub(crate) async fn carry(hub: Arc<Hub>, state: State, wanted: LogsWanted, to: mpsc::Sender<Said>) {
    if let Err(why) = carried(&hub, state, &wanted, &to).await {
        let _ = to.send(Said::NoMore { at: clock::now(), why }).await;
    }
}

async fn carried(hub: &Hub, state: State, wanted: &LogsWanted, to: &mpsc::Sender<Said>) -> Result<(), BesideError> {
    if let Some(agent) = agent_of(hub, &wanted.target)? {
        hand_on(lines_here(&agent, wanted).await?, to).await;
        return Ok(());
    }
    let (target, server) = (&wanted.target, wanted.target.server(&state)?);
    // Lines are listened to for days, and the state goes on.
    drop(state);
    let message = pack(wanted).map_err(BesideError::Refused)?;
    let asked = tokio::time::timeout(PATIENCE, hub.calls.stream(&server, "/peer/logs", message)).await;
    let body = asked.map_err(|_| target.away("it takes too long"))?.map_err(|error| target.said(error))?;
    let (arrived, lines) = mpsc::channel(LINES);
    let (finish, ()) = tokio::join!(hear(body, arrived), hand_on(lines, to));
    match finish {
        Finish::Whole => Ok(()),
        Finish::Broken => Err(BesideError::Away(format!("the connection to `{}` broke", target.node))),
    }
}

async fn hand_on(mut lines: mpsc::Receiver<Line>, to: &mpsc::Sender<Said>) {
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            () = to.closed() => return,
        };
        let Some(line) = line else { return };
        if to.send(Said::Line(line)).await.is_err() {
            return;
        }
    }
}

/// The lines of a replica of this very node.
pub(crate) async fn lines_here(agent: &AgentHandle, wanted: &LogsWanted) -> Result<mpsc::Receiver<Line>, BesideError> {
    let follow = if wanted.follow { Follow::Yes } else { Follow::No };
    let options = LogOptions { follow, since: wanted.since, tail: wanted.tail };
    let mut from = agent.logs(&wanted.target.key, wanted.target.attempt, options).await?;
    let (to, lines) = mpsc::channel(LINES);
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

/// A command that was started, and where its words come from.
pub(crate) enum Conversation {
    /// An agent of this process.
    Here(ExecSession),
    /// Another node.
    There(Box<Upgraded>),
}

/// Starts a command beside a replica, wherever that runs.
pub(crate) async fn command(hub: &Hub, state: &State, wanted: &ExecWanted) -> Result<Conversation, BesideError> {
    if let Some(agent) = agent_of(hub, &wanted.target)? {
        return command_here(&agent, wanted).await;
    }
    let (target, server) = (&wanted.target, wanted.target.server(state)?);
    let message = pack(wanted).map_err(BesideError::Refused)?;
    let asked = tokio::time::timeout(PATIENCE, hub.calls.converse(&server, "/peer/exec", message)).await;
    let stream = asked.map_err(|_| target.away("it takes too long"))?.map_err(|error| target.said(error))?;
    Ok(Conversation::There(Box::new(stream)))
}

/// Starts a command beside a replica of this very node.
pub(crate) async fn command_here(agent: &AgentHandle, wanted: &ExecWanted) -> Result<Conversation, BesideError> {
    let longshore_api::ExecRequest { command, environment, user, working_dir, terminal } = wanted.request.clone();
    let terminal = terminal.map_or(Terminal::None, |size| Terminal::Size { columns: size.columns, rows: size.rows });
    let request = ExecRequest { command, environment, user, working_dir, terminal };
    Ok(Conversation::Here(agent.exec(&wanted.target.key, wanted.target.attempt, request).await?))
}

/// The agent of that node, if it is one of this process.
pub(crate) fn agent_of(hub: &Hub, target: &Target) -> Result<Option<Arc<AgentHandle>>, BesideError> {
    match hub.agents.of(&target.node) {
        Some((agent, Reach::Whole)) => Ok(Some(agent)),
        Some((_, Reach::Cut)) => Err(target.away("it is cut off")),
        None => Ok(None),
    }
}

impl Conversation {
    /// Carries words both ways until the command has ended or whoever talks to it has left.
    pub(crate) async fn hold(self, with: Upgraded) {
        let mut with = TokioIo::new(with);
        match self {
            Self::Here(session) => talk(session, with).await,
            Self::There(stream) => {
                // One that breaks off is the end for the other, which is all either side has to know.
                let _ = tokio::io::copy_bidirectional(&mut with, &mut TokioIo::new(*stream)).await;
            }
        }
    }
}

async fn talk(session: ExecSession, with: impl AsyncRead + AsyncWrite) {
    let ExecSession { input, output } = session;
    let (from, to) = tokio::io::split(with);
    tokio::select! {
        () = listen(from, input) => {}
        () = speak(output, to) => {}
    }
}

/// Hands on what comes in. Returns when whoever talks has left, or says what nobody understands.
async fn listen(mut from: impl AsyncRead + Unpin, input: mpsc::Sender<ExecInput>) {
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
        // A command that no longer listens may still have something to say.
        let _ = input.send(said).await;
    }
}

async fn speak(mut output: mpsc::Receiver<ExecOutput>, mut to: impl AsyncWrite + Unpin) {
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
