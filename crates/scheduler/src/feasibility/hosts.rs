//! A service pinned to hosts runs on those only, one replica on each.

use longshore_model::{Reason, Refusal, Strategy};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::CannotSatisfyHostPlacement, nature: Nature::Attribute, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    match ask.spec.placement.strategy {
        Strategy::Hosts => Scope::Node,
        Strategy::Spread | Strategy::Pack | Strategy::Global | Strategy::Binpack | Strategy::Hash => Scope::Idle,
    }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    ask.spec.placement.hosts.contains(&site.node.name)
}

fn explain(_: &Ask, _: &Site<'_>) -> Refusal {
    Refusal::NotPinned
}
