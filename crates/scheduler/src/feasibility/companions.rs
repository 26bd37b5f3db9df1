//! Near the services it must be with, and away from those it must not meet.
//!
//! Only the service that says so keeps away: the other one, placed later, may come close. And only newcomers are asked:
//! a replica whose companion moved on stays where it is.

use longshore_model::{Reason, Refusal};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::AffinityUnsatisfied, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.company.is_picky() { Scope::Node } else { Scope::Idle }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    ask.company.missed_at(site.ix, &ask.counts).is_none()
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let missed = ask.company.missed_at(site.ix, &ask.counts).expect("only asked where a companion is missed");
    Refusal::Companion { service: missed.service.to_string(), side: missed.side }
}
