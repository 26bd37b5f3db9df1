//! A control plane in this process: remembers the work, feeds agents, and writes down what it hears.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use longshore_agent::{ControlLink, FileContents, Heard, LinkError, RegistryLogin};
use longshore_model::{
    Attempt, Cursor, Desired, Heartbeat, ReplicaState, Report, RuntimeCode, Sighting, StateIndex, Work, WorkFeed,
    WorkKey,
    work::{FileWanted, Standing},
};
use tokio::sync::{Notify, mpsc};

/// Longest time a story waits for something that should happen soon. Generous: a machine under load is slow, not wrong.
const SOON: Duration = Duration::from_secs(150);

#[derive(Default)]
pub(crate) struct Control {
    inner: Mutex<Inner>,
    heard: Notify,
}

#[derive(Default)]
struct Inner {
    incarnation: u64,
    index: u64,
    away: bool,
    work: BTreeMap<WorkKey, Work>,
    feeds: Vec<mpsc::Sender<WorkFeed>>,
    seen: Vec<Sighting>,
    beats: Vec<Heartbeat>,
    files: BTreeMap<String, Vec<u8>>,
    login: Option<RegistryLogin>,
    answer: Heard,
}

impl Control {
    /// One that counts from the start and is believed all the same, as after a backup was restored.
    pub(crate) fn restored() -> Self {
        let control = Self::default();
        control.lock().incarnation = 1;
        control
    }

    pub(crate) fn put(&self, work: &Work) {
        self.put_all(std::slice::from_ref(work));
    }

    pub(crate) fn put_all(&self, work: &[Work]) {
        let mut inner = self.lock();
        for work in work {
            inner.work.insert(work.key.clone(), work.clone());
        }
        inner.index += 1;
        let cursor = inner.cursor();
        inner.feed(&WorkFeed::Changes { cursor, changed: work.to_vec(), gone: Vec::new() });
    }

    pub(crate) fn stop(&self, work: &Work) {
        self.put(&Work { desired: Desired::Stop { grace: None }, ..work.clone() });
    }

    /// The same once more, as the next attempt.
    pub(crate) fn again(&self, work: &Work) -> Work {
        let next = Work { attempt: Attempt(work.attempt.0 + 1), ..work.clone() };
        self.put(&next);
        next
    }

    /// Forgets work without a word, as a restored backup would.
    pub(crate) fn forget(&self, key: &WorkKey) {
        let mut inner = self.lock();
        inner.work.remove(key);
        inner.index += 1;
    }

    pub(crate) fn is_done_with(&self, key: &WorkKey) {
        self.forget(key);
        let mut inner = self.lock();
        inner.index += 1;
        let cursor = inner.cursor();
        inner.feed(&WorkFeed::Changes { cursor, changed: Vec::new(), gone: vec![key.clone()] });
    }

    /// Every connection breaks, and no new one is taken.
    pub(crate) fn go_away(&self) {
        let mut inner = self.lock();
        inner.away = true;
        inner.feeds.clear();
        inner.beats.clear();
    }

    pub(crate) fn come_back(&self) {
        self.lock().away = false;
    }

    pub(crate) fn put_file(&self, name: &str, contents: &[u8]) {
        self.lock().files.insert(name.to_owned(), contents.to_vec());
    }

    pub(crate) fn set_login(&self, username: &str, password: &str) {
        self.lock().login = Some(RegistryLogin { username: username.to_owned(), password: password.to_owned() });
    }

    /// Everything heard about a generation, in order.
    pub(crate) fn history(&self, key: &WorkKey) -> Vec<Sighting> {
        self.lock().seen.iter().filter(|sighting| sighting.key == *key).cloned().collect()
    }

    /// Everything heard about anything, in order.
    pub(crate) fn everything(&self) -> Vec<Sighting> {
        self.lock().seen.clone()
    }

    pub(crate) fn wants_beats_every(&self, beat_every: Duration) {
        self.lock().answer.beat_every = Some(beat_every);
    }

    pub(crate) fn wants_samples_every(&self, sample_every: Duration) {
        self.lock().answer.sample_every = Some(sample_every);
    }

    pub(crate) fn beats(&self) -> Vec<Heartbeat> {
        self.lock().beats.clone()
    }

    pub(crate) fn last_beat(&self) -> Option<Heartbeat> {
        self.lock().beats.last().cloned()
    }

    /// Forgets what was heard, to hear it anew.
    pub(crate) fn forget_history(&self) {
        self.lock().seen.clear();
    }

    /// Waits until a state and code of this attempt is heard.
    pub(crate) async fn hears(&self, work: &Work, state: ReplicaState, code: Option<RuntimeCode>) -> Sighting {
        let wanted = |seen: &Sighting| {
            seen.key == work.key && seen.attempt == work.attempt && (seen.state, seen.code) == (state, code)
        };
        let found = self.until(SOON, |inner| inner.seen.iter().rev().find(|seen| wanted(seen)).cloned()).await;
        found.unwrap_or_else(|| {
            panic!("{} was never {} {code:?}, but {:#?}", work.key, state.as_str(), self.history(&work.key))
        })
    }

