//! Runs the benchmarks that have limits and reports which are exceeded.
//!
//! Owns: the cases and their limits.
//! Must not touch: how a case is measured; that is `longshore sim bench`, and `commit_bench` of the store.

use std::{fmt, process::Command};

use anyhow::{Context, ensure};
use serde_json::Value;

/// One run of `sim bench` and its limits.
struct Case {
    title: &'static str,
    arguments: &'static str,
    /// Field of the printed object, and the value it must stay below.
    limits: &'static [(&'static str, f64)],
}

const CASES: &[Case] = &[
    Case {
        title: "100 replicas on 100 nodes",
        arguments: "--nodes 100 --services 1 --replicas 100 --repeat 21",
        limits: &[("decide_ms", 1.0)],
    },
    Case {
        title: "10,000 services x 100 on 10,000 nodes, memory counted",
        arguments: "--nodes 10000 --services 10000 --replicas 1000000 --memory --repeat 3",
        limits: &[("decide_ms", 2_000.0), ("max_rss_mib", 2_048.0), ("noop_us", 1_000.0), ("one_more_us", 50.0)],
    },
    Case {
        title: "the same over 10 zones",
        arguments: "--nodes 10000 --services 10000 --replicas 1000000 --memory --zones 10 --repeat 3",
        limits: &[("decide_ms", 4_000.0)],
    },
    Case {
        title: "100,000 services x 1 on 10,000 nodes",
        arguments: "--nodes 10000 --services 100000 --replicas 100000 --repeat 3",
        limits: &[("decide_ms", 2_000.0)],
    },
    Case {
        title: "binpack: 1,000 services x 100 on 10,000 nodes",
        arguments: "--strategy binpack --nodes 10000 --services 1000 --replicas 100000 --repeat 3",
        limits: &[("decide_ms", 2_000.0)],
    },
    Case {
        title: "binpack with spread targets: 1,200 replicas over 75 racks of 1,000 nodes",
        arguments: "--strategy binpack --zones 75 --nodes 1000 --services 1 --replicas 1200 --repeat 21",
        limits: &[("decide_ms", 5.0)],
    },
    Case {
        title: "1,000 services x 10 rolled over at once on 1,000 nodes",
        arguments: "--nodes 1000 --services 1000 --replicas 10000 --roll",
        // Ten times the services may take ten times the decisions, at about the same cost each.
        limits: &[("roll_us_per_step", 500.0), ("roll_growth", 2.5)],
    },
];

/// Limits of `commit_bench`, by JSON pointer into its output.
const COMMIT_LIMITS: &[(&str, f64)] = &[("/voters_1/hundred_placements_ms", 20.0), ("/watched/slowdown", 1.1)];

/// Arguments of the instruction count: small enough to run in seconds under valgrind, which is 50 times slower.
const COUNTED: &str = "--nodes 100 --services 10 --replicas 1000 --memory --zones 3 --repeat 1";

/// Whether every value is within its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Within,
    Exceeded,
}

/// Measures every case with the given binary and prints a line per value.
pub(crate) fn run(longshore: &str, commits: &str) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Within;
    for case in CASES {
        println!("{}", case.title);
        let printed = output(Command::new(longshore).args(["sim", "bench", "--json"]).args(words(case.arguments)))?;
        let figures: Value = serde_json::from_str(&printed.stdout).context("`sim bench` did not print JSON")?;
        for line in judge(case.limits, &figures)? {
            println!("  {line}");
            if line.outcome() == Outcome::Exceeded {
                outcome = Outcome::Exceeded;
            }
        }
        println!("  {figures}");
    }
    println!("commits by one and by three voters, each on this disk, beside its raw syncs");
    for line in committed(&output(&mut Command::new(commits))?.stdout)? {
        println!("  {line}");
        if line.outcome() == Outcome::Exceeded {
            outcome = Outcome::Exceeded;
        }
    }
    println!("instructions, independent of the load: sim bench {COUNTED}");
    println!("  {}", instructions(longshore)?);
    Ok(outcome)
}

/// One value and its limit.
struct Line {
    field: &'static str,
    value: f64,
    limit: f64,
}

impl Line {
    fn outcome(&self) -> Outcome {
        if self.value < self.limit { Outcome::Within } else { Outcome::Exceeded }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.outcome() {
            Outcome::Within => "ok",
            Outcome::Exceeded => "EXCEEDED",
        };
        write!(f, "{:<12} {:>12.3}  limit {:>8}  {verdict}", self.field, self.value, self.limit)
    }
}

fn judge(limits: &[(&'static str, f64)], figures: &Value) -> anyhow::Result<Vec<Line>> {
    ensure!(figures["placed"] == figures["replicas"], "only {} of {} placed", figures["placed"], figures["replicas"]);
    limits
        .iter()
        .map(|&(field, limit)| {
            let value = figures[field].as_f64().with_context(|| format!("`sim bench` printed no `{field}`"))?;
            Ok(Line { field, value, limit })
        })
        .collect()
}

/// Prints all values of `commit_bench` and returns those that have a limit.
fn committed(printed: &str) -> anyhow::Result<Vec<Line>> {
    let figures: Value = serde_json::from_str(printed).context("`commit_bench` did not print JSON")?;
    let sections = figures.as_object().context("`commit_bench` printed no object")?;
    for (section, figures) in sections {
        println!("  {section}: {figures}");
    }
    let line = |&(field, limit): &(&'static str, f64)| {
        let value = figures.pointer(field).and_then(Value::as_f64);
        Ok(Line { field, value: value.with_context(|| format!("`commit_bench` printed no `{field}`"))?, limit })
    };
    COMMIT_LIMITS.iter().map(line).collect()
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
    fn a_value_below_its_limit_is_ok_and_one_at_it_is_not() {
        let outcome = |decide_ms| judge(&[("decide_ms", 1.0)], &figures(decide_ms, 100)).unwrap()[0].outcome();
        assert_eq!(outcome(0.25), Outcome::Within);
        assert_eq!(outcome(1.0), Outcome::Exceeded);
    }

    #[test]
    fn a_run_with_unplaced_replicas_is_an_error() {
        let error = judge(&[("decide_ms", 1.0)], &figures(0.25, 99)).err().unwrap();
        assert_eq!(error.to_string(), "only 99 of 100 placed");
    }

    #[test]
    fn commits_are_compared_with_their_limits() {
        let printed = r#"{"voters_1": {"hundred_placements_ms": 3.5}, "watched": {"slowdown": 1.2}}"#;
        let outcomes: Vec<Outcome> = committed(printed).unwrap().iter().map(Line::outcome).collect();
        assert_eq!(outcomes, [Outcome::Within, Outcome::Exceeded]);
        assert!(committed("{}").is_err(), "a missing value is an error");
    }

    #[test]
    fn a_missing_value_is_an_error() {
        assert!(judge(&[("noop_us", 1.0)], &figures(0.25, 100)).is_err());
    }
}
