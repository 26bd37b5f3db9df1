//! Hard `near` and `away_from` rules between services.
//!
//! The rule is one-sided: only the service that declares `away_from` is kept apart; the other one may later be placed
//! beside it. Only new placements are checked: a replica whose companion moved away stays where it is.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::AffinityUnsatisfied, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.companions.has_hard_rule() { Scope::Node } else { Scope::Idle }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    request.companions.violated_at(candidate.ix, &request.counts).is_none()
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let missed = request
        .companions
        .violated_at(candidate.ix, &request.counts)
        .expect("explain is only called after check failed");
    Refusal::Companion { service: missed.service.to_string(), side: missed.side }
}
