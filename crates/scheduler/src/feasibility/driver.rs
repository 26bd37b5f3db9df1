//! The node has the driver of the service: container, process or micro virtual machine.

use longshore_model::{Reason, Refusal};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::DriverMissing, nature: Nature::Attribute, scope, check, explain };

fn scope(_: &PlacementRequest) -> Scope {
    Scope::Class
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    candidate.node.drivers.contains(&request.spec.driver)
}

fn explain(request: &PlacementRequest, _: &CandidateNode<'_>) -> Refusal {
    Refusal::Driver { driver: request.spec.driver.as_str().to_owned() }
}
