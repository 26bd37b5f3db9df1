//! Which of several possible moves is the best.
//!
//! Owns: the score and the tie-breaks: the most relief, then the coolest destination, then the names.

use std::cmp::Reverse;

use longshore_model::{
    NodeName, ReplicaKey,
    rebalance::{MoveCause, Pressure, RebalanceScore, Share},
};

use super::gates::PressureChange;

/// The cost of any move, so that moving a replica with almost no load is not worth it.
pub(super) const MOVE_COST: Share = Share(10_000);

/// A move that passed every gate. The smallest is the best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedMove {
    score: Reverse<Share>,
    dst_before: Share,
    printed: String,
    pub(super) dst: NodeName,
    pub(super) replica: ReplicaKey,
}

impl RankedMove {
    pub(super) fn new(replica: ReplicaKey, dst: NodeName, relief: Share, dst_before: Share) -> Self {
        let printed = replica.slot.replica_id(&replica.group);
        Self { score: Reverse(relief.minus(MOVE_COST)), dst_before, printed, dst, replica }
    }
}

/// The score of moving a replica with this footprint off a hot node.
pub(super) fn weigh(
    src: &NodeName,
    source: PressureChange,
    footprint: Pressure,
    destination: Option<(&NodeName, PressureChange)>,
) -> RebalanceScore {
    let dominant = source.before.dominant();
    let relief = footprint.of(dominant);
    RebalanceScore {
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
