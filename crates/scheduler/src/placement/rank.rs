//! Ranks of nodes for one service. The smaller rank wins; the name is the last key, so no two ranks are equal.
//!
//! Owns: the ranking keys of each strategy. Invariant: integers only.

use smallvec::SmallVec;

use crate::{request::PlacementRequest, view::NodeIx, view::node_table::NodeStats};

/// A node's rank within its leaf, most important key first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeRank {
    /// The strategy's ranking keys; unused ones are zero.
    keys: [i64; 4],
    /// Position of the node's name in name order.
    name: u32,
    pub(crate) node: NodeIx,
}

impl NodeRank {
    /// The rank of a node with `count` replicas of the service and affinity `affinity_weight`.
    pub(crate) fn new(
        request: &PlacementRequest,
        stats: &NodeStats,
        node: NodeIx,
        count: u32,
        affinity_weight: i64,
    ) -> Self {
        let replicas = i64::from(stats.load.replicas);
        let keys = if request.spec.placement.strategy.ranks_by_replica_count() {
            [replicas, 0, 0, 0]
        } else {
            let cpu = i64::try_from(stats.projected_cpu(request.reservation.cpu_millis)).unwrap_or(i64::MAX);
            [i64::from(count), -affinity_weight, cpu, replicas]
        };
        Self { keys, name: stats.rank, node }
    }
}

/// A node's rank in the whole tree: the service's replicas in each branch above it, outermost first, then the leaf
/// rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TreeRank {
    pub(crate) branches: SmallVec<[u32; 3]>,
    pub(crate) leaf: NodeRank,
}
