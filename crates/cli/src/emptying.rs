//! Waiting until a node is empty.
//!
//! Owns: when it is, when it never will be, and what stays on it. Must not touch: what is asked for.
//! Invariant: a question that is not answered ends the waiting as an error, never as done.

use std::time::{Duration, Instant};

use longshore_api::{Client, ClientError, Drain, Node};

use crate::{
    live::{Live, Screen},
    wait::{Ended, Halt, LOOK},
};

/// Waits, and shows what is left. A node that is removed when it is empty is gone then.
pub(crate) async fn wait(client: &Client, name: &str, limit: Duration, live: &mut Live) -> Result<Ended, ClientError> {
    let (until, mut said) = (Instant::now() + limit, String::new());
    loop {
        let node = match client.node(name).await {
            Err(ClientError::Refused(envelope)) if matches!(envelope.code.as_str(), "not_found" | "unknown_node") => {
                live.clear();
                return Ok(Ended::Settled);
            }
            found => found?,
        };
        let drawn = draw(&node);
        match live.screen() {
            Screen::Terminal => live.draw(&drawn),
            Screen::Plain if drawn != said => drawn.lines().for_each(|line| live.tell(line)),
            Screen::Plain => {}
        }
        said = drawn;
        if let Some(ended) = judge(&node) {
            live.clear();
            return Ok(ended);
        }
        if Instant::now() > until {
            live.keep();
            return Ok(Ended::TimedOut(format!("{} replicas are left", node.replicas)));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn judge(node: &Node) -> Option<Ended> {
    if node.intent == "removed" {
        return Some(Ended::Settled);
    }
    if node.intent != "draining" {
        return Some(Ended::Failed(format!("is no longer emptied: it is {}", node.intent)));
    }
    let drain = node.drain.as_ref()?;
    match (drain.outcome.as_str(), drain.then.as_str()) {
        ("done", "keep") => Some(Ended::Settled),
        ("timed_out", _) => Some(Ended::Failed(format!("was not emptied in time: {}", left(drain)))),
        _ if !drain.left.is_empty() && drain.left.iter().all(|it| it.why == "drain_blocked_stateful") => {
            Some(Ended::Held(Halt::Data(left(drain))))
        }
        _ => None,
    }
}

fn left(drain: &Drain) -> String {
    let left: Vec<String> = drain.left.iter().map(|it| format!("{} ({})", it.replica, it.why)).collect();
    left.join(", ")
}

fn draw(node: &Node) -> String {
    let mut out = format!("{}: {} left\n", node.name, node.replicas);
    for it in node.drain.iter().flat_map(|drain| &drain.left) {
        out.extend(["  ", &it.replica, "  ", &it.why, "\n"]);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn verdict(intent: &str, drain: &Value) -> Option<Ended> {
        let node = json!({
            "name": "n1", "number": 1, "intent": intent, "health": "up", "health_since_ms": 0, "use_degraded": false,
            "role": "voter", "pool": "default", "labels": {}, "os": "linux", "arch": "x86_64", "drivers": ["exec"],
            "cpu_millis": 1000, "memory_bytes": 1, "memory_used_bytes": 0, "replicas": 1, "drain": drain,
        });
        judge(&serde_json::from_value(node).unwrap())
    }

    fn drain(outcome: &str, then: &str, left: &[(&str, &str)]) -> Value {
        let left: Vec<Value> = left.iter().map(|(id, why)| json!({ "replica": id, "why": why })).collect();
        json!({ "outcome": outcome, "then": then, "left": left })
    }

    #[test]
    fn a_node_is_empty_once_its_drain_is_done_and_one_to_be_removed_once_it_is_gone() {
        assert_eq!(verdict("draining", &drain("done", "keep", &[])), Some(Ended::Settled));
        assert_eq!(verdict("draining", &drain("done", "remove", &[])), None, "it is about to go");
        assert_eq!(verdict("removed", &Value::Null), Some(Ended::Settled));
        assert_eq!(verdict("draining", &Value::Null), None, "nothing is known of it yet");
    }

    #[test]
    fn a_drain_that_was_cancelled_or_took_too_long_has_failed_and_says_what_is_left() {
        let cancelled = Ended::Failed("is no longer emptied: it is active".to_owned());
        assert_eq!(verdict("active", &Value::Null), Some(cancelled));
        let late = Ended::Failed("was not emptied in time: shop-web-0 (drain_timeout)".to_owned());
        let left = [("shop-web-0", "drain_timeout")];
        assert_eq!(verdict("draining", &drain("timed_out", "keep", &left)), Some(late));
    }

    #[test]
    fn a_node_whose_data_cannot_move_waits_for_a_word_unless_something_else_still_can() {
        let data = ("shop-db-0", "drain_blocked_stateful");
        let held = Ended::Held(Halt::Data("shop-db-0 (drain_blocked_stateful)".to_owned()));
        assert_eq!(verdict("draining", &drain("under_way", "keep", &[data])), Some(held));
        let moving = ("shop-web-0", "moving");
        assert_eq!(verdict("draining", &drain("under_way", "keep", &[data, moving])), None);
    }
}
