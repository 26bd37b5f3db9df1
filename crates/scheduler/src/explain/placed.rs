//! Why a placed replica is on its node: the candidates, the refusals, and the ranking keys of the best five nodes.
//!
//! The decision is repeated on the current view without the replica. So the explanation is exact for a fresh decision,
//! and for an older one shows how its node ranks today.
//!
//! Owns: the keys shown. They are the strategy's ranking keys, in order.
//! Invariant: the view is unchanged afterwards, and the first of the best is the node a decision now would choose.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use longshore_model::{GroupKey, NodeName, Reason, SlotKey, Strategy, Time};

use super::refused_by;
use crate::{
    binpack_score::{self, Term, targets::Targets},
    feasibility::{Filter, skew::branch_path},
    placement::affinity,
    reconcile::buckets::{self, Bucket},
    request::{Counts, PlacementRequest},
    view::{NodeIx, View},
};

/// How many of the best candidates are shown.
const SHOWN: usize = 5;

/// How a replica's node compares with the other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The replica's node.
    pub node: NodeName,
    /// How the reconciler classifies the replica.
    pub bucket: Bucket,
    /// The strategy that ranked the nodes.
    pub strategy: Strategy,
    /// Nodes evaluated.
    pub nodes: u32,
    /// Nodes that no filter refused.
    pub candidates: u32,
    /// Nodes refused by each filter; every filter is evaluated on all nodes.
    pub refused: BTreeMap<Reason, u32>,
    /// The best candidates, best first.
    pub best: Vec<RankedNode>,
}

/// A candidate node and its ranking keys, most important first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedNode {
    /// The node.
    pub node: NodeName,
    /// Name and value of each key. `binpack` scores are in billionths, and larger is better; for all other strategies
    /// smaller is better.
    pub keys: Vec<(String, i64)>,
}

/// Explains the node of a placed replica; `None` if the slot has no placed replica.
pub fn explain_placed(view: &mut View, group: &GroupKey, slot: &SlotKey, now: Time) -> Option<Decision> {
    view.advance(now);
    view.nodes.refresh();
    let ix = *view.group_ids.get(group)?;
    let known = view.group(ix);
    let replica = known.slots[known.slot_at(slot).ok()?].current()?.clone();
    let mut request = PlacementRequest::new(view, ix, now, Counts::default());
    let held = &known.slots[known.slot_at(slot).ok()?];
    let bucket = buckets::of(view, &request, held, &replica, &BTreeSet::new(), now);
    request.counts.remove_from(Some(replica.node));
    view.set_aside(ix, slot, &replica);
    let decision = decide(view, &request, replica.node, bucket);
    view.restore(ix, slot, &replica);
    Some(decision)
}

fn decide(view: &View, request: &PlacementRequest, chosen: NodeIx, bucket: Bucket) -> Decision {
    let filters: Vec<&'static Filter> = request.filters().collect();
    let nodes: Vec<NodeIx> = view.nodes.by_name_order().collect();
    let mut refused = BTreeMap::new();
    let mut fitting = Vec::new();
    for node in &nodes {
        let refusals = refused_by(view, request, &filters, *node);
        for (_, filter) in filters.iter().enumerate().filter(|(at, _)| refusals & 1 << at != 0) {
            *refused.entry(filter.reason).or_default() += 1;
        }
        if refusals == 0 {
            fitting.push(*node);
        }
    }
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Decision {
        node: view.nodes.node(chosen).name.clone(),
        bucket,
        strategy: request.spec.placement.strategy,
        nodes: number(nodes.len()),
        candidates: number(fitting.len()),
        refused,
        best: best(view, request, &fitting),
    }
}

fn best(view: &View, request: &PlacementRequest, fitting: &[NodeIx]) -> Vec<RankedNode> {
    let mut best = if request.spec.placement.strategy.is_scored() {
        by_score(view, request, fitting)
    } else {
        by_keys(view, request, fitting)
    };
    best.truncate(SHOWN);
    best
}

