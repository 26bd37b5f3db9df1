//! `binpack`: chooses the node with the highest mean of terms, ties broken by name. All nodes are considered.
//!
//! Only spread targets make one placement change the score of other nodes, and equally for all nodes with the same
//! target values. So nodes are kept in bins by those values, and within a bin in heaps by the number of their own
//! terms; a placement looks at the head of each heap instead of at each node.
//!
//! ```text
//! bin (rack 7, boost +0.4):  1 term [n3 n9 …]   2 terms [n1 …]
//! bin (rack 8, boost −0.2):  1 term [n2 …]
//! ```
//!
//! Owns: the search. Invariant: the choice equals that of a scan over all fitting nodes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use smallvec::SmallVec;

use super::Batch;
use crate::{
    binpack_score::{
        self,
        targets::{TargetValues, Targets},
    },
    view::NodeIx,
};

/// A node by the sum of its own terms, then by name rank: the highest sum, then the first name, is on top.
type HeapEntry = (i64, Reverse<u32>, NodeIx);

/// Nodes with the same values for all spread targets.
#[derive(Debug)]
struct Bin {
    values: TargetValues,
    /// Indexed by the number of own terms, minus one.
    by_terms: SmallVec<[BinaryHeap<HeapEntry>; 4]>,
}

/// All bins of a batch.
struct Bins {
    targets: Targets,
    all: Vec<Bin>,
    by_values: BTreeMap<TargetValues, usize>,
}

/// The head of a heap with its score. Compares by score, then by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Choice {
    score: i128,
    name: Reverse<u32>,
    node: NodeIx,
    bin: usize,
    heap: usize,
}

/// Places a batch: first on nodes that are not faulty for the service, then on faulty ones.
pub(super) fn fill(batch: &mut Batch<'_>) {
    let (faulty, healthy): (Vec<_>, Vec<_>) =
        batch.view.nodes.by_name_order().partition(|node| batch.request.faulty.contains(node));
    // With a skew limit every placement may allow nodes that were refused before, so candidates are collected each
    // time.
    let at_once = if batch.request.spec.placement.max_skew.is_some() { 1 } else { usize::MAX };
    let mut left = usize::MAX;
    while !batch.is_filled() && batch.pending_slots.len() < left {
        left = batch.pending_slots.len();
        fill_some(batch, &healthy, at_once);
        if batch.pending_slots.len() == left || at_once == usize::MAX {
            fill_some(batch, &faulty, at_once);
        }
    }
}

/// Places at most `most` slots, each on the best of the given nodes.
fn fill_some(batch: &mut Batch<'_>, nodes: &[NodeIx], most: usize) {
    if nodes.is_empty() {
        return;
    }
    let enough = batch.pending_slots.len().saturating_sub(most);
    let mut bins = Bins::new(batch, nodes);
    while batch.pending_slots.len() > enough
        && let Some(choice) = bins.best()
    {
        bins.take(batch, choice);
    }
}

impl Bins {
    fn new(batch: &Batch<'_>, nodes: &[NodeIx]) -> Self {
        let targets = Targets::new(batch.request, batch.view);
        let mut bins = Self { targets, all: Vec::new(), by_values: BTreeMap::new() };
        for node in nodes.iter().filter(|node| batch.request.accepts(batch.view, **node)) {
            let values = bins.targets.values(batch.request, batch.view, *node);
            let at = bins.bin_for(values);
            bins.push(batch, at, *node);
        }
        bins
    }

    fn bin_for(&mut self, values: TargetValues) -> usize {
        if let Some(at) = self.by_values.get(&values) {
            return *at;
        }
        self.all.push(Bin { values: values.clone(), by_terms: SmallVec::new() });
        self.by_values.insert(values, self.all.len() - 1);
        self.all.len() - 1
    }

    fn push(&mut self, batch: &Batch<'_>, bin: usize, node: NodeIx) {
        let terms = binpack_score::own_terms(batch.request, batch.view, node);
        let sum = terms.iter().map(|(_, value)| value).sum();
        let heaps = &mut self.all[bin].by_terms;
        while heaps.len() < terms.len() {
            heaps.push(BinaryHeap::new());
        }
        heaps[terms.len() - 1].push((sum, Reverse(batch.view.nodes.stats(node).rank), node));
    }

    /// The heap head with the best score.
    fn best(&self) -> Option<Choice> {
        let mut best: Option<Choice> = None;
        for (at, bin) in self.all.iter().enumerate() {
            let boost = if self.targets.is_empty() { 0 } else { self.targets.boost(&bin.values) };
            for (heap_at, heap) in bin.by_terms.iter().enumerate() {
                let Some(&(sum, name, node)) = heap.peek() else { continue };
                let terms = heap_at + 1 + usize::from(boost != 0);
                let score = binpack_score::exact_mean(sum + boost, terms);
                best = best.max(Some(Choice { score, name, node, bin: at, heap: heap_at }));
            }
        }
        best
    }

    fn take(&mut self, batch: &mut Batch<'_>, Choice { node, bin, heap, .. }: Choice) {
        self.all[bin].by_terms[heap].pop();
        if !batch.request.accepts(batch.view, node) {
            return;
        }
        batch.place_on(node);
        self.targets.add(&self.all[bin].values, 1);
        if batch.request.accepts(batch.view, node) {
            self.push(batch, bin, node);
        }
    }
}
