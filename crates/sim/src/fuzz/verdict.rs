//! Whether a drawn scenario went well.
//!
//! Owns: the kinds of failure, so that a smaller scenario can be told to fail in the same way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

use super::Tree;
use crate::{Report, Scenario};

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
            Self::Panic => "panic",
            Self::Refused => "refused",
        }
    }
}

/// Runs a scenario twice and says what came of it.
pub(super) fn judge(drawn: &Tree) -> Trial {
    let trial = |failure| Trial { events: 0, passes: 0, failure: Some(failure) };
    let scenario = match Scenario::parse("drawn.yaml", &drawn.print()) {
        Ok(scenario) => scenario,
        Err(problems) => return trial(Failure { kind: Kind::Refused, message: problems.to_string() }),
    };
    let run = || catch_unwind(AssertUnwindSafe(|| crate::run(&scenario)));
    match (run(), run()) {
        (Ok(first), Ok(second)) => compare(&first, &second),
        (Err(panic), _) | (_, Err(panic)) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let message = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned();
            trial(Failure { kind: Kind::Panic, message })
        }
    }
}

fn compare(first: &Report, second: &Report) -> Trial {
    let broken = first.violations.first().map(|violation| Failure {
        kind: Kind::Rule(violation.invariant.to_owned()),
        message: format!("at {} ms: {}", violation.at_ms, violation.message),
    });
    let unlike = || {
        let (first, second) = (first.to_golden(), second.to_golden());
        let at = first.lines().zip(second.lines()).find(|(a, b)| a != b);
        (first != second).then(|| Failure { kind: Kind::Unlike, message: format!("the first difference is {at:?}") })
    };
    let stats = &first.stats;
    Trial { events: stats.events, passes: stats.passes, failure: broken.or_else(unlike) }
}
