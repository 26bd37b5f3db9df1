//! The engine's session: the time from one start of the engine process to its end.
//!
//! Owns: noticing that the engine or the machine was restarted, also while no agent ran, and telling a container that
//! ended with them from one that ended by itself.
//! Invariant: a container that ended after the session began, or was started in it, ended by itself.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use bollard::models::ContainerState;
use longshore_durable_file::{self as durable_file, Durability};
use longshore_model::Time;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::logs_exec::timestamp;
use crate::shim::protocol::ProcessId;

/// The file in the agent's data folder.
const FILE: &str = "engine-session.json";
/// How long after its first answer an engine may still record the end of containers that it did not find running.
const SETTLE_MILLIS: u64 = 3000;
/// The name of the engine's process.
const ENGINE: &str = "dockerd";

/// Whether a connection is the first of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuity {
    First,
    /// An earlier connection broke.
    Broken,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    /// The engine's process; `None` if it is not visible from here.
    process: Option<ProcessId>,
    /// When the engine was first seen in this session; 0 for the first session of a node, which nothing preceded.
    began_ms: u64,
}

#[derive(Debug)]
pub(super) struct EngineSession {
    file: PathBuf,
    session: Mutex<Option<Session>>,
}

impl EngineSession {
    pub(super) fn in_folder(folder: &Path) -> Self {
        let file = folder.join(FILE);
        let session = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { file, session: Mutex::new(session) }
    }

    /// Whether an engine has ever answered on this node.
    pub(super) fn is_known(&self) -> bool {
        self.get().is_some()
    }

    /// Records the engine that answered. Another process than the last one begins a session, and so does a broken
    /// connection to an engine whose process is not visible.
    pub(super) fn connected(&self, process: Option<ProcessId>, continuity: Continuity) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match *session {
            None => Session { process, began_ms: 0 },
            Some(last) if last.process == process && (process.is_some() || continuity == Continuity::First) => return,
            Some(_) => Session { process, began_ms: now_ms() },
        };
        *session = Some(next);
        let bytes = serde_json::to_vec(&next).unwrap_or_default();
        if let Err(error) = durable_file::replace(&self.file, &bytes, Durability::Synced) {
            tracing::warn!(%error, "the engine's session could not be recorded");
        }
    }

    /// Whether a container that is not running ran before this session and not in it.
    pub(super) fn ended_before(&self, state: &ContainerState) -> bool {
        let Some(Session { began_ms, .. }) = self.get() else { return false };
        let at = |stamp: Option<&String>| stamp.and_then(|stamp| timestamp(stamp)).map(|Time(millis)| millis);
        let started = at(state.started_at.as_ref()).is_some_and(|millis| millis < began_ms);
        // An engine that finds a container gone may not know since when.
        started && at(state.finished_at.as_ref()).is_none_or(|millis| millis < began_ms + SETTLE_MILLIS)
    }

    fn get(&self) -> Option<Session> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process behind a socket. A socket that a service manager opened names the manager, so the newest process with
/// the engine's name is taken then.
pub(super) async fn engine_process(socket: &Path) -> Option<ProcessId> {
    let stream = UnixStream::connect(socket).await.ok()?;
    let pid = stream.peer_cred().ok()?.pid().and_then(Pid::from_raw)?;
    if is_engine(pid) { ProcessId::of(pid) } else { newest_engine() }
}

fn is_engine(pid: Pid) -> bool {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.is_ok_and(|name| name.trim() == ENGINE)
}

fn newest_engine() -> Option<ProcessId> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| is_engine(*pid)).filter_map(ProcessId::of).max_by_key(|process| process.started())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_process() -> Option<ProcessId> {
        ProcessId::of(rustix::process::getpid())
    }

    fn ran(started: &str, finished: &str) -> ContainerState {
        ContainerState {
            started_at: Some(started.to_owned()),
            finished_at: Some(finished.to_owned()),
            ..ContainerState::default()
        }
    }

    #[test]
    fn a_container_that_ran_until_the_engine_went_down_ended_with_it_and_others_by_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let long_ago = ran("2020-01-01T00:00:00Z", "2020-01-01T00:00:09Z");
        let session = EngineSession::in_folder(folder.path());
        assert!(!session.is_known());
        session.connected(None, Continuity::First);
        assert!(!session.ended_before(&long_ago), "nothing preceded the first session of a node");
        session.connected(None, Continuity::Broken);
        assert!(session.ended_before(&long_ago));
        assert!(session.ended_before(&ran("2020-01-01T00:00:00Z", "0001-01-01T00:00:00Z")), "its end was not noticed");
        assert!(!session.ended_before(&ran("2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z")));
        assert!(!session.ended_before(&ran("2999-01-01T00:00:00Z", "2999-01-01T00:00:01Z")));
    }

    #[test]
    fn a_restart_is_noticed_by_the_next_agent_too() {
        let folder = tempfile::tempdir().unwrap();
        EngineSession::in_folder(folder.path()).connected(None, Continuity::First);
        let next = EngineSession::in_folder(folder.path());
        assert!(next.is_known());
        next.connected(None, Continuity::First);
        assert_eq!(next.get().unwrap().began_ms, 0, "the same engine");
        next.connected(own_process(), Continuity::First);
        let began = next.get().unwrap().began_ms;
        assert!(began > 0, "another process");
        next.connected(own_process(), Continuity::Broken);
        assert_eq!(next.get().unwrap().began_ms, began, "the same process hung for a while");
    }
}
