//! Devices and generic resources are there in the number asked for.

use longshore_model::{Reason, Refusal};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::NoCapacityDevice, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.terms.devices.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    short(ask, site).is_none()
}

/// The first kind there are too few of, with how many are wanted and free.
fn short(ask: &Ask, site: &Site<'_>) -> Option<(String, u64, u64)> {
    ask.terms.devices.iter().find_map(|(kind, needed)| {
        let there = site.node.capacity.devices.get(kind).copied().unwrap_or(0);
        let kept = site.node.reserved.devices.get(kind).copied().unwrap_or(0);
        let used = site.view.fleet.devices.get(&(site.ix, kind.clone())).copied().unwrap_or(0);
        let free = there.saturating_sub(kept).saturating_sub(used);
        (free < *needed).then(|| (kind.clone(), *needed, free))
    })
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let (kind, needed, free) = short(ask, site).expect("only asked where devices are short");
    Refusal::Device { kind, needed, free }
}
