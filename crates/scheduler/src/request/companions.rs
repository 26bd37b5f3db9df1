//! The services that this one must or prefers to be near or away from, and the nodes they are on at the start of its
//! turn.
//!
//! Owns: the answer for one node. Must not touch: the order of turns; companions were decided before this is built.

use std::collections::BTreeSet;

use longshore_model::{
    PlacementSpec, ServiceName,
    refusal::Side,
    service::{Companion, Strength},
};

use super::Counts;
use crate::view::{NodeIx, View, groups::Group};

/// All near and away rules of a service.
#[derive(Debug, Default)]
pub(crate) struct Companions {
    companions: Vec<PlacedCompanion>,
}

/// One rule.
#[derive(Debug)]
pub(crate) struct PlacedCompanion {
    pub(crate) service: ServiceName,
    pub(crate) side: Side,
    strength: Strength,
    nodes: PeerNodes,
}

#[derive(Debug)]
enum PeerNodes {
    On(BTreeSet<NodeIx>),
    /// The rule names the service itself: its own slots count, those of this batch too.
    SameService,
}

impl Companions {
    pub(super) fn of(view: &View, group: &Group, placement: &PlacementSpec) -> Self {
        let near = placement.near.iter().map(|companion| (companion, Side::Near));
        let away = placement.away_from.iter().map(|companion| (companion, Side::Away));
        // A `near` rule that names the service itself is ignored: the first replica would wait for itself for ever.
        let wishes = near.chain(away).filter(|(wish, side)| wish.service != group.key.service || *side == Side::Away);
        Self { companions: wishes.map(|(wish, side)| PlacedCompanion::new(view, group, wish, side)).collect() }
    }

    /// The first hard rule that a node violates.
    pub(crate) fn violated_at(&self, node: NodeIx, counts: &Counts) -> Option<&PlacedCompanion> {
        self.companions.iter().find(|companion| match (companion.strength, companion.side) {
            (Strength::Hard, Side::Near) => !companion.is_on(node, counts),
            (Strength::Hard, Side::Away) => companion.is_on(node, counts),
            (Strength::Preferred(_), Side::Near | Side::Away) => false,
        })
    }

    /// The sum of weights of the preferred rules whose service is on a node.
    pub(crate) fn preference(&self, node: NodeIx, counts: &Counts) -> i64 {
        let present = self.companions.iter().filter(|companion| companion.is_on(node, counts));
        present.filter_map(PlacedCompanion::weight).sum()
    }

    /// The largest absolute value [`Companions::preference`] can have.
    pub(crate) fn total_weight(&self) -> i64 {
        self.companions.iter().filter_map(PlacedCompanion::weight).map(i64::abs).sum()
    }

    /// Whether any rule is hard.
    pub(crate) fn has_hard_rule(&self) -> bool {
        self.companions.iter().any(|companion| companion.strength == Strength::Hard)
    }

    /// The only feasible nodes where a hard `near` rule exists: the smallest set of such a rule.
    pub(crate) fn companion_nodes(&self) -> Option<&BTreeSet<NodeIx>> {
        let companion_nodes = self
            .companions
            .iter()
            .filter(|companion| (companion.strength, companion.side) == (Strength::Hard, Side::Near));
        let companion_nodes = companion_nodes.filter_map(|companion| match &companion.nodes {
            PeerNodes::On(nodes) => Some(nodes),
            PeerNodes::SameService => None,
        });
        companion_nodes.min_by_key(|nodes| nodes.len())
    }
}

impl PlacedCompanion {
    fn new(view: &View, group: &Group, wish: &Companion, side: Side) -> Self {
        let nodes = if wish.service == group.key.service {
            PeerNodes::SameService
        } else {
            PeerNodes::On(view.nodes_running(&group.key.sibling(&wish.service)))
        };
        Self { service: wish.service.clone(), side, strength: wish.strength, nodes }
    }

    fn is_on(&self, node: NodeIx, counts: &Counts) -> bool {
        match &self.nodes {
            PeerNodes::On(nodes) => nodes.contains(&node),
            PeerNodes::SameService => counts.get(node) > 0,
        }
    }

    /// Positive for a preferred `near`, negative for a preferred `away`; `None` for a hard rule.
    fn weight(&self) -> Option<i64> {
        match (self.strength, self.side) {
            (Strength::Preferred(weight), Side::Near) => Some(i64::from(weight)),
            (Strength::Preferred(weight), Side::Away) => Some(-i64::from(weight)),
            (Strength::Hard, Side::Near | Side::Away) => None,
        }
    }
}
