//! At most so many slots of a service on one node. Slots count, not generations: a replacement beside its
//! predecessor is no second replica, so a start-first update needs no spare node.

use longshore_model::{Reason, Refusal, Strategy};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::MaxReplicasPerNode, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if limit(ask).is_some() { Scope::Node } else { Scope::Idle }
}

/// Pinned hosts take one replica each.
fn limit(ask: &Ask) -> Option<u32> {
    let asked = ask.spec.placement.max_replicas_per_node.filter(|limit| *limit > 0);
    match ask.spec.placement.strategy {
        Strategy::Hosts => Some(1),
        Strategy::Spread | Strategy::Pack | Strategy::Global | Strategy::Binpack | Strategy::Hash => asked,
    }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    limit(ask).is_none_or(|limit| ask.counts.present(site.ix) < limit)
}

fn explain(ask: &Ask, _: &Site<'_>) -> Refusal {
    Refusal::MaxReplicas { limit: limit(ask).unwrap_or_default() }
}
