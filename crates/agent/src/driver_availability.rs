//! Which drivers answer, and since when one does not.
//!
//! Owns: telling a missed probe from an outage, and logging each outage and its end once.
//! Must not touch: replicas. Their own tasks report that they cannot be inspected.
//! Invariant: a driver is unavailable after two missed probes in a row, and available again with its first answer.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::Driver;
use tokio::{sync::watch, time::Instant};

/// Missed probes in a row that make a driver unavailable. A busy engine may miss one.
const MAX_MISSED: u32 = 2;
/// Time between two looks at whether a driver that missed one probe has answered the next.
const POLL: Duration = Duration::from_millis(200);
/// How long a driver may be unavailable before the node's fingerprint leaves it out. As long as a silent node has
/// before it is down: an engine that restarts and keeps its containers is back sooner, and moving them would be
/// pointless.
const GRACE: Duration = Duration::from_secs(10);

/// The probe results of every driver of this node.
#[derive(Debug)]
pub(crate) struct DriverAvailability {
    records: Mutex<BTreeMap<Driver, ProbeRecord>>,
    /// Counts transitions, for tasks that wait for one.
    changes: watch::Sender<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ProbeRecord {
    missed: u32,
    /// `None` before its first answer, unless it is expected.
    last_answer: Option<Instant>,
    /// Whether it has answered in this process.
    has_answered: bool,
}

impl ProbeRecord {
    const fn is_unavailable(self) -> bool {
        self.missed >= MAX_MISSED
    }
}

/// What a probe changed about a driver's availability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    None,
    /// It is unavailable from now on.
    Lost,
    /// It is available again, or for the first time.
    Recovered,
}

impl Default for DriverAvailability {
    fn default() -> Self {
        Self { records: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl DriverAvailability {
    /// Drivers that answered before this process began may only be starting, as they do after a reboot, and are waited
    /// for like one that restarts.
    pub(crate) fn expecting(drivers: impl IntoIterator<Item = Driver>) -> Self {
        let expected = ProbeRecord { missed: 1, last_answer: Some(Instant::now()), has_answered: false };
        let records = drivers.into_iter().map(|driver| (driver, expected)).collect();
        Self { records: Mutex::new(records), ..Self::default() }
    }

    pub(crate) fn record_answer(&self, driver: Driver) -> Transition {
        let answered = ProbeRecord { missed: 0, last_answer: Some(Instant::now()), has_answered: true };
        let before = self.lock().insert(driver, answered).unwrap_or_default();
        if !before.is_unavailable() && before.has_answered {
            return Transition::None;
        }
        if before.is_unavailable() {
            tracing::info!(driver = driver.as_str(), "the driver answers");
        }
        self.changes.send_modify(|changes| *changes += 1);
        Transition::Recovered
    }

    pub(crate) fn record_miss(&self, driver: Driver) -> Transition {
        let mut records = self.lock();
        let record = records.entry(driver).or_default();
        record.missed = record.missed.saturating_add(1);
        let (is_lost, is_known) = (record.missed == MAX_MISSED, record.last_answer.is_some());
        drop(records);
        if !is_lost {
            return Transition::None;
        }
        if is_known {
            tracing::warn!(driver = driver.as_str(), "the driver does not answer; its replicas are left as they are");
        } else {
            tracing::info!(driver = driver.as_str(), "the driver is not on this machine; it is found when it comes");
        }
        self.changes.send_modify(|changes| *changes += 1);
        Transition::Lost
    }

    /// Whether it has answered in this process.
    pub(crate) fn has_answered(&self, driver: Driver) -> bool {
        self.lock().get(&driver).is_some_and(|record| record.has_answered)
    }

    pub(crate) fn is_unavailable(&self, driver: Driver) -> bool {
        self.lock().get(&driver).is_some_and(|record| record.is_unavailable())
    }

    /// Runs the future while the driver is available; `None` if it becomes unavailable before the future completes.
    pub(crate) async fn while_available<T>(&self, driver: Driver, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.wait_until(|drivers| drivers.is_unavailable(driver)) => None,
            done = future => Some(done),
        }
    }

    pub(crate) async fn wait_until_available(&self, driver: Driver) {
        self.wait_until(|drivers| !drivers.is_unavailable(driver)).await;
    }

    async fn wait_until(&self, condition: impl Fn(&Self) -> bool) {
        let mut changes = self.changes();
        while !condition(self) {
            // The sender lives as long as this value.
            let _ = changes.changed().await;
        }
    }

    /// Changes with every transition from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until every driver that ever answered answers again, or has been silent for [`GRACE`].
    pub(crate) async fn wait_until_settled(&self) {
        let mut changes = self.changes();
        while let Some(until) = self.unsettled_until() {
            // A driver that misses a single probe causes no transition.
            let next_look = Instant::now() + POLL;
            let _ = tokio::time::timeout_at(until.min(next_look), changes.changed()).await;
        }
    }

    fn unsettled_until(&self) -> Option<Instant> {
        let now = Instant::now();
        let records = self.lock();
        let silent = records.values().filter(|record| record.missed > 0);
        silent.filter_map(|record| Some(record.last_answer? + GRACE)).filter(|until| *until > now).min()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Driver, ProbeRecord>> {
        // Each change is one assignment, so a panic elsewhere leaves no partial update.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_unavailable_after_two_misses_and_available_with_one_answer() {
        let drivers = DriverAvailability::default();
        let answer = || drivers.record_answer(Driver::Docker);
        let miss = || drivers.record_miss(Driver::Docker);
        assert_eq!(answer(), Transition::Recovered);
        assert_eq!(miss(), Transition::None);
        assert_eq!(answer(), Transition::None, "one miss is no outage");
        assert_eq!([miss(), miss()], [Transition::None, Transition::Lost]);
        assert_eq!(miss(), Transition::None, "an outage is one transition");
        assert!(drivers.is_unavailable(Driver::Docker));
        assert_eq!(answer(), Transition::Recovered);
        assert!(!drivers.is_unavailable(Driver::Docker));
    }

    #[test]
    fn a_driver_that_answered_before_a_reboot_is_waited_for_and_its_answer_is_news() {
        let drivers = DriverAvailability::expecting([Driver::Docker]);
        assert!(drivers.unsettled_until().is_some());
        assert_eq!(drivers.record_answer(Driver::Docker), Transition::Recovered);
        assert_eq!(drivers.unsettled_until(), None);
    }

    #[test]
    fn a_restarting_driver_is_waited_for_and_one_that_never_answered_is_not() {
        let drivers = DriverAvailability::default();
        let began = Instant::now();
        drivers.record_miss(Driver::Docker);
        drivers.record_miss(Driver::Docker);
        assert_eq!(drivers.unsettled_until(), None, "it never answered");
        drivers.record_answer(Driver::Docker);
        drivers.record_miss(Driver::Docker);
        let until = drivers.unsettled_until().unwrap();
        assert!(until >= began + GRACE && until <= Instant::now() + GRACE);
        drivers.record_answer(Driver::Docker);
        assert_eq!(drivers.unsettled_until(), None);
    }
}
