//! Memory is never overcommitted: the memory in use plus the new replica's, overhead included, fits the node.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::NoCapacityMemory, nature: Nature::Capacity, scope, check, explain };

fn scope(_: &PlacementRequest) -> Scope {
    Scope::Node
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    candidate.view.nodes.stats(candidate.ix).headroom() >= request.headroom_needed
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let free = candidate.view.nodes.stats(candidate.ix).headroom().saturating_sub(1);
    Refusal::Memory { needed: request.reservation.memory_total(), free }
}
