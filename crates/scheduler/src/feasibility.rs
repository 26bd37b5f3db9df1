//! Which nodes may run a replica: the hard filters, one file each, in the order of their reasons.
//!
//! Owns: the list of filters. To add one, copy a filter file, give it its own reason, and add it to [`FILTERS`] at the
//! position of its reason; the compiler names the few other places that must handle a new reason.
//! Must not touch: ranking. A filter only accepts or refuses a node.
//! Invariant: a filter with [`Scope::Class`] reads only attributes that all nodes of a class share.

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
    request::PlacementRequest,
    view::{NodeIx, View, classes::ClassIx},
};

/// One hard placement rule.
pub(crate) struct Filter {
    /// The reason code operators see.
    pub(crate) reason: Reason,
    /// What a refusal by this filter means for existing replicas.
    pub(crate) nature: Nature,
    /// Whether the filter applies to a placement request, and whether it is evaluated per class or per node.
    pub(crate) scope: fn(&PlacementRequest) -> Scope,
    /// Returns whether the node may take one more replica.
    pub(crate) check: fn(&PlacementRequest, &CandidateNode<'_>) -> bool,
    /// Returns the refusal with its numbers. Only called where `check` returned false.
    pub(crate) explain: fn(&PlacementRequest, &CandidateNode<'_>) -> Refusal,
}

/// What a refusal means for a replica already on the node, and for a global service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// The node takes no new replicas of any service.
    Readiness,
    /// The node's attributes do not match: existing replicas must leave, and a global service gets no slot on it.
    Attribute,
    /// The node lacks capacity: existing replicas stay, and the node's slot of a global service waits.
    Capacity,
}

/// What a filter is evaluated against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The filter does not apply to this request.
    Idle,
    /// One example node, on behalf of its whole class. A class shares pool, platform, drivers, plugins, role and the
    /// labels that the service names; its nodes may differ in everything else.
    Class,
    /// Each node.
    Node,
    /// Each node, but only for explanations. The spread tree enforces the rule itself while it places, because a node
    /// refused now may become allowed by the next placement.
    Tree,
}

/// The node, or the example node of a class, that a filter evaluates.
pub(crate) struct CandidateNode<'a> {
    pub(crate) view: &'a View,
    pub(crate) node: &'a Node,
    /// Only valid for filters evaluated per node.
    pub(crate) ix: NodeIx,
}

impl<'a> CandidateNode<'a> {
    pub(crate) fn of_node(view: &'a View, ix: NodeIx) -> Self {
        Self { view, node: view.nodes.node(ix), ix }
    }

    /// The example node of a class. Its index is invalid, so reading per-node load through it panics.
    pub(crate) fn of_class(view: &'a View, class: ClassIx) -> Self {
        Self { view, node: view.nodes.classes.example(class), ix: NodeIx(u32::MAX) }
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

// An explanation stores one bit per filter in a `u32`.
const _: () = assert!(FILTERS.len() <= 32);

/// Whether the service could use the node if it had capacity: the node takes new work and its attributes match.
pub(crate) fn is_eligible(request: &PlacementRequest, view: &View, node: NodeIx) -> bool {
    let candidate = CandidateNode::of_node(view, node);
    request
        .filters()
        .filter(|filter| filter.nature != Nature::Capacity)
        .all(|filter| (filter.check)(request, &candidate))
}

/// Whether a replica on the node may stay: the node's attributes still match. Lack of capacity never evicts.
pub(crate) fn may_stay(request: &PlacementRequest, view: &View, node: NodeIx) -> bool {
    let candidate = CandidateNode::of_node(view, node);
    request
        .filters()
        .filter(|filter| filter.nature == Nature::Attribute)
        .all(|filter| (filter.check)(request, &candidate))
}

#[cfg(test)]
mod tests;
