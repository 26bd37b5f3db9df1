//! Waiting until a node is empty.
//!
//! Owns: when it is, when it never will be, and what stays on it. Must not touch: what is asked for.
//! Invariant: a question that is not answered ends the waiting as an error, never as done.

use std::time::{Duration, Instant};

use longshore_api::{Client, ClientError, Drain, Node};

use crate::{
    live::{Live, Screen},
    wait::{Ended, LOOK},
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
            Some(Ended::Held(format!("holds data that cannot move: {}", left(drain))))
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
