//! Why a placed replica is where it is: the candidates, who was refused and why, and how the best five compare.
//!
//! The decision is made again on the view as it is, as if the replica were not there; so the answer is exact for a fresh
//! decision and shows for an older one what speaks for and against its node today.
//!
//! Owns: the keys shown. They are those of the strategies' table, in its order.
//! Invariant: the view is the same after as before, and the first of the best is what a decision now would choose.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use longshore_model::{GroupKey, NodeName, Reason, SlotKey, Strategy, Time};

use super::verdict;
use crate::{
    ask::{Ask, Counts},
    feasibility::Filter,
    placement::affinity,
    ranking::{self, Term, targets::Targets},
    reconcile::buckets::{self, Bucket},
    view::{NodeIx, View, classes},
};

/// How many of the best candidates are shown.
const SHOWN: usize = 5;

/// What speaks for a replica's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Where it is.
    pub node: NodeName,
    /// What it is to whoever decides about its group.
    pub bucket: Bucket,
    /// The strategy that compared.
    pub strategy: Strategy,
    /// Nodes looked at.
    pub nodes: u32,
    /// Nodes no filter refused.
    pub candidates: u32,
    /// Nodes refused by each filter, every filter on its own over all nodes.
    pub refused: BTreeMap<Reason, u32>,
    /// The best candidates, best first.
    pub best: Vec<Ranked>,
}

/// A candidate and its ranking keys, most important first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The node.
    pub node: NodeName,
    /// Name and value of each key. Scores of `binpack` are in billionths, and the larger is better there; everywhere
    /// else the smaller is.
    pub keys: Vec<(String, i64)>,
}

/// Why a placed replica is where it is; nothing for one that has no node.
pub fn explain_placed(view: &mut View, group: &GroupKey, slot: &SlotKey, now: Time) -> Option<Decision> {
    view.advance(now);
    view.fleet.refresh();
    let ix = *view.group_ids.get(group)?;
    let known = view.group(ix);
    let replica = known.slots[known.slot_at(slot).ok()?].current()?.clone();
    let mut ask = Ask::new(view, ix, now, Counts::default());
    let held = &known.slots[known.slot_at(slot).ok()?];
    let bucket = buckets::of(view, &ask, (held, &replica), &BTreeSet::new(), now);
    ask.counts.remove_from(Some(replica.node));
    view.set_aside(ix, slot, &replica);
    let decision = decide(view, &ask, replica.node, bucket);
    view.restore(ix, slot, &replica);
    Some(decision)
}

fn decide(view: &View, ask: &Ask, chosen: NodeIx, bucket: Bucket) -> Decision {
    let filters: Vec<&'static Filter> = ask.filters().collect();
    let nodes: Vec<NodeIx> = view.fleet.in_order().collect();
    let mut refused = BTreeMap::new();
    let mut fitting = Vec::new();
    for node in &nodes {
        let refusals = verdict(view, ask, &filters, *node);
        for (_, filter) in filters.iter().enumerate().filter(|(at, _)| refusals & 1 << at != 0) {
            *refused.entry(filter.reason).or_default() += 1;
        }
        if refusals == 0 {
            fitting.push(*node);
        }
    }
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Decision {
        node: view.fleet.node(chosen).name.clone(),
        bucket,
        strategy: ask.spec.placement.strategy,
        nodes: number(nodes.len()),
        candidates: number(fitting.len()),
        refused,
        best: best(view, ask, &fitting),
    }
}

fn best(view: &View, ask: &Ask, fitting: &[NodeIx]) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> = match ask.spec.placement.strategy {
        Strategy::Binpack => by_score(view, ask, fitting),
        Strategy::Spread | Strategy::Pack | Strategy::Hosts | Strategy::Global | Strategy::Hash => {
            let branches = Branches::count(view, ask);
            fitting.iter().map(|node| ranked(view, ask, &branches, *node)).collect()
        }
    };
    if ask.spec.placement.strategy != Strategy::Binpack {
        // Nodes come in order of names and the sort is stable, so names decide last.
        ranked.sort_by(|a, b| a.keys.iter().map(|key| key.1).cmp(b.keys.iter().map(|key| key.1)));
    }
    ranked.truncate(SHOWN);
    ranked
}

