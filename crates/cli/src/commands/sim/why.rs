//! `longshore sim run --why`: why a replica is on its node at the end of a run.
//!
//! Owns: the wording. Must not touch: what is compared; the scheduler decides that.

use std::fmt::Write as _;

use longshore_sim::why::{Placed, Why};

use crate::output::candidates::{self, RankedNode};

pub(super) fn explanation(why: &Why) -> String {
    match why {
        Why::Placed(placed) => placement(placed),
        Why::Waits(pending) => format!("it waits: {}\n{}\n", pending.reason, pending.explain),
    }
}

fn placement(placed: &Placed) -> String {
    let Placed { replica, node, bucket, strategy, nodes, candidates, refused, best } = placed;
    // `untainted` is the normal case.
    let bucket = if *bucket == "untainted" { String::new() } else { format!(" ({bucket})") };
    let mut out = format!("{replica} is on {node}{bucket}: {strategy}, {candidates} of {nodes} nodes fit\n");
    if !refused.is_empty() {
        let counts: Vec<String> = refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let _ = writeln!(out, "refused: {}", counts.join(", "));
    }
    let ranked: Vec<RankedNode<'_>> = best.iter().map(|it| RankedNode { node: &it.node, keys: &it.keys }).collect();
    out.push('\n');
    out + &candidates::table(node, &ranked)
}
