//! Logs of replicas across the cluster, as lines of JSON.
//!
//! Owns: following the selected replicas when they restart or move.
//! Invariant: a line is sent once; a replica whose node does not answer is reported in a note; nothing is sent once the
//! caller's token is no longer valid.

mod cursor;
pub(crate) mod merge;
mod selector;

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::Response,
};
use futures_util::stream::{self, Stream};
use longshore_api::{LogEntry, LogQuery, LogSource, ObjectKind};
use longshore_model::{
    ApiErrorCode, Attempt, NodeName, ReplicaKey, ReplicaState, RuntimeCode, Slot, Time,
    replica::{DesiredState, Replica},
};
use longshore_store::{State as ClusterState, replicated::Replicated};
use tokio::sync::mpsc;

use crate::{
    api::{
        ApiError, ApiState,
        extract::QueryParams,
        logs::{
            cursor::{AttemptAge, LogCursor, ReplicaAttempt},
            merge::{MergeByTime, Next},
            selector::LogSelector,
        },
    },
    lifecycle::node_context::NodeContext,
    node_rpc::logs_exec::{self, LogItem, PeerLogRequest, Target},
    security::{
        auth::{Caller, Credential},
        rate_limit::ConcurrencyPermit,
    },
};

/// Time between two looks for new replicas; the caller's token is checked as often.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);
/// How long a line waits for earlier lines of other replicas.
const MERGE_WINDOW: Duration = Duration::from_millis(250);
/// An idle stream sends an empty line that often.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Lines buffered for a slow reader.
const LINE_BUFFER: usize = 256;

pub(crate) async fn logs(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    QueryParams(query): QueryParams<LogQuery>,
) -> Result<Response, ApiError> {
    let store = api.store()?;
    let state = store.read().await?.state;
    // What is outside of the caller's scope is reported as missing.
    let theirs = |selector: &LogSelector| caller.may_see(selector.namespace().as_str(), selector.deployment().as_str());
    let found = LogSelector::find(&state, &query).filter(theirs);
    let selector = found.ok_or_else(|| {
        let kind = if query.of.contains('/') { ObjectKind::Service } else { ObjectKind::Replica };
        ApiError::nothing_named("replica, service or deployment", &query.of).about(&kind, &query.of)
    })?;
    let permit = api.streams.acquire(&caller.credential.name()).ok_or_else(|| {
        let message = "too many streams and sessions are open; close one of them first";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, ApiErrorCode::TooManyRequests, message)
    })?;
    let (to, lines) = mpsc::channel(LINE_BUFFER);
    let (watched, credential) = (store.clone(), caller.credential.clone());
    let follower = LogFollower {
        ctx: Arc::clone(&api.ctx),
        store,
        credential: caller.credential,
        selector,
        merged: MergeByTime::new(query.follow.then_some(MERGE_WINDOW)),
        cursors: BTreeMap::new(),
        tail: query.tail,
        query,
        to,
        _permit: permit,
    };
    tokio::spawn(follower.run());
    let body = while_allowed(lines, move || credential.is_still_valid(&watched.read_local().state));
    let response = Response::builder().header(header::CONTENT_TYPE, "application/x-ndjson");
    Ok(response.body(Body::from_stream(body)).unwrap_or_default())
}

/// The lines, until `allowed` returns false. It is asked per line, so that lines buffered for a slow reader are held
/// back, too.
fn while_allowed(
    lines: mpsc::Receiver<Bytes>,
    allowed: impl Fn() -> bool,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold((lines, allowed), async |(mut lines, allowed)| {
        let line = lines.recv().await.filter(|_| allowed())?;
        Some((Ok(line), (lines, allowed)))
    })
}

/// Whether a log stream continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowState {
    /// More lines may come.
    More,
    /// What is open now is all.
    NoMore,
    /// The caller's token is no longer valid.
    Forbidden,
}

/// One open log stream.
struct LogFollower {
    ctx: Arc<NodeContext>,
    store: Replicated,
    credential: Credential,
    query: LogQuery,
    selector: LogSelector,
    to: mpsc::Sender<Bytes>,
    merged: MergeByTime<ReplicaAttempt, LogItem>,
    cursors: BTreeMap<ReplicaAttempt, LogCursor>,
    /// Lines wanted of what was written before; replicas that start later send everything.
    tail: Option<u64>,
    _permit: ConcurrencyPermit,
}

impl LogFollower {
    async fn run(mut self) {
        let mut refresh = tokio::time::interval(REFRESH_INTERVAL);
        let mut keepalive = tokio::time::interval(KEEPALIVE_INTERVAL);
        let mut follow_state = self.follow_new();
        self.tail = None;
        loop {
            if follow_state == FollowState::Forbidden || (follow_state == FollowState::NoMore && self.merged.is_empty())
            {
                return;
            }
            let bytes = tokio::select! {
                () = self.to.closed() => return,
                _ = refresh.tick() => {
                    follow_state = self.refresh();
                    continue;
                }
                _ = keepalive.tick() => Some(Bytes::from_static(b"\n")),
                Some(next) = self.merged.next(), if !self.merged.is_empty() => self.next_line(next),
            };
            if let Some(bytes) = bytes
                && self.to.send(bytes).await.is_err()
            {
                return;
            }
        }
    }

