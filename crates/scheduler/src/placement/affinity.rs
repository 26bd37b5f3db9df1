//! How much a service likes a node: the weights of the affinities that match, summed.

use longshore_model::Node;

use crate::ask::Ask;

/// Positive is liked, negative disliked, zero without affinities.
pub(crate) fn liking(ask: &Ask, node: &Node) -> i64 {
    ask.rules.affinities.iter().filter(|(rule, _)| rule.holds(node)).map(|(_, weight)| weight).sum()
}

/// How much a node can be liked at most: what [`liking`] is a share of.
pub(crate) fn total_weight(ask: &Ask) -> i64 {
    ask.spec.placement.affinities.iter().map(|affinity| i64::from(affinity.weight.abs())).sum()
}

/// Whether the liking differs between nodes of one class.
pub(crate) fn is_personal(ask: &Ask) -> bool {
    ask.spec.placement.affinities.iter().any(|affinity| affinity.matches.attribute.is_unique())
}
