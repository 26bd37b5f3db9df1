//! `longshore sim fuzz`.
//!
//! Owns: the options, the progress, and the words a failing seed is reported in.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    str::FromStr,
    time::{Duration, Instant},
};

use clap::Args;
use longshore_sim::fuzz::{self, Failure};
use serde::Serialize;

use super::Answer;
use crate::{exit::Exit, print};

/// Time between two words of progress: often enough to see that it lives, seldom enough to be read.
const PROGRESS: Duration = Duration::from_millis(500);

/// Which seeds, and how they are reported.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seeds to try, the last one not included.
    #[arg(long, value_name = "A..B")]
    seeds: Seeds,
    #[command(flatten)]
    answer: Answer,
    /// Go on after a seed that fails, and report all of them, each without being cut down.
    #[arg(long)]
    keep_going: bool,
}

/// A range of seeds.
#[derive(Clone, Copy, Debug)]
struct Seeds {
    from: u64,
    to: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ends = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        match ends {
            Some((from, to)) if from < to => Ok(Self { from, to }),
            Some(_) => Err("the range is empty; write it like `0..300`".to_owned()),
            None => Err("write it like `0..300`".to_owned()),
        }
    }
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Summary {
    seeds: u64,
    events: u64,
    passes: u64,
    seconds: f64,
    failures: Vec<Failed>,
}

/// A seed that failed.
#[derive(Debug, Serialize)]
struct Failed {
    seed: u64,
    rule: String,
    message: String,
    scenario: String,
}

pub(super) fn run(options: &Options) -> anyhow::Result<Exit> {
    let mut summary = Summary::default();
    let mut progress = Progress::new(options.seeds);
    let began = Instant::now();
    for seed in options.seeds.from..options.seeds.to {
        progress.show(&summary);
        let trial = fuzz::try_seed(seed);
        summary.seeds += 1;
        summary.events += trial.events;
        summary.passes += trial.passes;
        if let Some(failure) = trial.failure {
            progress.clear();
            if options.keep_going {
                print::note(&format!("seed {seed} fails: {}", failure.kind.name()));
                summary.failures.push(as_drawn(seed, failure));
                continue;
            }
            print::note(&format!("seed {seed} fails: {}; looking for a smaller scenario", failure.kind.name()));
            summary.failures.push(cut_down(seed, failure));
            break;
        }
    }
    progress.clear();
    summary.seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    let json = || Ok(serde_json::to_string(&summary)? + "\n");
    print::print(&options.answer.text(json, || in_words(&summary))?)?;
    Ok(exit(&summary))
}

/// A seed that fails broke a rule.
fn exit(summary: &Summary) -> Exit {
    if summary.failures.is_empty() { Exit::Success } else { Exit::Violation }
}

fn as_drawn(seed: u64, failure: Failure) -> Failed {
    let rule = failure.kind.name().to_owned();
    Failed { seed, rule, message: failure.message, scenario: fuzz::draw(seed).print() }
}

fn cut_down(seed: u64, failure: Failure) -> Failed {
    let smaller = fuzz::minimise(&fuzz::draw(seed), &failure.kind);
    // The smaller one fails in the same way, seldom in the same words.
    let message = fuzz::try_scenario(&smaller).failure.map_or(failure.message, |failure| failure.message);
    Failed { seed, rule: failure.kind.name().to_owned(), message, scenario: smaller.print() }
}

fn in_words(summary: &Summary) -> String {
    let Summary { seeds, events, passes, seconds, failures } = summary;
    let mut text = String::new();
    for Failed { seed, rule, message, scenario } in failures {
        let _ = writeln!(text, "# seed {seed} breaks `{rule}`\n# {message}\n{scenario}");
    }
    let outcome = match failures.len() {
        0 => "all of them well".to_owned(),
        1 => "1 failed".to_owned(),
        several => format!("{several} failed"),
    };
    // With a failure the whole answer is a scenario file, so that it can be kept and run as it is.
    let mark = if failures.is_empty() { "" } else { "# " };
    let _ = writeln!(text, "{mark}{seeds} seeds, {events} events, {passes} passes in {seconds} s: {outcome}");
    text
}

/// A line that says how far it is, where there is a terminal to say it on.
struct Progress {
    seeds: u64,
    shown: Option<Instant>,
}

impl Progress {
    fn new(seeds: Seeds) -> Self {
        Self { seeds: seeds.to - seeds.from, shown: None }
    }

    fn show(&mut self, summary: &Summary) {
        let due = self.shown.is_none_or(|shown| shown.elapsed() >= PROGRESS);
        if !due || !io::stderr().is_terminal() {
            return;
        }
        self.shown = Some(Instant::now());
        // Nobody is left to be told when even standard error is closed.
        let _ = write!(io::stderr(), "\r{} of {} seeds, {} events", summary.seeds, self.seeds, summary.events);
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No seed fails that is known of, so one is made up.
    fn failed() -> Summary {
        let scenario = "nodes:\n  - { name: a, cpu: 1, memory: 1GiB }\nuntil: 20s\nsettle: 4m\n".to_owned();
        let (rule, message) = ("quiet".to_owned(), "at 260000 ms: something was still decided".to_owned());
        let failures = vec![Failed { seed: 7, rule, message, scenario }];
        Summary { seeds: 8, events: 900, passes: 300, seconds: 1.5, failures }
    }

    #[test]
    fn a_seed_that_fails_is_shown_as_a_scenario_file_that_can_be_kept_and_run() {
        let text = in_words(&failed());
        assert!(longshore_sim::Scenario::parse("kept.yaml", &text).is_ok(), "{text}");
        insta::assert_snapshot!(text, @r"
        # seed 7 breaks `quiet`
        # at 260000 ms: something was still decided
        nodes:
          - { name: a, cpu: 1, memory: 1GiB }
        until: 20s
        settle: 4m

        # 8 seeds, 900 events, 300 passes in 1.5 s: 1 failed
        ");
    }

    #[test]
    fn a_seed_that_fails_exits_with_3_and_none_with_0() {
        assert_eq!(exit(&failed()), Exit::Violation);
        assert_eq!(exit(&Summary::default()), Exit::Success);
    }
}
