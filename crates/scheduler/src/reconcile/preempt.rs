//! Preemption: a slot that fits nowhere may displace less important replicas, where the cluster allows it.
//!
//! It is part of a group's turn, so that less important groups come after it and see what was decided:
//!
//! ```text
//! fits nowhere ─▶ fits once everything stopping has stopped? ── yes ─▶ claim that capacity
//!                                 └── no ─▶ stop victims, and claim their capacity
//! ```
//!
//! Claimed capacity counts as taken for the rest of the pass. Otherwise a displaced replica would take back the
//! capacity of the first victim to stop while the second is still stopping, and the preemptor would displace for ever.
//! Nothing is placed here: capacity is free only when victims are observed stopped, and then the most important group
//! comes first.
//!
//! Owns: the claims and the choice of victims: never stateful ones, never of a priority less than ten below, never what
//! the preemptor depends on, never more than needed, fewest and lowest first. Both are computed from the view alone, so
//! that the next pass, with the victims stopping, makes the same claims and finds no other victims.
//! Invariant: without any one of the victims the preemptor would not fit.

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeSet,
    sync::Arc,
};

use longshore_model::{
    Explanation, GroupPlan, Plan, PlanItem, Refusal, ServiceSpec, SlotGeneration, SlotKey, Time, replica::DesiredState,
    service::Batching,
};

use super::{jobs, place_batch::place_batch, slots};
use crate::{
    feasibility::{self, gates::dependencies},
    placement::PendingSlot,
    request::{Counts, PlacementRequest},
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Replica, Slot, is_live},
        occupancy::Holding,
    },
};

/// How far below the preemptor's a victim's priority must be, so that groups of similar priority never preempt each
/// other.
const PRIORITY_GAP: u8 = 10;

/// The load of everything that is stopping, computed again when the pass has stopped something else.
#[derive(Default)]
pub(crate) struct StoppingLoad {
    holdings: Vec<(NodeIx, Holding)>,
    /// The pass's number of stops when `holdings` was computed.
    stops_seen: Option<usize>,
}

/// A generation to be stopped.
#[derive(Clone, Debug)]
struct Victim {
    group: GroupIx,
    key: SlotGeneration,
    holding: Holding,
    priority: u8,
}

/// Claims capacity for slots that fit nowhere, displacing others where there is no other way. Returns the slots that
/// lost a generation.
pub(super) fn make_room(
    view: &mut View,
    request: &mut PlacementRequest,
    unmet: &[PendingSlot],
    stopping_load: &mut StoppingLoad,
) -> Vec<(GroupIx, SlotKey)> {
    if unmet.is_empty() {
        return Vec::new();
    }
    stopping_load.subtract(view);
    let victims = victims(view, request, unmet);
    stopping_load.add_back(view);
    let mut losers = Vec::new();
    for Victim { group, key, .. } in victims {
        view.displace(group, &key);
        losers.push((group, key.slot));
    }
    claim_room(view, request, unmet, stopping_load);
    losers
}

/// Claims the capacity that slots can have once everything stopping has stopped: on the first nodes by name, because
/// that order does not change until then.
fn claim_room(
    view: &mut View,
    request: &mut PlacementRequest,
    unmet: &[PendingSlot],
    stopping_load: &mut StoppingLoad,
) {
    let mut kept = Vec::new();
    // Capacity that an all-or-nothing batch could take now is claimed first, or others would take it while the batch
    // waits.
    let unmet = claim_each(view, request, unmet.to_vec(), &mut kept);
    stopping_load.subtract(view);
    let unmet = claim_each(view, request, unmet, &mut kept);
    if is_all_or_nothing(&request.spec) && !unmet.is_empty() {
        view.release_claims(|group| group == request.group);
    }
    for node in kept {
        request.uncount_slot(node);
    }
    stopping_load.add_back(view);
}

/// Claims capacity for every slot that fits somewhere. Returns the others.
fn claim_each(
    view: &mut View,
    request: &mut PlacementRequest,
    pending_slots: Vec<PendingSlot>,
    kept: &mut Vec<NodeIx>,
) -> Vec<PendingSlot> {
    let mut left = Vec::new();
    for pending in pending_slots {
        let takes = |node: &NodeIx| is_possible(view, &pending, *node) && request.passes_every_filter(view, *node);
        let first = view.nodes.by_name_order().find(takes);
        let Some(node) = first else {
            left.push(pending);
            continue;
        };
        view.claim(request, node);
        request.count_slot(node);
        kept.push(node);
    }
    left
}

