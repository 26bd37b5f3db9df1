//! Memory is never overcommitted: what is used plus the newcomer, overhead included, fits the node.

use longshore_model::{Reason, Refusal};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::NoCapacityMemory, nature: Nature::Capacity, scope, check, explain };

fn scope(_: &Ask) -> Scope {
    Scope::Node
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    site.view.fleet.seat(site.ix).room() >= ask.room
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let free = site.view.fleet.seat(site.ix).room().saturating_sub(1);
    Refusal::Memory { needed: ask.terms.memory_total(), free }
}
