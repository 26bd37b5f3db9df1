//! `node drain --wait` and `node rm --wait`: polls until a node is drained, or removed.
//!
//! Owns: when a drain is complete, when it has failed, and the list of replicas left. Must not touch: the node.
//! Invariant: a request that fails ends the waiting with an error, never as complete.

use std::time::Instant;

use longshore_api::{
    AfterDrain, Client, ClientError, Code, Drain, DrainBlocker, DrainOutcome, Intent, Node, UndrainedReplica,
};

use super::wait::{Blocker, LONGEST_WAIT, POLL_INTERVAL, UNPLACEABLE_AFTER, WaitLimit, WaitOutcome};
use crate::output::live_region::{LiveRegion, Stream};

/// Waits until the node is drained, and shows the replicas left. A node that is removed once drained no longer exists
/// then.
pub(crate) async fn until_drained(client: &Client, name: &str, limit: WaitLimit) -> Result<WaitOutcome, ClientError> {
    let (deadline, mut region) = (Instant::now() + limit.time.min(LONGEST_WAIT), LiveRegion::new(Stream::Stderr));
    let (mut last, mut blocked_since) = (String::new(), None);
    loop {
        let node = match client.node(name).await {
            Err(ClientError::Refused(envelope)) if matches!(envelope.code.as_str(), "not_found" | "unknown_node") => {
                region.clear();
                return Ok(WaitOutcome::Complete);
            }
            found => found?,
        };
        let progress = replicas_left(&node);
        if region.redraws() {
            region.draw(&progress);
        } else if progress != last {
            progress.lines().for_each(|line| region.print_above(line));
        }
        last = progress;
        if let Some(outcome) = outcome(&node) {
            region.clear();
            return Ok(outcome);
        }
        match no_other_node(&node).filter(|_| limit.ends_if_unplaceable) {
            Some(blocker) if blocked_since.get_or_insert_with(Instant::now).elapsed() >= UNPLACEABLE_AFTER => {
                region.clear();
                return Ok(WaitOutcome::OperatorNeeded(blocker));
            }
            Some(_) => {}
            None => blocked_since = None,
        }
        if Instant::now() > deadline {
            region.keep();
            return Ok(WaitOutcome::TimedOut(format!("{} replicas are left", node.replicas)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// `None` while the drain is in progress.
fn outcome(node: &Node) -> Option<WaitOutcome> {
    match &node.intent {
        Intent::Removed => return Some(WaitOutcome::Complete),
        Intent::Draining => {}
        Intent::Active | Intent::Paused | Intent::Unknown(_) => {
            return Some(WaitOutcome::Failed(format!("is no longer drained: it is {}", node.intent)));
        }
    }
    let drain = node.drain.as_ref()?;
    let stateful = DrainBlocker::Blocked(Code::DrainBlockedStateful);
    match (&drain.outcome, &drain.then) {
        (DrainOutcome::Done, AfterDrain::Keep) => Some(WaitOutcome::Complete),
        (DrainOutcome::TimedOut, _) => {
            Some(WaitOutcome::Failed(format!("was not drained before its deadline: {}", left(drain))))
        }
        (DrainOutcome::Done, AfterDrain::Remove | AfterDrain::Unknown(_))
        | (DrainOutcome::UnderWay | DrainOutcome::Unknown(_), _) => {
            let only_data_is_left = !drain.left.is_empty() && drain.left.iter().all(|it| it.why == stateful);
            only_data_is_left.then(|| WaitOutcome::OperatorNeeded(Blocker::Data(left(drain))))
        }
    }
}

/// The replicas that nothing under way will move, because no other node takes them. Only those are left.
fn no_other_node(node: &Node) -> Option<Blocker> {
    let drain =
        node.drain.as_ref().filter(|drain| drain.outcome == DrainOutcome::UnderWay && !drain.left.is_empty())?;
    let blocked = |it: &UndrainedReplica| matches!(it.why, DrainBlocker::Blocked(_));
    drain.left.iter().all(blocked).then(|| Blocker::NoOtherNode(left(drain)))
}

fn left(drain: &Drain) -> String {
    let left: Vec<String> = drain.left.iter().map(|it| format!("{} ({})", it.replica, it.why)).collect();
    left.join(", ")
}

fn replicas_left(node: &Node) -> String {
    let mut out = format!("{}: {} left\n", node.name, node.replicas);
    for it in node.drain.iter().flat_map(|drain| &drain.left) {
        out.extend(["  ", &it.replica, "  ", it.why.as_str(), "\n"]);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(intent: &str, drain: &Value) -> Node {
        let node = json!({
            "name": "n1", "number": 1, "intent": intent, "health": "ready", "health_since_ms": 0, "use_degraded": false,
            "role": "manager", "pool": "default", "labels": {}, "os": "linux", "arch": "x86_64", "drivers": ["exec"],
            "cpu_millis": 1000, "memory_bytes": 1, "memory_used_bytes": 0, "replicas": 1, "drain": drain,
        });
        serde_json::from_value(node).unwrap()
    }

    fn outcome_of(intent: &str, drain: &Value) -> Option<WaitOutcome> {
        outcome(&node(intent, drain))
    }

    fn drain(outcome: &str, then: &str, left: &[(&str, &str)]) -> Value {
        let left: Vec<Value> = left.iter().map(|(id, why)| json!({ "replica": id, "why": why })).collect();
        json!({ "outcome": outcome, "then": then, "left": left })
    }

    #[test]
    fn a_drain_is_complete_once_done_and_a_removal_once_the_node_is_gone() {
        assert_eq!(outcome_of("draining", &drain("done", "keep", &[])), Some(WaitOutcome::Complete));
        assert_eq!(outcome_of("draining", &drain("done", "remove", &[])), None, "it is about to be removed");
        assert_eq!(outcome_of("removed", &Value::Null), Some(WaitOutcome::Complete));
        assert_eq!(outcome_of("draining", &Value::Null), None, "the drain has not been reported yet");
    }

    #[test]
    fn a_drain_that_was_cancelled_or_timed_out_has_failed_and_lists_the_replicas_left() {
        let cancelled = WaitOutcome::Failed("is no longer drained: it is active".to_owned());
        assert_eq!(outcome_of("active", &Value::Null), Some(cancelled));
        let late = WaitOutcome::Failed("was not drained before its deadline: shop-web-0 (drain_timeout)".to_owned());
        let left = [("shop-web-0", "drain_timeout")];
        assert_eq!(outcome_of("draining", &drain("timed_out", "keep", &left)), Some(late));
    }

    #[test]
    fn a_drain_with_only_data_left_needs_the_operator() {
        let data = ("shop-db-0", "drain_blocked_stateful");
        let blocked = WaitOutcome::OperatorNeeded(Blocker::Data("shop-db-0 (drain_blocked_stateful)".to_owned()));
        assert_eq!(outcome_of("draining", &drain("under_way", "keep", &[data])), Some(blocked));
        let moving = ("shop-web-0", "moving");
        assert_eq!(outcome_of("draining", &drain("under_way", "keep", &[data, moving])), None);
    }

    #[test]
    fn a_replica_that_fits_on_no_other_node_is_named_once_nothing_else_moves() {
        let stuck = ("shop-web-0", "host_port_in_use");
        let blocker = |left: &[(&str, &str)]| no_other_node(&node("draining", &drain("under_way", "keep", left)));
        insta::assert_snapshot!(blocker(&[stuck]).unwrap(), @"has replicas that fit on no other node: shop-web-0 (host_port_in_use)");
        assert_eq!(blocker(&[stuck, ("shop-web-1", "moving")]), None, "the other one may make room");
        assert_eq!(blocker(&[]), None);
    }
}