/// Claims the capacity of every waiting group that is decided before this one, so that an explanation sees the cluster
/// as the pass does.
pub(crate) fn claim_room_of_earlier_groups(view: &mut View, group: GroupIx, now: Time) {
    let mut stopping_load = StoppingLoad::default();
    let mut before: Vec<GroupIx> = view.waiting.iter().copied().filter(|other| view.precedes(*other, group)).collect();
    before.sort_by(|a, b| if view.precedes(*a, *b) { Ordering::Less } else { Ordering::Greater });
    for other in before {
        let mut request = PlacementRequest::new(view, other, now, Counts::default());
        let mut unmet = super::unplaced(view, other, now);
        if !request.spec.kind.is_per_node() {
            unmet.extend(slots::slots_to_move(view, &request, now));
            unmet.sort_by(|a, b| a.slot.cmp(&b.slot));
            for pending in &unmet {
                request.counts.remove_from(slots::counts_on(view, other, &pending.slot));
            }
            let held_back = place_batch(view, &mut request, unmet).waiting;
            unmet = in_need_of_room(&request.spec, &held_back);
        }
        claim_room(view, &mut request, &unmet, &mut stopping_load);
    }
}

/// The waiting slots that more capacity would help, rather than a larger quota, a secret or another volume home.
pub(super) fn in_need_of_room(spec: &ServiceSpec, held_back: &[(Vec<PendingSlot>, Explanation)]) -> Vec<PendingSlot> {
    let helps = |why: &Explanation| matches!(why.gate, None | Some(Refusal::Batch { .. }));
    if is_all_or_nothing(spec) && !held_back.iter().all(|(_, why)| helps(why)) {
        return Vec::new();
    }
    held_back
        .iter()
        .filter(|(_, why)| helps(why))
        .flat_map(|(pending_slots, _)| pending_slots.iter().cloned())
        .collect()
}

impl Victim {
    fn is(&self, other: &Self) -> bool {
        (self.group, &self.key) == (other.group, &other.key)
    }
}

/// A node, and the victims on it.
type Chosen = (NodeIx, Vec<Victim>);

/// Whether a service is placed in full or not at all, so that victims for a part of it would be stopped for nothing.
fn is_all_or_nothing(spec: &ServiceSpec) -> bool {
    spec.placement.batching == Batching::AllOrNothing || spec.placement.strategy.is_pinned()
}

/// Adds the stops of preempted generations to the plan, each to its own group and before the group's other items.
pub(super) fn add_stops_to_plan(view: &mut View, plan: &mut Plan) {
    for (group, key) in view.displaced() {
        view.dirty.insert(group);
        let record = view.group(group);
        if let Some(changes) = plan.groups.iter_mut().find(|changes| changes.group == record.key) {
            changes.items.insert(0, PlanItem::Stop(key));
            continue;
        }
        let replica = record.slot_at(&key.slot).ok().and_then(|at| record.slots[at].replicas.last());
        let reservation = replica.map(|replica| Arc::clone(&replica.reservation)).unwrap_or_default();
        plan.groups.push(GroupPlan { group: record.key.clone(), reservation, items: vec![PlanItem::Stop(key)] });
    }
}

impl StoppingLoad {
    /// Removes the load of everything that is stopping.
    fn subtract(&mut self, view: &mut View) {
        if self.stops_seen != Some(view.stops_in_pass()) {
            self.stops_seen = Some(view.stops_in_pass());
            self.holdings = stopping(view);
        }
        for (node, holding) in &self.holdings {
            view.save_load(*node);
            holding.unload(&mut view.nodes, *node);
        }
    }

    /// Adds that load back.
    fn add_back(&self, view: &mut View) {
        for (node, holding) in &self.holdings {
            holding.load(&mut view.nodes, *node);
        }
        view.reindex_changed();
    }
}

/// What is stopping and still occupies its node.
fn stopping(view: &View) -> Vec<(NodeIx, Holding)> {
    let replicas = view.groups.iter().flatten().flat_map(|group| &group.slots).flat_map(|slot| &slot.replicas);
    let stopping = replicas.filter(|replica| !is_live(replica));
    let stopping = stopping.filter(|replica| crate::occupies(replica.reservation.kind, replica.state));
    stopping.map(|replica| (replica.node, Holding::of(replica))).collect()
}

