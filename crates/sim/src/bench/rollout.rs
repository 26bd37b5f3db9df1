//! A rollout of a new image to every service of a deployment at once, simulated to its end.
//!
//! Owns: that case. The time is the simulator's `decide_us`.
//! Invariant: the time per step does not grow with the number of services; if it does, passes visit unchanged services.

use std::fmt::Write as _;

use crate::{engine, scenario::Scenario};

/// The measurements of a rollout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RolloutResult {
    /// Slots that were updated.
    pub(super) steps: u64,
    /// Scheduler passes.
    pub(super) passes: u64,
    /// Decision time per step.
    pub(super) us_per_step: f64,
}

/// Time of the update, in seconds. Everything runs long before.
const CHANGED_AT: u64 = 60;

/// Measures the rollout of `services` with `replicas` each.
pub(super) fn measure(nodes: u32, services: u32, replicas: u32) -> RolloutResult {
    let before = engine::run(&scenario(nodes, services, replicas, CHANGED_AT)).stats;
    // A step takes a start, the monitor time and a stop: ten seconds per replica, and a minute of reserve.
    let report = engine::run(&scenario(nodes, services, replicas, CHANGED_AT + 60 + u64::from(replicas) * 10));
    let steps = report.stats.placements - before.placements;
    let took = report.stats.decide_us.saturating_sub(before.decide_us);
    let share =
        |whole: u64, parts: u64| f64::from(u32::try_from(whole * 1000 / parts.max(1)).unwrap_or(u32::MAX)) / 1e3;
    RolloutResult { steps, passes: report.stats.passes - before.passes, us_per_step: share(took, steps) }
}

fn scenario(nodes: u32, services: u32, replicas: u32, until: u64) -> Scenario {
    let manifest = |version: u32| {
        let mut text = String::from("        services:\n");
        for service in 0..services {
            let _ = writeln!(
                text,
                "          s{service}: {{ image: \"app:{version}\", deploy: {{ replicas: {replicas}, resources: {{ \
                 reservations: {{ cpus: \"0.01\" }} }} }} }}"
            );
        }
        text
    };
    let text = format!(
        "nodes: [ {{ name: n, count: {nodes}, cpu: 64, memory: 256GiB }} ]\ndeployments:\n      big: |\n{}timeline:\n  - \
         at: {CHANGED_AT}s\n    apply:\n      big: |\n{}until: {until}s\n",
        manifest(1),
        manifest(2)
    );
    Scenario::parse("roll.yaml", &text)
        .unwrap_or_else(|problems| panic!("the benchmark's own file: {}", problems.to_json()))
}
