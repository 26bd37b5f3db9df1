//! Which drivers answer, and since when one does not.
//!
//! Owns: telling a hiccup from an absence, and saying once that a driver is away and once that it is back.
//! Must not touch: replicas. That nobody can look at them is for their own tasks to say.
//! Invariant: a driver is away only when it failed to answer twice in a row, and is back with its first answer.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::Driver;
use tokio::{sync::watch, time::Instant};

/// A busy engine may miss one question; one that missed two in a row is away.
const MISSED: u32 = 2;
/// Time between two looks at whether a driver that missed one question has answered the next.
const HICCUP: Duration = Duration::from_millis(200);
/// How long a driver that was here may be away before the node stops offering it. As long as a silent node has before it
/// is down: an engine that is restarted with its containers running is back sooner, and moving them would help nobody.
const GRACE: Duration = Duration::from_secs(10);

/// What is known of every driver of this node.
#[derive(Debug)]
pub(crate) struct Drivers {
    known: Mutex<BTreeMap<Driver, Known>>,
    /// Counts comings and goings, for whoever waits for one.
    turns: watch::Sender<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    missed: u32,
    /// `None` before it first answered.
    last_heard: Option<Instant>,
}

impl Known {
    const fn is_away(self) -> bool {
        self.missed >= MISSED
    }
}

/// Whether anything changed for those who look through a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is as it was.
    None,
    /// It went away.
    Left,
    /// It is here again, or for the first time.
    Returned,
}

impl Default for Drivers {
    fn default() -> Self {
        Self { known: Mutex::default(), turns: watch::Sender::new(0) }
    }
}

impl Drivers {
    /// It answered just now.
    pub(crate) fn answered(&self, driver: Driver) -> Turn {
        let mut known = self.lock();
        let entry = known.entry(driver).or_default();
        let is_new = entry.is_away() || entry.last_heard.is_none();
        let was_away = entry.is_away();
        *entry = Known { missed: 0, last_heard: Some(Instant::now()) };
        drop(known);
        if !is_new {
            return Turn::None;
        }
        if was_away {
            tracing::info!(driver = driver.as_str(), "the driver answers again");
        }
        self.turns.send_modify(|turns| *turns += 1);
        Turn::Returned
    }

    /// It did not answer.
    pub(crate) fn missed(&self, driver: Driver) -> Turn {
        let mut known = self.lock();
        let entry = known.entry(driver).or_default();
        entry.missed = entry.missed.saturating_add(1);
        let left = entry.missed == MISSED;
        drop(known);
        if !left {
            return Turn::None;
        }
        tracing::warn!(driver = driver.as_str(), "the driver does not answer; what it runs is left as it is, unseen");
        self.turns.send_modify(|turns| *turns += 1);
        Turn::Left
    }

    pub(crate) fn is_away(&self, driver: Driver) -> bool {
        self.lock().get(&driver).is_some_and(|known| known.is_away())
    }

    /// What comes of it while the driver is here; `None` once it is away.
    pub(crate) async fn while_here<T>(&self, driver: Driver, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.wait_until(|drivers| drivers.is_away(driver)) => None,
            done = work => Some(done),
        }
    }

    /// Waits until the driver answers.
    pub(crate) async fn returns(&self, driver: Driver) {
        self.wait_until(|drivers| !drivers.is_away(driver)).await;
    }

    async fn wait_until(&self, wanted: impl Fn(&Self) -> bool) {
        let mut turns = self.turns();
        while !wanted(self) {
            // The sender lives as long as this value does.
            let _ = turns.changed().await;
        }
    }

    /// Comings and goings from now on.
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    /// Waits until every driver that was ever here answers, or has been away for so long that it counts as gone.
    pub(crate) async fn settled(&self) {
        let mut turns = self.turns();
        while let Some(until) = self.unsettled_until() {
            // One that missed a single question comes and goes without a turn.
            let soon = Instant::now() + HICCUP;
            let _ = tokio::time::timeout_at(until.min(soon), turns.changed()).await;
        }
    }

    fn unsettled_until(&self) -> Option<Instant> {
        let now = Instant::now();
        let known = self.lock();
        let away = known.values().filter(|known| known.missed > 0);
        away.filter_map(|known| Some(known.last_heard? + GRACE)).filter(|until| *until > now).min()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Driver, Known>> {
        // An entry is changed as a whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_away_after_two_misses_and_back_with_one_answer() {
        let drivers = Drivers::default();
        assert_eq!(drivers.answered(Driver::Docker), Turn::Returned);
        assert_eq!(drivers.missed(Driver::Docker), Turn::None);
        assert_eq!(drivers.answered(Driver::Docker), Turn::None, "one miss is a hiccup");
        assert_eq!([drivers.missed(Driver::Docker), drivers.missed(Driver::Docker)], [Turn::None, Turn::Left]);
        assert_eq!(drivers.missed(Driver::Docker), Turn::None, "it is said once");
        assert!(drivers.is_away(Driver::Docker));
        assert_eq!(drivers.answered(Driver::Docker), Turn::Returned);
        assert!(!drivers.is_away(Driver::Docker));
    }

    #[test]
    fn an_engine_that_restarts_is_waited_for_and_one_that_was_never_here_is_not() {
        let drivers = Drivers::default();
        let began = Instant::now();
        drivers.missed(Driver::Docker);
        drivers.missed(Driver::Docker);
        assert_eq!(drivers.unsettled_until(), None, "it was never here");
        drivers.answered(Driver::Docker);
        drivers.missed(Driver::Docker);
        let until = drivers.unsettled_until().unwrap();
        assert!(until >= began + GRACE && until <= Instant::now() + GRACE);
        drivers.answered(Driver::Docker);
        assert_eq!(drivers.unsettled_until(), None);
    }
}
