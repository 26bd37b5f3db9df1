//! `sim bench`: how long the pure decision takes on a made-up cluster.
//!
//! Owns: what is timed and what is not. Only [`longshore_scheduler::plan`] is ever inside the stopwatch.
//! Must not touch: the scheduler's insides. It is fed with events and asked for plans, as everybody does.
//! Invariant: the same options give the same cluster and the same plan; only the times differ.

#[cfg(feature = "durable")]
pub mod durable;
mod effects;
mod generate;
mod roll;

use std::time::{Duration, Instant};

use longshore_model::{Event, Plan, StateIndex, Strategy, Time};
use longshore_scheduler::View;
use serde::Serialize;

use self::generate::Cluster;

/// Samples behind the two small figures: enough for a median that one interrupt cannot move.
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
    /// Whether services ask for memory.
    pub memory: Memory,
    /// How nodes are chosen.
    pub strategy: Strategy,
    /// Times the decision is measured; the median counts.
    pub repeat: u32,
    /// Whether all services are also rolled over at once.
    pub rolling: Rolling,
}

/// Whether a rollout is measured too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rolling {
    /// It is.
    Measured,
    /// It is not.
    LeftOut,
}

/// Whether services ask for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// They do, and fill about 80 % of what there is.
    Counted,
    /// They do not.
    Ignored,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Nodes.
    pub nodes: u32,
    /// Services.
    pub services: u32,
    /// Replicas asked for.
    pub replicas: u32,
    /// Replicas that got a node.
    pub placed: usize,
    /// Time to decide about all of them at once.
    pub decide_ms: f64,
    /// The same for one.
    pub ns_per_replica: f64,
    /// Time of a pass in which nothing changed.
    pub noop_us: f64,
    /// Time to decide about one replica more.
    pub one_more_us: f64,
    /// Most memory the process ever had; the caller knows how to ask.
    pub max_rss_mib: u64,
    /// Slots changed by rolling every service over at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_steps: Option<u64>,
    /// Passes that took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_passes: Option<u64>,
    /// Decision time of one step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_us_per_step: Option<f64>,
    /// How many times that of a tenth of the services: near one where a pass costs what changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_growth: Option<f64>,
}

/// Measures.
pub fn run(options: &Options) -> Figures {
    let cluster = Cluster::new(options);
    let mut decisions = Vec::new();
    let mut last = None;
    for _ in 0..options.repeat.max(1) {
        // The last round's view and plan go first: two of them at once would count twice in the memory figure.
        drop(last.take());
        let mut view = cluster.view();
        let (plan, took) = timed(&mut view, Time::default());
        decisions.push(took);
        last = Some((view, plan));
    }
    let (mut view, plan) = last.expect("at least one round was run");
    let placed = plan.placements();
    effects::take(&mut view, plan);
    settle(&mut view, Time(1000));
    let idle = (0..SMALL_SAMPLES).map(|_| timed(&mut view, Time(2000)).1).collect();
    let more = (0..SMALL_SAMPLES).map(|round| one_more(&mut view, &cluster, round)).collect();
    let decide = median(decisions);
    let rolled = rolled(options);
    Figures {
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

/// All services rolled over, and a tenth of them.
fn rolled(options: &Options) -> Option<(roll::Rolled, roll::Rolled)> {
    match options.rolling {
        Rolling::LeftOut => None,
        Rolling::Measured => {
            let replicas = (options.replicas / options.services.max(1)).max(1);
            let tenth = roll::roll(options.nodes, (options.services / 10).max(1), replicas);
            Some((roll::roll(options.nodes, options.services, replicas), tenth))
        }
    }
}

fn timed(view: &mut View, now: Time) -> (Plan, Duration) {
    let started = Instant::now();
    let plan = longshore_scheduler::plan(view, StateIndex(0), now);
    (plan, started.elapsed())
}

/// Decides until there is nothing left to decide, so that the next pass finds nothing dirty.
fn settle(view: &mut View, now: Time) {
    loop {
        let plan = timed(view, now).0;
        if plan.is_empty() {
            return;
        }
        effects::take(view, plan);
    }
}

/// One service gets one replica more. A prime step visits services far apart, so that no cache is warm by luck.
fn one_more(view: &mut View, cluster: &Cluster, round: u32) -> Duration {
    const STEP: u64 = 7919;
    let now = Time(3000 + u64::from(round));
    let service = cluster.service(u64::from(round) * STEP);
    view.apply(&service.scaled_by(round / cluster.services() + 1));
    let (plan, took) = timed(view, now);
    effects::take(view, plan);
    settle(view, now);
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A figure with three digits after the point: what is finer is noise.
fn rounded(time: Duration, unit: f64) -> f64 {
    (time.as_secs_f64() * unit * 1000.0).round() / 1000.0
}

/// The events of a whole cluster, as an empty view hears them.
fn feed(view: &mut View, events: impl Iterator<Item = Event>) {
    for event in events {
        view.apply(&event);
    }
}

#[cfg(test)]
mod tests;
