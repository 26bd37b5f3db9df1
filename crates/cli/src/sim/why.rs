//! Why a replica is where it is, drawn as a table.
//!
//! ```text
//! shop-web-1 is on b: binpack, 2 of 3 nodes fit
//! refused: no_capacity_memory 1
//!
//!   node  score     best_fit
//! > b     0.312500  0.312500
//!   a     0.187500  0.187500
//! ```
//!
//! Owns: the words and the layout. Must not touch: what is compared; the scheduler says.

use std::fmt::Write as _;

use longshore_sim::why::{Placed, Ranked, Why};

/// Draws an answer.
pub(super) fn draw(why: &Why) -> String {
    match why {
        Why::Placed(placed) => table(placed),
        Why::Waits(pending) => format!("it waits: {}\n{}\n", pending.reason, pending.explain),
    }
}

fn table(placed: &Placed) -> String {
    let Placed { replica, node, bucket, strategy, nodes, candidates, refused, best } = placed;
    // What is where it should be need not be told so.
    let bucket = if *bucket == "untainted" { String::new() } else { format!(" ({bucket})") };
    let mut out = format!("{replica} is on {node}{bucket}: {strategy}, {candidates} of {nodes} nodes fit\n");
    if !refused.is_empty() {
        let counts: Vec<String> = refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let _ = writeln!(out, "refused: {}", counts.join(", "));
    }
    let names = columns(best);
    let mut rows = vec![header(&names)];
    // Only scores have fractions.
    let word = if *strategy == "binpack" { decimal } else { |value: i64| value.to_string() };
    rows.extend(best.iter().map(|ranked| row(ranked, &names, word)));
    let widths: Vec<usize> =
        (0..=names.len()).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0)).collect();
    out.push('\n');
    for cells in &rows {
        let mark = if cells[0] == *node { '>' } else { ' ' };
        let cells: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(out, "{}", format!("{mark} {}", cells.join("  ")).trim_end());
    }
    out
}

/// Every key any candidate has, in order. A term of `binpack` that does not apply to a node is left empty there.
fn columns(best: &[Ranked]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in best.iter().flat_map(|ranked| &ranked.keys) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn header(names: &[String]) -> Vec<String> {
    std::iter::once("node".to_owned()).chain(names.iter().cloned()).collect()
}

fn row(ranked: &Ranked, names: &[String], word: fn(i64) -> String) -> Vec<String> {
    let value = |name: &String| {
        let found = ranked.keys.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
        found.map_or_else(String::new, word)
    };
    std::iter::once(ranked.node.clone()).chain(names.iter().map(value)).collect()
}

/// Billionths as a decimal fraction with six digits, as much as anybody compares by eye.
fn decimal(billionths: i64) -> String {
    let sign = if billionths < 0 { "-" } else { "" };
    let millionths = billionths.unsigned_abs() / 1000;
    format!("{sign}{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}
