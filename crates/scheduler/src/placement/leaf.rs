//! The nodes of one spread branch, best first.
//!
//! Two sources feed it: sorted lanes of the node index, for nodes without a replica of the service, and a heap of nodes
//! ranked one by one (those with a replica of the service, or a shortlist).
//!
//! ```text
//! lanes ──▶ heads (one a lane) ─┐
//!                               ├─▶ best
//! nodes that have some ──▶ heap ┘
//! ```
//!
//! Owns: the order within a branch. Invariant: the node that [`Leaf::best`] returns fits now.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Batch, affinity, rank::NodeRank};
use crate::{
    node_index::{Cursor, Partition},
    view::{NodeIx, View},
};

/// Which sorted lanes of the node index a strategy walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    ByCpu,
    ByCount,
}

impl Order {
    pub(super) fn partitions(self, view: &View) -> &[Partition] {
        match self {
            Self::ByCpu => view.nodes.cpu_partitions(),
            Self::ByCount => view.nodes.count_partitions(),
        }
    }
}

/// The candidate nodes of one branch.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    walks: Vec<Walk>,
    heads: BinaryHeap<Reverse<(NodeRank, usize)>>,
    heap: BinaryHeap<Reverse<NodeRank>>,
}

/// A position in one lane.
#[derive(Debug)]
struct Walk {
    order: Order,
    partition: usize,
    cursor: Cursor,
    affinity_weight: i64,
}

impl Leaf {
    /// Adds the nodes of a lane that have no replica of the service and were not added one by one.
    pub(super) fn add_partition(&mut self, batch: &Batch<'_>, order: Order, partition: usize) {
        let class = order.partitions(batch.view)[partition].class;
        let affinity_weight = affinity::class_weight(batch.request, batch.view.nodes.classes.example(class));
        self.walks.push(Walk { order, partition, cursor: Cursor::default(), affinity_weight });
        self.step(batch, self.walks.len() - 1);
    }

    /// Adds one node, if it fits.
    pub(super) fn add_node(&mut self, batch: &Batch<'_>, node: NodeIx) {
        if batch.request.fits(batch.view, node) {
            let affinity_weight = affinity::weight(batch.request, batch.view, node);
            self.push(batch, node, affinity_weight);
        }
    }

    /// The best remaining node.
    pub(super) fn best(&self) -> Option<NodeRank> {
        let fresh = self.heads.peek().map(|Reverse((rank, _))| *rank);
        let known = self.heap.peek().map(|Reverse(rank)| *rank);
        fresh.into_iter().chain(known).min()
    }

    /// Places the next slot on the best node and re-inserts the node with its new rank if it can take another. Returns
    /// whether a slot was placed: if a placement elsewhere made the best node unfit, the node is dropped instead, and
    /// the branch has another best node.
    pub(super) fn place_next(&mut self, batch: &mut Batch<'_>) -> bool {
        let Some(best) = self.best() else { return false };
        let outdated = batch.request.needs_recheck() && !batch.request.fits(batch.view, best.node);
        if !outdated {
            batch.place_on(best.node);
        }
        let affinity_weight = if self.heads.peek().is_some_and(|Reverse((rank, _))| *rank == best) {
            let walk = self.heads.pop().map_or(0, |Reverse((_, walk))| walk);
            self.step(batch, walk);
            self.walks[walk].affinity_weight
        } else {
            self.heap.pop();
            affinity::weight(batch.request, batch.view, best.node)
        };
        if outdated {
            return false;
        }
        if batch.request.fits(batch.view, best.node) {
            self.push(batch, best.node, affinity_weight);
        }
        true
    }

    fn push(&mut self, batch: &Batch<'_>, node: NodeIx, affinity_weight: i64) {
        let stats = batch.view.nodes.stats(node);
        let rank = NodeRank::new(batch.request, stats, node, batch.request.counts.get(node), affinity_weight);
        self.heap.push(Reverse(rank));
    }

    /// Advances a walk to its next fitting node. Lanes do not change during a batch, so a walk never goes back.
    fn step(&mut self, batch: &Batch<'_>, at: usize) {
        let walk = &mut self.walks[at];
        let partition = &walk.order.partitions(batch.view)[walk.partition].nodes;
        while let Some(entry) = walk.cursor.next(partition, batch.request.headroom_needed) {
            let known = batch.request.counts.get(entry.node) > 0 || batch.request.faulty.contains(&entry.node);
            if !known && batch.request.fits(batch.view, entry.node) {
                let stats = batch.view.nodes.stats(entry.node);
                let rank = NodeRank::new(batch.request, stats, entry.node, 0, walk.affinity_weight);
                self.heads.push(Reverse((rank, at)));
                return;
            }
        }
    }
}
