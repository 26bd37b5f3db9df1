//! Host-mode ports are free on the node; TCP and UDP ports do not conflict.

use longshore_model::{Reason, Refusal, replica::HostPort};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::HostPortInUse, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.reservation.host_ports.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    taken(request, candidate).is_none()
}

fn taken(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Option<HostPort> {
    request
        .reservation
        .host_ports
        .iter()
        .copied()
        .find(|port| candidate.view.nodes.ports.contains_key(&(candidate.ix, *port)))
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let port = taken(request, candidate).expect("explain is only called after check failed");
    Refusal::HostPort { port }
}
