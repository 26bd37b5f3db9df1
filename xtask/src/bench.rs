//! Runs the benchmarks that have a bar and says which of them hold.
//!
//! Owns: the cases and their bars.
//! Must not touch: how a case is measured; that is `longshore sim bench`, and `commit_bench` of the store.

use std::{fmt, process::Command};

use anyhow::{Context, ensure};
use serde_json::Value;

/// One run of `sim bench` and what it must stay below.
struct Case {
    title: &'static str,
    arguments: &'static str,
    /// Field of the printed object, and the value it must stay below.
    bars: &'static [(&'static str, f64)],
}

const CASES: &[Case] = &[
    Case {
        title: "100 replicas on 100 nodes",
        arguments: "--nodes 100 --services 1 --replicas 100 --repeat 21",
        bars: &[("decide_ms", 1.0)],
    },
    Case {
        title: "10,000 services x 100 on 10,000 nodes, memory counted",
        arguments: "--nodes 10000 --services 10000 --replicas 1000000 --memory --repeat 3",
        bars: &[("decide_ms", 2_000.0), ("max_rss_mib", 2_048.0), ("noop_us", 1_000.0), ("one_more_us", 50.0)],
    },
    Case {
        title: "the same over 10 zones",
        arguments: "--nodes 10000 --services 10000 --replicas 1000000 --memory --zones 10 --repeat 3",
        bars: &[("decide_ms", 4_000.0)],
    },
    Case {
        title: "100,000 services x 1 on 10,000 nodes",
        arguments: "--nodes 10000 --services 100000 --replicas 100000 --repeat 3",
        bars: &[("decide_ms", 2_000.0)],
    },
    Case {
        title: "binpack: 1,000 services x 100 on 10,000 nodes",
        arguments: "--strategy binpack --nodes 10000 --services 1000 --replicas 100000 --repeat 3",
        bars: &[("decide_ms", 2_000.0)],
    },
    Case {
        title: "binpack with spread targets: 1,200 replicas over 75 racks of 1,000 nodes",
        arguments: "--strategy binpack --zones 75 --nodes 1000 --services 1 --replicas 1200 --repeat 21",
        bars: &[("decide_ms", 5.0)],
    },
    Case {
        title: "1,000 services x 10 rolled over at once on 1,000 nodes",
        arguments: "--nodes 1000 --services 1000 --replicas 10000 --roll",
        // Ten times the services may cost ten times the decisions, and little more for each.
        bars: &[("roll_us_per_step", 500.0), ("roll_growth", 2.5)],
    },
];

/// What `commit_bench` must stay below, by the place of the figure in what it prints.
const COMMIT_BARS: &[(&str, f64)] = &[("/voters_1/hundred_placements_ms", 20.0), ("/watched/slowdown", 1.1)];

/// Small enough to run in seconds at the fiftieth part of the speed.
const COUNTED: &str = "--nodes 100 --services 10 --replicas 1000 --memory --zones 3 --repeat 1";

/// Whether every bar held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    Missed,
}

/// Measures every case with the given binary and prints a line per figure.
pub(crate) fn run(longshore: &str, commits: &str) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Held;
    for case in CASES {
        println!("{}", case.title);
        let printed = output(Command::new(longshore).args(["sim", "bench", "--json"]).args(words(case.arguments)))?;
        let figures: Value = serde_json::from_str(&printed.stdout).context("`sim bench` did not print JSON")?;
        for line in judge(case.bars, &figures)? {
            println!("  {line}");
            if line.outcome() == Outcome::Missed {
                outcome = Outcome::Missed;
            }
        }
        println!("  {figures}");
    }
    println!("decided by one and by three voters, each on this disk, beside its raw syncs");
    for line in committed(&output(&mut Command::new(commits))?.stdout)? {
        println!("  {line}");
        if line.outcome() == Outcome::Missed {
            outcome = Outcome::Missed;
        }
    }
    println!("instructions, whatever the load: sim bench {COUNTED}");
    println!("  {}", instructions(longshore)?);
    Ok(outcome)
}

