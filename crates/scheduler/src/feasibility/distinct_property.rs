//! At most so many replicas of the service per value of a property, such as two per rack. A node without the property
//! is refused: nobody can say what it shares.
//!
//! A placement on one node uses up the value for others, so the answer changes within a batch; see
//! [`Ask::is_volatile`].

use longshore_model::{Reason, Refusal, service::DistinctProperty};

use super::{Filter, Nature, Scope, Site};
use crate::{ask::Ask, view::classes::value};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::DistinctProperty, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.spec.placement.distinct_property.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    used_up(ask, site).is_none()
}

/// The first property whose value on this node is used up or missing.
fn used_up<'a>(ask: &'a Ask, site: &Site<'_>) -> Option<&'a DistinctProperty> {
    let mut properties = ask.spec.placement.distinct_property.iter().enumerate();
    let used_up = properties
        .find(|(at, property)| ask.counts.sharing(*at, site.ix).is_none_or(|sharing| sharing >= property.limit));
    used_up.map(|(_, property)| property)
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let property = used_up(ask, site).expect("only asked where a property is used up");
    Refusal::DistinctProperty {
        attribute: property.attribute.to_string(),
        value: value(site.node, &property.attribute),
        limit: property.limit,
    }
}