    pub(crate) async fn runs(&self, work: &Work) -> Sighting {
        self.hears(work, ReplicaState::Running, None).await
    }

    /// Waits until this attempt has come to run or to fail, and says which was last.
    pub(crate) async fn runs_or_fails(&self, work: &Work) -> ReplicaState {
        let settled = |seen: &&Sighting| {
            seen.key == work.key
                && seen.attempt == work.attempt
                && (seen.state == ReplicaState::Failed || (seen.state, seen.code) == (ReplicaState::Running, None))
        };
        let last = |inner: &Inner| {
            inner.seen.iter().rev().find(|seen| seen.key == work.key).filter(settled).map(|it| it.state)
        };
        let found = self.until(SOON, last).await;
        found.unwrap_or_else(|| panic!("{} neither runs nor fails: {:#?}", work.key, self.history(&work.key)))
    }

    pub(crate) async fn stopped(&self, work: &Work) -> Sighting {
        self.hears(work, ReplicaState::Stopped, None).await
    }

    /// Waits, not for ever, until nothing runs that is not work.
    pub(crate) async fn settles(&self) {
        let settled = |inner: &Inner| inner.beats.last().filter(|beat| beat.standing == Standing::Settled).map(drop);
        let _ = self.until(SOON, settled).await;
    }

    /// Waits for a heartbeat like that.
    pub(crate) async fn beat(&self, wanted: impl Fn(&Heartbeat) -> bool) -> Heartbeat {
        let found = self.until(SOON, |inner| inner.beats.last().filter(|beat| wanted(beat)).cloned()).await;
        found.unwrap_or_else(|| panic!("no such heartbeat, the last was {:#?}", self.last_beat()))
    }

    async fn until<T>(&self, limit: Duration, look: impl Fn(&Inner) -> Option<T>) -> Option<T> {
        tokio::time::timeout(limit, async {
            loop {
                let heard = self.heard.notified();
                if let Some(found) = look(&self.lock()) {
                    return found;
                }
                let _ = tokio::time::timeout(Duration::from_millis(100), heard).await;
            }
        })
        .await
        .ok()
    }

    pub(crate) fn open_feed(&self) -> Option<mpsc::Receiver<WorkFeed>> {
        let mut inner = self.lock();
        if inner.away {
            return None;
        }
        let (to, feed) = mpsc::channel(1024);
        let snapshot = WorkFeed::Snapshot { cursor: inner.cursor(), work: inner.work.values().cloned().collect() };
        to.try_send(snapshot).unwrap();
        inner.feeds.push(to);
        Some(feed)
    }

    pub(crate) fn hear(&self, reports: Vec<Report>) -> Result<(), LinkError> {
        let mut inner = self.lock();
        if inner.away {
            return Err(away());
        }
        for report in reports {
            match report {
                Report::Seen(sighting) => inner.seen.push(sighting),
                Report::Beat(beat) => inner.beats.push(beat),
            }
        }
        drop(inner);
        self.heard.notify_waiters();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Inner {
    fn cursor(&self) -> Cursor {
        Cursor { incarnation: self.incarnation, index: StateIndex(self.index) }
    }

    fn feed(&mut self, message: &WorkFeed) {
        self.feeds.retain(|feed| feed.try_send(message.clone()).is_ok());
    }
}

fn away() -> LinkError {
    LinkError::Away("the story says so".to_owned())
}

/// The control plane as an agent in this process reaches it.
pub(crate) struct Line(pub(crate) Arc<Control>);

impl ControlLink for Line {
    fn connect(&self, _known: Option<Cursor>) -> BoxFuture<'_, Result<mpsc::Receiver<WorkFeed>, LinkError>> {
        async { self.0.open_feed().ok_or_else(away) }.boxed()
    }

    fn report(&self, reports: Vec<Report>) -> BoxFuture<'_, Result<Heard, LinkError>> {
        async { self.0.hear(reports).map(|()| self.0.lock().answer) }.boxed()
    }

    fn file(&self, wanted: FileWanted) -> BoxFuture<'_, Result<FileContents, LinkError>> {
        let found = self.0.lock().files.get(wanted.name.as_str()).cloned();
        async move { found.map(FileContents).ok_or_else(|| LinkError::Refused("there is no such secret".to_owned())) }
            .boxed()
    }

    fn registry_login(&self, _registry: String) -> BoxFuture<'_, Result<Option<RegistryLogin>, LinkError>> {
        let login = self.0.lock().login.clone();
        async move { Ok(login) }.boxed()
    }
}
