//! What replicas write, from all over the cluster, as lines of JSON.
//!
//! Owns: staying with those that are meant: a replica that is started anew or elsewhere is followed there.
//! Invariant: a line is sent once; a replica whose node does not answer is named instead of missing; and nothing is sent
//! from the moment on at which the listener's token opens nothing any more.

mod meant;
mod progress;

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::Response,
};
use futures_util::stream::{self, Stream};
use longshore_api::{LogEntry, LogQuery, LogSource};
use longshore_model::{
    Attempt, NodeName, ReplicaState, RequestCode, RuntimeCode, Slot, Time, WorkKey,
    replica::{Replica, Wanted},
};
use longshore_store::{State as Kept, replicated::Replicated};
use tokio::sync::mpsc;

use self::{
    meant::Meant,
    progress::{Progress, Start, Writer},
};
use super::{
    Desk, Refusal,
    caller::{Caller, Proof},
    extract::Asked,
};
use crate::{
    beside::{self, LogsWanted, Said, Target},
    hub::Hub,
    interleave::{Interleaved, Next},
    limit::Inside,
};

/// Time between two looks at who else is to be listened to, and whether the listener still may.
const LOOK: Duration = Duration::from_millis(250);
/// How long the line of one replica may take to be put before a later one of another.
const ORDERLY: Duration = Duration::from_millis(250);
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
    // What is not theirs is not there.
    let theirs = |meant: &Meant| caller.sees(meant.namespace().as_str(), meant.deployment().as_str());
    let meant = Meant::find(&state, &query).filter(theirs);
    let meant = meant.ok_or_else(|| Refusal::not_found("replica, service or deployment", &query.of))?;
    let inside = desk.followers.enter(&caller.proof.name()).ok_or_else(|| {
        let message = "too many follow something at once; end one of the streams first";
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, RequestCode::TooManyRequests, message)
    })?;
    let (to, lines) = mpsc::channel(LINES);
    let (watched, proof) = (store.clone(), caller.proof.clone());
    let listener = Listener {
        hub: Arc::clone(&desk.hub),
        store,
        proof: caller.proof,
        meant,
        merged: Interleaved::new(query.follow.then_some(ORDERLY)),
        progress: BTreeMap::new(),
        tail: query.tail,
        query,
        to,
        _inside: inside,
    };
    tokio::spawn(listener.listen());
    let body = while_allowed(lines, move || proof.still_counts(&watched.read_local().state));
    let response = Response::builder().header(header::CONTENT_TYPE, "application/x-ndjson");
    Ok(response.body(Body::from_stream(body)).unwrap_or_default())
}

/// Lines, while whoever reads them may. What waits for a slow reader is asked for as well as what comes.
fn while_allowed(
    lines: mpsc::Receiver<Bytes>,
    allowed: impl Fn() -> bool,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold((lines, allowed), async |(mut lines, allowed)| {
        let line = lines.recv().await.filter(|_| allowed())?;
        Some((Ok(line), (lines, allowed)))
    })
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
    proof: Proof,
    query: LogQuery,
    meant: Meant,
    to: mpsc::Sender<Bytes>,
    merged: Interleaved<Writer, Said>,
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
        let counts = self.proof.still_counts(&self.store.read_local().state);
        if counts { Expect::NoMore } else { Expect::Forbidden }
    }

    /// Listens to whoever is new, and says whether anybody else may come.
    fn look(&mut self) -> Expect {
        let state = self.store.read_local().state;
        if !self.proof.still_counts(&state) {
            return Expect::Forbidden;
        }
        let meant = self.meant.clone();
        let slots = meant.slots(&state);
        for (group, slot) in &slots {
            for replica in &slot.replicas {
                let key = WorkKey { group: (*group).clone(), slot: slot.key.clone(), generation: replica.generation };
                // Why it was started again is in what the start before wrote, which its node keeps.
                let before = replica.attempt.0.checked_sub(1).map(|before| (Attempt(before), Start::Before));
                for (attempt, start) in before.into_iter().chain([(replica.attempt, Start::Newest)]) {
                    let writer = Writer { key: key.clone(), attempt };
                    if self.progress.get(&writer).is_none_or(Progress::is_due) {
                        self.open(&state, writer, start, replica.assignment.node.clone());
                    }
                }
            }
        }
        // What was only just applied has no replicas yet.
        let more = slots.iter().any(|(_, slot)| goes_on(slot)) || (slots.is_empty() && meant.is_wanted(&state));
        let more = self.query.follow && more;
        if more { Expect::More } else { Expect::NoMore }
    }

    /// Begins to listen to a writer, or goes on where the connection broke.
    fn open(&mut self, state: &Kept, writer: Writer, start: Start, node: NodeName) {
        let fresh = || Progress::new(node.clone(), self.tail);
        let known = self.progress.entry(writer.clone()).or_insert_with(fresh);
        known.is(start);
        let (since, tail) = known.opened(self.query.since_ms.map(Time));
        let target = Target { node, key: writer.key.clone(), attempt: writer.attempt };
        let wanted = LogsWanted { target, follow: self.query.follow, since, tail };
        let (to, said) = mpsc::channel(LINES);
        tokio::spawn(beside::carry(Arc::clone(&self.hub), state.clone(), wanted, to));
        self.merged.add(writer, said);
    }

    /// What is sent of what came next, if anything.
    fn taken(&mut self, next: Next<Writer, Said>) -> Option<Bytes> {
        let (writer, said) = match next {
            Next::Item(writer, said) => (writer, said),
            Next::End(writer) => {
                self.progress.get_mut(&writer)?.ended();
                return None;
            }
        };
        let known = self.progress.get_mut(&writer)?;
        let (at, source, text) = match said {
            Said::Line(line) => known.wrote(line.at).then(|| (line.at, LogSource::from(line.outlet), line.text))?,
            Said::NoMore { at, why } => (at, LogSource::Note, known.broke_off(&why)?),
        };
        let entry = LogEntry {
            replica: writer.key.slot.printed(&writer.key.group),
            generation: writer.key.generation.0,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn what_waits_for_a_slow_reader_is_not_sent_once_the_reader_may_no_longer_read() {
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
