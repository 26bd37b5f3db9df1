//! What is counted, and a figure as it is told: to `/metrics`, and to a collector.
//!
//! Owns: the counters and the shape of a figure. Must not touch: names, which are [`told`]'s, and formats.
//! Invariant: a counter only grows, and begins anew with the daemon.

pub(crate) mod told;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
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
    pub(crate) refused: Tally,
}

/// Numbers by a word of a closed list.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<BTreeMap<String, u64>>);

impl Tally {
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

/// A figure with all its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Each with its label, where there is one. Labels are words of ours and numbers; nothing that would have to be escaped.
    pub(crate) points: Vec<(Option<(&'static str, String)>, u64)>,
}

/// What a figure may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only grows.
    Counter,
}

impl Figure {
    pub(crate) fn plain(name: &'static str, kind: Kind, value: u64) -> Self {
        Self { name, kind, points: vec![(None, value)] }
    }

    pub(crate) fn labelled(
        name: &'static str,
        kind: Kind,
        label: &'static str,
        values: impl IntoIterator<Item = (String, u64)>,
    ) -> Self {
        Self { name, kind, points: values.into_iter().map(|(word, value)| (Some((label, word)), value)).collect() }
    }
}
