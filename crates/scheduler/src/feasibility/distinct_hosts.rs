//! No two replicas of the service on one node. Slots count, not generations, as with the limit per node.

use longshore_model::{Reason, Refusal, service::DistinctHosts};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::DistinctHosts, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    match ask.spec.placement.distinct_hosts {
        DistinctHosts::Yes => Scope::Node,
        DistinctHosts::No => Scope::Idle,
    }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    ask.counts.present(site.ix) == 0
}

fn explain(_: &Ask, _: &Site<'_>) -> Refusal {
    Refusal::DistinctHosts
}
