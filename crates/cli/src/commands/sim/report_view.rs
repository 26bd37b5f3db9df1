//! The final state of a run, drawn for a terminal.
//!
//! ```text
//! node     memory               cpu        on it
//! east-1   ██████░░░░  5.1 GiB  ██░░░░░░   shop-web ●●  watch-agent ●
//! ```
//!
//! Owns: the layout and the wording. Must not touch: the report; everything drawn is in it.

use std::fmt::Write as _;

use longshore_api::DeploymentStatus;
use longshore_model::{Health, Intent, ReplicaState, units::GIB};
use longshore_sim::{
    Report,
    report::NodeRow,
    timeline_log::{Entry, EntryKind},
};

use crate::output::style::{Colour, Tone};

/// Width of a bar, in characters.
const BAR: u64 = 10;
/// Nodes drawn; a larger cluster is better read as JSON.
const MAX_NODES: usize = 60;
/// Replicas of a service on a node drawn one by one.
const MAX_DOTS: usize = 12;
/// Lines of the end of the timeline.
const TAIL: usize = 12;

pub(super) fn draw(report: &Report, colour: Colour) -> String {
    let mut out = String::new();
    headline(&mut out, report, colour);
    nodes(&mut out, report, colour);
    deployments(&mut out, report, colour);
    pending(&mut out, report, colour);
    timeline(&mut out, report, colour);
    violations(&mut out, report, colour);
    out
}

fn headline(out: &mut String, report: &Report, colour: Colour) {
    let running = report
        .replicas
        .iter()
        .filter(|row| longshore_api::ReplicaState::from(row.state) == longshore_api::ReplicaState::Running)
        .count();
    let waiting: usize = report.pending.iter().map(|pending| pending.count).sum();
    let title = format!("after {}", clock(report.ended.0));
    let (nodes, passes) = (report.nodes.len(), report.stats.passes);
    let _ = writeln!(
        out,
        "{}   {nodes} nodes · {running} replicas running · {waiting} without a node · {passes} passes, {} µs to decide\n",
        colour.paint(Tone::Strong, &title),
        report.stats.decide_us
    );
}

fn nodes(out: &mut String, report: &Report, colour: Colour) {
    let width = report.nodes.iter().map(|node| node.name.as_str().chars().count()).max().unwrap_or(0).max(4);
    let head = format!("{:width$}  {:8}  {:22}  {:21}  on it", "node", "is", "memory", "cpu");
    let _ = writeln!(out, "{}", colour.paint(Tone::Quiet, &head));
    for node in report.nodes.iter().take(MAX_NODES) {
        let (word, tone) = condition(node);
        let padded = format!("{word:8}");
        let memory = bar(node.memory_used_bytes, node.memory_bytes, colour);
        let cpu = bar(node.cpu_used_millis, node.cpu_millis, colour);
        let _ = writeln!(
            out,
            "{:width$}  {}  {memory} {:>11}  {cpu} {:>10}  {}",
            node.name.as_str(),
            colour.paint(tone, &padded),
            format!("{} GiB", ratio(node.memory_used_bytes, node.memory_bytes, GIB)),
            ratio(node.cpu_used_millis, node.cpu_millis, 1000),
            dots(node, colour)
        );
    }
    if report.nodes.len() > MAX_NODES {
        let _ = writeln!(out, "… and {} nodes more; `--json` shows them all", report.nodes.len() - MAX_NODES);
    }
    out.push('\n');
}

fn condition(node: &NodeRow) -> (&'static str, Tone) {
    match (node.health, node.intent) {
        (Health::Down, _) => ("down", Tone::Bad),
        (Health::Suspect, _) => ("suspect", Tone::Busy),
        (Health::Degraded, _) => ("degraded", Tone::Busy),
        (Health::Ready, Intent::Active) => ("ready", Tone::Good),
        (Health::Ready, Intent::Paused) => ("paused", Tone::Busy),
        (Health::Ready, Intent::Draining) => ("draining", Tone::Busy),
        (Health::Ready, Intent::Removed) => ("removed", Tone::Bad),
    }
}

/// Rounded so that any use shows, and only a full node shows a full bar.
fn bar(used: u64, of: u64, colour: Colour) -> String {
    let share = |width: u64| u128::from(used) * u128::from(width) / u128::from(of.max(1));
    let exact = u64::try_from(share(BAR)).unwrap_or(BAR).min(BAR);
    let filled = if used > 0 && exact == 0 { 1 } else { exact };
    let tone = if filled >= BAR - 1 { Tone::Bad } else { Tone::Good };
    let count = |number: u64| usize::try_from(number).unwrap_or(0);
    colour.paint(tone, &"█".repeat(count(filled))) + &colour.paint(Tone::Quiet, &"░".repeat(count(BAR - filled)))
}

