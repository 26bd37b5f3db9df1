//! `sim bench`: the decision time of the scheduler on a generated cluster.
//!
//! Owns: what is timed. Only [`longshore_scheduler::plan`] is.
//! Must not touch: the scheduler's internals. It receives events and returns plans, as in production.
//! Invariant: the same options give the same cluster and the same plan; only the times differ.

#[cfg(feature = "durable")]
pub mod durable;
mod effects;
mod generate;
mod rollout;

use std::time::{Duration, Instant};

use longshore_model::{Event, Plan, StateIndex, Strategy, Time};
use longshore_scheduler::View;
use serde::Serialize;

use self::generate::Cluster;

/// Samples of the two short measurements: enough for a median that one interrupt cannot move.
const SMALL_SAMPLES: u32 = 101;

/// The cluster and its work.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Nodes.
    pub nodes: u32,
    /// Services.
    pub services: u32,
    /// Replicas of all services together.
    pub replicas: u32,
    /// Zones the nodes are in, which services spread over; 0 is none.
    pub zones: u32,
    /// Whether services request memory.
    pub memory: Memory,
    /// How nodes are chosen.
    pub strategy: Strategy,
    /// Repetitions of the measurement; the median is reported.
    pub repeat: u32,
    /// Whether a rollout of all services at once is measured.
    pub rollout: RolloutBench,
}

/// Whether a rollout of all services is measured too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutBench {
    /// Measured after the other cases.
    Run,
    /// Not measured.
    Skip,
}

/// Whether services request memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// They do, and fill about 80 % of the cluster.
    Counted,
    /// They do not.
    Ignored,
}

/// The measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchResult {
    /// Nodes.
    pub nodes: u32,
    /// Services.
    pub services: u32,
    /// Replicas requested.
    pub replicas: u32,
    /// Replicas that got a node.
    pub placed: usize,
    /// Time of the pass that places all of them.
    pub decide_ms: f64,
    /// That time divided by the number of replicas.
    pub ns_per_replica: f64,
    /// Time of a pass in which nothing changed.
    pub noop_us: f64,
    /// Time of a pass that places one more replica.
    pub one_more_us: f64,
    /// Peak resident memory of the process; the caller fills it in.
    pub max_rss_mib: u64,
    /// Steps of the rollout of all services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_steps: Option<u64>,
    /// Passes of that rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_passes: Option<u64>,
    /// Its decision time per step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_us_per_step: Option<f64>,
    /// That time divided by the one with a tenth of the services: near 1 if a pass costs only what changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_growth: Option<f64>,
}

/// Runs the benchmark.
pub fn run(options: &Options) -> BenchResult {
    let cluster = Cluster::new(options);
    let mut decisions = Vec::new();
    let mut last = None;
    for _ in 0..options.repeat.max(1) {
        // The previous view and plan are dropped first: two at once would double the peak memory.
        drop(last.take());
        let mut view = cluster.view();
        let (plan, took) = timed(&mut view, Time::default());
        decisions.push(took);
        last = Some((view, plan));
    }
    let (mut view, plan) = last.expect("at least one round was run");
    let placed = plan.placements();
    effects::apply(&mut view, plan);
    settle(&mut view, Time(1000));
    let idle = (0..SMALL_SAMPLES).map(|_| timed(&mut view, Time(2000)).1).collect();
    let more = (0..SMALL_SAMPLES).map(|round| one_more(&mut view, &cluster, round)).collect();
    let decide = median(decisions);
    let rolled = rolled(options);
    BenchResult {
        nodes: options.nodes,
        services: options.services,
        replicas: options.replicas,
        placed,
        decide_ms: rounded(decide, 1e3),
        ns_per_replica: rounded(decide, 1e9 / f64::from(options.replicas.max(1))),
        noop_us: rounded(median(idle), 1e6),
        one_more_us: rounded(median(more), 1e6),
        max_rss_mib: 0,
        roll_steps: rolled.map(|(all, _)| all.steps),
        roll_passes: rolled.map(|(all, _)| all.passes),
        roll_us_per_step: rolled.map(|(all, _)| all.us_per_step),
        roll_growth: rolled
            .map(|(all, tenth)| (all.us_per_step / tenth.us_per_step.max(0.001) * 100.0).round() / 100.0),
    }
}

/// Measures the rollout of all services, and of a tenth of them.
fn rolled(options: &Options) -> Option<(rollout::RolloutResult, rollout::RolloutResult)> {
    match options.rollout {
        RolloutBench::Skip => None,
        RolloutBench::Run => {
            let replicas = (options.replicas / options.services.max(1)).max(1);
            let tenth = rollout::measure(options.nodes, (options.services / 10).max(1), replicas);
            Some((rollout::measure(options.nodes, options.services, replicas), tenth))
        }
    }
}

fn timed(view: &mut View, now: Time) -> (Plan, Duration) {
    let started = Instant::now();
    let plan = longshore_scheduler::plan(view, StateIndex(0), now);
    (plan, started.elapsed())
}

/// Runs passes until one is empty, so that the next finds nothing dirty.
fn settle(view: &mut View, now: Time) {
    loop {
        let plan = timed(view, now).0;
        if plan.is_empty() {
            return;
        }
        effects::apply(view, plan);
    }
}

/// Measures one more replica of one service. The prime step visits services far apart, so that no cache is warm by luck.
fn one_more(view: &mut View, cluster: &Cluster, round: u32) -> Duration {
    const STEP: u64 = 7919;
    let now = Time(3000 + u64::from(round));
    let service = cluster.service(u64::from(round) * STEP);
    view.apply(&service.scaled_by(round / cluster.services() + 1));
    let (plan, took) = timed(view, now);
    effects::apply(view, plan);
    settle(view, now);
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Rounds to three decimals: more would be noise.
fn rounded(time: Duration, unit: f64) -> f64 {
    (time.as_secs_f64() * unit * 1000.0).round() / 1000.0
}

/// Applies the events of a whole cluster to an empty view.
fn feed(view: &mut View, events: impl Iterator<Item = Event>) {
    for event in events {
        view.apply(&event);
    }
}

#[cfg(test)]
mod tests;
