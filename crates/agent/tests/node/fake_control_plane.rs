//! A control plane in this process: holds the work, feeds it to agents, and records their reports.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use longshore_agent::{ControlLink, FileContents, LinkError, RegistryLogin, ReportAck};
use longshore_model::{
    Attempt, Cursor, Desired, Heartbeat, ReplicaKey, ReplicaReport, ReplicaState, Report, RuntimeCode, StateIndex,
    Work, WorkFeed,
    agent_protocol::{CleanupState, FileRequest},
};
use tokio::sync::{Notify, mpsc};

/// Longest time a story waits for an expected report. Generous, because a machine under load is slow.
const TIMEOUT: Duration = Duration::from_secs(150);

#[derive(Default)]
pub(crate) struct FakeControlPlane {
    inner: Mutex<Inner>,
    received: Notify,
}

#[derive(Default)]
struct Inner {
    incarnation: u64,
    index: u64,
    disconnected: bool,
    work: BTreeMap<ReplicaKey, Work>,
    feeds: Vec<mpsc::Sender<WorkFeed>>,
    reports: Vec<ReplicaReport>,
    heartbeats: Vec<Heartbeat>,
    files: BTreeMap<String, Vec<u8>>,
    login: Option<RegistryLogin>,
    ack: ReportAck,
}

impl FakeControlPlane {
    /// One after a restored backup: its indices start over, and its higher incarnation makes them count as newer.
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

    /// Sends the next attempt of the work and returns it.
    pub(crate) fn start_next_attempt(&self, work: &Work) -> Work {
        let next = Work { attempt: Attempt(work.attempt.0 + 1), ..work.clone() };
        self.put(&next);
        next
    }

    /// Removes work without telling agents, as a restored backup would.
    pub(crate) fn forget_silently(&self, key: &ReplicaKey) {
        let mut inner = self.lock();
        inner.work.remove(key);
        inner.index += 1;
    }

    /// Removes work and tells agents that it is gone.
    pub(crate) fn remove(&self, key: &ReplicaKey) {
        self.forget_silently(key);
        let mut inner = self.lock();
        inner.index += 1;
        let cursor = inner.cursor();
        inner.feed(&WorkFeed::Changes { cursor, changed: Vec::new(), gone: vec![key.clone()] });
    }

    /// Closes every connection and refuses new ones.
    pub(crate) fn disconnect(&self) {
        let mut inner = self.lock();
        inner.disconnected = true;
        inner.feeds.clear();
        inner.heartbeats.clear();
    }

    pub(crate) fn reconnect(&self) {
        self.lock().disconnected = false;
    }

    pub(crate) fn put_file(&self, name: &str, contents: &[u8]) {
        self.lock().files.insert(name.to_owned(), contents.to_vec());
    }

    pub(crate) fn set_login(&self, username: &str, password: &str) {
        self.lock().login = Some(RegistryLogin { username: username.to_owned(), password: password.to_owned() });
    }

    /// All reports about a generation, in order.
    pub(crate) fn history(&self, key: &ReplicaKey) -> Vec<ReplicaReport> {
        self.lock().reports.iter().filter(|report| report.key == *key).cloned().collect()
    }

    /// All reports, in order.
    pub(crate) fn all_reports(&self) -> Vec<ReplicaReport> {
        self.lock().reports.clone()
    }

    pub(crate) fn set_heartbeat_interval(&self, heartbeat_interval: Duration) {
        self.lock().ack.heartbeat_interval = Some(heartbeat_interval);
    }

    pub(crate) fn set_sample_interval(&self, sample_interval: Duration) {
        self.lock().ack.sample_interval = Some(sample_interval);
    }

    pub(crate) fn heartbeats(&self) -> Vec<Heartbeat> {
        self.lock().heartbeats.clone()
    }

    pub(crate) fn last_heartbeat(&self) -> Option<Heartbeat> {
        self.lock().heartbeats.last().cloned()
    }

    /// Drops all recorded reports, to wait for new ones.
    pub(crate) fn clear_history(&self) {
        self.lock().reports.clear();
    }

    /// Waits for a report of this state and code about the attempt.
    pub(crate) async fn wait_for_state(
        &self,
        work: &Work,
        state: ReplicaState,
        code: Option<RuntimeCode>,
    ) -> ReplicaReport {
        let wanted = |report: &ReplicaReport| {
            report.key == work.key && report.attempt == work.attempt && (report.state, report.code) == (state, code)
        };
        let found =
            self.until(TIMEOUT, |inner| inner.reports.iter().rev().find(|report| wanted(report)).cloned()).await;
        found.unwrap_or_else(|| {
            panic!("{} was never {} {code:?}: {:#?}", work.key, state.as_str(), self.history(&work.key))
        })
    }

