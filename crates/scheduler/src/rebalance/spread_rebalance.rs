//! Spread rebalance: on request, evens out a service that became uneven because nodes joined after it was placed.
//!
//! Owns: which replica moves first: the highest index on the fullest node of the fullest branch. The service's strategy
//! chooses the destination. Must not touch: services without a request.
//! Invariant: every move makes the spread more even, so the rebalance terminates.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    Assignment, Attempt, Event, Generation, GroupPlan, NodeName, Placement, PlanItem, ReplicaKey, ReplicaState, Time,
    rebalance::{MoveCause, PlannedMove, Pressure, RebalanceScore, SpreadRebalance},
    replica::{DesiredState, Details, RestartHistory},
};

use super::{
    Cycle, Rebalancer, branch_counts, candidates,
    gates::{self, PressureChange, REPLICA_COOLDOWN},
    pressure_rebalance::place_by_strategy,
    score::{self, MOVE_COST},
};
use crate::{
    reconcile::slots,
    request::{Counts, PlacementRequest},
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Slot},
    },
};

/// The next action of a spread rebalance.
enum Outcome {
    Moves(Box<Placement>),
    /// A change is in progress, a cooldown applies, or the destination would become hot.
    NotYet,
    Even,
}

/// Continues the requested spread rebalances in order of priority, up to the first move.
pub(super) fn rebalance(
    rebalancer: &mut Rebalancer,
    view: &mut View,
    fresh: &BTreeMap<NodeName, Pressure>,
    now: Time,
    cycle: &mut Cycle,
) {
    let requested = view.group_ids.values().copied().filter(|group| is_requested(view, *group));
    let mut requested: Vec<GroupIx> = requested.collect();
    requested.sort_by(|a, b| view.order(*a, *b));
    for group in requested {
        let mut request = PlacementRequest::new(view, group, now, Counts::default());
        let search = SpreadSearch { rebalancer, fresh, now, cooldown: Cooldown::Enforced };
        // Nothing of a stopped deployment runs; it is spread anew when it is started.
        let stopped = view.is_stopped(&request.key);
        let outcome = if stopped { Outcome::Even } else { search.next_move(view, &mut request) };
        let (reservation, key) = (Arc::clone(&request.reservation), request.key);
        let item = match outcome {
            Outcome::NotYet => continue,
            Outcome::Even => PlanItem::EvenOutDone,
            Outcome::Moves(placement) => PlanItem::Place(*placement),
        };
        let moves = matches!(item, PlanItem::Place(_));
        cycle.plan.groups.push(GroupPlan { group: key, reservation, items: vec![item] });
        if moves {
            break;
        }
    }
}

fn is_requested(view: &View, group: GroupIx) -> bool {
    let known = view.group(group);
    known.spread_rebalance == SpreadRebalance::Requested && known.desired == DesiredState::Run
}

/// The moves that would even out every service that allows it, in order, if nothing else happened. The view is left as
/// if they had been made.
pub(super) fn preview(
    rebalancer: &Rebalancer,
    view: &mut View,
    fresh: &BTreeMap<NodeName, Pressure>,
    now: Time,
) -> Vec<PlannedMove> {
    let runs = |group: &Group| group.desired == DesiredState::Run && !view.is_stopped(&group.key);
    let wanted = view.group_ids.values().copied().filter(|group| runs(view.group(*group)));
    let mut groups: Vec<GroupIx> = wanted.collect();
    groups.sort_by(|a, b| view.order(*a, *b));
    let search = SpreadSearch { rebalancer, fresh, now, cooldown: Cooldown::Ignored };
    let mut moves = Vec::new();
    for group in groups {
        // Each move makes the spread more even, so this terminates; the bound only keeps a bug from looping.
        for _ in 0..=view.group(group).slots.len() {
            let mut request = PlacementRequest::new(view, group, now, Counts::default());
            let Outcome::Moves(placement) = search.next_move(view, &mut request) else { break };
            moves.extend(apply_move(view, &request, *placement, now));
        }
    }
    moves
}

/// Applies a move to the view as if it were complete: the new generation runs, the old one is gone.
fn apply_move(view: &mut View, request: &PlacementRequest, placement: Placement, now: Time) -> Option<PlannedMove> {
    let from = slots::node_of(view, request.group, &placement.key.slot)?;
    let from = view.nodes.node(from).name.clone();
    let (key, to) = (placement.key.in_group(&request.key), placement.node);
    let assignment = Assignment {
        node: to.clone(),
        address: placement.address,
        placed_at: now,
        reservation: Arc::clone(&request.reservation),
        devices: placement.devices,
    };
    let old = key.group.replica(&key.slot, Generation(key.generation.0.saturating_sub(1)));
    let runs = Event::Observed {
        key: key.clone(),
        attempt: Attempt(0),
        state: ReplicaState::Running,
        code: None,
        details: Details::new(),
        failures: 0,
        history: RestartHistory::default(),
        at: now,
        replaced_by: None,
    };
    view.apply(&Event::Placed { key: key.clone(), assignment });
    view.apply(&runs);
    view.apply(&Event::Released { key: old, at: now });
    view.nodes.refresh();
    Some(PlannedMove { group: key.group, slot: key.slot, from, to })
}

