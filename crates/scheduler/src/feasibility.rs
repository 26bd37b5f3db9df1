//! Who may run it: the filters, each in a file of its own, in the order in which the primary reason is looked for.
//!
//! Owns: the list. To add a filter, copy one of the files, give it a reason of its own, and add it to [`FILTERS`] at its
//! reason's place; the compiler names the few places that have to know a new reason.
//! Must not touch: ranking. A filter says no or nothing.
//! Invariant: a filter whose scope is [`Scope::Class`] looks only at what makes a class.

mod addresses;
mod companions;
pub(crate) mod constraints;
pub(crate) mod devices;
mod disk;
mod distinct_hosts;
mod distinct_property;
mod driver;
pub(crate) mod gates;
mod host_ports;
mod hosts;
mod max_per_node;
mod memory;
mod platform;
mod plugins;
mod pool;
mod ready;
pub(crate) mod skew;
mod volume_home;
mod volume_in_use;
mod volume_locality;

use longshore_model::{Node, Reason, Refusal};

use crate::{
    ask::Ask,
    view::{NodeIx, View, classes::ClassIx},
};

/// One hard rule.
pub(crate) struct Filter {
    /// The code operators see.
    pub(crate) reason: Reason,
    /// What kind of refusal it is.
    pub(crate) nature: Nature,
    /// Whether it applies to an ask, and to what it must be put.
    pub(crate) scope: fn(&Ask) -> Scope,
    /// Whether the node may take one more.
    pub(crate) check: fn(&Ask, &Site<'_>) -> bool,
    /// Why not, with numbers. Only called where `check` said no.
    pub(crate) explain: fn(&Ask, &Site<'_>) -> Refusal,
}

/// What a refusal means for a replica that is already there, and for a global service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// The node takes no new work from anybody.
    Readiness,
    /// The node is the wrong kind: what is there must leave, and a global service does not want it.
    Attribute,
    /// The node is full or taken: what is there may stay, and a global service waits.
    Capacity,
}

/// To what a filter is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// It does not apply.
    Idle,
    /// To one node of a class, for all of them: pool, platform, drivers, plugins, role, and the labels that the service
    /// itself names. Whatever else it looks at its nodes need not share.
    Class,
    /// To each node.
    Node,
    /// To each node, but only to explain: the tree itself keeps the rule while it fills, because what it forbids now
    /// it may allow after the next placement.
    Tree,
}

/// The place a filter looks at.
pub(crate) struct Site<'a> {
    pub(crate) view: &'a View,
    pub(crate) node: &'a Node,
    /// Only meaningful for filters asked per node.
    pub(crate) ix: NodeIx,
}

impl<'a> Site<'a> {
    pub(crate) fn of_node(view: &'a View, ix: NodeIx) -> Self {
        Self { view, node: view.fleet.node(ix), ix }
    }

    /// A class has attributes but no place of its own; looking for its load would be a mistake and panics.
    pub(crate) fn of_class(view: &'a View, class: ClassIx) -> Self {
        Self { view, node: view.fleet.classes.example(class), ix: NodeIx(u32::MAX) }
    }
}

/// All filters, in the order of [`Reason`].
pub(crate) const FILTERS: &[&Filter] = &[
    &ready::FILTER,
    &hosts::FILTER,
    &pool::FILTER,
    &volume_home::FILTER,
    &volume_locality::FILTER,
    &volume_in_use::FILTER,
    &constraints::FILTER,
    &platform::FILTER,
    &driver::FILTER,
    &plugins::FILTER,
    &host_ports::FILTER,
    &max_per_node::FILTER,
    &distinct_hosts::FILTER,
    &distinct_property::FILTER,
    &companions::FILTER,
    &skew::FILTER,
    &memory::FILTER,
    &disk::FILTER,
    &devices::FILTER,
    &addresses::FILTER,
];

// An explanation keeps one bit for each filter.
const _: () = assert!(FILTERS.len() <= 32);

/// Whether a node is one the service could use if it had room: it takes new work and is of the right kind.
pub(crate) fn is_domain(ask: &Ask, view: &View, node: NodeIx) -> bool {
    let site = Site::of_node(view, node);
    ask.filters().filter(|filter| filter.nature != Nature::Capacity).all(|filter| (filter.check)(ask, &site))
}

/// Whether a replica that is on the node may stay: the node is of the right kind still. Capacity evicts nothing.
pub(crate) fn may_stay(ask: &Ask, view: &View, node: NodeIx) -> bool {
    let site = Site::of_node(view, node);
    ask.filters().filter(|filter| filter.nature == Nature::Attribute).all(|filter| (filter.check)(ask, &site))
}

#[cfg(test)]
mod stories;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_stand_in_the_order_of_their_reasons() {
        let reasons: Vec<Reason> = FILTERS.iter().map(|filter| filter.reason).collect();
        assert!(reasons.is_sorted_by(|a, b| a < b), "in order, and each reason once");
    }
}
