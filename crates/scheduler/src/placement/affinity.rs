//! The affinity of a service to a node: the summed weights of matching affinities and of preferred companions there.

use longshore_model::Node;

use crate::{
    request::PlacementRequest,
    view::{NodeIx, View},
};

/// The summed weights for a node; negative if the node is to be avoided, zero without affinities.
pub(crate) fn weight(request: &PlacementRequest, view: &View, node: NodeIx) -> i64 {
    class_weight(request, view.nodes.node(node)) + request.companions.preference(node, &request.counts)
}

/// The part of [`weight`] that all nodes of a class share: all of it, unless [`varies_within_class`].
pub(crate) fn class_weight(request: &PlacementRequest, node: &Node) -> i64 {
    request.rules.affinities.iter().filter(|(rule, _)| rule.holds(node)).map(|(_, weight)| weight).sum()
}

/// The sum of all absolute weights, by which [`weight`] is divided.
pub(crate) fn total_weight(request: &PlacementRequest) -> i64 {
    let attributes: i64 = request.rules.affinities.iter().map(|(_, weight)| weight.abs()).sum();
    attributes + request.companions.total_weight()
}

/// Whether the affinity may differ between nodes of one class.
pub(crate) fn varies_within_class(request: &PlacementRequest) -> bool {
    let unique = request.spec.placement.affinities.iter().any(|affinity| affinity.matches.attribute.is_unique());
    unique || request.companions.total_weight() > 0
}
