//! A node takes new work only if it is active, healthy, reachable and has capacity.

use longshore_model::{Health, Intent, Reason, Refusal, node::Overlay};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::{
    request::PlacementRequest,
    view::node_table::{has_capacity, takes_work},
};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::NoNodesActive, nature: Nature::Readiness, scope, check, explain };

/// The node index holds only ready nodes, but shortlists and explanations evaluate this filter too.
fn scope(_: &PlacementRequest) -> Scope {
    Scope::Node
}

fn check(_: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    takes_work(candidate.node)
}

fn explain(_: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let node = candidate.node;
    if !has_capacity(node) {
        Refusal::NoCapacity
    } else if node.overlay == Overlay::Unreachable && node.intent == Intent::Active && node.health == Health::Ready {
        Refusal::OverlayUnreachable
    } else {
        Refusal::NotReady { intent: node.intent, health: node.health }
    }
}
