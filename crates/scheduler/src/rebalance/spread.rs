//! How a service is spread, as far as one move changes it.
//!
//! Owns: the counts of the two branches a move is between. Must not touch: whether the move is allowed.

use crate::{
    ask::Ask,
    view::{NodeIx, View, classes},
};

/// The outermost level of the preference tree at which two nodes are in different branches, and how many of the service
/// are below each. The nodes themselves are the last level. The replica that would move must not be counted.
pub(super) fn first_difference(view: &View, ask: &Ask, src: NodeIx, dst: NodeIx) -> (u32, u32) {
    let (from, to) = (path(view, ask, src), path(view, ask, dst));
    let depth = from.iter().zip(&to).position(|(a, b)| a != b);
    match depth {
        Some(depth) => (below(view, ask, &from[..=depth]), below(view, ask, &to[..=depth])),
        None => (ask.counts.get(src), ask.counts.get(dst)),
    }
}

/// How full each branch is that a node is in, outermost first, and the node itself.
pub(super) fn crowd(view: &View, ask: &Ask, node: NodeIx) -> Vec<u32> {
    let path = path(view, ask, node);
    let branches = (1..=path.len()).map(|depth| below(view, ask, &path[..depth]));
    branches.chain([ask.counts.get(node)]).collect()
}

fn path(view: &View, ask: &Ask, node: NodeIx) -> Vec<String> {
    let known = view.fleet.node(node);
    let levels = ask.spec.placement.preferences.iter();
    levels.map(|level| classes::value(known, level).unwrap_or_default()).collect()
}

fn below(view: &View, ask: &Ask, branch: &[String]) -> u32 {
    let inside = ask.counts.nodes().filter(|node| path(view, ask, *node).starts_with(branch));
    inside.map(|node| ask.counts.get(node)).sum()
}
