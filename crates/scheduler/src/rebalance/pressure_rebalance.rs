//! Pressure rebalance: moves a replica off the hottest node.
//!
//! Owns: the search over candidates and destinations, and the skips of candidates that stay.
//! Must not touch: the thresholds of the gates. Invariant: the view is unchanged afterwards.

use std::collections::BTreeMap;

use longshore_model::{
    GroupPlan, NodeName, PlanItem, ReplicaKey, SkipReason, SlotKey, Time,
    rebalance::{Pressure, RebalanceScore},
};

use super::{
    Cycle, NodeShare, Rebalancer, candidates,
    gates::{self, CONSECUTIVE, MoveEnd, PressureChange, ProposedMove},
    score::{self, RankedMove},
    skips::Skip,
};
use crate::{
    placement::{self, PendingSlot},
    request::{Counts, PlacementRequest},
    view::{GroupIx, NodeIx, View, groups::Slot, node_table::takes_work},
};

/// A node and its smoothed pressure.
#[derive(Clone, Copy)]
struct NodePressure<'a> {
    name: &'a NodeName,
    node: NodeIx,
    pressure: Pressure,
}

/// Moves at most one replica off the hottest node, if it has been hot long enough and the cluster is imbalanced.
pub(super) fn rebalance(
    rebalancer: &mut Rebalancer,
    view: &mut View,
    fresh: &BTreeMap<NodeName, Pressure>,
    now: Time,
    cycle: &mut Cycle,
) {
    let mut nodes: Vec<NodePressure<'_>> =
        fresh.iter().filter_map(|(name, pressure)| node_pressure(view, name, *pressure)).collect();
    // The sort is stable, so of equal nodes the first by name counts as the coolest, and by `find` as the hottest too.
    nodes.sort_by_key(|node| node.pressure.composite());
    let (Some(coolest), Some(top)) = (nodes.first(), nodes.last()) else { return };
    let hottest = nodes.iter().find(|node| node.pressure.composite() == top.pressure.composite());
    let Some(&src) = hottest else { return };
    let sustained = rebalancer.nodes.get(src.name).is_some_and(|node| node.hot_cycles >= CONSECUTIVE);
    if !sustained || !gates::is_imbalanced(src.pressure, coolest.pressure) {
        return;
    }
    let takes = |node: &&NodePressure<'_>| node.node != src.node && takes_work(view.nodes.node(node.node));
    let destinations: Vec<NodePressure<'_>> = nodes.iter().filter(takes).copied().collect();
    let (best, skips) = Search { rebalancer, view, src, destinations, now }.run();
    for Unmoved { replica, reason, score } in skips {
        let count = rebalancer.skip_counts.count(src.name, replica.as_ref(), reason);
        cycle.skips.push(Skip { replica, reason, score, count });
    }
    if let Some((chosen, score)) = best
        && let Some(part) = plan_move(view, &chosen, src.node, score, now)
    {
        let Some(&dst) = view.nodes.by_name.get(&chosen.dst) else { return };
        let share = |name, node| {
            let footprint = rebalancer.footprint_of(view, &chosen.replica, view.nodes.node(node));
            NodeShare { node: name, footprint }
        };
        let (from, to) = (share(src.name, src.node), share(&chosen.dst, dst));
        rebalancer.shift_pressure(from, to);
        cycle.plan.groups.push(part);
    }
}

fn node_pressure<'a>(view: &View, name: &'a NodeName, pressure: Pressure) -> Option<NodePressure<'a>> {
    view.nodes.by_name.get(name).map(|node| NodePressure { name, node: *node, pressure })
}

/// A candidate that stays on the hot node; `replica` is `None` if the node has no candidate.
struct Unmoved {
    replica: Option<ReplicaKey>,
    reason: SkipReason,
    score: RebalanceScore,
}

/// A search for the best move off the hot node.
struct Search<'a> {
    rebalancer: &'a Rebalancer,
    view: &'a View,
    src: NodePressure<'a>,
    /// Coolest first.
    destinations: Vec<NodePressure<'a>>,
    now: Time,
}

/// The result for one candidate: its possible moves, or why it stays.
enum Evaluation {
    Moves(Vec<(RankedMove, RebalanceScore)>),
    Stays(SkipReason, RebalanceScore),
}

