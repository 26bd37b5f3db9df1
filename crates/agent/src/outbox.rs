//! Reports on their way to the control plane.
//!
//! Owns: the order of reports, and what is said again when nobody listened.
//! Invariant: the last report about every replica arrives in the end, however long the control plane was away; what was
//! true in between and is not any more may be left out then, and only then.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::{Report, Sighting, WorkKey};
use tokio::sync::Notify;

use crate::{backoff::Backoff, link::ControlLink};

/// Time one hand-over may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Reports handed over at once.
const BATCH: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    last: BTreeMap<WorkKey, Sighting>,
    waiting: VecDeque<Sighting>,
}

impl Outbox {
    /// Reports it, unless it is what was said last.
    pub(crate) fn say(&self, sighting: Sighting) {
        let mut inner = self.lock();
        if inner.last.get(&sighting.key) == Some(&sighting) {
            return;
        }
        tracing::info!(
            replica = %sighting.key,
            attempt = sighting.attempt.0,
            state = sighting.state.as_str(),
            code = sighting.code.map(longshore_model::RuntimeCode::code),
            "replica seen"
        );
        inner.last.insert(sighting.key.clone(), sighting.clone());
        inner.waiting.push_back(sighting);
        drop(inner);
        self.filled.notify_one();
    }

    /// The last thing said about a replica.
    pub(crate) fn last(&self, key: &WorkKey) -> Option<Sighting> {
        self.lock().last.get(key).cloned()
    }

    pub(crate) fn forget(&self, key: &WorkKey) {
        self.lock().last.remove(key);
    }

    /// Says everything again: a new connection may be to a server that heard none of it.
    pub(crate) fn repeat_all(&self) {
        let mut inner = self.lock();
        inner.waiting = inner.last.values().cloned().collect();
        drop(inner);
        self.filled.notify_one();
    }

    /// Hands reports over for ever.
    pub(crate) async fn deliver(self: Arc<Self>, link: Arc<dyn ControlLink>) {
        let mut backoff = Backoff::for_neighbours();
        loop {
            let batch = self.next_batch();
            if batch.is_empty() {
                self.filled.notified().await;
                continue;
            }
            let reports = batch.iter().cloned().map(Report::Seen).collect();
            if let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, link.report(reports)).await {
                backoff = Backoff::for_neighbours();
            } else {
                self.put_back(batch);
                tokio::time::sleep(backoff.pause()).await;
            }
        }
    }

    fn next_batch(&self) -> Vec<Sighting> {
        let mut inner = self.lock();
        let count = inner.waiting.len().min(BATCH);
        inner.waiting.drain(..count).collect()
    }

    /// Nobody listened: only what is still true is worth saying later, or a day of silence would fill the memory.
    fn put_back(&self, batch: Vec<Sighting>) {
        let mut inner = self.lock();
        let undelivered: Vec<Sighting> = batch.into_iter().chain(inner.waiting.drain(..)).collect();
        let keys: std::collections::BTreeSet<WorkKey> = undelivered.into_iter().map(|sighting| sighting.key).collect();
        inner.waiting = keys.iter().filter_map(|key| inner.last.get(key).cloned()).collect();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change of the two lists is complete before anything can panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::{ReplicaState, replica::Details};

    use super::*;
    use crate::{book::tests::work, sighting::sighting};

    fn said(index: u32, state: ReplicaState) -> Sighting {
        sighting(&work(index, 1), state, None, Details::new())
    }

    #[test]
    fn states_are_reported_in_order_and_once() {
        let outbox = Outbox::default();
        for state in [ReplicaState::Pulling, ReplicaState::Starting, ReplicaState::Starting, ReplicaState::Running] {
            outbox.say(said(0, state));
        }
        let states: Vec<_> = outbox.next_batch().iter().map(|sighting| sighting.state).collect();
        assert_eq!(states, [ReplicaState::Pulling, ReplicaState::Starting, ReplicaState::Running]);
    }

    #[test]
    fn after_silence_only_the_last_state_of_each_replica_is_said() {
        let outbox = Outbox::default();
        outbox.say(said(0, ReplicaState::Starting));
        outbox.say(said(1, ReplicaState::Starting));
        let lost = outbox.next_batch();
        outbox.say(said(0, ReplicaState::Running));
        outbox.put_back(lost);
        assert_eq!(outbox.next_batch(), [said(0, ReplicaState::Running), said(1, ReplicaState::Starting)]);
    }

    #[test]
    fn a_new_connection_hears_everything_again() {
        let outbox = Outbox::default();
        outbox.say(said(0, ReplicaState::Running));
        outbox.next_batch();
        outbox.repeat_all();
        assert_eq!(outbox.next_batch(), [said(0, ReplicaState::Running)]);
    }
}
