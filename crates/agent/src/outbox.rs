//! Reports on their way to the control plane.
//!
//! Owns: the order of reports, and what is sent again after a failed delivery.
//! Invariant: the last report about every replica arrives eventually, however long the control plane was unreachable.
//! Reports that were superseded meanwhile are dropped in that case, and only then.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::{ReplicaKey, ReplicaReport, Report};
use tokio::sync::Notify;

use crate::{backoff::Backoff, control_link::ControlLink};

/// Time-out of one delivery.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Most reports in one delivery.
const BATCH: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    last: BTreeMap<ReplicaKey, ReplicaReport>,
    waiting: VecDeque<ReplicaReport>,
}

impl Outbox {
    /// Queues a report, unless it equals the last one about its replica.
    pub(crate) fn push(&self, report: ReplicaReport) {
        let mut inner = self.lock();
        if inner.last.get(&report.key) == Some(&report) {
            return;
        }
        tracing::info!(
            replica = %report.key,
            attempt = report.attempt.0,
            state = report.state.as_str(),
            code = report.code.map(longshore_model::RuntimeCode::code),
            "replica state"
        );
        inner.last.insert(report.key.clone(), report.clone());
        inner.waiting.push_back(report);
        drop(inner);
        self.filled.notify_one();
    }

    /// The last report about a replica.
    pub(crate) fn last_report(&self, key: &ReplicaKey) -> Option<ReplicaReport> {
        self.lock().last.get(key).cloned()
    }

    pub(crate) fn forget(&self, key: &ReplicaKey) {
        self.lock().last.remove(key);
    }

    /// Queues the last report about every replica, because a new connection may lead to a server that has none of them.
    pub(crate) fn resend_all(&self) {
        let mut inner = self.lock();
        inner.waiting = inner.last.values().cloned().collect();
        drop(inner);
        self.filled.notify_one();
    }

    /// Delivers reports for ever.
    pub(crate) async fn deliver(self: Arc<Self>, link: Arc<dyn ControlLink>) {
        let mut backoff = Backoff::for_requests();
        loop {
            let batch = self.next_batch();
            if batch.is_empty() {
                self.filled.notified().await;
                continue;
            }
            let reports = batch.iter().cloned().map(Report::Replica).collect();
            if let Ok(Ok(_)) = tokio::time::timeout(DELIVERY_TIMEOUT, link.report(reports)).await {
                backoff = Backoff::for_requests();
            } else {
                self.put_back(batch);
                tokio::time::sleep(backoff.next_pause()).await;
            }
        }
    }

    fn next_batch(&self) -> Vec<ReplicaReport> {
        let mut inner = self.lock();
        let count = inner.waiting.len().min(BATCH);
        inner.waiting.drain(..count).collect()
    }

    /// Requeues the replicas of a failed delivery with their last report only, which bounds the queue during a long
    /// outage.
    fn put_back(&self, batch: Vec<ReplicaReport>) {
        let mut inner = self.lock();
        let undelivered: Vec<ReplicaReport> = batch.into_iter().chain(inner.waiting.drain(..)).collect();
        let keys: std::collections::BTreeSet<ReplicaKey> = undelivered.into_iter().map(|report| report.key).collect();
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
    use crate::{desired_work::tests::work, status_report::report};

    fn state_report(index: u32, state: ReplicaState) -> ReplicaReport {
        report(&work(index, 1), state, None, Details::new())
    }

    #[test]
    fn states_are_reported_in_order_and_once() {
        let outbox = Outbox::default();
        for state in [ReplicaState::Pulling, ReplicaState::Starting, ReplicaState::Starting, ReplicaState::Running] {
            outbox.push(state_report(0, state));
        }
        let states: Vec<_> = outbox.next_batch().iter().map(|report| report.state).collect();
        assert_eq!(states, [ReplicaState::Pulling, ReplicaState::Starting, ReplicaState::Running]);
    }

    #[test]
    fn after_a_failed_delivery_only_the_last_report_of_each_replica_is_sent() {
        let outbox = Outbox::default();
        outbox.push(state_report(0, ReplicaState::Starting));
        outbox.push(state_report(1, ReplicaState::Starting));
        let lost = outbox.next_batch();
        outbox.push(state_report(0, ReplicaState::Running));
        outbox.put_back(lost);
        assert_eq!(
            outbox.next_batch(),
            [state_report(0, ReplicaState::Running), state_report(1, ReplicaState::Starting)]
        );
    }

    #[test]
    fn a_new_connection_receives_the_last_report_of_each_replica() {
        let outbox = Outbox::default();
        outbox.push(state_report(0, ReplicaState::Running));
        outbox.next_batch();
        outbox.resend_all();
        assert_eq!(outbox.next_batch(), [state_report(0, ReplicaState::Running)]);
    }
}