/// `5.5/8`, in units.
fn ratio(used: u64, of: u64, unit: u64) -> String {
    format!("{}/{}", tenths(used, unit), tenths(of, unit))
}

fn tenths(amount: u64, unit: u64) -> String {
    let tenths = u128::from(amount) * 10 / u128::from(unit);
    if tenths.is_multiple_of(10) { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

fn dots(node: &NodeRow, colour: Colour) -> String {
    let services = node.replicas.iter().map(|(service, states)| {
        let mut text = format!("{service} ");
        for state in states.iter().take(MAX_DOTS) {
            let (dot, tone) = dot(*state);
            text.push_str(&colour.paint(tone, dot));
        }
        if states.len() > MAX_DOTS {
            let _ = write!(text, "+{}", states.len() - MAX_DOTS);
        }
        text
    });
    services.collect::<Vec<String>>().join("  ")
}

const fn dot(state: ReplicaState) -> (&'static str, Tone) {
    match state {
        ReplicaState::Running => ("●", Tone::Good),
        ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting => ("◐", Tone::Busy),
        ReplicaState::Draining | ReplicaState::Stopped => ("○", Tone::Quiet),
        ReplicaState::Completed => ("✓", Tone::Good),
        ReplicaState::Degraded | ReplicaState::Failed => ("✗", Tone::Bad),
        ReplicaState::Lost => ("?", Tone::Bad),
    }
}

fn deployments(out: &mut String, report: &Report, colour: Colour) {
    for row in &report.deployments {
        let tone = match DeploymentStatus::from(row.status) {
            DeploymentStatus::Active | DeploymentStatus::Completed => Tone::Good,
            DeploymentStatus::Failed => Tone::Bad,
            DeploymentStatus::Stopped => Tone::Quiet,
            DeploymentStatus::Pending
            | DeploymentStatus::Progressing
            | DeploymentStatus::Degraded
            | DeploymentStatus::Unknown(_) => Tone::Busy,
        };
        let reasons = if row.reasons.is_empty() { String::new() } else { format!(": {}", row.reasons.join(", ")) };
        let status = colour.paint(tone, row.status);
        let _ = writeln!(out, "{} is {status}{reasons}, revision {}", row.name, row.revision);
    }
    out.push('\n');
}

fn pending(out: &mut String, report: &Report, colour: Colour) {
    for waiting in &report.pending {
        let reason = colour.paint(Tone::Busy, waiting.reason.code());
        let verb = if waiting.count == 1 { "waits" } else { "wait" };
        let _ = writeln!(out, "{} of {}/{} {verb}: {reason}", waiting.count, waiting.deployment, waiting.service);
        let _ = writeln!(out, "  {}", waiting.explain);
    }
    if !report.pending.is_empty() {
        out.push('\n');
    }
}

fn timeline(out: &mut String, report: &Report, colour: Colour) {
    let shown: Vec<&Entry> = report.timeline.iter().filter(|entry| entry.kind != EntryKind::Started).collect();
    let skipped = shown.len().saturating_sub(TAIL);
    if skipped > 0 {
        let _ = writeln!(out, "{}", colour.paint(Tone::Quiet, &format!("… {skipped} entries before")));
    }
    for entry in shown.iter().skip(skipped) {
        let at = colour.paint(Tone::Quiet, &format!("{:>10}", clock(entry.at_ms)));
        let _ = writeln!(out, "{at}  {:13} {}", entry.kind.as_str(), about(entry));
    }
}

fn about(entry: &Entry) -> String {
    let mut parts = Vec::new();
    parts.extend(entry.replica.clone());
    if let Some(node) = &entry.node {
        parts.push(if entry.replica.is_some() { format!("on {node}") } else { node.to_string() });
    }
    parts.extend(entry.from.as_ref().map(|from| format!("from {from}")));
    parts.extend(entry.code.map(str::to_owned));
    parts.extend(entry.message.clone());
    parts.join(" ")
}

fn violations(out: &mut String, report: &Report, colour: Colour) {
    if report.violations.is_empty() {
        return;
    }
    let title = format!("\n{} safety rules broken", report.violations.len());
    let _ = writeln!(out, "{}", colour.paint(Tone::Bad, &title));
    for broken in &report.violations {
        let _ = writeln!(out, "{:>10}  {}: {}", clock(broken.at_ms), broken.invariant, broken.message);
    }
}

/// `4m09.050s`.
fn clock(at_ms: u64) -> String {
    let (minutes, millis) = (at_ms / 60_000, at_ms % 60_000);
    format!("{minutes}m{:02}.{:03}s", millis / 1000, millis % 1000)
}

#[cfg(test)]
mod tests;