/// Whether a slot's key allows it on a node.
fn is_possible(view: &View, pending: &PendingSlot, node: NodeIx) -> bool {
    match &pending.slot {
        SlotKey::Node(name) => view.nodes.node(node).name == *name,
        SlotKey::Index(_) => true,
    }
}

/// The victims for slots that fit nowhere even once everything stopping has stopped. The view is left unchanged.
fn victims(view: &mut View, request: &mut PlacementRequest, unmet: &[PendingSlot]) -> Vec<Victim> {
    let mut found: Vec<Chosen> = Vec::new();
    let mut put = Vec::new();
    for pending in unmet {
        let Some((node, chosen)) = best_node(view, request, pending, &found) else { continue };
        for victim in &chosen {
            victim.holding.unload(&mut view.nodes, node);
        }
        put.push(put_on(view, request, node));
        found.push((node, chosen));
    }
    take_off(view, request, put);
    let chosen = spare_across_nodes(view, request, &found);
    for (node, victim) in &chosen {
        victim.holding.load(&mut view.nodes, *node);
    }
    if is_all_or_nothing(&request.spec) && found.len() < unmet.len() {
        return Vec::new();
    }
    chosen.into_iter().map(|(_, victim)| victim).collect()
}

/// Adds one replica of the preemptor to a node's load.
fn put_on(view: &mut View, request: &mut PlacementRequest, node: NodeIx) -> (NodeIx, Holding) {
    let holding = request.holding(view, node);
    holding.load(&mut view.nodes, node);
    request.count_slot(node);
    (node, holding)
}

/// Removes those replicas again.
fn take_off(view: &mut View, request: &mut PlacementRequest, put: Vec<(NodeIx, Holding)>) {
    for (node, holding) in put {
        holding.unload(&mut view.nodes, node);
        request.uncount_slot(node);
    }
}

/// Drops victims that a later choice made superfluous, the most important first. Returns the others, still removed
/// from their nodes' loads.
fn spare_across_nodes(view: &mut View, request: &mut PlacementRequest, found: &[Chosen]) -> Vec<(NodeIx, Victim)> {
    let victims = found.iter().flat_map(|(node, victims)| victims.iter().map(|victim| (*node, victim.clone())));
    let mut victims: Vec<(NodeIx, Victim)> = victims.collect();
    victims.sort_by_key(|(_, victim)| Reverse(victim.priority));
    let mut at = 0;
    while at < victims.len() {
        let (node, holding) = (victims[at].0, victims[at].1.holding.clone());
        holding.load(&mut view.nodes, node);
        if all_fit(view, request, found) {
            victims.remove(at);
        } else {
            holding.unload(&mut view.nodes, node);
            at += 1;
        }
    }
    victims
}

/// Whether as many replicas as nodes were found still fit on these nodes; a global replica only on its own.
fn all_fit(view: &mut View, request: &mut PlacementRequest, found: &[Chosen]) -> bool {
    let nodes: BTreeSet<NodeIx> = found.iter().map(|(node, _)| *node).collect();
    let mut put = Vec::new();
    for (own, _) in found {
        let may_be = |node: &NodeIx| !request.spec.kind.is_per_node() || node == own;
        let takes = |node: &NodeIx| may_be(node) && request.passes_every_filter(view, *node);
        let Some(node) = nodes.iter().copied().find(takes) else { break };
        put.push(put_on(view, request, node));
    }
    let all = put.len() == found.len();
    take_off(view, request, put);
    all
}

/// The node with the cheapest victims, and these.
fn best_node(view: &mut View, request: &PlacementRequest, pending: &PendingSlot, taken: &[Chosen]) -> Option<Chosen> {
    let possible = view.nodes.by_name_order().filter(|node| is_possible(view, pending, *node));
    let nodes: Vec<NodeIx> = possible.filter(|node| feasibility::is_eligible(request, view, *node)).collect();
    let mut best: Option<Chosen> = None;
    for node in nodes {
        let mut candidates = displaceable(view, request, node);
        candidates.retain(|one| !taken.iter().flat_map(|(_, victims)| victims).any(|victim| victim.is(one)));
        let Some(chosen) = choose(view, request, node, candidates) else { continue };
        // Nodes are visited by name, and only a strictly cheaper one replaces the first.
        if best.as_ref().is_none_or(|(_, least)| cost(&chosen) < cost(least)) {
            best = Some((node, chosen));
        }
    }
    best
}

