//! The services that this one must or prefers to be near or away from, and the nodes they are on at the start of its
//! turn.
//!
//! Owns: the answer for one node. Must not touch: the order of turns; peers were decided before this is built.

use std::collections::BTreeSet;

use longshore_model::{
    PlacementSpec, ServiceName,
    reason_text::Side,
    service::{Companion, Strength},
};

use super::Counts;
use crate::view::{NodeIx, View, groups::Group};

/// All near and away rules of a service.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: Vec<Peer>,
}

/// One rule.
#[derive(Debug)]
pub(crate) struct Peer {
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

impl Peers {
    pub(super) fn of(view: &View, group: &Group, placement: &PlacementSpec) -> Self {
        let near = placement.near.iter().map(|companion| (companion, Side::Near));
        let away = placement.away_from.iter().map(|companion| (companion, Side::Away));
        // A `near` rule that names the service itself is ignored: the first replica would wait for itself for ever.
        let wishes = near.chain(away).filter(|(wish, side)| wish.service != group.key.service || *side == Side::Away);
        Self { peers: wishes.map(|(wish, side)| Peer::new(view, group, wish, side)).collect() }
    }

    /// The first hard rule that a node violates.
    pub(crate) fn violated_at(&self, node: NodeIx, counts: &Counts) -> Option<&Peer> {
        self.peers.iter().find(|peer| match (peer.strength, peer.side) {
            (Strength::Hard, Side::Near) => !peer.is_on(node, counts),
            (Strength::Hard, Side::Away) => peer.is_on(node, counts),
            (Strength::Preferred(_), Side::Near | Side::Away) => false,
        })
    }

    /// The sum of weights of the preferred rules whose service is on a node.
    pub(crate) fn preference(&self, node: NodeIx, counts: &Counts) -> i64 {
        let present = self.peers.iter().filter(|peer| peer.is_on(node, counts));
        present.filter_map(Peer::weight).sum()
    }

    /// The largest absolute value [`Peers::preference`] can have.
    pub(crate) fn total_weight(&self) -> i64 {
        self.peers.iter().filter_map(Peer::weight).map(i64::abs).sum()
    }

    /// Whether any rule is hard.
    pub(crate) fn has_hard_rule(&self) -> bool {
        self.peers.iter().any(|peer| peer.strength == Strength::Hard)
    }

    /// The only feasible nodes where a hard `near` rule exists: the smallest set of such a rule.
    pub(crate) fn peer_nodes(&self) -> Option<&BTreeSet<NodeIx>> {
        let peer_nodes = self.peers.iter().filter(|peer| (peer.strength, peer.side) == (Strength::Hard, Side::Near));
        let peer_nodes = peer_nodes.filter_map(|peer| match &peer.nodes {
            PeerNodes::On(nodes) => Some(nodes),
            PeerNodes::SameService => None,
        });
        peer_nodes.min_by_key(|nodes| nodes.len())
    }
}

impl Peer {
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