fn by_keys(view: &View, request: &PlacementRequest, fitting: &[NodeIx]) -> Vec<RankedNode> {
    let branches = BranchCounts::count(view, request);
    let mut ranked: Vec<RankedNode> = fitting.iter().map(|node| ranked(view, request, &branches, *node)).collect();
    // Nodes are in name order and the sort is stable, so the name is the last key.
    ranked.sort_by(|a, b| a.keys.iter().map(|key| key.1).cmp(b.keys.iter().map(|key| key.1)));
    ranked
}

fn ranked(view: &View, request: &PlacementRequest, branches: &BranchCounts, node: NodeIx) -> RankedNode {
    let stats = view.nodes.stats(node);
    let faulty = ("faulty".to_owned(), i64::from(request.faulty.contains(&node)));
    let replicas = ("replicas".to_owned(), i64::from(stats.load.replicas));
    let keys = match request.spec.placement.strategy {
        Strategy::LeastLoaded => vec![faulty, replicas],
        Strategy::Hosts | Strategy::Global | Strategy::Hash | Strategy::Binpack => vec![faulty],
        Strategy::Spread => {
            let cpu = i64::try_from(stats.projected_cpu(request.reservation.cpu_millis)).unwrap_or(i64::MAX);
            let mut keys = vec![faulty];
            keys.extend(branches.keys(view, request, node));
            keys.push(("here".to_owned(), i64::from(request.counts.get(node))));
            keys.push(("disliked".to_owned(), -affinity::weight(request, view, node)));
            keys.push(("cpu_millionths".to_owned(), cpu));
            keys.push(replicas);
            keys
        }
    };
    RankedNode { node: view.nodes.node(node).name.clone(), keys }
}

/// The service's replicas in every branch of the spread tree.
struct BranchCounts {
    counts: BTreeMap<Vec<String>, i64>,
}

impl BranchCounts {
    fn count(view: &View, request: &PlacementRequest) -> Self {
        let mut counts = BTreeMap::new();
        for node in request.counts.nodes() {
            for path in Self::paths(view, request, node) {
                *counts.entry(path).or_default() += i64::from(request.counts.get(node));
            }
        }
        Self { counts }
    }

    /// The node's branch at each level, outermost first.
    fn paths(view: &View, request: &PlacementRequest, node: NodeIx) -> Vec<Vec<String>> {
        let path = branch_path(&request.spec.placement.preferences, view.nodes.node(node));
        (1..=path.len()).map(|depth| path[..depth].to_vec()).collect()
    }

    fn keys(&self, view: &View, request: &PlacementRequest, node: NodeIx) -> Vec<(String, i64)> {
        let levels = &request.spec.placement.preferences;
        let paths = Self::paths(view, request, node);
        let key = |(level, path): (&longshore_model::Attribute, &Vec<String>)| {
            (level.to_string(), self.counts.get(path).copied().unwrap_or(0))
        };
        levels.iter().zip(&paths).map(key).collect()
    }
}

/// `binpack` candidates with every term, best score first.
fn by_score(view: &View, request: &PlacementRequest, fitting: &[NodeIx]) -> Vec<RankedNode> {
    let mut targets = Targets::new(request, view);
    let mut scored: Vec<(bool, Reverse<i128>, RankedNode)> = Vec::new();
    for node in fitting {
        let values = targets.values(request, view, *node);
        let mut terms = binpack_score::own_terms(request, view, *node);
        let boost = targets.boost(&values);
        if boost != 0 {
            terms.push((Term::SpreadTargets, boost));
        }
        let sum = terms.iter().map(|(_, value)| value).sum();
        let mut keys = vec![("score".to_owned(), binpack_score::mean(sum, terms.len()))];
        let score = binpack_score::exact_mean(sum, terms.len());
        keys.extend(terms.into_iter().map(|(term, value)| (term.as_str().to_owned(), value)));
        let name = view.nodes.node(*node).name.clone();
        scored.push((request.faulty.contains(node), Reverse(score), RankedNode { node: name, keys }));
    }
    scored.sort_by_key(|(faulty, score, _)| (*faulty, *score));
    scored.into_iter().map(|(_, _, ranked)| ranked).collect()
}
