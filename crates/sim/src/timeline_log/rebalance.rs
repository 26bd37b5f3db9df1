//! Entries about the rebalancer: moves, skipped moves and previews.
//!
//! Owns: the payload, field by field as in the specification; a field that does not apply is `null`.
//! Must not touch: the scores, which are the scheduler's.

use longshore_model::{
    DeploymentName, GroupKey, NodeName, ServiceName, SlotKey, Time,
    rebalance::{Move, PlannedMove, RebalanceScore, Share},
};
use longshore_scheduler::rebalance::Skip;
use serde::{Serialize, Serializer};

use super::{EntryKind, TimelineLog};

/// What a rebalance entry carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RebalancePayload {
    /// The cause of the move: pressure, or an uneven spread.
    pub cause: &'static str,
    /// The replica.
    pub replica_id: Option<String>,
    /// Its deployment.
    pub deployment: Option<DeploymentName>,
    /// Its service.
    pub service: Option<ServiceName>,
    /// The node it was on.
    pub src: NodeName,
    /// The node it went to, or would have gone to.
    pub dst: Option<NodeName>,
    /// The resource with the highest pressure on the source.
    pub dominant: Option<&'static str>,
    /// The replica's share of that resource.
    pub relief: Option<Decimal>,
    /// Relief minus cost.
    pub score: Option<Decimal>,
    /// The cost of a move.
    pub move_cost: Decimal,
    /// Composite pressure of the source before the move.
    pub src_pressure_before: Option<Decimal>,
    /// Composite pressure of the destination before the move.
    pub dst_pressure_before: Option<Decimal>,
    /// Composite pressure of the source after the move.
    pub src_pressure_after: Option<Decimal>,
    /// Composite pressure of the destination after the move.
    pub dst_pressure_after: Option<Decimal>,
    /// Why the move was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// How often it was skipped for that reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// A share, printed as a decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal(pub Share);

impl Serialize for Decimal {
    #[expect(clippy::cast_precision_loss, reason = "a share is a few million millionths, exact in 53 bits")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.0 as f64 / 1e6)
    }
}

impl RebalancePayload {
    fn new(score: &RebalanceScore, replica: Option<(&GroupKey, &SlotKey)>) -> Self {
        Self {
            cause: score.cause.as_str(),
            replica_id: replica.map(|(group, slot)| slot.replica_id(group)),
            deployment: replica.map(|(group, _)| group.deployment.clone()),
            service: replica.map(|(group, _)| group.service.clone()),
            src: score.src.clone(),
            dst: score.dst.clone(),
            dominant: score.dominant.map(longshore_model::rebalance::Dimension::as_str),
            relief: score.relief.map(Decimal),
            score: score.score.map(Decimal),
            move_cost: Decimal(score.move_cost),
            src_pressure_before: score.src_before.map(Decimal),
            dst_pressure_before: score.dst_before.map(Decimal),
            src_pressure_after: score.src_after.map(Decimal),
            dst_pressure_after: score.dst_after.map(Decimal),
            reason: None,
            count: None,
        }
    }
}

impl TimelineLog {
    pub(super) fn rebalanced(&mut self, now: Time, made: &Move) {
        let key = &made.key;
        let entry = self.push_replica(now, EntryKind::RebalanceMoved, key);
        entry.from = Some(made.score.src.clone());
        entry.rebalance = Some(RebalancePayload::new(&made.score, Some((&made.key.group, &made.key.slot))));
    }

    /// Records the moves of a previewed spread rebalance.
    pub(crate) fn previewed(&mut self, now: Time, moves: &[PlannedMove]) {
        for PlannedMove { group, slot, from, to } in moves {
            let entry = self.push(now, EntryKind::RebalancePlanned);
            entry.replica = Some(slot.replica_id(group));
            entry.from = Some(from.clone());
            entry.node = Some(to.clone());
        }
        if moves.is_empty() {
            let entry = self.push(now, EntryKind::RebalancePlanned);
            entry.message = Some("every service is as even as it can be".to_owned());
        }
    }

    /// Records a skipped move. A repeated one increments the count of its entry.
    pub(crate) fn skipped(&mut self, now: Time, skip: &Skip) {
        let replica = skip.replica.as_ref().map(|replica| (&replica.group, &replica.slot));
        let mut payload = RebalancePayload::new(&skip.score, replica);
        payload.reason = Some(skip.reason.code());
        payload.count = Some(skip.count);
        if skip.count > 1 && self.update_count(skip, &payload) {
            return;
        }
        let entry = self.push(now, EntryKind::RebalanceSkipped);
        entry.replica.clone_from(&payload.replica_id);
        entry.generation = skip.replica.as_ref().map(|replica| replica.generation);
        entry.node = Some(skip.score.src.clone());
        entry.code = Some(skip.reason.code());
        entry.rebalance = Some(payload);
    }

    /// Updates the count of the last entry for the same skip. Returns `false` if there is none.
    fn update_count(&mut self, skip: &Skip, payload: &RebalancePayload) -> bool {
        let generation = skip.replica.as_ref().map(|replica| replica.generation);
        let known = self.entries.iter_mut().rev().find_map(|entry| {
            let same = entry.kind == EntryKind::RebalanceSkipped && entry.generation == generation;
            entry.rebalance.as_mut().filter(|known| same && is_same_skip(known, payload))
        });
        let Some(known) = known else { return false };
        known.count = payload.count;
        true
    }
}

fn is_same_skip(a: &RebalancePayload, b: &RebalancePayload) -> bool {
    (&a.replica_id, &a.src, a.reason) == (&b.replica_id, &b.src, b.reason)
}
