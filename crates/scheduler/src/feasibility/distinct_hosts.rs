//! No two replicas of the service on one node. Counts slots, not generations, like the limit per node.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::DistinctHosts, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.spec.placement.distinct_hosts { Scope::Node } else { Scope::Idle }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    request.counts.present(candidate.ix) == 0
}

fn explain(_: &PlacementRequest, _: &CandidateNode<'_>) -> Refusal {
    Refusal::DistinctHosts
}
