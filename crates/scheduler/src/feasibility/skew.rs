//! `max_skew`: how many replicas the branches of one spread level may differ by. A full branch still counts, so the
//! others wait for it: the rule is hard.
//!
//! The spread tree enforces the rule while it places, and this filter only explains it; `pack`, `binpack` and `hash`
//! have no tree and check it before each placement. Without preferences each node is a branch. Pinned hosts and global
//! services name their nodes, so no skew applies to them.

use std::collections::BTreeMap;

use longshore_model::{Attribute, Node, Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope, is_eligible};
use crate::{
    request::PlacementRequest,
    view::{View, classes},
};

pub(super) const FILTER: Filter = Filter { reason: Reason::MaxSkew, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    let strategy = request.spec.placement.strategy;
    match request.spec.placement.max_skew {
        Some(_) if strategy.is_spread() => Scope::Tree,
        Some(_) if strategy.chooses_nodes() => Scope::Node,
        Some(_) | None => Scope::Idle,
    }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    let limit = request.spec.placement.max_skew.unwrap_or(u32::MAX);
    skew_with_one_more(request, candidate) <= limit
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    Refusal::Skew {
        limit: request.spec.placement.max_skew.unwrap_or(u32::MAX),
        would_be: skew_with_one_more(request, candidate),
    }
}

/// The spread levels that the skew applies to.
pub(crate) fn levels(request: &PlacementRequest) -> &[Attribute] {
    match (request.spec.placement.preferences.as_slice(), request.spec.placement.max_skew) {
        ([], Some(_)) => &[Attribute::Hostname],
        (preferences, _) => preferences,
    }
}

/// The largest skew over all levels with one more replica on the node.
fn skew_with_one_more(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> u32 {
    let counts = request.branches.get_or_init(|| BranchCounts::count(request, candidate.view));
    let path = branch_path(levels(request), candidate.node);
    (1..=path.len()).map(|depth| counts.with_one_more(&path[..depth])).max().unwrap_or(0)
}

/// The node's value at each spread level, outermost first; a missing value is empty. A prefix of it names a branch.
pub(crate) fn branch_path(levels: &[Attribute], node: &Node) -> Vec<String> {
    levels.iter().map(|level| classes::value(node, level).unwrap_or_default()).collect()
}

/// Slots of the service per branch, apart for branches with and without an eligible node.
#[derive(Debug, Default)]
pub(crate) struct BranchCounts {
    usable: BTreeMap<Vec<String>, u32>,
    others: BTreeMap<Vec<String>, u32>,
}

impl BranchCounts {
    fn count(request: &PlacementRequest, view: &View) -> Self {
        let mut branches = Self::default();
        for node in view.nodes.by_name_order().filter(|node| is_eligible(request, view, *node)) {
            let path = branch_path(levels(request), view.nodes.node(node));
            for depth in 1..=path.len() {
                branches.usable.entry(path[..depth].to_vec()).or_default();
            }
        }
        for node in request.counts.nodes() {
            let path = branch_path(levels(request), view.nodes.node(node));
            for depth in 1..=path.len() {
                let branch = path[..depth].to_vec();
                let counts =
                    if branches.usable.contains_key(&branch) { &mut branches.usable } else { &mut branches.others };
                *counts.entry(branch).or_default() += request.counts.get(node);
            }
        }
        branches
    }

    /// How far the branch would be above its lowest eligible sibling with one more slot.
    fn with_one_more(&self, branch: &[String]) -> u32 {
        let here = self.usable.get(branch).or_else(|| self.others.get(branch)).copied().unwrap_or(0);
        let (_, parent) = branch.split_last().unwrap_or((&branch[0], &[]));
        let siblings = self.usable.range(parent.to_vec()..).take_while(|(path, _)| path.starts_with(parent));
        let lowest = siblings.filter(|(path, _)| path.len() == branch.len()).map(|(_, count)| *count).min();
        (here + 1).saturating_sub(lowest.unwrap_or(here))
    }
}
