//! `longshore why`: why a replica is on its node, or has none.
//!
//! Owns: its options and its wording. Must not touch: what is compared; the daemon decides again and answers.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::Args;
use longshore_api::{Code, Why};

use crate::{
    daemon_client::{NamespaceArgs, query},
    exit::Exit,
    output::{
        candidates::{self, RankedNode},
        moves::waiting_line,
        progress,
        style::escape_control,
        timestamp,
    },
};

/// Explain why a replica is on its node, or why replicas of a service have no node.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore why shop-web-0\n  longshore why shop/web")]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// A replica id as `status` prints it, or `DEPLOYMENT/SERVICE`.
    name: String,
}

pub(crate) fn run(args: WhyArgs) -> anyhow::Result<Exit> {
    let WhyArgs { scope, name } = args;
    let name = if name.contains('/') { name } else { scope.replica_id(&name) };
    query(&scope.connection, async |client| client.why(scope.namespace(), &name).await, explanation)
}

fn explanation(why: &Why) -> String {
    match why {
        Why::Waits { replica, pending } => format!("{replica} waits: {}\n{}\n", pending.reason, pending.explain),
        Why::Observed { replica, node, state, code, details, explain, .. } => {
            let seen = progress::observed(state.as_str(), node.as_deref(), code.as_ref(), details);
            format!("{replica} is {seen}\n{explain}\n{}", progress::last_lines(replica, details))
        }
        Why::Service { service, desired, placed, pending, .. } if pending.is_empty() => {
            format!("{service}: {placed} of {desired} replicas have a node, none waits\n")
        }
        Why::Service { service, desired, placed, pending, .. } => {
            let mut out = format!("{service}: {placed} of {desired} replicas have a node\n");
            out.extend(pending.iter().map(|pending| waiting_line(pending, "")));
            out
        }
        Why::Placed { replica, node, strategy, nodes, candidates, refused, best, placed_at_ms, index, .. } => {
            let mut out = format!("{replica} is on {node}: {strategy}, {candidates} of {nodes} nodes fit\n");
            out.push_str(&failure(why));
            if let Why::Placed { details, .. } = why {
                out.push_str(&progress::last_lines(replica, details));
            }
            let placed = timestamp::second(*placed_at_ms);
            let _ = writeln!(out, "placed {placed}, compared at log index {index}");
            if !refused.is_empty() {
                let _ = writeln!(out, "refused: {}", refusal_counts(refused));
            }
            out.push('\n');
            let ranked: Vec<RankedNode<'_>> =
                best.iter().map(|it| RankedNode { node: &it.node, keys: &it.keys }).collect();
            out.push_str(&candidates::table(node, &ranked));
            out
        }
    }
}

/// Details that are no part of the line about a failure.
const SHOWN_ELSEWHERE: [&str; 3] = ["address", "ports", "last_lines"];

/// The state and code of a placed replica, with details; empty if it has no code.
fn failure(why: &Why) -> String {
    let Why::Placed { state: Some(state), code: Some(code), details, attempt, restarts, .. } = why else {
        return String::new();
    };
    let mut out = format!("it is {state}: {code}");
    for (name, value) in details.iter().filter(|(name, _)| !SHOWN_ELSEWHERE.contains(&name.as_str())) {
        match value.as_str() {
            Some(text) => _ = write!(out, ", {name} `{}`", escape_control(text.lines().next().unwrap_or_default())),
            None => _ = write!(out, ", {name} {value}"),
        }
    }
    let times = if *restarts == 1 { "once".to_owned() } else { format!("{restarts} times") };
    if *restarts > 0 {
        let _ = write!(out, "; restarted {times}, this is attempt {attempt}");
    }
    out + "\n"
}

fn refusal_counts(refused: &BTreeMap<Code, u32>) -> String {
    let counts: Vec<String> = refused.iter().map(|(code, nodes)| format!("{code} {nodes}")).collect();
    counts.join(", ")
}
