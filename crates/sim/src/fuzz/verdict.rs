//! Runs a generated scenario and judges the result.
//!
//! Owns: the kinds of failure, so that minimisation can tell whether a smaller scenario fails in the same way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use longshore_model::NodeName;
use serde::Serialize;

use super::tree::{Tree, scalar};
use crate::{Report, Scenario, invariants::quiet, timeline_log};

/// The result of running one scenario.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Events of the state machine.
    pub events: u64,
    /// Scheduler passes.
    pub passes: u64,
    /// The first failure, if any.
    pub failure: Option<Failure>,
}

/// A failure of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its kind.
    pub kind: FailureKind,
    /// What failed.
    pub message: String,
}

/// Kinds of failure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// An invariant was violated, by its name.
    Rule(String),
    /// Two runs of the same file had different reports.
    RunsDiffer,
    /// A run with a new leader after every event had a different report.
    NewLeadersDiffer,
    /// The run panicked.
    Panic,
    /// The scenario is invalid.
    Refused,
}

impl FailureKind {
    /// The name in messages and file names.
    pub fn name(&self) -> &str {
        match self {
            Self::Rule(rule) => rule,
            Self::RunsDiffer => "same_seed_same_bytes",
            Self::NewLeadersDiffer => "same_end_whoever_leads",
            Self::Panic => "panic",
            Self::Refused => "refused",
        }
    }
}

/// Longest time a cluster may take to come to rest. Several jobs that fail repeatedly on a node with capacity for one of them
/// take hours.
const LONGEST_SETTLE: &str = "4h";

/// Runs a scenario and judges it. One that is only not at rest in time gets [`LONGEST_SETTLE`]: the rule is that it comes to
/// rest, not how fast.
pub(super) fn judge(scenario_tree: &Tree) -> Trial {
    let trial = judge_within(scenario_tree);
    match &trial.failure {
        Some(Failure { kind: FailureKind::Rule(rule), .. }) if rule == quiet::NAME => {
            let mut extended = scenario_tree.clone();
            extended.set("settle", scalar(LONGEST_SETTLE));
            judge_within(&extended)
        }
        Some(_) | None => trial,
    }
}

/// Runs a scenario twice and compares the reports byte for byte. The second run has a new leader after every event; if such a
/// leader recorded another reason for waiting, only the actions are compared, per replica and in order. With random faults
/// the second run is a plain repetition: there the `leader_change_diverges` rule compares every plan with a new leader's.
fn judge_within(scenario_tree: &Tree) -> Trial {
    let trial = |failure| Trial { events: 0, passes: 0, failure: Some(failure) };
    let scenario = match Scenario::parse("generated.yaml", &scenario_tree.print()) {
        Ok(scenario) => scenario,
        Err(problems) => return trial(Failure { kind: FailureKind::Refused, message: problems.to_string() }),
    };
    let run = |run: fn(&Scenario) -> Report| catch_unwind(AssertUnwindSafe(|| run(&scenario)));
    let (first, second) = match scenario.faults {
        Some(_) => (run(crate::run), run(crate::run)),
        None => (run(crate::run), run(crate::run_with_new_leaders)),
    };
    match (first, second) {
        (Ok(first), Ok(second)) => compare(&scenario, &first, &second),
        (Err(panic), _) | (_, Err(panic)) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let message = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned();
            trial(Failure { kind: FailureKind::Panic, message })
        }
    }
}

fn compare(scenario: &Scenario, first: &Report, second: &Report) -> Trial {
    let broken = first.violations.first().map(|violation| Failure {
        kind: FailureKind::Rule(violation.invariant.to_owned()),
        message: format!("at {} ms: {}", violation.at_ms, violation.message),
    });
    let difference_of_runs = || match scenario.faults {
        Some(_) => difference(FailureKind::RunsDiffer, &lines(first), &lines(second)),
        None if waits(first) == waits(second) => {
            difference(FailureKind::NewLeadersDiffer, &lines(first), &lines(second))
        }
        None => difference(FailureKind::NewLeadersDiffer, &actions(first), &actions(second)),
    };
    let stats = &first.stats;
    Trial { events: stats.events, passes: stats.passes, failure: broken.or_else(difference_of_runs) }
}

fn difference(kind: FailureKind, first: &[String], second: &[String]) -> Option<Failure> {
    let at = first.iter().zip(second).find(|(a, b)| a != b);
    (first != second).then(|| Failure { kind, message: format!("the first difference is {at:?}") })
}

fn lines(report: &Report) -> Vec<String> {
    report.to_golden().lines().map(str::to_owned).collect()
}

/// The entries that record why something waits.
fn waits(report: &Report) -> Vec<String> {
    let waits = report.timeline.iter().filter(|entry| entry.kind == timeline_log::EntryKind::Waiting);
    waits.map(|entry| format!("{entry:?}")).collect()
}

/// The entries per deployment, replica or node in order, and the final rows, for runs that recorded a reason at different
/// times: a new leader recomputes every reason, while an old one does so only when something could have helped, and the pass
/// after that includes what has just happened. So times and reasons for waiting are left out.
fn actions(report: &Report) -> Vec<String> {
    let done = report.timeline.iter().filter(|entry| entry.kind != timeline_log::EntryKind::Waiting);
    let done = done.map(|entry| timeline_log::Entry { at_ms: 0, ..entry.clone() });
    let mut done: Vec<timeline_log::Entry> = done.collect();
    done.sort_by(|a, b| subject(a).cmp(&subject(b)));
    let done = done.iter().map(|entry| format!("{entry:?}"));
    let rows = report.replicas.iter().map(|row| {
        format!("{} {:?} {} g{} r{} of {}", row.id, row.node, row.state, row.generation, row.attempt, row.revision)
    });
    let broken = report.violations.iter().map(|violation| format!("{violation:?}"));
    broken.chain(done).chain(rows).collect()
}

/// The deployment, replica or node of an entry.
fn subject(entry: &timeline_log::Entry) -> (&Option<String>, &Option<String>, Option<&NodeName>) {
    let node = entry.node.as_ref().filter(|_| entry.replica.is_none());
    (&entry.deployment, &entry.replica, node)
}
