//! Progress of a deployment while a command waits for it.
//!
//! Owns: the wording and the layout. Must not touch: the daemon; the caller polls it.

use std::{collections::BTreeMap, fmt::Write as _};

use longshore_api::{Code, Deployment, FailedReplica, Replica, ReplicaState, Rollout, Service};
use serde_json::Value;

use crate::output::style::{Colour, Tone, escape_control};

/// Replicas listed per service; further ones are counted.
const LISTED: usize = 8;

/// One line per service, and one for each replica that does not run yet.
pub(crate) fn services(deployment: &Deployment, replicas: &[Replica], colour: Colour) -> String {
    let widest = deployment.services.iter().map(|service| service.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for service in &deployment.services {
        let (mark, tone) = if service.running + service.completed >= service.desired && service.desired > 0 {
            ("✓", Tone::Good)
        } else {
            ("·", Tone::Busy)
        };
        let name = format!("{:widest$}", service.name);
        let _ = writeln!(out, "{} {name}  {}", colour.paint(tone, mark), counts(service, replicas));
        let ours = newest(replicas).into_iter().filter(|it| it.service == service.name);
        let unfinished: Vec<&Replica> = ours.filter(|it| !is_done(it)).collect();
        for replica in unfinished.iter().take(LISTED) {
            let progress = pull_progress(replica).unwrap_or_default();
            let _ = writeln!(out, "    {}  {}{progress}", replica.id, replica_state(replica, colour));
        }
        if unfinished.len() > LISTED {
            let _ = writeln!(out, "    … {} more", unfinished.len() - LISTED);
        }
    }
    out
}

/// Running of desired replicas. Those that have completed are done: they are counted apart, not as missing.
pub(crate) fn running(running: u32, desired: u32, completed: u32) -> String {
    let counts = format!("{running}/{}", desired.saturating_sub(completed));
    match (completed, running + desired.saturating_sub(completed)) {
        (0, _) => counts,
        (_, 0) => format!("{completed} completed"),
        (_, _) => format!("{counts} · {completed} completed"),
    }
}

fn counts(service: &Service, replicas: &[Replica]) -> String {
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    let current = newest(replicas);
    for replica in current.iter().filter(|it| it.service == service.name && !is_done(it)) {
        *others.entry(replica.state.as_str()).or_default() += 1;
    }
    let before = replicas.iter().filter(|it| it.service == service.name && !current.contains(it)).count();
    if before > 0 {
        others.insert("to be replaced", before);
    }
    let mut out = running(service.running, service.desired, service.completed);
    out.insert_str(out.find(" · ").unwrap_or(out.len()), " running");
    for (state, count) in others {
        let _ = write!(out, " · {count} {state}");
    }
    out
}

/// One row for each slot, in the order of the slots: its newest generation, or the row without a node of a slot that waits
/// for its next one. During a change the slot also has an older generation, which says nothing about progress.
pub(crate) fn newest(replicas: &[Replica]) -> Vec<&Replica> {
    // A waiting row carries the number of the generation before it, which may still be draining.
    let age = |replica: &Replica| (replica.generation, replica.node.is_none());
    let mut newest: BTreeMap<&str, (u32, bool)> = BTreeMap::new();
    for replica in replicas {
        let highest = newest.entry(&replica.id).or_default();
        *highest = age(replica).max(*highest);
    }
    replicas.iter().filter(|replica| newest.get(replica.id.as_str()) == Some(&age(replica))).collect()
}

fn is_done(replica: &Replica) -> bool {
    matches!(replica.state, ReplicaState::Running | ReplicaState::Completed)
}

/// One replica in a few words: its state, its node, its code and the details of the code.
pub(crate) fn replica_state(replica: &Replica, colour: Colour) -> String {
    let Replica { state, node, code, details, .. } = replica;
    let word = colour.paint(Tone::of_replica(state), state.as_str());
    // `pulling: pulling` says nothing twice.
    let code = code.as_ref().filter(|code| code.as_str() != state.as_str());
    observed(&word, node.as_deref(), code, details)
}

/// The replica that failed a rollout, in the same words.
fn failed_state(failed: &FailedReplica) -> String {
    observed(failed.state.as_str(), failed.node.as_deref(), failed.code.as_ref(), &failed.details)
}

/// A state with its node, code and details.
pub(crate) fn observed(
    state: &str,
    node: Option<&str>,
    code: Option<&Code>,
    details: &BTreeMap<String, Value>,
) -> String {
    let mut out = state.to_owned();
    if let Some(node) = node {
        let _ = write!(out, " on {node}");
    }
    if let Some(code) = code {
        let _ = write!(out, ": {code}");
    }
    for name in ["reason", "output", "exit_code"] {
        match details.get(name) {
            Some(Value::String(text)) => {
                let _ = write!(out, ", {}", escape_control(text.lines().next().unwrap_or_default()));
            }
            Some(Value::Number(number)) => _ = write!(out, " with code {number}"),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {}
        }
    }
    out
}

/// How much of an image has been pulled. Only a display that is redrawn shows it: it is no change of state.
fn pull_progress(replica: &Replica) -> Option<String> {
    let bytes = |name: &str| replica.details.get(name).and_then(Value::as_u64);
    let (done, total) = (bytes("done_bytes")?, bytes("total_bytes").filter(|total| *total > 0)?);
    Some(format!(" {}% of {} MiB", done.saturating_mul(100) / total, total >> 20))
}

/// Why a rollout failed: the replica, its last state and the last lines it wrote. `None` if it has not failed.
pub(crate) fn rollout_failure(rollout: &Rollout) -> Option<String> {
    let (code, to) = (rollout.failure_reason.as_ref()?, rollout.to);
    let replica = rollout.failed_replica.as_deref().unwrap_or("a replica");
    let how = match code.as_str() {
        "step_timeout" => "was not running in time",
        "failed_again" => "failed after its monitor time",
        "image_pull_failed" => "has an image that its registry refuses",
        _ => "failed too often",
    };
    let mut out = format!("{replica} of revision {to} {how} ({code})");
    if let Some(failed) = &rollout.failure {
        let _ = write!(out, "; it was {}", failed_state(failed));
        let lines = last_lines(replica, &failed.details);
        if !lines.is_empty() {
            let _ = write!(out, "\n{}", lines.trim_end());
        }
    }
    Some(out)
}

/// The last lines a replica wrote before it failed, each behind a bar, with a heading; empty if none are known.
pub(crate) fn last_lines(id: &str, details: &BTreeMap<String, Value>) -> String {
    let lines = details.get("last_lines").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
    if lines.is_empty() {
        return String::new();
    }
    let mut out = format!("the last lines of {id}:\n");
    for line in lines {
        let _ = writeln!(out, "  | {}", escape_control(line));
    }
    out
}

/// Remembers the last state printed for each replica and reports changes.
///
/// Two rows of one slot are never reported in turns: only its newest generation is.
#[derive(Debug, Default)]
pub(crate) struct ChangeReporter {
    printed: BTreeMap<String, (u32, String)>,
    shows_last_lines: bool,
}

impl ChangeReporter {
    /// One that prints the last lines of a replica below its failure. A command that waits prints them in its verdict.
    pub(crate) fn with_last_lines() -> Self {
        Self { shows_last_lines: true, ..Self::default() }
    }

    /// One line for each replica whose state changed since the last call.
    pub(crate) fn changes(&mut self, replicas: &[Replica], colour: Colour) -> Vec<String> {
        let mut lines = Vec::new();
        for replica in newest(replicas) {
            // The generation counts too: between two polls a new replica may have replaced a running one.
            let now = (replica.generation, replica_state(replica, colour));
            if self.printed.get(&replica.id) != Some(&now) {
                lines.push(format!("{} {}", replica.id, now.1));
                if self.shows_last_lines {
                    lines.extend(last_lines(&replica.id, &replica.details).lines().map(str::to_owned));
                }
                self.printed.insert(replica.id.clone(), now);
            }
        }
        self.printed.retain(|id, _| {
            let stays = replicas.iter().any(|replica| replica.id == *id);
            if !stays {
                lines.push(format!("{id} {}", colour.paint(Tone::Quiet, "gone")));
            }
            stays
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::{DeploymentStatus, Driver};

    use super::*;

    fn replica(id: &str, state: &str, code: Option<&str>) -> Replica {
        Replica {
            id: id.to_owned(),
            namespace: "default".to_owned(),
            deployment: "shop".to_owned(),
            service: "web".to_owned(),
            node: (state != "pending").then(|| "n1".to_owned()),
            state: state.into(),
            code: code.map(Code::from),
            details: BTreeMap::new(),
            generation: 1,
            attempt: 0,
            revision: 1,
            restarts: 0,
            since_ms: None,
            address: None,
            returns_at_ms: None,
            ended: false,
        }
    }

    fn shop(desired: u32, running: u32) -> Deployment {
        let service = Service {
            name: "web".to_owned(),
            image: "web:1".to_owned(),
            strategy: "spread".to_owned(),
            driver: Driver::Docker,
            desired,
            wanted: desired,
            running,
            completed: 0,
            ports: Vec::new(),
        };
        Deployment {
            namespace: "default".to_owned(),
            name: "shop".to_owned(),
            status: DeploymentStatus::Progressing,
            reasons: Vec::new(),
            revision: 1,
            revisions: vec![1],
            rollout: None,
            services: vec![service],
            one_off_of: None,
        }
    }

    #[test]
    fn a_service_lists_the_replicas_it_still_waits_for() {
        let mut failed = replica("shop-web-2", "failed", Some("exited"));
        failed.details.insert("exit_code".to_owned(), 3.into());
        let waits = replica("shop-web-1", "pending", Some("no_capacity_memory"));
        let replicas = [replica("shop-web-0", "running", None), waits, failed];
        insta::assert_snapshot!(services(&shop(3, 1), &replicas, Colour::Off), @r"
        · web  1/3 running · 1 failed · 1 pending
            shop-web-1  pending: no_capacity_memory
            shop-web-2  failed on n1: exited with code 3
        ");
        insta::assert_snapshot!(services(&shop(1, 1), &replicas[..1], Colour::Off), @"✓ web  1/1 running");
    }

    #[test]
    fn a_slot_is_reported_by_its_newest_generation_only() {
        let of = |state: &str, generation| Replica { generation, ..replica("shop-web-0", state, None) };
        let mut reporter = ChangeReporter::default();
        let mut changes = |replicas: &[Replica]| reporter.changes(replicas, Colour::Off);
        assert_eq!(changes(&[of("running", 1)]), ["shop-web-0 running on n1"]);
        assert_eq!(changes(&[of("running", 1), of("starting", 2)]), ["shop-web-0 starting on n1"]);
        assert_eq!(changes(&[of("draining", 1), of("running", 2)]), ["shop-web-0 running on n1"]);
        assert_eq!(changes(&[of("running", 2)]), [""; 0], "the removal of the old generation is not reported");
        assert_eq!(changes(&[of("running", 3)]), ["shop-web-0 running on n1"], "replaced between two polls");
        assert_eq!(changes(&[]), ["shop-web-0 gone"]);
        let drawn = services(&shop(1, 1), &[of("draining", 1), of("running", 2)], Colour::Off);
        assert_eq!(drawn, "✓ web  1/1 running · 1 to be replaced\n");
    }

    /// Twenty polls of a slot whose old generation takes its time to stop, and whose next one has no node yet.
    #[test]
    fn a_slot_that_waits_while_its_old_generation_drains_is_reported_once_and_not_in_turns() {
        let draining = replica("shop-web-0", "draining", None);
        let waits = replica("shop-web-0", "pending", Some("host_port_in_use"));
        let mut reporter = ChangeReporter::default();
        let mut lines = reporter.changes(&[replica("shop-web-0", "running", None)], Colour::Off);
        for _ in 0..20 {
            lines.extend(reporter.changes(&[draining.clone(), waits.clone()], Colour::Off));
        }
        let next = Replica { generation: 2, ..replica("shop-web-0", "running", None) };
        lines.extend(reporter.changes(&[next], Colour::Off));
        insta::assert_snapshot!(lines.join("\n"), @r"
        shop-web-0 running on n1
        shop-web-0 pending: host_port_in_use
        shop-web-0 running on n1
        ");
    }

    #[test]
    fn a_pull_is_reported_once_and_its_progress_only_where_it_is_redrawn() {
        let pulled = |done: u64| {
            let mut pulling = replica("shop-web-0", "pulling", Some("pulling"));
            pulling.details =
                BTreeMap::from([("done_bytes".to_owned(), done.into()), ("total_bytes".to_owned(), (8 << 20).into())]);
            pulling
        };
        let mut reporter = ChangeReporter::default();
        assert_eq!(reporter.changes(&[pulled(0)], Colour::Off), ["shop-web-0 pulling on n1"]);
        assert_eq!(reporter.changes(&[pulled(4 << 20)], Colour::Off), [""; 0]);
        insta::assert_snapshot!(services(&shop(1, 0), &[pulled(4 << 20)], Colour::Off), @r"
        · web  0/1 running · 1 pulling
            shop-web-0  pulling on n1 50% of 8 MiB
        ");
    }

    #[test]
    fn the_last_lines_of_a_failed_replica_cannot_steer_the_terminal() {
        let details =
            BTreeMap::from([("last_lines".to_owned(), serde_json::json!(["starting", "\u{1b}[2Jno database"]))]);
        insta::assert_snapshot!(last_lines("shop-web-0", &details), @r"
        the last lines of shop-web-0:
          | starting
          | \u{1b}[2Jno database
        ");
        assert_eq!(last_lines("shop-web-0", &BTreeMap::new()), "");
    }

    #[test]
    fn replicas_are_reported_in_the_order_of_their_numbers() {
        let replicas = [replica("shop-web-9", "starting", None), replica("shop-web-10", "starting", None)];
        let lines = ChangeReporter::default().changes(&replicas, Colour::Off);
        assert_eq!(lines, ["shop-web-9 starting on n1", "shop-web-10 starting on n1"]);
    }

    #[test]
    fn in_the_foreground_a_failure_is_followed_by_the_last_lines() {
        let mut failed = replica("shop-web-0", "failed", Some("exited"));
        failed.details.insert("last_lines".to_owned(), serde_json::json!(["no database"]));
        insta::assert_snapshot!(ChangeReporter::with_last_lines().changes(&[failed], Colour::Off).join("\n"), @r"
        shop-web-0 failed on n1: exited
        the last lines of shop-web-0:
          | no database
        ");
    }

    #[test]
    fn an_unchanged_replica_is_not_reported_again() {
        let mut reporter = ChangeReporter::default();
        let first = [replica("shop-web-0", "starting", None)];
        assert_eq!(reporter.changes(&first, Colour::Off), ["shop-web-0 starting on n1"]);
        assert!(reporter.changes(&first, Colour::Off).is_empty());
        assert_eq!(reporter.changes(&[], Colour::Off), ["shop-web-0 gone"]);
    }
}
