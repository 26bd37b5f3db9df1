//! How two nodes compare for one service. The smaller rank wins; the name decides last, so no two are equal.
//!
//! Owns: the order of the strategies' table. Invariant: integers only.

use longshore_model::Strategy;
use smallvec::SmallVec;

use crate::{ask::Ask, view::NodeIx, view::fleet::Seat};

/// A node's rank within its leaf, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeRank {
    /// What the strategy compares, unused places zero.
    terms: [i64; 4],
    /// Position of the name among all names.
    name: u32,
    pub(crate) node: NodeIx,
}

impl NodeRank {
    /// Rank of a node that has `count` of the service, `liking` its affinity.
    pub(crate) fn new(ask: &Ask, seat: &Seat, node: NodeIx, count: u32, liking: i64) -> Self {
        let replicas = i64::from(seat.load.replicas);
        let terms = match ask.spec.placement.strategy {
            Strategy::Pack => [replicas, 0, 0, 0],
            Strategy::Spread | Strategy::Hosts | Strategy::Global | Strategy::Hash | Strategy::Binpack => {
                let cpu = i64::try_from(seat.projected_cpu(ask.terms.cpu_millis)).unwrap_or(i64::MAX);
                [i64::from(count), -liking, cpu, replicas]
            }
        };
        Self { terms, name: seat.rank, node }
    }
}

/// A node's rank in the whole tree: the service's count in each branch above it, outermost first, then the leaf.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TreeRank {
    pub(crate) branches: SmallVec<[u32; 3]>,
    pub(crate) leaf: NodeRank,
}
