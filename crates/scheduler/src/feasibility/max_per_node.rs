//! The limit on a service's slots per node. Slots count, not generations: a replacement beside its predecessor is not a
//! second replica, so a start-first update needs no spare node.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::MaxReplicasPerNode, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if limit(request).is_some() { Scope::Node } else { Scope::Idle }
}

/// Pinned hosts take one replica each.
fn limit(request: &PlacementRequest) -> Option<u32> {
    let asked = request.spec.placement.max_replicas_per_node.filter(|limit| *limit > 0);
    if request.spec.placement.strategy.is_pinned() { Some(1) } else { asked }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    limit(request).is_none_or(|limit| request.counts.present(candidate.ix) < limit)
}

fn explain(request: &PlacementRequest, _: &CandidateNode<'_>) -> Refusal {
    Refusal::MaxReplicas { limit: limit(request).unwrap_or_default() }
}
