//! Entries about the rebalancer: what it moved and what it left.
//!
//! Owns: the payload, field by field as in the seeds; what does not apply is `null`.
//! Must not touch: the figures, which are the scheduler's.

use longshore_model::{
    DeploymentName, GroupKey, NodeName, ServiceName, SlotKey, Time,
    rebalance::{Move, PlannedMove, Share, Weighed},
};
use longshore_scheduler::rebalance::Skip;
use serde::{Serialize, Serializer};

use super::{Chronicle, Kind};

/// What a rebalance entry carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Payload {
    /// What it was about: pressure, or an uneven spread.
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
    /// What the source ran short of.
    pub dominant: Option<&'static str>,
    /// The replica's part of that.
    pub relief: Option<Decimal>,
    /// Relief less cost.
    pub score: Option<Decimal>,
    /// What a move costs.
    pub move_cost: Decimal,
    /// Composite pressures.
    pub src_pressure_before: Option<Decimal>,
    /// See above.
    pub dst_pressure_before: Option<Decimal>,
    /// See above.
    pub src_pressure_after: Option<Decimal>,
    /// See above.
    pub dst_pressure_after: Option<Decimal>,
    /// Why it stayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// How often that was seen.
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

impl Payload {
    fn new(weighed: &Weighed, whom: Option<(&GroupKey, &SlotKey)>) -> Self {
        Self {
            cause: weighed.cause.as_str(),
            replica_id: whom.map(|(group, slot)| slot.printed(group)),
            deployment: whom.map(|(group, _)| group.deployment.clone()),
            service: whom.map(|(group, _)| group.service.clone()),
            src: weighed.src.clone(),
            dst: weighed.dst.clone(),
            dominant: weighed.dominant.map(longshore_model::rebalance::Dimension::as_str),
            relief: weighed.relief.map(Decimal),
            score: weighed.score.map(Decimal),
            move_cost: Decimal(weighed.move_cost),
            src_pressure_before: weighed.src_before.map(Decimal),
            dst_pressure_before: weighed.dst_before.map(Decimal),
            src_pressure_after: weighed.src_after.map(Decimal),
            dst_pressure_after: weighed.dst_after.map(Decimal),
            reason: None,
            count: None,
        }
    }
}

impl Chronicle {
    pub(super) fn rebalanced(&mut self, now: Time, made: &Move) {
        let entry = self.push_replica(now, Kind::RebalanceMoved, &made.group, &made.slot, made.generation);
        entry.from = Some(made.weighed.src.clone());
        entry.rebalance = Some(Payload::new(&made.weighed, Some((&made.group, &made.slot))));
    }

    /// The moves that evening out would make.
    pub(crate) fn previewed(&mut self, now: Time, moves: &[PlannedMove]) {
        for PlannedMove { group, slot, from, to } in moves {
            let entry = self.push(now, Kind::RebalancePlanned);
            entry.replica = Some(slot.printed(group));
            entry.from = Some(from.clone());
            entry.node = Some(to.clone());
        }
        if moves.is_empty() {
            let entry = self.push(now, Kind::RebalancePlanned);
            entry.message = Some("every service is as even as it can be".to_owned());
        }
    }

    /// The rebalancer left a replica where it is. Seen again, the entry it has counts on.
    pub(crate) fn skipped(&mut self, now: Time, skip: &Skip) {
        let whom = skip.subject.as_ref().map(|subject| (&subject.group, &subject.slot));
        let mut payload = Payload::new(&skip.weighed, whom);
        payload.reason = Some(skip.reason.code());
        payload.count = Some(skip.count);
        if skip.count > 1 && self.count_on(skip, &payload) {
            return;
        }
        let entry = self.push(now, Kind::RebalanceSkipped);
        entry.replica.clone_from(&payload.replica_id);
        entry.generation = skip.subject.as_ref().map(|subject| subject.generation);
        entry.node = Some(skip.weighed.src.clone());
        entry.code = Some(skip.reason.code());
        entry.rebalance = Some(payload);
    }

    /// Counts on in the last entry about the same; says whether there is one.
    fn count_on(&mut self, skip: &Skip, payload: &Payload) -> bool {
        let generation = skip.subject.as_ref().map(|subject| subject.generation);
        let known = self.entries.iter_mut().rev().find_map(|entry| {
            let same = entry.kind == Kind::RebalanceSkipped && entry.generation == generation;
            entry.rebalance.as_mut().filter(|known| same && is_about_the_same(known, payload))
        });
        let Some(known) = known else { return false };
        known.count = payload.count;
        true
    }
}

fn is_about_the_same(a: &Payload, b: &Payload) -> bool {
    (&a.replica_id, &a.src, a.reason) == (&b.replica_id, &b.src, b.reason)
}
