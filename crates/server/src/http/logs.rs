//! What replicas write, from all over the cluster, as lines of JSON.
//!
//! Owns: whose lines are meant, and staying with them: a replica that is started anew or elsewhere is followed there.
//! Invariant: a line is sent once; a replica whose node does not answer is named instead of missing; and nothing is sent
//! from the moment on at which the listener's token opens nothing any more.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::Response,
};
use futures_util::stream;
use longshore_api::{LogEntry, LogQuery, LogSource};
use longshore_model::{
    Attempt, GroupKey, NodeName, ReplicaState, RequestCode, RuntimeCode, Slot, Time, WorkKey,
    replica::{Replica, Wanted},
};
use longshore_store::{State as Kept, replicated::Replicated};
use tokio::sync::mpsc;

use super::{Desk, Refusal, caller::Caller, extract::Asked};
use crate::{
    beside::{self, BesideError, Line, LogsWanted, Target},
    clock,
    hub::Hub,
    interleave::{Interleaved, Next},
    limit::Inside,
    rows,
};

/// Time between two looks at who else is to be listened to, and whether the listener still may.
const LOOK: Duration = Duration::from_millis(250);
/// How long the line of one replica may take to be put before a later one of another.
const ORDERLY: Duration = Duration::from_millis(250);
/// Time until a node that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(5);
/// A stream with nothing to say says so that often.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// Lines under way to a slow reader.
const LINES: usize = 256;

pub(super) async fn logs(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Asked(query): Asked<LogQuery>,
) -> Result<Response, Refusal> {
    let store = desk.store()?;
    let state = store.read().await?.state;
    if whose(&state, &caller, &query).is_none() {
        return Err(Refusal::not_found("replica, service or deployment", &query.of));
    }
    let inside = desk.followers.enter(&caller.proof.name()).ok_or_else(|| {
        let message = "too many follow something at once; end one of the streams first";
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, RequestCode::TooManyRequests, message)
    })?;
    let (to, lines) = mpsc::channel(LINES);
    let listener = Listener {
        hub: Arc::clone(&desk.hub),
        store,
        caller,
        merged: Interleaved::new(query.follow.then_some(ORDERLY)),
        progress: BTreeMap::new(),
        tail: query.tail,
        query,
        to,
        _inside: inside,
    };
    tokio::spawn(listener.listen());
    let body = stream::unfold(lines, async |mut lines: mpsc::Receiver<Bytes>| {
        let line = lines.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(line), lines))
    });
    let response = Response::builder().header(header::CONTENT_TYPE, "application/x-ndjson");
    Ok(response.body(Body::from_stream(body)).unwrap_or_default())
}

/// The slots that are meant; nothing where there is nothing of that name, or nothing that the caller may see.
fn whose<'s>(state: &'s Kept, caller: &Caller, query: &LogQuery) -> Option<Vec<(&'s GroupKey, &'s Slot)>> {
    let seen = |group: &GroupKey| caller.sees(group.namespace.as_str(), group.deployment.as_str());
    if let Some((group, slot)) = rows::find(state, &query.of) {
        let (group, kept) = state.groups().find(|(key, _)| **key == group)?;
        return Some(vec![(group, kept.slots.get(&slot)?)]).filter(|_| seen(group));
    }
    let (deployment, service) = match query.of.split_once('/') {
        Some((deployment, service)) => (deployment, Some(service)),
        None => (query.of.as_str(), None),
    };
    state.deployment(&query.namespace.as_str().into(), &deployment.into())?;
    let groups = state.groups().filter(|(key, _)| {
        key.namespace.as_str() == query.namespace
            && key.deployment.as_str() == deployment
            && service.is_none_or(|service| key.service.as_str() == service)
    });
    let groups: Vec<_> = groups.filter(|(key, _)| seen(key)).collect();
    let slots = groups.iter().flat_map(|(key, group)| group.slots.values().map(move |slot| (*key, slot)));
    (!groups.is_empty()).then(|| slots.collect())
}

/// One start of one generation: what writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Writer {
    key: WorkKey,
    attempt: Attempt,
}

/// How far somebody's lines were read.
#[derive(Clone, Debug)]
struct Progress {
    node: NodeName,
    part: Part,
    /// When the last of them was written.
    last: Option<Time>,
    /// At most so many of those that were there before anybody listened.
    tail: Option<u64>,
    /// What was last said in place of them.
    noted: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// They are listened to.
    Open,
    /// All they had to say was heard.
    Done,
    /// They could not be asked, and are asked again.
    Again(Instant),
}

impl Part {
    fn is_due(self) -> bool {
        match self {
            Self::Open | Self::Done => false,
            Self::Again(at) => at <= Instant::now(),
        }
    }
}

/// What comes of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// More may come.
    More,
    /// Whatever is there is all.
    NoMore,
    /// The listener may no longer listen.
    Forbidden,
}

/// Somebody who reads lines.
struct Listener {
    hub: Arc<Hub>,
    store: Replicated,
    caller: Caller,
    query: LogQuery,
    to: mpsc::Sender<Bytes>,
    merged: Interleaved<Writer, Line>,
    progress: BTreeMap<Writer, Progress>,
    /// How much is wanted of what was written before; of whoever comes later it is everything.
    tail: Option<u64>,
    _inside: Inside,
}