fn ranked(view: &View, ask: &Ask, branches: &Branches, node: NodeIx) -> Ranked {
    let seat = view.fleet.seat(node);
    let faulty = ("faulty".to_owned(), i64::from(ask.faulty.contains(&node)));
    let replicas = ("replicas".to_owned(), i64::from(seat.load.replicas));
    let keys = match ask.spec.placement.strategy {
        Strategy::Pack => vec![faulty, replicas],
        Strategy::Hosts | Strategy::Global | Strategy::Hash | Strategy::Binpack => vec![faulty],
        Strategy::Spread => {
            let cpu = i64::try_from(seat.projected_cpu(ask.terms.cpu_millis)).unwrap_or(i64::MAX);
            let mut keys = vec![faulty];
            keys.extend(branches.keys(view, ask, node));
            keys.push(("here".to_owned(), i64::from(ask.counts.get(node))));
            keys.push(("disliked".to_owned(), -affinity::liking(ask, view, node)));
            keys.push(("cpu_millionths".to_owned(), cpu));
            keys.push(replicas);
            keys
        }
    };
    Ranked { node: view.fleet.node(node).name.clone(), keys }
}

/// The service's counts in every branch of the preference tree.
struct Branches {
    counts: BTreeMap<Vec<String>, i64>,
}

impl Branches {
    fn count(view: &View, ask: &Ask) -> Self {
        let mut counts = BTreeMap::new();
        for node in ask.counts.nodes() {
            for path in Self::paths(view, ask, node) {
                *counts.entry(path).or_default() += i64::from(ask.counts.get(node));
            }
        }
        Self { counts }
    }

    /// The branch of each level a node is in, outermost first.
    fn paths(view: &View, ask: &Ask, node: NodeIx) -> Vec<Vec<String>> {
        let known = view.fleet.node(node);
        let levels = &ask.spec.placement.preferences;
        let values: Vec<String> = levels.iter().map(|level| classes::value(known, level).unwrap_or_default()).collect();
        (1..=values.len()).map(|depth| values[..depth].to_vec()).collect()
    }

    fn keys(&self, view: &View, ask: &Ask, node: NodeIx) -> Vec<(String, i64)> {
        let levels = &ask.spec.placement.preferences;
        let paths = Self::paths(view, ask, node);
        let key = |(level, path): (&longshore_model::Attribute, &Vec<String>)| {
            (level.to_string(), self.counts.get(path).copied().unwrap_or(0))
        };
        levels.iter().zip(&paths).map(key).collect()
    }
}

/// Candidates of `binpack` with every term, the best score first.
fn by_score(view: &View, ask: &Ask, fitting: &[NodeIx]) -> Vec<Ranked> {
    let mut targets = Targets::new(ask, view);
    let mut scored: Vec<(bool, Reverse<i128>, Ranked)> = Vec::new();
    for node in fitting {
        let spot = targets.spot(ask, view, *node);
        let mut terms = ranking::own_terms(ask, view, *node);
        let boost = targets.boost(&spot);
        if boost != 0 {
            terms.push((Term::SpreadTargets, boost));
        }
        let sum = terms.iter().map(|(_, value)| value).sum();
        let mut keys = vec![("score".to_owned(), ranking::mean(sum, terms.len()))];
        let score = ranking::exact_mean(sum, terms.len());
        keys.extend(terms.into_iter().map(|(term, value)| (term.as_str().to_owned(), value)));
        let name = view.fleet.node(*node).name.clone();
        scored.push((ask.faulty.contains(node), Reverse(score), Ranked { node: name, keys }));
    }
    scored.sort_by_key(|(faulty, score, _)| (*faulty, *score));
    scored.into_iter().map(|(_, _, ranked)| ranked).collect()
}
