//! Heartbeats, and the samples that travel with them.
//!
//! Owns: the rhythm. A beat waits for nobody: what it carries was gathered beside it.
//! Invariant: a driver that hangs delays no beat; it only goes missing from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use longshore_model::{
    Cursor, Driver, Heartbeat, Report, WorkKey,
    work::{Pressure, Standing, Usage},
};

use crate::{
    drivers::Turn,
    pressure::Sampler,
    replica::Shared,
    runtime::{Handle, Runtime, Spent},
};

/// What beats say, kept up to date by whoever knows it.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    cursor: Option<Cursor>,
    standing: Standing,
    answering: BTreeSet<Driver>,
    fresh: Option<(Option<Pressure>, Vec<Usage>)>,
    /// How often the control plane wants a sample, where it has said so.
    sample_every: Option<Duration>,
}

impl Vitals {
    pub(crate) fn heard(&self, cursor: Option<Cursor>) {
        self.change(|inner| inner.cursor = cursor);
    }

    pub(crate) fn stands(&self, standing: Standing) {
        self.change(|inner| inner.standing = standing);
    }

    fn sample_every(&self) -> Option<Duration> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).sample_every
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A sample goes out with one beat only: a repeated one would count twice.
    fn beat(&self) -> Heartbeat {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (pressure, usage) = inner.fresh.take().unwrap_or_default();
        let (cursor, standing, answering) = (inner.cursor, inner.standing, inner.answering.clone());
        Heartbeat { cursor, standing, answering, pressure, usage }
    }
}

/// Sends a beat per interval, for ever: the agent's own until the control plane wants another. A beat that does not get
/// through is not sent again: the next one says it all.
pub(crate) async fn beat(shared: Arc<Shared>, vitals: Arc<Vitals>, interval: Duration) {
    let (mut every, mut due) = (interval, tokio::time::Instant::now());
    loop {
        tokio::time::sleep_until(due).await;
        let beat = shared.link.report(vec![Report::Beat(vitals.beat())]);
        if let Ok(Ok(heard)) = tokio::time::timeout(every, beat).await {
            every = heard.beat_every.unwrap_or(interval);
            vitals.change(|inner| inner.sample_every = heard.sample_every);
        }
        due = (due + every).max(tokio::time::Instant::now());
    }
}

/// Asks every driver whether it is there, for ever.
pub(crate) async fn listen_to_drivers(shared: Arc<Shared>, vitals: Arc<Vitals>, interval: Duration) {
    loop {
        let asked = shared.runtimes.values().map(|runtime| async move { (runtime.driver(), runtime.answers().await) });
        let answers = futures_util::future::join_all(asked).await;
        let turns = answers.iter().map(|(driver, answers)| {
            if *answers { shared.drivers.answered(*driver) } else { shared.drivers.missed(*driver) }
        });
        // Counted and not looked for: the first turn must not keep the other drivers from being noted.
        let turned = turns.filter(|turn| *turn != Turn::None).count() > 0;
        let answering = answers.into_iter().filter(|(_, answers)| *answers).map(|(driver, _)| driver).collect();
        vitals.change(|inner| inner.answering = answering);
        if turned {
            // Whoever watches a replica says at once that it can no longer be seen, or what it looks like now.
            shared.pokes.poke_all();
        }
        tokio::time::sleep(interval).await;
    }
}

/// Takes a sample of the machine and of every replica per interval, for ever.
pub(crate) async fn sample(shared: Arc<Shared>, vitals: Arc<Vitals>, interval: Duration) {
    let mut sampler = Sampler::new();
    let mut before = BTreeMap::new();
    let mut pause = first_pause(interval);
    loop {
        tokio::time::sleep(pause).await;
        pause = vitals.sample_every().unwrap_or(interval);
        let pressure = sampler.sample();
        let usage = usage(&shared, &mut before).await;
        vitals.change(|inner| inner.fresh = Some((pressure, usage)));
    }
}

/// The first sample comes sooner: a node that has just joined should not be a blank for half a minute.
fn first_pause(interval: Duration) -> Duration {
    interval.min(Duration::from_secs(2))
}

/// Statistics asked of an engine at once.
const AT_ONCE: usize = 4;

async fn usage(shared: &Shared, before: &mut BTreeMap<Handle, (Instant, Spent)>) -> Vec<Usage> {
    let mut now = BTreeMap::new();
    let mut usage = Vec::new();
    for runtime in shared.runtimes.values() {
        let Ok(list) = runtime.list().await else { continue };
        let asked = list.into_iter().map(|found| spent(runtime, found.key, found.handle));
        let answers: Vec<_> = futures_util::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
        for (key, handle, at, spent) in answers.into_iter().flatten() {
            if let Some((then, earlier)) = before.get(&handle) {
                usage.extend(rate(key, at.duration_since(*then), *earlier, spent));
            }
            now.insert(handle, (at, spent));
        }
    }
    *before = now;
    usage.sort_by(|one, other| one.key.cmp(&other.key));
    usage
}

async fn spent(runtime: &Runtime, key: WorkKey, handle: Handle) -> Option<(WorkKey, Handle, Instant, Spent)> {
    let spent = runtime.spent(&handle).await.ok()?;
    Some((key, handle, Instant::now(), spent))
}

fn rate(key: WorkKey, elapsed: Duration, earlier: Spent, spent: Spent) -> Option<Usage> {
    let micros = u64::try_from(elapsed.as_micros()).ok().filter(|micros| *micros > 0)?;
    let used = spent.cpu_micros.checked_sub(earlier.cpu_micros)?;
    Some(Usage { key, cpu_millis: used * 1000 / micros, memory_bytes: spent.memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::work;

    #[test]
    fn usage_is_what_was_spent_over_the_time_between() {
        let spent = |cpu_micros| Spent { cpu_micros, memory_bytes: 7 };
        let used = |then, now| {
            rate(work(0, 1).key, Duration::from_secs(2), spent(then), spent(now)).map(|usage| usage.cpu_millis)
        };
        assert_eq!(used(1_000_000, 2_000_000), Some(500));
        // A counter that went back belongs to something else.
        assert_eq!(used(2_000_000, 1_000_000), None);
    }

    #[test]
    fn a_sample_travels_with_one_beat() {
        let vitals = Vitals::default();
        vitals.change(|inner| inner.fresh = Some((Some(Pressure::default()), Vec::new())));
        assert!(vitals.beat().pressure.is_some());
        assert!(vitals.beat().pressure.is_none());
    }
}
