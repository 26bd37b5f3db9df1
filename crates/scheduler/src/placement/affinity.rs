//! How much a service likes a node: the weights of the affinities that match and of the company there, summed.

use longshore_model::Node;

use crate::{
    ask::Ask,
    view::{NodeIx, View},
};

/// Positive is liked, negative disliked, zero without affinities.
pub(crate) fn liking(ask: &Ask, view: &View, node: NodeIx) -> i64 {
    class_liking(ask, view.fleet.node(node)) + ask.company.liking(node, &ask.counts)
}

/// The part of [`liking`] that nodes of one class share; all of it, unless it is personal.
pub(crate) fn class_liking(ask: &Ask, node: &Node) -> i64 {
    ask.rules.affinities.iter().filter(|(rule, _)| rule.holds(node)).map(|(_, weight)| weight).sum()
}

/// How much a node can be liked at most: what [`liking`] is a share of.
pub(crate) fn total_weight(ask: &Ask) -> i64 {
    let attributes: i64 = ask.rules.affinities.iter().map(|(_, weight)| weight.abs()).sum();
    attributes + ask.company.total_weight()
}

/// Whether the liking differs between nodes of one class.
pub(crate) fn is_personal(ask: &Ask) -> bool {
    let unique = ask.spec.placement.affinities.iter().any(|affinity| affinity.matches.attribute.is_unique());
    unique || ask.company.total_weight() > 0
}