/// One figure against its bar.
struct Line {
    field: &'static str,
    value: f64,
    bar: f64,
}

impl Line {
    fn outcome(&self) -> Outcome {
        if self.value < self.bar { Outcome::Held } else { Outcome::Missed }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.outcome() {
            Outcome::Held => "holds",
            Outcome::Missed => "MISSED",
        };
        write!(f, "{:<12} {:>12.3}  bar {:>8}  {verdict}", self.field, self.value, self.bar)
    }
}

fn judge(bars: &[(&'static str, f64)], figures: &Value) -> anyhow::Result<Vec<Line>> {
    ensure!(figures["placed"] == figures["replicas"], "only {} of {} placed", figures["placed"], figures["replicas"]);
    bars.iter()
        .map(|&(field, bar)| {
            let value = figures[field].as_f64().with_context(|| format!("`sim bench` printed no `{field}`"))?;
            Ok(Line { field, value, bar })
        })
        .collect()
}

/// The figures of `commit_bench` against their bars; all of them are printed as they come.
fn committed(printed: &str) -> anyhow::Result<Vec<Line>> {
    let figures: Value = serde_json::from_str(printed).context("`commit_bench` did not print JSON")?;
    let sections = figures.as_object().context("`commit_bench` printed no object")?;
    for (section, figures) in sections {
        println!("  {section}: {figures}");
    }
    let line = |&(field, bar): &(&'static str, f64)| {
        let value = figures.pointer(field).and_then(Value::as_f64);
        Ok(Line { field, value: value.with_context(|| format!("`commit_bench` printed no `{field}`"))?, bar })
    };
    COMMIT_BARS.iter().map(line).collect()
}

fn instructions(longshore: &str) -> anyhow::Result<String> {
    let valgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null", longshore, "sim", "bench", "--json"];
    let printed = output(Command::new("valgrind").args(valgrind).args(words(COUNTED)))?;
    let count = printed.stderr.lines().find_map(|line| line.split_once("Collected :"));
    Ok(count.context("callgrind printed no count")?.1.trim().to_owned())
}

fn words(arguments: &str) -> impl Iterator<Item = &str> {
    arguments.split_whitespace()
}

struct Printed {
    stdout: String,
    stderr: String,
}

fn output(command: &mut Command) -> anyhow::Result<Printed> {
    let output = command.output().with_context(|| format!("could not run {command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?} failed: {stderr}");
    Ok(Printed { stdout: String::from_utf8_lossy(&output.stdout).into_owned(), stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(decide_ms: f64, placed: u64) -> Value {
        serde_json::json!({ "placed": placed, "replicas": 100, "decide_ms": decide_ms })
    }

    #[test]
    fn a_figure_below_its_bar_holds_and_one_at_it_does_not() {
        let outcome = |decide_ms| judge(&[("decide_ms", 1.0)], &figures(decide_ms, 100)).unwrap()[0].outcome();
        assert_eq!(outcome(0.25), Outcome::Held);
        assert_eq!(outcome(1.0), Outcome::Missed);
    }

    #[test]
    fn a_run_that_left_replicas_unplaced_measures_nothing() {
        let error = judge(&[("decide_ms", 1.0)], &figures(0.25, 99)).err().unwrap();
        assert_eq!(error.to_string(), "only 99 of 100 placed");
    }

    #[test]
    fn commits_are_held_to_their_bars() {
        let printed = r#"{"voters_1": {"hundred_placements_ms": 3.5}, "watched": {"slowdown": 1.2}}"#;
        let outcomes: Vec<Outcome> = committed(printed).unwrap().iter().map(Line::outcome).collect();
        assert_eq!(outcomes, [Outcome::Held, Outcome::Missed]);
        assert!(committed("{}").is_err(), "a missing figure is an error");
    }

    #[test]
    fn a_missing_figure_is_an_error() {
        assert!(judge(&[("noop_us", 1.0)], &figures(0.25, 100)).is_err());
    }
}
