//! A service with pinned hosts runs only on those, one replica each.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::CannotSatisfyHostPlacement, nature: Nature::Attribute, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.spec.placement.strategy.is_pinned() { Scope::Node } else { Scope::Idle }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    request.spec.placement.hosts.contains(&candidate.node.name)
}

fn explain(_: &PlacementRequest, _: &CandidateNode<'_>) -> Refusal {
    Refusal::NotPinned
}