/// Whether the cooldown of a recently moved replica applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cooldown {
    Enforced,
    Ignored,
}

/// The inputs of a search for the next move of a service.
struct SpreadSearch<'a> {
    rebalancer: &'a Rebalancer,
    fresh: &'a BTreeMap<NodeName, Pressure>,
    now: Time,
    cooldown: Cooldown,
}

impl SpreadSearch<'_> {
    /// The next move of the service, or why there is none.
    fn next_move(&self, view: &mut View, request: &mut PlacementRequest) -> Outcome {
        if !request.spec.placement.strategy.is_spread() || !candidates::is_movable(&request.spec) {
            return Outcome::Even;
        }
        if view.group(request.group).desired_slots().any(|slot| is_under_way(request, slot)) {
            return Outcome::NotYet;
        }
        let mut later = false;
        for src in fullest_first(view, request) {
            match self.move_from(view, request, src) {
                Outcome::Moves(placement) => return Outcome::Moves(placement),
                Outcome::NotYet => later = true,
                Outcome::Even => {}
            }
        }
        if later { Outcome::NotYet } else { Outcome::Even }
    }

    /// Whether moving one of the service's replicas off a node makes the spread more even.
    fn move_from(&self, view: &mut View, request: &mut PlacementRequest, src: NodeIx) -> Outcome {
        let Some(settled) = candidates::slots_on(view, request, src).pop() else { return Outcome::Even };
        let known = view.group(request.group);
        let Ok(at) = known.slot_at(&settled.slot) else { return Outcome::Even };
        let moved_at = known.slots[at].moved_at.filter(|_| self.cooldown == Cooldown::Enforced);
        let cooling_down = moved_at.is_some_and(|moved| self.now.since(moved) < REPLICA_COOLDOWN);
        let pending = slots::next_generation(&known.slots[at]);
        request.uncount_slot(src);
        let found = place_by_strategy(view, request, pending);
        if let Some((_, dst)) = &found {
            request.uncount_slot(*dst);
        }
        let better = found.filter(|(_, dst)| {
            let (from, to) = branch_counts::at_first_difference(view, request, src, *dst);
            *dst != src && from > to
        });
        request.count_slot(src);
        let Some((mut placement, dst)) = better else { return Outcome::Even };
        let replica = settled.in_group(&request.key);
        let weighed = self.weigh(view, &replica, src, dst);
        if cooling_down || weighed.is_none() {
            return Outcome::NotYet;
        }
        placement.moved = weighed.map(Box::new);
        Outcome::Moves(Box::new(placement))
    }

    /// The score of a move, with the pressures that are known; `None` if the destination would become hot.
    fn weigh(&self, view: &View, replica: &ReplicaKey, src: NodeIx, dst: NodeIx) -> Option<RebalanceScore> {
        let change = |node: NodeIx, by: fn(Pressure, Pressure) -> PressureChange| {
            let known = view.nodes.node(node);
            let before = *self.fresh.get(&known.name)?;
            Some(by(before, self.rebalancer.footprint_of(view, replica, known)))
        };
        let (from, to) = (&view.nodes.node(src).name, &view.nodes.node(dst).name);
        let destination = change(dst, PressureChange::with);
        if destination.is_some_and(|change| gates::destination_cap(change).is_some()) {
            return None;
        }
        let known = change(src, PressureChange::without).map(|source| {
            let leaves = self.rebalancer.footprint_of(view, replica, view.nodes.node(src));
            score::weigh(from, source, leaves, None)
        });
        let weighed = known.unwrap_or_else(|| unknown(from));
        Some(RebalanceScore {
            cause: MoveCause::EvenOut,
            dst: Some(to.clone()),
            dst_before: destination.map(|change| change.before.composite()),
            dst_after: destination.map(|change| change.after.composite()),
            ..weighed
        })
    }
}

/// The score of a move whose source has no recent sample.
fn unknown(src: &NodeName) -> RebalanceScore {
    RebalanceScore {
        cause: MoveCause::EvenOut,
        src: src.clone(),
        dst: None,
        dominant: None,
        relief: None,
        score: None,
        move_cost: MOVE_COST,
        src_before: None,
        src_after: None,
        dst_before: None,
        dst_after: None,
    }
}

/// Whether a slot is being started, moved or updated. A waiting or permanently failed slot does not block a rebalance.
fn is_under_way(request: &PlacementRequest, slot: &Slot) -> bool {
    let [replica] = slot.replicas.as_slice() else { return !slot.replicas.is_empty() };
    slots::is_outdated(request, replica)
        || matches!(
            replica.state,
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting | ReplicaState::Draining
        )
}

/// The nodes with replicas of the service, fullest branch and node first, then in reverse name order.
fn fullest_first(view: &View, request: &PlacementRequest) -> Vec<NodeIx> {
    let mut nodes: Vec<NodeIx> = view.nodes.by_name_order().filter(|node| request.counts.get(*node) > 0).collect();
    nodes.reverse();
    nodes.sort_by_key(|node| std::cmp::Reverse(branch_counts::of_node(view, request, *node)));
    nodes
}
