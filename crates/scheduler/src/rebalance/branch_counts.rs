//! The spread counts that one move changes.
//!
//! Owns: the replica counts of the source's and the destination's branches. Must not touch: whether the move is
//! allowed.

use crate::{
    feasibility::skew::branch_path,
    request::PlacementRequest,
    view::{NodeIx, View},
};

/// The service's replicas in the branches of two nodes, at the outermost spread level where these differ. The nodes
/// themselves are the last level. The counts must exclude the replica that would move.
pub(super) fn at_first_difference(view: &View, request: &PlacementRequest, src: NodeIx, dst: NodeIx) -> (u32, u32) {
    let (from, to) = (path(view, request, src), path(view, request, dst));
    let depth = from.iter().zip(&to).position(|(a, b)| a != b);
    match depth {
        Some(depth) => (below(view, request, &from[..=depth]), below(view, request, &to[..=depth])),
        None => (request.counts.get(src), request.counts.get(dst)),
    }
}

/// The service's replicas in each branch of a node, outermost first, and on the node itself.
pub(super) fn of_node(view: &View, request: &PlacementRequest, node: NodeIx) -> Vec<u32> {
    let path = path(view, request, node);
    let branches = (1..=path.len()).map(|depth| below(view, request, &path[..depth]));
    branches.chain([request.counts.get(node)]).collect()
}

fn path(view: &View, request: &PlacementRequest, node: NodeIx) -> Vec<String> {
    branch_path(&request.spec.placement.preferences, view.nodes.node(node))
}

fn below(view: &View, request: &PlacementRequest, branch: &[String]) -> u32 {
    let inside = request.counts.nodes().filter(|node| path(view, request, *node).starts_with(branch));
    inside.map(|node| request.counts.get(node)).sum()
}
