//! All lanes of one order: which lane each node is in, and where.
//!
//! Owns: the seats of nodes in lanes. Must not touch: loads; whoever changes one says where the node belongs now.
//! Invariant: a node is in at most one lane, under the key it was last seated with.

use std::collections::BTreeMap;

use super::{NodeIx, classes::ClassIx};
use crate::lanes::{Entry, Lane, LaneKey};

/// What the members of a lane have in common: their class, and what else the order must not compare across.
pub(crate) type LaneKind = (ClassIx, u64);

/// A lane and the class of its members.
#[derive(Debug)]
pub(crate) struct ClassLane {
    pub(crate) class: ClassIx,
    pub(crate) lane: Lane,
}

/// Lanes of one order.
#[derive(Debug, Default)]
pub(crate) struct Ladder {
    lanes: Vec<ClassLane>,
    by_kind: BTreeMap<LaneKind, usize>,
    seats: Vec<Option<(usize, LaneKey)>>,
}

impl Ladder {
    /// Seats many nodes at once, in any order.
    pub(crate) fn build(nodes: usize, entries: impl Iterator<Item = (LaneKind, Entry)>) -> Self {
        let mut ladder = Self { seats: vec![None; nodes], ..Self::default() };
        let mut members: Vec<Vec<Entry>> = Vec::new();
        for (kind, entry) in entries {
            let lane = ladder.lane_of(kind);
            members.resize_with(ladder.lanes.len(), Vec::new);
            members[lane].push(entry);
            ladder.seats[entry.node.at()] = Some((lane, entry.key));
        }
        for (lane, entries) in ladder.lanes.iter_mut().zip(members) {
            lane.lane = Lane::build(entries);
        }
        ladder
    }

    pub(crate) fn lanes(&self) -> &[ClassLane] {
        &self.lanes
    }

    pub(crate) fn enter(&mut self, kind: LaneKind, entry: Entry) {
        let lane = self.lane_of(kind);
        if self.seats.len() <= entry.node.at() {
            self.seats.resize(entry.node.at() + 1, None);
        }
        self.seats[entry.node.at()] = Some((lane, entry.key));
        self.lanes[lane].lane.insert(entry);
    }

    pub(crate) fn leave(&mut self, node: NodeIx) {
        if let Some((lane, key)) = self.seats.get_mut(node.at()).and_then(Option::take) {
            self.lanes[lane].lane.remove(key);
        }
    }

    fn lane_of(&mut self, kind: LaneKind) -> usize {
        let next = self.lanes.len();
        let lane = *self.by_kind.entry(kind).or_insert(next);
        if lane == next {
            self.lanes.push(ClassLane { class: kind.0, lane: Lane::default() });
        }
        lane
    }
}
