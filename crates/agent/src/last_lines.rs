//! The last lines a replica wrote, attached to the report of its failure.
//!
//! Owns: how much of a replica's output goes into a report. Reports are replicated, so it is little.
//! Must not touch: what the lines say. Whoever prints them escapes control characters.
//! Invariant: one failure of one attempt is reported with the same lines, however often it is inspected.

use std::{collections::VecDeque, time::Duration};

use longshore_model::{ReplicaReport, ReplicaState, replica::Detail};

use crate::{
    logs_exec::LogOptions,
    runtime::{Handle, Runtime},
};

/// The detail that holds them.
const DETAIL: &str = "last_lines";
/// Lines in a report at most.
const MAX_LINES: u64 = 10;
/// Bytes of all lines in a report at most; the oldest lines are dropped first.
const MAX_BYTES: usize = 2048;
/// Bytes of one line at most.
const MAX_LINE_BYTES: usize = 400;
/// Time the driver has to hand them out; without them the failure is reported all the same.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Adds the last lines of the replica to a report of its failure. `last` is the report before it.
pub(crate) async fn attach(
    mut report: ReplicaReport,
    last: Option<&ReplicaReport>,
    runtime: &dyn Runtime,
    handle: &Handle,
) -> ReplicaReport {
    if !matches!(report.state, ReplicaState::Failed | ReplicaState::Degraded) {
        return report;
    }
    let known = last.filter(|last| is_same_failure(last, &report)).and_then(|last| last.details.get(DETAIL).cloned());
    let lines = match known {
        Some(known) => Some(known),
        None => read(runtime, handle).await,
    };
    report.details.extend(lines.map(|lines| (DETAIL.to_owned(), lines)));
    report
}

/// A replica that stays degraded keeps writing; the lines of its first report stand.
fn is_same_failure(last: &ReplicaReport, report: &ReplicaReport) -> bool {
    (last.attempt, last.placed_at, last.state, last.code)
        == (report.attempt, report.placed_at, report.state, report.code)
}

async fn read(runtime: &dyn Runtime, handle: &Handle) -> Option<Detail> {
    let reading = async {
        let options = LogOptions { tail: Some(MAX_LINES), ..LogOptions::default() };
        let mut lines = runtime.logs(handle, options).await.ok()?;
        let mut tail = Tail::default();
        while let Some(line) = lines.recv().await {
            tail.push(&line.text);
        }
        (!tail.lines.is_empty()).then(|| Detail::List(tail.lines.into()))
    };
    tokio::time::timeout(TIMEOUT, reading).await.ok().flatten()
}

/// The newest lines that fit.
#[derive(Default)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Tail {
    fn push(&mut self, line: &[u8]) {
        let line = shortened(&String::from_utf8_lossy(line));
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > MAX_BYTES || self.lines.len() as u64 > MAX_LINES {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

/// The beginning of a line, cut between two characters.
fn shortened(line: &str) -> String {
    let line = line.trim_end();
    if line.len() <= MAX_LINE_BYTES {
        return line.to_owned();
    }
    let cut = line.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_LINE_BYTES).last().unwrap_or(0);
    format!("{}…", &line[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail_of(lines: &[&str]) -> Vec<String> {
        let mut tail = Tail::default();
        for line in lines {
            tail.push(line.as_bytes());
        }
        tail.lines.into()
    }

    #[test]
    fn only_the_newest_lines_that_fit_are_kept() {
        let many: Vec<String> = (0..30).map(|number| format!("line {number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(tail_of(&many), many[20..]);
        let long = "x".repeat(399);
        let kept = tail_of(&[long.as_str(); 9]);
        assert_eq!(kept.len(), 5, "2,048 bytes hold five such lines");
    }

    #[test]
    fn a_long_line_is_cut_between_two_characters() {
        let kept = tail_of(&[&"ü".repeat(1000)]);
        assert_eq!(kept, [format!("{}…", "ü".repeat(200))]);
    }

    #[test]
    fn bytes_that_are_no_text_do_not_lose_the_line() {
        let mut tail = Tail::default();
        tail.push(b"bad \xff byte\r");
        assert_eq!(tail.lines, ["bad \u{fffd} byte"]);
    }
}
