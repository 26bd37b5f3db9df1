//! A limit on the service's replicas per value of an attribute, such as two per rack. A node without the attribute is
//! refused, because it is unknown which value it shares.
//!
//! A placement on one node uses up the value for others, so the result changes within a batch; see
//! [`PlacementRequest::is_volatile`].

use longshore_model::{Reason, Refusal, service::DistinctProperty};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::{request::PlacementRequest, view::classes::value};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::DistinctProperty, nature: Nature::Capacity, scope, check, explain };

fn scope(request: &PlacementRequest) -> Scope {
    if request.spec.placement.distinct_property.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    used_up(request, candidate).is_none()
}

/// The first property whose value on this node is used up or missing.
fn used_up<'a>(request: &'a PlacementRequest, candidate: &CandidateNode<'_>) -> Option<&'a DistinctProperty> {
    let mut properties = request.spec.placement.distinct_property.iter().enumerate();
    let used_up = properties.find(|(at, property)| {
        request.counts.sharing(*at, candidate.ix).is_none_or(|sharing| sharing >= property.limit)
    });
    used_up.map(|(_, property)| property)
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let property = used_up(request, candidate).expect("explain is only called after check failed");
    Refusal::DistinctProperty {
        attribute: property.attribute.to_string(),
        value: value(candidate.node, &property.attribute),
        limit: property.limit,
    }
}
