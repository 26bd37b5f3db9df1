//! Every service of a deployment gets another image at once, and is rolled over by the simulator to the end.
//!
//! Owns: that case. The stopwatch is the simulator's own, around the decision alone.
//! Invariant: a step's share of the time does not grow with the number of services, or a pass looks at what did not change.

use std::fmt::Write as _;

use crate::{engine, scenario::Scenario};

/// What rolling over took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rolled {
    /// Slots that changed.
    pub(super) steps: u64,
    /// Passes it took.
    pub(super) passes: u64,
    /// Decision time of a step.
    pub(super) us_per_step: f64,
}

/// When the change comes. Everything runs long before.
const CHANGED_AT: u64 = 60;

/// Rolls `services` of a deployment with `replicas` each.
pub(super) fn roll(nodes: u32, services: u32, replicas: u32) -> Rolled {
    let before = engine::run(&scenario(nodes, services, replicas, CHANGED_AT)).stats;
    // A step takes a start, the monitor time and a stop; one more minute is room for all of them.
    let report = engine::run(&scenario(nodes, services, replicas, CHANGED_AT + 60 + u64::from(replicas) * 10));
    let steps = report.stats.placements - before.placements;
    let took = report.stats.decide_us.saturating_sub(before.decide_us);
    let share =
        |whole: u64, parts: u64| f64::from(u32::try_from(whole * 1000 / parts.max(1)).unwrap_or(u32::MAX)) / 1e3;
    Rolled { steps, passes: report.stats.passes - before.passes, us_per_step: share(took, steps) }
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