    pub(crate) async fn wait_running(&self, work: &Work) -> ReplicaReport {
        self.wait_for_state(work, ReplicaState::Running, None).await
    }

    /// Waits until this attempt runs or has failed, and returns which.
    pub(crate) async fn wait_running_or_failed(&self, work: &Work) -> ReplicaState {
        let settled = |report: &&ReplicaReport| {
            report.key == work.key
                && report.attempt == work.attempt
                && (report.state == ReplicaState::Failed
                    || (report.state, report.code) == (ReplicaState::Running, None))
        };
        let last = |inner: &Inner| {
            inner.reports.iter().rev().find(|report| report.key == work.key).filter(settled).map(|it| it.state)
        };
        let found = self.until(TIMEOUT, last).await;
        found.unwrap_or_else(|| panic!("{} neither runs nor fails: {:#?}", work.key, self.history(&work.key)))
    }

    pub(crate) async fn wait_stopped(&self, work: &Work) -> ReplicaReport {
        self.wait_for_state(work, ReplicaState::Stopped, None).await
    }

    /// Waits until the agent has removed all orphans, or the time-out has passed.
    pub(crate) async fn wait_settled(&self) {
        let settled =
            |inner: &Inner| inner.heartbeats.last().filter(|beat| beat.cleanup == CleanupState::Done).map(drop);
        let _ = self.until(TIMEOUT, settled).await;
    }

    /// Waits until the last heartbeat matches.
    pub(crate) async fn wait_for_heartbeat(&self, matches: impl Fn(&Heartbeat) -> bool) -> Heartbeat {
        let found = self.until(TIMEOUT, |inner| inner.heartbeats.last().filter(|beat| matches(beat)).cloned()).await;
        found.unwrap_or_else(|| panic!("no such heartbeat, the last was {:#?}", self.last_heartbeat()))
    }

    async fn until<T>(&self, limit: Duration, look: impl Fn(&Inner) -> Option<T>) -> Option<T> {
        tokio::time::timeout(limit, async {
            loop {
                let received = self.received.notified();
                if let Some(found) = look(&self.lock()) {
                    return found;
                }
                let _ = tokio::time::timeout(Duration::from_millis(100), received).await;
            }
        })
        .await
        .ok()
    }

    pub(crate) fn open_feed(&self) -> Option<mpsc::Receiver<WorkFeed>> {
        let mut inner = self.lock();
        if inner.disconnected {
            return None;
        }
        let (to, feed) = mpsc::channel(1024);
        let snapshot = WorkFeed::Snapshot { cursor: inner.cursor(), work: inner.work.values().cloned().collect() };
        to.try_send(snapshot).unwrap();
        inner.feeds.push(to);
        Some(feed)
    }

    pub(crate) fn receive(&self, reports: Vec<Report>) -> Result<(), LinkError> {
        let mut inner = self.lock();
        if inner.disconnected {
            return Err(unreachable());
        }
        for report in reports {
            match report {
                Report::Replica(report) => inner.reports.push(report),
                Report::Heartbeat(beat) => inner.heartbeats.push(beat),
            }
        }
        drop(inner);
        self.received.notify_waiters();
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

fn unreachable() -> LinkError {
    LinkError::Unreachable("disconnected by the story".to_owned())
}

/// The control plane as an agent in this process reaches it.
pub(crate) struct ControlHandle(pub(crate) Arc<FakeControlPlane>);

impl ControlLink for ControlHandle {
    fn connect(&self, _known: Option<Cursor>) -> BoxFuture<'_, Result<mpsc::Receiver<WorkFeed>, LinkError>> {
        async { self.0.open_feed().ok_or_else(unreachable) }.boxed()
    }

    fn report(&self, reports: Vec<Report>) -> BoxFuture<'_, Result<ReportAck, LinkError>> {
        async { self.0.receive(reports).map(|()| self.0.lock().ack) }.boxed()
    }

    fn file(&self, request: FileRequest) -> BoxFuture<'_, Result<FileContents, LinkError>> {
        let found = self.0.lock().files.get(request.name.as_str()).cloned();
        async move { found.map(FileContents).ok_or_else(|| LinkError::Refused("there is no such secret".to_owned())) }
            .boxed()
    }

    fn registry_login(&self, _registry: String) -> BoxFuture<'_, Result<Option<RegistryLogin>, LinkError>> {
        let login = self.0.lock().login.clone();
        async move { Ok(login) }.boxed()
    }
}
