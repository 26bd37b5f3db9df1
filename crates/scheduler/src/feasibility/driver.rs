//! A node must be able to start the kind of work: container, process or micro virtual machine.

use longshore_model::{Reason, Refusal};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::DriverMissing, nature: Nature::Attribute, scope, check, explain };

fn scope(_: &Ask) -> Scope {
    Scope::Class
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    site.node.drivers.contains(&ask.spec.driver)
}

fn explain(ask: &Ask, _: &Site<'_>) -> Refusal {
    Refusal::Driver { driver: ask.spec.driver.as_str().to_owned() }
}
