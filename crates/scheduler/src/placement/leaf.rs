//! The nodes of one branch, best first.
//!
//! Two sources feed it: lanes, whose nodes have none of the service yet and come in order by themselves, and a heap of
//! nodes that were looked at one by one (those that have some of the service, or a shortlist).
//!
//! ```text
//! lanes ──▶ heads (one a lane) ─┐
//!                               ├─▶ best
//! nodes that have some ──▶ heap ┘
//! ```
//!
//! Owns: the order within a branch. Invariant: what [`Leaf::best`] shows fits now.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Batch, affinity, rank::NodeRank};
use crate::{
    lanes::Cursor,
    view::{NodeIx, View, ladder::ClassLane},
};

/// Which sorted sequences a strategy walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    ByCpu,
    ByCount,
}

impl Order {
    pub(super) fn lanes(self, view: &View) -> &[ClassLane] {
        match self {
            Self::ByCpu => view.fleet.cpu_lanes(),
            Self::ByCount => view.fleet.count_lanes(),
        }
    }
}

/// Whether a slot got a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    One,
    Nobody,
}

/// Nodes of one branch.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    walks: Vec<Walk>,
    heads: BinaryHeap<Reverse<(NodeRank, usize)>>,
    heap: BinaryHeap<Reverse<NodeRank>>,
}

/// A walk along one lane.
#[derive(Debug)]
struct Walk {
    order: Order,
    lane: usize,
    cursor: Cursor,
    liking: i64,
}

impl Leaf {
    /// Adds the nodes of a lane that have none of the service and were not added one by one.
    pub(super) fn add_lane(&mut self, batch: &Batch<'_>, order: Order, lane: usize) {
        let class = order.lanes(batch.view)[lane].class;
        let liking = affinity::class_liking(batch.ask, batch.view.fleet.classes.example(class));
        self.walks.push(Walk { order, lane, cursor: Cursor::default(), liking });
        self.step(batch, self.walks.len() - 1);
    }

    /// Adds one node, if it fits.
    pub(super) fn add_node(&mut self, batch: &Batch<'_>, node: NodeIx) {
        if batch.ask.fits(batch.view, node) {
            let liking = affinity::liking(batch.ask, batch.view, node);
            self.push(batch, node, liking);
        }
    }

    /// The best node left.
    pub(super) fn best(&self) -> Option<NodeRank> {
        let fresh = self.heads.peek().map(|Reverse((rank, _))| *rank);
        let known = self.heap.peek().map(|Reverse(rank)| *rank);
        fresh.into_iter().chain(known).min()
    }

    /// Gives the best node to the next slot; the node comes back with its new rank if it can take another. Where a
    /// placement elsewhere can have spoilt the best, it is asked again first and dropped if so: then nobody is placed,
    /// and the branch has another best.
    pub(super) fn take(&mut self, batch: &mut Batch<'_>) -> Taken {
        let Some(best) = self.best() else { return Taken::Nobody };
        let spoilt = batch.ask.is_volatile() && !batch.ask.fits(batch.view, best.node);
        if !spoilt {
            batch.place_on(best.node);
        }
        let liking = if self.heads.peek().is_some_and(|Reverse((rank, _))| *rank == best) {
            let walk = self.heads.pop().map_or(0, |Reverse((_, walk))| walk);
            self.step(batch, walk);
            self.walks[walk].liking
        } else {
            self.heap.pop();
            affinity::liking(batch.ask, batch.view, best.node)
        };
        if spoilt {
            return Taken::Nobody;
        }
        if batch.ask.fits(batch.view, best.node) {
            self.push(batch, best.node, liking);
        }
        Taken::One
    }

    fn push(&mut self, batch: &Batch<'_>, node: NodeIx, liking: i64) {
        let seat = batch.view.fleet.seat(node);
        let rank = NodeRank::new(batch.ask, seat, node, batch.ask.counts.get(node), liking);
        self.heap.push(Reverse(rank));
    }

    /// Moves a walk on to its next fitting node. The lanes do not move during a batch, so a walk never goes back.
    fn step(&mut self, batch: &Batch<'_>, at: usize) {
        let walk = &mut self.walks[at];
        let lane = &walk.order.lanes(batch.view)[walk.lane].lane;
        while let Some(entry) = walk.cursor.next(lane, batch.ask.room) {
            let known = batch.ask.counts.get(entry.node) > 0 || batch.ask.faulty.contains(&entry.node);
            if !known && batch.ask.fits(batch.view, entry.node) {
                let seat = batch.view.fleet.seat(entry.node);
                let rank = NodeRank::new(batch.ask, seat, entry.node, 0, walk.liking);
                self.heads.push(Reverse((rank, at)));
                return;
            }
        }
    }
}
