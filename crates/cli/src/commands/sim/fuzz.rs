//! `longshore sim fuzz`: runs generated scenarios and reports failing seeds.
//!
//! Owns: the options, the progress line, and the report of a failing seed.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    str::FromStr,
    time::{Duration, Instant},
};

use clap::Args;
use longshore_sim::fuzz::{self, Failure};
use serde::Serialize;

use super::SimOutputArgs;
use crate::{exit::Exit, output::print};

/// Time between two updates of the progress line.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Which seeds are run, and how failures are reported.
#[derive(Debug, Args)]
pub(crate) struct FuzzArgs {
    /// Range of seeds, the end not included.
    #[arg(long, value_name = "A..B")]
    seeds: Seeds,
    #[command(flatten)]
    output: SimOutputArgs,
    /// Continue after a failing seed, and report all failures without minimising them.
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

/// The result of a run over many seeds.
#[derive(Debug, Default, Serialize)]
struct Summary {
    seeds: u64,
    events: u64,
    passes: u64,
    seconds: f64,
    failures: Vec<FailedSeed>,
}

/// A failing seed.
#[derive(Debug, Serialize)]
struct FailedSeed {
    seed: u64,
    rule: String,
    message: String,
    scenario: String,
}

pub(super) fn run(args: &FuzzArgs) -> anyhow::Result<Exit> {
    let mut summary = Summary::default();
    let mut progress = Progress::new(args.seeds);
    let began = Instant::now();
    for seed in args.seeds.from..args.seeds.to {
        progress.show(&summary);
        let trial = fuzz::try_seed(seed);
        summary.seeds += 1;
        summary.events += trial.events;
        summary.passes += trial.passes;
        if let Some(failure) = trial.failure {
            progress.clear();
            if args.keep_going {
                print::stderr(&format!("seed {seed} fails: {}", failure.kind.name()));
                summary.failures.push(unminimised(seed, failure));
                continue;
            }
            print::stderr(&format!("seed {seed} fails: {}; minimising the scenario", failure.kind.name()));
            summary.failures.push(minimised(seed, failure));
            break;
        }
    }
    progress.clear();
    summary.seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    let json = || Ok(serde_json::to_string(&summary)? + "\n");
    print::stdout(&args.output.render(json, || report(&summary))?)?;
    Ok(exit(&summary))
}

/// A failing seed broke a safety rule.
fn exit(summary: &Summary) -> Exit {
    if summary.failures.is_empty() { Exit::Success } else { Exit::InvariantViolated }
}

fn unminimised(seed: u64, failure: Failure) -> FailedSeed {
    let rule = failure.kind.name().to_owned();
    FailedSeed { seed, rule, message: failure.message, scenario: fuzz::generate(seed).print() }
}

fn minimised(seed: u64, failure: Failure) -> FailedSeed {
    let smaller = fuzz::minimise(&fuzz::generate(seed), &failure.kind);
    // The minimised scenario breaks the same rule, mostly with another message.
    let message = fuzz::try_scenario(&smaller).failure.map_or(failure.message, |failure| failure.message);
    FailedSeed { seed, rule: failure.kind.name().to_owned(), message, scenario: smaller.print() }
}

fn report(summary: &Summary) -> String {
    let Summary { seeds, events, passes, seconds, failures } = summary;
    let mut text = String::new();
    for FailedSeed { seed, rule, message, scenario } in failures {
        let _ = writeln!(text, "# seed {seed} breaks `{rule}`\n# {message}\n{scenario}");
    }
    let outcome = match failures.len() {
        0 => "no failures".to_owned(),
        1 => "1 failed".to_owned(),
        several => format!("{several} failed"),
    };
    // With a failure the whole output is a valid scenario file that can be saved and run.
    let mark = if failures.is_empty() { "" } else { "# " };
    let _ = writeln!(text, "{mark}{seeds} seeds, {events} events, {passes} passes in {seconds} s: {outcome}");
    text
}

/// A progress line on standard error, if that is a terminal.
struct Progress {
    seeds: u64,
    shown: Option<Instant>,
}

impl Progress {
    fn new(seeds: Seeds) -> Self {
        Self { seeds: seeds.to - seeds.from, shown: None }
    }

    fn show(&mut self, summary: &Summary) {
        let due = self.shown.is_none_or(|shown| shown.elapsed() >= PROGRESS_INTERVAL);
        if !due || !io::stderr().is_terminal() {
            return;
        }
        self.shown = Some(Instant::now());
        // When standard error is closed, there is nowhere left to report that.
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

    /// No failing seed is known, so this one is invented.
    fn failed() -> Summary {
        let scenario = "nodes:\n  - { name: a, cpu: 1, memory: 1GiB }\nuntil: 20s\nsettle: 4m\n".to_owned();
        let (rule, message) = ("quiet".to_owned(), "at 260000 ms: something was still decided".to_owned());
        let failures = vec![FailedSeed { seed: 7, rule, message, scenario }];
        Summary { seeds: 8, events: 900, passes: 300, seconds: 1.5, failures }
    }

    #[test]
    fn a_failing_seed_is_printed_as_a_valid_scenario_file() {
        let text = report(&failed());
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
    fn a_failing_seed_exits_with_3_and_none_with_0() {
        assert_eq!(exit(&failed()), Exit::InvariantViolated);
        assert_eq!(exit(&Summary::default()), Exit::Success);
    }
}