impl Listener {
    async fn listen(mut self) {
        let mut looks = tokio::time::interval(LOOK);
        let mut signs = tokio::time::interval(SIGN_OF_LIFE);
        let mut expect = self.look();
        self.tail = None;
        loop {
            if expect == Expect::Forbidden || (expect == Expect::NoMore && self.merged.is_empty()) {
                return;
            }
            let bytes = tokio::select! {
                () = self.to.closed() => return,
                _ = looks.tick() => {
                    expect = self.look_again();
                    continue;
                }
                _ = signs.tick() => Some(Bytes::from_static(b"\n")),
                Some(next) = self.merged.next(), if !self.merged.is_empty() => self.taken(next),
            };
            if let Some(bytes) = bytes
                && self.to.send(bytes).await.is_err()
            {
                return;
            }
        }
    }

    /// Without following, what was there at the first look is all.
    fn look_again(&mut self) -> Expect {
        if self.query.follow {
            return self.look();
        }
        let counts = self.caller.proof.still_counts(&self.store.read_local().state);
        if counts { Expect::NoMore } else { Expect::Forbidden }
    }

    /// Listens to whoever is new, and says whether anybody else may come.
    fn look(&mut self) -> Expect {
        let state = self.store.read_local().state;
        if !self.caller.proof.still_counts(&state) {
            return Expect::Forbidden;
        }
        let slots = whose(&state, &self.caller, &self.query).unwrap_or_default();
        for (group, slot) in &slots {
            for replica in &slot.replicas {
                let key = WorkKey { group: (*group).clone(), slot: slot.key.clone(), generation: replica.generation };
                let writer = Writer { key, attempt: replica.attempt };
                if self.progress.get(&writer).is_none_or(|known| known.part.is_due()) {
                    self.open(&state, writer, replica.assignment.node.clone());
                }
            }
        }
        let more = self.query.follow && slots.iter().any(|(_, slot)| goes_on(slot));
        if more { Expect::More } else { Expect::NoMore }
    }

    /// Begins to listen to a writer, or goes on where the connection broke.
    fn open(&mut self, state: &Kept, writer: Writer, node: NodeName) {
        let fresh =
            || Progress { node: node.clone(), part: Part::Open, last: None, tail: self.tail, noted: String::new() };
        let known = self.progress.entry(writer.clone()).or_insert_with(fresh);
        known.part = Part::Open;
        let after = |last: Time| Time(last.0 + 1);
        let wanted = LogsWanted {
            target: Target { node, key: writer.key.clone(), attempt: writer.attempt },
            follow: self.query.follow,
            since: known.last.map(after).or(self.query.since_ms.map(Time)),
            tail: if known.last.is_some() { None } else { known.tail },
        };
        let (to, lines) = mpsc::channel(LINES);
        tokio::spawn(carry(Arc::clone(&self.hub), state.clone(), wanted, to));
        self.merged.add(writer, lines);
    }

    /// What is sent of what came next, if anything.
    fn taken(&mut self, next: Next<Writer, Line>) -> Option<Bytes> {
        let (writer, line) = match next {
            Next::Item(writer, line) => (writer, line),
            Next::End(writer) => {
                if let Some(known) = self.progress.get_mut(&writer).filter(|known| known.part == Part::Open) {
                    known.part = Part::Done;
                }
                return None;
            }
        };
        let known = self.progress.get_mut(&writer)?;
        match line.source {
            LogSource::Stdout | LogSource::Stderr => known.last = Some(line.at),
            LogSource::Note => {
                known.part = Part::Again(Instant::now() + if line.text.is_empty() { LOOK } else { AGAIN });
                if line.text.is_empty() {
                    // It has yet to be started, and nobody has missed any of its lines.
                    known.tail = None;
                }
                if known.noted == line.text {
                    return None;
                }
                known.noted.clone_from(&line.text);
            }
        }
        let entry = LogEntry {
            replica: writer.key.slot.printed(&writer.key.group),
            generation: writer.key.generation.0,
            node: known.node.to_string(),
            at_ms: line.at.0,
            source: line.source,
            text: line.text,
        };
        let mut bytes = serde_json::to_vec(&entry).unwrap_or_default();
        bytes.push(b'\n');
        Some(bytes.into())
    }
}

/// Whether a slot may have more to say than what was started so far.
fn goes_on(slot: &Slot) -> bool {
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
    slot.wanted == Wanted::Run && !slot.replicas.last().is_some_and(for_good)
}

/// Carries the lines of one writer; a note at the end of them says that there could be more. An empty one says that
/// nothing is there yet.
async fn carry(hub: Arc<Hub>, state: Kept, wanted: LogsWanted, to: mpsc::Sender<Line>) {
    let mut from = match beside::lines(&hub, &state, &wanted).await {
        Ok(from) => from,
        Err(error) => {
            let text = if error == BesideError::NotThere { String::new() } else { error.to_string() };
            let _ = to.send(Line { at: clock::now(), source: LogSource::Note, text }).await;
            return;
        }
    };
    loop {
        let line = tokio::select! {
            line = from.recv() => line,
            () = to.closed() => return,
        };
        let Some(line) = line else { return };
        if to.send(line).await.is_err() {
            return;
        }
    }
}
