//! Metrics: counters of this daemon, and the shape of a metric for `/metrics` and for a collector.
//!
//! Owns: the counters. Must not touch: metric names, which are in [`collect`], and formats.
//! Invariant: a counter only grows, and starts at zero with the daemon.

pub(crate) mod collect;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Counters since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) passes: Counter,
    pub(crate) deciding_micros: Counter,
    pub(crate) plans: Counter,
    pub(crate) placements: Counter,
    pub(crate) dropped: Counter,
    pub(crate) rebalance_cycles: Counter,
    pub(crate) terms_led: Counter,
    pub(crate) requests: Counter,
    pub(crate) refused: LabelledCounter,
}

/// A counter per label value; the values are a closed set.
#[derive(Debug, Default)]
pub(crate) struct LabelledCounter(Mutex<BTreeMap<String, u64>>);

impl LabelledCounter {
    pub(crate) fn add(&self, word: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(word) {
            Some(count) => *count += 1,
            None => drop(counts.insert(word.to_owned(), 1)),
        }
    }

    pub(crate) fn get(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
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

/// A metric with all its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    /// Values with their label, if any. Label values are numbers and words of a closed set, so nothing needs escaping.
    pub(crate) points: Vec<(Option<(&'static str, String)>, u64)>,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// It goes up and down.
    Gauge,
    /// It only grows.
    Counter,
}

impl Metric {
    pub(crate) fn plain(name: &'static str, kind: MetricKind, value: u64) -> Self {
        Self { name, kind, points: vec![(None, value)] }
    }

    pub(crate) fn labelled(
        name: &'static str,
        kind: MetricKind,
        label: &'static str,
        values: impl IntoIterator<Item = (String, u64)>,
    ) -> Self {
        Self { name, kind, points: values.into_iter().map(|(word, value)| (Some((label, word)), value)).collect() }
    }
}