    /// Without `follow`, the replicas of the first look are all.
    fn refresh(&mut self) -> FollowState {
        if self.query.follow {
            return self.follow_new();
        }
        let counts = self.credential.is_still_valid(&self.store.read_local().state);
        if counts { FollowState::NoMore } else { FollowState::Forbidden }
    }

    /// Opens the logs of new replicas, and says whether more may come.
    fn follow_new(&mut self) -> FollowState {
        let state = self.store.read_local().state;
        if !self.credential.is_still_valid(&state) {
            return FollowState::Forbidden;
        }
        let selector = self.selector.clone();
        let slots = selector.slots(&state);
        for (group, slot) in &slots {
            for replica in &slot.replicas {
                let key =
                    ReplicaKey { group: (*group).clone(), slot: slot.key.clone(), generation: replica.generation };
                // The previous attempt's log says why it ended; its node keeps it.
                let before = replica.attempt.0.checked_sub(1).map(|before| (Attempt(before), AttemptAge::Previous));
                for (attempt, age) in before.into_iter().chain([(replica.attempt, AttemptAge::Newest)]) {
                    let attempt_key = ReplicaAttempt { key: key.clone(), attempt };
                    if self.cursors.get(&attempt_key).is_none_or(LogCursor::is_due) {
                        self.open(&state, attempt_key, age, replica.assignment.node.clone());
                    }
                }
            }
        }
        // A deployment that was just applied has no replicas yet.
        let more =
            slots.iter().any(|(_, slot)| may_write_more(slot)) || (slots.is_empty() && selector.is_desired(&state));
        let more = self.query.follow && more;
        if more { FollowState::More } else { FollowState::NoMore }
    }

    /// Opens the log of one attempt, or resumes it where the connection broke.
    fn open(&mut self, state: &ClusterState, attempt_key: ReplicaAttempt, age: AttemptAge, node: NodeName) {
        let fresh = || LogCursor::new(node.clone(), self.tail);
        let known = self.cursors.entry(attempt_key.clone()).or_insert_with(fresh);
        known.set_age(age);
        let (since, tail) = known.open_at(self.query.since_ms.map(Time));
        let target = Target { node, key: attempt_key.key.clone(), attempt: attempt_key.attempt };
        let wanted = PeerLogRequest { target, follow: self.query.follow, since, tail };
        let (to, items) = mpsc::channel(LINE_BUFFER);
        tokio::spawn(logs_exec::stream_logs(Arc::clone(&self.ctx), state.clone(), wanted, to));
        self.merged.add(attempt_key, items);
    }

    /// The JSON line for the next item; `None` where nothing is sent.
    fn next_line(&mut self, next: Next<ReplicaAttempt, LogItem>) -> Option<Bytes> {
        let (attempt_key, item) = match next {
            Next::Item(attempt_key, item) => (attempt_key, item),
            Next::End(attempt_key) => {
                self.cursors.get_mut(&attempt_key)?.ended();
                return None;
            }
        };
        let known = self.cursors.get_mut(&attempt_key)?;
        let (at, source, text) = match item {
            LogItem::Line(line) => known.accept_line(line.at).then_some((line.at, line.source, line.text))?,
            LogItem::Interrupted { at, why } => (at, LogSource::Note, known.interrupted(&why)?),
        };
        let entry = LogEntry {
            replica: attempt_key.key.slot.replica_id(&attempt_key.key.group),
            generation: attempt_key.key.generation.0,
            node: known.node.to_string(),
            at_ms: at.0,
            source,
            text,
        };
        let mut bytes = serde_json::to_vec(&entry).unwrap_or_default();
        bytes.push(b'\n');
        Some(bytes.into())
    }
}

/// Whether a slot may start or write more.
fn may_write_more(slot: &Slot) -> bool {
    let for_good = |replica: &Replica| match replica.state {
        ReplicaState::Completed => true,
        ReplicaState::Failed => replica.code == Some(RuntimeCode::RestartExhausted),
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => false,
    };
    slot.desired == DesiredState::Run && !slot.replicas.last().is_some_and(for_good)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn buffered_lines_are_not_sent_once_the_reader_loses_access() {
        let (to, lines) = mpsc::channel(8);
        for line in ["one", "two", "three"] {
            to.try_send(Bytes::from_static(line.as_bytes())).unwrap();
        }
        let allowed = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&allowed);
        let mut body = std::pin::pin!(while_allowed(lines, move || asked.load(Ordering::Relaxed)));
        assert_eq!(body.next().await, Some(Ok(Bytes::from_static(b"one"))));
        allowed.store(false, Ordering::Relaxed);
        assert_eq!(body.next().await, None);
    }
}