impl Search<'_> {
    /// The best move, and the candidates that no gate lets move.
    fn run(&self) -> (Option<(RankedMove, RebalanceScore)>, Vec<Unmoved>) {
        let mut best: Option<(RankedMove, RebalanceScore)> = None;
        let mut skips = Vec::new();
        let mut evaluated = 0_usize;
        for group in candidates::groups_on(self.view, self.src.node) {
            let mut request = PlacementRequest::new(self.view, group, self.now, Counts::default());
            for settled in candidates::slots_on(self.view, &request, self.src.node) {
                evaluated += 1;
                let replica = settled.in_group(&request.key);
                request.uncount_slot(self.src.node);
                let evaluation = self.evaluate(&request, &replica);
                request.count_slot(self.src.node);
                match evaluation {
                    Evaluation::Moves(moves) => best = moves.into_iter().chain(best).min_by(|a, b| a.0.cmp(&b.0)),
                    Evaluation::Stays(reason, score) => {
                        skips.push(Unmoved { replica: Some(replica), reason, score });
                    }
                }
            }
        }
        if evaluated == 0 {
            let score = self.score_without_candidate();
            skips.push(Unmoved { replica: None, reason: SkipReason::NoCandidate, score });
        }
        (best, skips)
    }

    fn score_without_candidate(&self) -> RebalanceScore {
        let source = PressureChange { before: self.src.pressure, after: self.src.pressure };
        let score = score::weigh(self.src.name, source, Pressure::default(), None);
        RebalanceScore { relief: None, score: None, src_after: None, ..score }
    }

    /// The moves of one replica that pass every gate, or why it stays. The counts of the request exclude the replica.
    fn evaluate(&self, request: &PlacementRequest, replica: &ReplicaKey) -> Evaluation {
        let footprint = self.rebalancer.footprint_of(self.view, replica, self.view.nodes.node(self.src.node));
        let source = PressureChange::without(self.src.pressure, footprint);
        let weigh = |dst: Option<(&NodeName, PressureChange)>| score::weigh(self.src.name, source, footprint, dst);
        let cooldown = slot_of(self.view, request.group, &replica.slot)
            .and_then(|slot| gates::replica_cooldown(slot, slot.current()?, self.now));
        if let Some(reason) = cooldown {
            return Evaluation::Stays(reason, weigh(None));
        }
        let src = MoveEnd { node: self.src.node, change: source };
        let mut moves = Vec::new();
        let mut refusals = Vec::new();
        for dst in &self.destinations {
            let added = self.rebalancer.footprint_of(self.view, replica, self.view.nodes.node(dst.node));
            let change = PressureChange::with(dst.pressure, added);
            let proposed = ProposedMove { request, src, dst: MoveEnd { node: dst.node, change } };
            if let Some(reason) = gates::refusal(self.view, &proposed, self.now) {
                refusals.push((reason, (dst.name, change)));
                continue;
            }
            let relief = footprint.of(self.src.pressure.dominant());
            let ranked = RankedMove::new(replica.clone(), dst.name.clone(), relief, dst.pressure.composite());
            moves.push((ranked, weigh(Some((dst.name, change)))));
        }
        if !moves.is_empty() {
            return Evaluation::Moves(moves);
        }
        match refusals.first() {
            Some((reason, coolest)) if refusals.iter().all(|(other, _)| other == reason) => {
                Evaluation::Stays(*reason, weigh(Some(*coolest)))
            }
            Some(_) | None => Evaluation::Stays(SkipReason::NoEligibleDst, weigh(None)),
        }
    }
}

fn slot_of<'a>(view: &'a View, group: GroupIx, slot: &SlotKey) -> Option<&'a Slot> {
    let known = view.group(group);
    known.slot_at(slot).ok().map(|at| &known.slots[at])
}

/// The plan that nodes the slot's next generation on the destination. The reservation in the view is rolled back.
fn plan_move(view: &mut View, chosen: &RankedMove, src: NodeIx, score: RebalanceScore, now: Time) -> Option<GroupPlan> {
    let (&group, &dst) = (view.group_ids.get(&chosen.replica.group)?, view.nodes.by_name.get(&chosen.dst)?);
    let mut request = PlacementRequest::new(view, group, now, Counts::default());
    request.uncount_slot(src);
    let pending = crate::reconcile::slots::next_generation(slot_of(view, group, &chosen.replica.slot)?);
    let placed = placement::place_at(view, &mut request, pending, dst);
    view.roll_back();
    let mut placement = placed.ok()?;
    placement.moved = Some(Box::new(score));
    let reservation = std::sync::Arc::clone(&request.reservation);
    Some(GroupPlan { group: request.key, reservation, items: vec![PlanItem::Place(placement)] })
}

/// Where the service's strategy would place the slot's next generation. The reservation in the view is rolled back.
pub(super) fn place_by_strategy(
    view: &mut View,
    request: &mut PlacementRequest,
    pending: PendingSlot,
) -> Option<(longshore_model::Placement, NodeIx)> {
    let (mut placed, _) = placement::place(view, request, vec![pending]);
    view.roll_back();
    let placement = placed.pop()?;
    let node = *view.nodes.by_name.get(&placement.node)?;
    Some((placement, node))
}
