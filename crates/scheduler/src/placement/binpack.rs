//! `binpack`: the node with the highest mean of terms, the name deciding last. All nodes are considered.
//!
//! Only spread targets make one placement change the score of other nodes, and they do so for all nodes with the same
//! values alike. So nodes are kept in bins by those values, and within a bin in heaps by the number of their own terms;
//! a placement looks at the head of each heap instead of at each node.
//!
//! ```text
//! bin (rack 7, boost +0.4):  1 term [n3 n9 …]   2 terms [n1 …]
//! bin (rack 8, boost −0.2):  1 term [n2 …]
//! ```
//!
//! Owns: the search. Invariant: the choice is that of a scan of all fitting nodes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use smallvec::SmallVec;

use super::Batch;
use crate::{
    ranking::{
        self,
        targets::{Spot, Targets},
    },
    view::NodeIx,
};

/// A node by its own terms: the highest sum, then the first name, is on top.
type Candidate = (i64, Reverse<u32>, NodeIx);

/// Nodes with the same values for all spread targets.
#[derive(Debug)]
struct Bin {
    spot: Spot,
    /// By the number of own terms, one less.
    by_terms: SmallVec<[BinaryHeap<Candidate>; 4]>,
}

/// All bins of a batch.
struct Bins {
    targets: Targets,
    all: Vec<Bin>,
    by_spot: BTreeMap<Spot, usize>,
}

/// A choice: score, name, and where it was found.
type Choice = (i128, Reverse<u32>, NodeIx, usize, usize);

/// Fills a batch: first from the nodes not faulty for the service, then from the faulty ones.
pub(super) fn fill(batch: &mut Batch<'_>) {
    let (faulty, healthy): (Vec<_>, Vec<_>) =
        batch.view.fleet.in_order().partition(|node| batch.ask.faulty.contains(node));
    // What a skew forbids now it may allow after the next placement, so that candidates are looked for anew each time.
    let at_once = if batch.ask.spec.placement.max_skew.is_some() { 1 } else { usize::MAX };
    let mut left = usize::MAX;
    while !batch.is_filled() && batch.vacancies.len() < left {
        left = batch.vacancies.len();
        fill_some(batch, &healthy, at_once);
        if batch.vacancies.len() == left || at_once == usize::MAX {
            fill_some(batch, &faulty, at_once);
        }
    }
}

/// Places at most so many, each on the best of some nodes.
fn fill_some(batch: &mut Batch<'_>, nodes: &[NodeIx], most: usize) {
    if nodes.is_empty() {
        return;
    }
    let enough = batch.vacancies.len().saturating_sub(most);
    let mut bins = Bins::new(batch, nodes);
    while batch.vacancies.len() > enough
        && let Some(choice) = bins.best()
    {
        bins.take(batch, choice);
    }
}

impl Bins {
    fn new(batch: &Batch<'_>, nodes: &[NodeIx]) -> Self {
        let targets = Targets::new(batch.ask, batch.view);
        let mut bins = Self { targets, all: Vec::new(), by_spot: BTreeMap::new() };
        for node in nodes.iter().filter(|node| batch.ask.accepts(batch.view, **node)) {
            let spot = bins.targets.spot(batch.ask, batch.view, *node);
            let at = bins.bin_for(spot);
            bins.push(batch, at, *node);
        }
        bins
    }

    fn bin_for(&mut self, spot: Spot) -> usize {
        if let Some(at) = self.by_spot.get(&spot) {
            return *at;
        }
        self.all.push(Bin { spot: spot.clone(), by_terms: SmallVec::new() });
        self.by_spot.insert(spot, self.all.len() - 1);
        self.all.len() - 1
    }

    fn push(&mut self, batch: &Batch<'_>, bin: usize, node: NodeIx) {
        let terms = ranking::own_terms(batch.ask, batch.view, node);
        let sum = terms.iter().map(|(_, value)| value).sum();
        let heaps = &mut self.all[bin].by_terms;
        while heaps.len() < terms.len() {
            heaps.push(BinaryHeap::new());
        }
        heaps[terms.len() - 1].push((sum, Reverse(batch.view.fleet.seat(node).rank), node));
    }

    /// The head of all heaps with the best score.
    fn best(&self) -> Option<Choice> {
        let mut best: Option<Choice> = None;
        for (at, bin) in self.all.iter().enumerate() {
            let boost = if self.targets.is_empty() { 0 } else { self.targets.boost(&bin.spot) };
            for (heap_at, heap) in bin.by_terms.iter().enumerate() {
                let Some((sum, name, node)) = heap.peek() else { continue };
                let terms = heap_at + 1 + usize::from(boost != 0);
                let choice = (ranking::exact_mean(sum + boost, terms), *name, *node, at, heap_at);
                if best.is_none_or(|best| (choice.0, choice.1) > (best.0, best.1)) {
                    best = Some(choice);
                }
            }
        }
        best
    }

    fn take(&mut self, batch: &mut Batch<'_>, (_, _, node, bin, heap): Choice) {
        self.all[bin].by_terms[heap].pop();
        if !batch.ask.accepts(batch.view, node) {
            return;
        }
        batch.place_on(node);
        self.targets.add(&self.all[bin].spot, 1);
        if batch.ask.accepts(batch.view, node) {
            self.push(batch, bin, node);
        }
    }
}
