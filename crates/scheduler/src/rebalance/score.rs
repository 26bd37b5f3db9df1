//! Which of several possible moves is the best.
//!
//! Owns: the score and the order of ties: the cheapest move that buys the most relief, to the coolest node, then by name.

use std::cmp::Reverse;

use longshore_model::{
    NodeName,
    rebalance::{MoveCause, Pressure, Share, Weighed},
};

use super::{gates::Change, skips::Subject};

/// What any move costs, so that a replica that makes up next to nothing is not worth one.
pub(super) const MOVE_COST: Share = Share(10_000);

/// A move that every gate lets through. The least is the best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    score: Reverse<Share>,
    dst_before: Share,
    printed: String,
    pub(super) dst: NodeName,
    pub(super) subject: Subject,
}

impl Pair {
    pub(super) fn new(subject: Subject, dst: NodeName, relief: Share, dst_before: Share) -> Self {
        let printed = subject.slot.printed(&subject.group);
        Self { score: Reverse(relief.minus(MOVE_COST)), dst_before, printed, dst, subject }
    }
}

/// What moving a replica off a hot node would do.
pub(super) fn weigh(
    src: &NodeName,
    source: Change,
    footprint: Pressure,
    destination: Option<(&NodeName, Change)>,
) -> Weighed {
    let dominant = source.before.dominant();
    let relief = footprint.of(dominant);
    Weighed {
        cause: MoveCause::Pressure,
        src: src.clone(),
        dst: destination.map(|(dst, _)| dst.clone()),
        dominant: Some(dominant),
        relief: Some(relief),
        score: Some(relief.minus(MOVE_COST)),
        move_cost: MOVE_COST,
        src_before: Some(source.before.composite()),
        src_after: Some(source.after.composite()),
        dst_before: destination.map(|(_, change)| change.before.composite()),
        dst_after: destination.map(|(_, change)| change.after.composite()),
    }
}
