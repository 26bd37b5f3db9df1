//! Scratch disk fits, on nodes that report any.

use longshore_model::{Reason, Refusal};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::NoCapacityDisk, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.terms.disk_bytes == 0 { Scope::Idle } else { Scope::Node }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    free(site) >= ask.terms.disk_bytes
}

fn free(site: &Site<'_>) -> u64 {
    let seat = site.view.fleet.seat(site.ix);
    match seat.limits.disk_bytes {
        u64::MAX => u64::MAX,
        limit => limit.saturating_sub(seat.load.disk_bytes),
    }
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    Refusal::Disk { needed: ask.terms.disk_bytes, free: free(site) }
}
