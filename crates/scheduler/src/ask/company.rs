//! Where the services are that this one wants to be with, or apart from, as of the start of its turn.
//!
//! Owns: the answer for one node. Must not touch: who is decided first; by the time this is made, they are.

use std::collections::BTreeSet;

use longshore_model::{
    PlacementSpec, ServiceName,
    reason_text::Side,
    service::{Companion, Strength},
};

use super::Counts;
use crate::view::{NodeIx, View, groups::Group};

/// All companions of a service.
#[derive(Debug, Default)]
pub(crate) struct Company {
    members: Vec<Member>,
}

/// One companion.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) service: ServiceName,
    pub(crate) side: Side,
    strength: Strength,
    whereabouts: Whereabouts,
}

#[derive(Debug)]
enum Whereabouts {
    On(BTreeSet<NodeIx>),
    /// The service named itself: its own slots count, those of this batch too.
    Own,
}

impl Company {
    pub(super) fn of(view: &View, group: &Group, placement: &PlacementSpec) -> Self {
        let near = placement.near.iter().map(|companion| (companion, Side::Near));
        let away = placement.away_from.iter().map(|companion| (companion, Side::Away));
        // To be near oneself is no wish: the first replica would wait for itself for ever.
        let wishes = near.chain(away).filter(|(wish, side)| wish.service != group.key.service || *side == Side::Away);
        Self { members: wishes.map(|(wish, side)| Member::new(view, group, wish, side)).collect() }
    }

    /// The first hard wish a node does not grant.
    pub(crate) fn missed_at(&self, node: NodeIx, counts: &Counts) -> Option<&Member> {
        self.members.iter().find(|member| match (member.strength, member.side) {
            (Strength::Hard, Side::Near) => !member.is_on(node, counts),
            (Strength::Hard, Side::Away) => member.is_on(node, counts),
            (Strength::Preferred(_), Side::Near | Side::Away) => false,
        })
    }

    /// How much a node is liked for who is there.
    pub(crate) fn liking(&self, node: NodeIx, counts: &Counts) -> i64 {
        let present = self.members.iter().filter(|member| member.is_on(node, counts));
        present.filter_map(Member::weight).sum()
    }

    /// How much a node can be liked at most.
    pub(crate) fn total_weight(&self) -> i64 {
        self.members.iter().filter_map(Member::weight).map(i64::abs).sum()
    }

    /// Whether any wish is hard.
    pub(crate) fn is_picky(&self) -> bool {
        self.members.iter().any(|member| member.strength == Strength::Hard)
    }

    /// The only nodes that can do, where a service must be near another.
    pub(crate) fn haunts(&self) -> Option<&BTreeSet<NodeIx>> {
        let haunts =
            self.members.iter().filter(|member| (member.strength, member.side) == (Strength::Hard, Side::Near));
        let haunts = haunts.filter_map(|member| match &member.whereabouts {
            Whereabouts::On(nodes) => Some(nodes),
            Whereabouts::Own => None,
        });
        haunts.min_by_key(|nodes| nodes.len())
    }
}

impl Member {
    fn new(view: &View, group: &Group, wish: &Companion, side: Side) -> Self {
        let whereabouts = if wish.service == group.key.service {
            Whereabouts::Own
        } else {
            Whereabouts::On(view.whereabouts(&group.key.beside(&wish.service)))
        };
        Self { service: wish.service.clone(), side, strength: wish.strength, whereabouts }
    }

    fn is_on(&self, node: NodeIx, counts: &Counts) -> bool {
        match &self.whereabouts {
            Whereabouts::On(nodes) => nodes.contains(&node),
            Whereabouts::Own => counts.get(node) > 0,
        }
    }

    /// Positive for company wanted, negative for company shunned; hard wishes have none.
    fn weight(&self) -> Option<i64> {
        match (self.strength, self.side) {
            (Strength::Preferred(weight), Side::Near) => Some(i64::from(weight)),
            (Strength::Preferred(weight), Side::Away) => Some(-i64::from(weight)),
            (Strength::Hard, Side::Near | Side::Away) => None,
        }
    }
}
