//! Heartbeats, and the samples sent with them.
//!
//! Owns: their intervals. A heartbeat waits for nothing: other tasks collect its contents.
//! Invariant: a driver that hangs delays no heartbeat; it is only missing from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use longshore_model::{
    Cursor, Driver, Heartbeat, ReplicaKey, Report,
    agent_protocol::{CleanupState, DiskSpace, Usage},
    rebalance::Pressure,
};

use crate::{
    disk::DiskMonitor,
    driver_availability::Transition,
    pressure::Sampler,
    replica::AgentContext,
    runtime::{ExistingReplica, Handle, ResourceUsage, Runtime},
};

/// The contents of the next heartbeat, updated by several tasks.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatState {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    cursor: Option<Cursor>,
    cleanup: CleanupState,
    answering: BTreeSet<Driver>,
    unsent_sample: Option<Sample>,
    /// Set by the control plane; the agent's own setting applies while it is `None`.
    sample_interval: Option<Duration>,
}

#[derive(Debug, Default)]
struct Sample {
    pressure: Option<Pressure>,
    usage: Vec<Usage>,
    disk: Option<DiskSpace>,
}

impl HeartbeatState {
    pub(crate) fn set_cursor(&self, cursor: Option<Cursor>) {
        self.lock().cursor = cursor;
    }

    pub(crate) fn set_cleanup(&self, cleanup: CleanupState) {
        self.lock().cleanup = cleanup;
    }

