//! The branches of each spread level may differ by so many replicas at most. A branch that is full still counts, so the
//! others wait for it: that is what hard means.
//!
//! The tree of `spread` keeps the rule while it fills, and this file says so afterwards; `pack`, `binpack` and `hash` have
//! no tree and ask here before each placement. Without preferences the nodes themselves are the branches. Pinned hosts
//! and nodes of a global service were chosen by name, so that no skew applies.

use std::collections::BTreeMap;

use longshore_model::{Attribute, Node, Reason, Refusal, Strategy};

use super::{Filter, Nature, Scope, Site, is_domain};
use crate::{
    ask::Ask,
    view::{View, classes},
};

pub(super) const FILTER: Filter = Filter { reason: Reason::MaxSkew, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    match (ask.spec.placement.strategy, ask.spec.placement.max_skew) {
        (Strategy::Spread, Some(_)) => Scope::Tree,
        (Strategy::Pack | Strategy::Binpack | Strategy::Hash, Some(_)) => Scope::Node,
        (Strategy::Spread | Strategy::Pack | Strategy::Binpack | Strategy::Hash, None)
        | (Strategy::Hosts | Strategy::Global, _) => Scope::Idle,
    }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    let limit = ask.spec.placement.max_skew.unwrap_or(u32::MAX);
    would_be(ask, site) <= limit
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    Refusal::Skew { limit: ask.spec.placement.max_skew.unwrap_or(u32::MAX), would_be: would_be(ask, site) }
}

/// The levels the skew is held on.
pub(crate) fn levels(ask: &Ask) -> &[Attribute] {
    match (ask.spec.placement.preferences.as_slice(), ask.spec.placement.max_skew) {
        ([], Some(_)) => &[Attribute::Hostname],
        (preferences, _) => preferences,
    }
}

/// The largest skew of any level with one more replica on the node.
fn would_be(ask: &Ask, site: &Site<'_>) -> u32 {
    let counts = ask.branches.get_or_init(|| Branches::count(ask, site.view));
    let path = path(ask, site.node);
    (1..=path.len()).map(|depth| counts.with_one_more(&path[..depth])).max().unwrap_or(0)
}

fn path(ask: &Ask, node: &Node) -> Vec<String> {
    levels(ask).iter().map(|level| classes::value(node, level).unwrap_or_default()).collect()
}

/// Slots of the service below each branch that has a node it could use, and below the others.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    usable: BTreeMap<Vec<String>, u32>,
    others: BTreeMap<Vec<String>, u32>,
}

impl Branches {
    fn count(ask: &Ask, view: &View) -> Self {
        let mut branches = Self::default();
        for node in view.fleet.in_order().filter(|node| is_domain(ask, view, *node)) {
            let path = path(ask, view.fleet.node(node));
            for depth in 1..=path.len() {
                branches.usable.entry(path[..depth].to_vec()).or_default();
            }
        }
        for node in ask.counts.nodes() {
            let path = path(ask, view.fleet.node(node));
            for depth in 1..=path.len() {
                let branch = path[..depth].to_vec();
                let counts =
                    if branches.usable.contains_key(&branch) { &mut branches.usable } else { &mut branches.others };
                *counts.entry(branch).or_default() += ask.counts.get(node);
            }
        }
        branches
    }

    /// How far a branch would be above the lowest of its siblings.
    fn with_one_more(&self, branch: &[String]) -> u32 {
        let here = self.usable.get(branch).or_else(|| self.others.get(branch)).copied().unwrap_or(0);
        let (_, parent) = branch.split_last().unwrap_or((&branch[0], &[]));
        let siblings = self.usable.range(parent.to_vec()..).take_while(|(path, _)| path.starts_with(parent));
        let lowest = siblings.filter(|(path, _)| path.len() == branch.len()).map(|(_, count)| *count).min();
        (here + 1).saturating_sub(lowest.unwrap_or(here))
    }
}
