//! A replica needs an address of its node, and a node has only so many that are neither taken nor resting.

use longshore_model::{Reason, Refusal};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::IpamExhausted, nature: Nature::Capacity, scope, check, explain };

fn scope(_: &Ask) -> Scope {
    Scope::Node
}

fn check(_: &Ask, site: &Site<'_>) -> bool {
    site.view.fleet.addresses[site.ix.at()].has_room()
}

fn explain(_: &Ask, site: &Site<'_>) -> Refusal {
    Refusal::Addresses { limit: site.view.fleet.addresses[site.ix.at()].limit().unwrap_or(0) }
}
