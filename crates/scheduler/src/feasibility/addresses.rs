//! The node needs a free IP address for the replica: one that is neither assigned nor in its release cooldown.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::IpamExhausted, nature: Nature::Capacity, scope, check, explain };

fn scope(_: &PlacementRequest) -> Scope {
    Scope::Node
}

fn check(_: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    candidate.view.nodes.addresses[candidate.ix.at()].has_room()
}

fn explain(_: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    Refusal::Addresses { limit: candidate.view.nodes.addresses[candidate.ix.at()].limit().unwrap_or(0) }
}
