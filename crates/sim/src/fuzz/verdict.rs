//! Whether a drawn scenario went well.
//!
//! Owns: the kinds of failure, so that a smaller scenario can be told to fail in the same way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use longshore_model::NodeName;
use serde::Serialize;

use super::tree::{Tree, word};
use crate::{Report, Scenario, chronicle, invariants::quiet};

/// A run and what came of it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Changes of the state.
    pub events: u64,
    /// Times the scheduler was asked.
    pub passes: u64,
    /// What went wrong first, if anything.
    pub failure: Option<Failure>,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What sort of thing.
    pub kind: Kind,
    /// How.
    pub message: String,
}

/// Sorts of failure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A rule was broken, by its name.
    Rule(String),
    /// Two runs of the same file ended differently.
    Unlike,
    /// With a new leader after every event, something else was done.
    Heirs,
    /// The program fell over.
    Panic,
    /// What was drawn makes no sense.
    Refused,
}

impl Kind {
    /// The word for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Rule(rule) => rule,
            Self::Unlike => "same_seed_same_bytes",
            Self::Heirs => "same_end_whoever_leads",
            Self::Panic => "panic",
            Self::Refused => "refused",
        }
    }
}

/// How long a cluster may take to come to rest at the latest: a few jobs that fail again and again, on a node that has room for
/// one of them, take their time.
const PATIENCE: &str = "4h";

/// Runs a scenario and says what came of it. One that is merely not at rest in time gets more of it: that everything ends
/// is the rule, and no more.
pub(super) fn judge(drawn: &Tree) -> Trial {
    let trial = judge_within(drawn);
    match &trial.failure {
        Some(Failure { kind: Kind::Rule(rule), .. }) if rule == quiet::NAME => {
            let mut patient = drawn.clone();
            patient.set("settle", word(PATIENCE));
            judge_within(&patient)
        }
        Some(_) | None => trial,
    }
}

/// Runs a scenario twice and says what came of it: both runs are the same to the byte, unless an heir found other words for
/// why something waits; then as much was done to everything, in the same order. The second time, somebody who knows only the
/// state goes on after every event; where chance decides which messages are lost it is the same run once more, as the
/// rule on succession compares every decision with that of an heir there too.
fn judge_within(drawn: &Tree) -> Trial {
    let trial = |failure| Trial { events: 0, passes: 0, failure: Some(failure) };
    let scenario = match Scenario::parse("drawn.yaml", &drawn.print()) {
        Ok(scenario) => scenario,
        Err(problems) => return trial(Failure { kind: Kind::Refused, message: problems.to_string() }),
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
            trial(Failure { kind: Kind::Panic, message })
        }
    }
}

fn compare(scenario: &Scenario, first: &Report, second: &Report) -> Trial {
    let broken = first.violations.first().map(|violation| Failure {
        kind: Kind::Rule(violation.invariant.to_owned()),
        message: format!("at {} ms: {}", violation.at_ms, violation.message),
    });
    let unlike = || match scenario.faults {
        Some(_) => difference(Kind::Unlike, &lines(first), &lines(second)),
        None if waits(first) == waits(second) => difference(Kind::Heirs, &lines(first), &lines(second)),
        None => difference(Kind::Heirs, &deeds(first), &deeds(second)),
    };
    let stats = &first.stats;
    Trial { events: stats.events, passes: stats.passes, failure: broken.or_else(unlike) }
}

fn difference(kind: Kind, first: &[String], second: &[String]) -> Option<Failure> {
    let at = first.iter().zip(second).find(|(a, b)| a != b);
    (first != second).then(|| Failure { kind, message: format!("the first difference is {at:?}") })
}

fn lines(report: &Report) -> Vec<String> {
    report.to_golden().lines().map(str::to_owned).collect()
}

/// When it was said of what why it waits.
fn waits(report: &Report) -> Vec<String> {
    let waits = report.timeline.iter().filter(|entry| entry.kind == chronicle::Kind::Waiting);
    waits.map(|entry| format!("{entry:?}")).collect()
}

/// What was done to each thing, in order, and what came of it, for runs that worded a reason at another instant: a new leader
/// looks at every reason anew, while an old one does when something could have helped, and the pass after that takes along what
/// has just happened. So the instants are not among it, nor is why something waits.
fn deeds(report: &Report) -> Vec<String> {
    let done = report.timeline.iter().filter(|entry| entry.kind != chronicle::Kind::Waiting);
    let done = done.map(|entry| chronicle::Entry { at_ms: 0, ..entry.clone() });
    let mut done: Vec<chronicle::Entry> = done.collect();
    done.sort_by(|a, b| subject(a).cmp(&subject(b)));
    let done = done.iter().map(|entry| format!("{entry:?}"));
    let rows = report.replicas.iter().map(|row| {
        format!("{} {:?} {} g{} r{} of {}", row.id, row.node, row.state, row.generation, row.attempt, row.revision)
    });
    let broken = report.violations.iter().map(|violation| format!("{violation:?}"));
    broken.chain(done).chain(rows).collect()
}

/// What an entry is about.
fn subject(entry: &chronicle::Entry) -> (&Option<String>, &Option<String>, Option<&NodeName>) {
    let node = entry.node.as_ref().filter(|_| entry.replica.is_none());
    (&entry.deployment, &entry.replica, node)
}