/// The cost of a set of victims: their number, then the highest priority, then the sum of priorities.
fn cost(victims: &[Victim]) -> (usize, u8, u64) {
    let highest = victims.iter().map(|victim| victim.priority).max().unwrap_or(0);
    (victims.len(), highest, victims.iter().map(|victim| u64::from(victim.priority)).sum())
}

/// A smallest set of victims that makes a node feasible; `None` where there is none. The view is left unchanged.
fn choose(view: &mut View, request: &PlacementRequest, node: NodeIx, candidates: Vec<Victim>) -> Option<Vec<Victim>> {
    let mut chosen = Vec::new();
    for victim in candidates {
        if request.passes_every_filter(view, node) {
            break;
        }
        victim.holding.unload(&mut view.nodes, node);
        chosen.push(victim);
    }
    let fits = request.passes_every_filter(view, node);
    if fits {
        spare_on_node(view, request, node, &mut chosen);
    }
    for victim in &chosen {
        victim.holding.load(&mut view.nodes, node);
    }
    fits.then_some(chosen)
}

/// Drops victims that turned out not to be needed, the most important first.
fn spare_on_node(view: &mut View, request: &PlacementRequest, node: NodeIx, chosen: &mut Vec<Victim>) {
    let mut at = chosen.len();
    while at > 0 {
        at -= 1;
        chosen[at].holding.load(&mut view.nodes, node);
        if request.passes_every_filter(view, node) {
            chosen.remove(at);
        } else {
            chosen[at].holding.unload(&mut view.nodes, node);
        }
    }
}

/// The possible victims on a node: the lowest priority first, among equals the closest to the memory needed.
fn displaceable(view: &View, request: &PlacementRequest, node: NodeIx) -> Vec<Victim> {
    // A group needed by one as important as the preemptor is decided before it, and would only be placed again.
    let preemptor = view.priority_donor(request.group);
    let comes_after = |other: GroupIx| view.order(preemptor, view.priority_donor(other)) == Ordering::Less;
    // Stopping a dependency of the preemptor would make the preemptor itself unplaceable.
    let needed_first = dependencies::transitive(view, &request.key, &request.spec);
    let others = view.nodes.groups_on[node.at()].keys().copied().filter(|other| comes_after(*other));
    let others = others.filter(|other| !needed_first.contains(&view.group(*other).key));
    let mut found: Vec<Victim> = others.flat_map(|group| on_node(view, group, request, node)).collect();
    let needed = request.reservation.memory_total();
    found.sort_by_cached_key(|victim| {
        let distance = needed.abs_diff(victim.holding.reservation.memory_total());
        (victim.priority, distance, view.group(victim.group).key.clone(), victim.key.slot.clone())
    });
    found
}

fn on_node(view: &View, ix: GroupIx, request: &PlacementRequest, node: NodeIx) -> Vec<Victim> {
    let group = view.group(ix);
    if !may_be_displaced(group, request) {
        return Vec::new();
    }
    let here = group.slots.iter().flat_map(|slot| slot.replicas.iter().map(move |replica| (slot, replica)));
    let here = here.filter(|(_, replica)| replica.node == node && is_live(replica));
    let here = here.filter(|(_, replica)| crate::occupies(replica.reservation.kind, replica.state));
    let here = here.filter(|(_, replica)| replica.reservation.volumes.is_empty());
    // A displaced replica is placed on another node, and what has ended is not run again.
    let here = here.filter(|(_, replica)| !jobs::has_ended(group, replica));
    let victim = |(slot, replica): (&Slot, &Replica)| Victim {
        group: ix,
        key: slot.key.generation(replica.generation),
        holding: Holding::of(replica),
        priority: group.spec.priority,
    };
    here.map(victim).collect()
}

/// Whether replicas of a group may be displaced for the preemptor.
fn may_be_displaced(group: &Group, request: &PlacementRequest) -> bool {
    let low = group.spec.priority.saturating_add(PRIORITY_GAP) <= request.spec.priority;
    low && !group.spec.is_stateful() && group.desired == DesiredState::Run
}
