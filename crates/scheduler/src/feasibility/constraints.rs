//! What a service demands of a node's attributes. All constraints must hold.

use std::net::IpAddr;

use longshore_model::{Attribute, Constraint, Node, Operator, Reason, Refusal};

use super::{Filter, Nature, Scope, Site};
use crate::{ask::Ask, view::classes::value};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::ConstraintUnsatisfied, nature: Nature::Attribute, scope, check, explain };

/// A constraint on a name or address must be put to each node; the others to a class.
fn scope(ask: &Ask) -> Scope {
    let constraints = &ask.spec.placement.constraints;
    if constraints.is_empty() {
        Scope::Idle
    } else if constraints.iter().any(|constraint| constraint.attribute.is_unique()) {
        Scope::Node
    } else {
        Scope::Class
    }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    ask.spec.placement.constraints.iter().all(|constraint| holds(constraint, site.node))
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let broken = ask.spec.placement.constraints.iter().find(|constraint| !holds(constraint, site.node));
    let broken = broken.expect("only asked where a constraint does not hold");
    Refusal::Constraint { constraint: broken.to_string(), found: value(site.node, &broken.attribute) }
}

/// Whether a node satisfies a constraint.
pub(crate) fn holds(constraint: &Constraint, node: &Node) -> bool {
    if constraint.attribute == Attribute::Ip {
        return ip_holds(constraint, node.ip);
    }
    let found = value(node, &constraint.attribute);
    let found = found.as_deref();
    let wanted = constraint.value.as_str();
    match constraint.operator {
        Operator::Equal => found.is_some_and(|found| same(found, wanted)),
        Operator::NotEqual => !found.is_some_and(|found| same(found, wanted)),
        Operator::IsSet => found.is_some(),
        Operator::IsNotSet => found.is_none(),
        Operator::In => found.is_some_and(|found| wanted.split(',').any(|one| same(found, one.trim()))),
        Operator::Less
        | Operator::LessOrEqual
        | Operator::Greater
        | Operator::GreaterOrEqual
        | Operator::Regexp
        | Operator::Version
        | Operator::Semver
        | Operator::SetContains
        | Operator::SetContainsAny => false,
    }
}

/// Values are compared in full and without regard to case.
fn same(found: &str, wanted: &str) -> bool {
    found.len() == wanted.len() && found.to_lowercase() == wanted.to_lowercase()
}

/// An address equals another spelling of itself, and lies in a range. A node without address satisfies only `!=`.
fn ip_holds(constraint: &Constraint, ip: Option<IpAddr>) -> bool {
    let inside = || ip.and_then(|ip| in_range(ip, &constraint.value));
    match constraint.operator {
        Operator::Equal => inside() == Some(true),
        Operator::NotEqual => ip.is_none() || inside() == Some(false),
        Operator::IsSet => ip.is_some(),
        Operator::IsNotSet => ip.is_none(),
        Operator::Less
        | Operator::LessOrEqual
        | Operator::Greater
        | Operator::GreaterOrEqual
        | Operator::Regexp
        | Operator::Version
        | Operator::Semver
        | Operator::SetContains
        | Operator::SetContainsAny
        | Operator::In => false,
    }
}

/// Whether `ip` is the address, or in the range, that `text` writes; `None` where it writes neither.
fn in_range(ip: IpAddr, text: &str) -> Option<bool> {
    let (network, length) = match text.split_once('/') {
        Some((network, length)) => (network.parse::<IpAddr>().ok()?, Some(length.parse::<u32>().ok()?)),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let (ip_bits, network_bits, width) = match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => (u128::from(ip.to_bits()), u128::from(network.to_bits()), 32),
        (IpAddr::V6(ip), IpAddr::V6(network)) => (ip.to_bits(), network.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return Some(false),
    };
    let length = length.unwrap_or(width);
    if length > width {
        return None;
    }
    let shift = width - length;
    Some(ip_bits.checked_shr(shift) == network_bits.checked_shr(shift) || shift == width)
}