    /// The next heartbeat. A sample is part of one heartbeat only, because a repeated one would count twice.
    fn next_heartbeat(&self) -> Heartbeat {
        let mut inner = self.lock();
        let Sample { pressure, usage, disk } = inner.unsent_sample.take().unwrap_or_default();
        let (cursor, cleanup, answering) = (inner.cursor, inner.cleanup, inner.answering.clone());
        Heartbeat { cursor, cleanup, answering, pressure, usage, disk, conditions: Vec::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each change sets one field, so a panic elsewhere leaves no partial update.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends heartbeats for ever, at the agent's interval until the control plane asks for another. A lost heartbeat is not
/// repeated, because the next one supersedes it.
pub(crate) async fn send(ctx: Arc<AgentContext>, state: Arc<HeartbeatState>, default_interval: Duration) {
    let (mut interval, mut due) = (default_interval, tokio::time::Instant::now());
    loop {
        tokio::time::sleep_until(due).await;
        let sending = ctx.link.report(vec![Report::Heartbeat(state.next_heartbeat())]);
        if let Ok(Ok(ack)) = tokio::time::timeout(interval, sending).await {
            interval = ack.heartbeat_interval.unwrap_or(default_interval);
            state.lock().sample_interval = ack.sample_interval;
        }
        due = (due + interval).max(tokio::time::Instant::now());
    }
}

/// Asks every driver per interval whether it answers, for ever.
pub(crate) async fn probe_drivers(ctx: Arc<AgentContext>, state: Arc<HeartbeatState>, interval: Duration) {
    loop {
        let probes =
            ctx.runtimes.values().map(|runtime| async move { (runtime.driver(), runtime.is_available().await) });
        let answers = futures_util::future::join_all(probes).await;
        let transitions = answers.iter().map(|(driver, answered)| {
            if *answered { ctx.drivers.record_answer(*driver) } else { ctx.drivers.record_miss(*driver) }
        });
        // Counted, because a search would stop at the first transition and not record the other drivers.
        let has_changed = transitions.filter(|transition| *transition != Transition::None).count() > 0;
        let answering = answers.into_iter().filter(|(_, answered)| *answered).map(|(driver, _)| driver).collect();
        state.lock().answering = answering;
        if has_changed {
            // Monitors report at once that their replicas cannot be inspected, or their state after the driver's
            // return.
            ctx.wakeups.wake_all();
        }
        tokio::time::sleep(interval).await;
    }
}

/// Samples the pressure of the machine and the usage of every replica per interval, for ever.
pub(crate) async fn collect_samples(
    ctx: Arc<AgentContext>,
    state: Arc<HeartbeatState>,
    interval: Duration,
    mut disks: DiskMonitor,
) {
    let mut sampler = Sampler::new();
    let mut previous = BTreeMap::new();
    let mut pause = first_pause(interval);
    loop {
        tokio::time::sleep(pause).await;
        pause = state.lock().sample_interval.unwrap_or(interval);
        let pressure = sampler.sample();
        let usage = usage(&ctx, &mut previous).await;
        let roots: Vec<PathBuf> = ctx.runtimes.values().filter_map(|runtime| runtime.data_root()).collect();
        let disk = disks.sample(&roots);
        state.lock().unsent_sample = Some(Sample { pressure, usage, disk });
    }
}

/// The first sample comes sooner, so that the load of a joining node is known soon.
fn first_pause(interval: Duration) -> Duration {
    interval.min(Duration::from_secs(2))
}

/// Statistics requested from a driver at once.
const PARALLEL_STATS: usize = 4;

/// The counters of a replica at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    counters: ResourceUsage,
}

/// The usage since the previous readings, which are replaced.
async fn usage(ctx: &AgentContext, previous: &mut BTreeMap<Handle, Reading>) -> Vec<Usage> {
    let mut current = BTreeMap::new();
    let mut usage = Vec::new();
    for runtime in ctx.runtimes.values() {
        let Ok(list) = runtime.list().await else { continue };
        let requests = list.into_iter().map(|existing| read(&**runtime, existing));
        let readings: Vec<_> = futures_util::stream::iter(requests).buffer_unordered(PARALLEL_STATS).collect().await;
        for (ExistingReplica { key, handle, .. }, reading) in readings.into_iter().flatten() {
            if let Some(earlier) = previous.get(&handle) {
                usage.extend(rate(key, *earlier, reading));
            }
            current.insert(handle, reading);
        }
    }
    *previous = current;
    usage.sort_by(|one, other| one.key.cmp(&other.key));
    usage
}

async fn read(runtime: &dyn Runtime, existing: ExistingReplica) -> Option<(ExistingReplica, Reading)> {
    let counters = runtime.resource_usage(&existing.handle).await.ok()?;
    Some((existing, Reading { at: Instant::now(), counters }))
}

/// `None` if no time has passed or the counter went back, in which case it belongs to another process.
fn rate(key: ReplicaKey, earlier: Reading, later: Reading) -> Option<Usage> {
    let elapsed = later.at.duration_since(earlier.at);
    let micros = u64::try_from(elapsed.as_micros()).ok().filter(|micros| *micros > 0)?;
    let used = later.counters.cpu_micros.checked_sub(earlier.counters.cpu_micros)?;
    Some(Usage { key, cpu_millis: used * 1000 / micros, memory_bytes: later.counters.memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired_work::tests::work;

    #[test]
    fn usage_is_the_difference_of_two_readings_over_the_time_between() {
        let began = Instant::now();
        let reading = |secs, cpu_micros| Reading {
            at: began + Duration::from_secs(secs),
            counters: ResourceUsage { cpu_micros, memory_bytes: 7 },
        };
        let used =
            |before, after| rate(work(0, 1).key, reading(0, before), reading(2, after)).map(|usage| usage.cpu_millis);
        assert_eq!(used(1_000_000, 2_000_000), Some(500));
        assert_eq!(used(2_000_000, 1_000_000), None);
    }

    #[test]
    fn a_sample_is_sent_with_one_heartbeat_only() {
        let state = HeartbeatState::default();
        state.lock().unsent_sample = Some(Sample { pressure: Some(Pressure::default()), ..Sample::default() });
        assert!(state.next_heartbeat().pressure.is_some());
        assert!(state.next_heartbeat().pressure.is_none());
    }
}
