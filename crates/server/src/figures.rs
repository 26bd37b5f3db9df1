//! Counters for `/metrics`.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// What the loops have done since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) passes: Count,
    pub(crate) deciding_micros: Count,
    pub(crate) plans: Count,
    pub(crate) placements: Count,
    pub(crate) dropped: Count,
    pub(crate) rebalance_cycles: Count,
    pub(crate) terms_led: Count,
    pub(crate) requests: Count,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_micros(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
