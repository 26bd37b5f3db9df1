//! A port published on the host is free on the node; TCP and UDP do not collide.

use longshore_model::{Reason, Refusal, replica::HostPort};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::HostPortInUse, nature: Nature::Capacity, scope, check, explain };

fn scope(ask: &Ask) -> Scope {
    if ask.terms.host_ports.is_empty() { Scope::Idle } else { Scope::Node }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    taken(ask, site).is_none()
}

fn taken(ask: &Ask, site: &Site<'_>) -> Option<HostPort> {
    ask.terms.host_ports.iter().copied().find(|port| site.view.fleet.ports.contains_key(&(site.ix, *port)))
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let port = taken(ask, site).expect("only asked where a port is taken");
    Refusal::HostPort { port }
}
