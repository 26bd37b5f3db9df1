//! Why a replica has no node: the primary reason, the refusals per filter over all nodes, and the nearest miss.
//!
//! Owns: explanations. They are computed only if nothing fits, at filters × nodes. Must not touch: the choice.
//! Invariant: the primary reason is the first filter, in order, that refuses all nodes the earlier filters left.

pub(crate) mod placed;

use std::collections::BTreeMap;

use longshore_model::{
    Explanation, GroupKey, NearMiss, NodeName, Reason, Refusal, SlotKey, Time,
    replica::{Detail, Details},
    settings::Preemption,
};

use crate::{
    feasibility::{CandidateNode, Filter},
    placement::PendingSlot,
    reconcile::{
        self, global,
        place_batch::place_batch,
        preempt,
        rollout::{self, FollowedSpec},
        rollout_steps, slots,
    },
    request::{Counts, PlacementRequest},
    view::{GroupIx, NodeIx, View},
};

/// Slots and why they are not placed as desired.
type SlotsExplanation = (Vec<SlotKey>, Explanation);

/// Why slots of a group have no node, cannot move off a node they must leave, or cannot start the generation they must
/// update to. Empty if every slot is placed as desired or can be by the next plan.
pub fn explain(view: &mut View, group: &GroupKey, now: Time) -> Vec<SlotsExplanation> {
    view.advance(now);
    view.nodes.refresh();
    let Some(&ix) = view.group_ids.get(group) else { return Vec::new() };
    let mut explanations = misplaced(view, ix, now);
    if view.rollout_of(group).is_some() {
        reserve_for_preemptors(view, ix, now);
        let mut request = PlacementRequest::new(view, ix, now, Counts::default());
        explanations.extend(rollout_steps::blocked_steps(view, &mut request, now));
        view.roll_back();
    }
    explanations
}

/// With preemption on, reserves the capacity that victims are freeing for groups ahead of this one.
fn reserve_for_preemptors(view: &mut View, group: GroupIx, now: Time) {
    if view.config.preemption == Preemption::On {
        preempt::claim_room_of_earlier_groups(view, group, now);
    }
}

/// Why slots have no node or cannot leave a node they must leave. A slot that its rollout has not reached yet is
/// explained by its previous spec.
fn misplaced(view: &mut View, group: GroupIx, now: Time) -> Vec<SlotsExplanation> {
    let request = PlacementRequest::new(view, group, now, Counts::default());
    let held = PlacementRequest::for_previous_spec(view, &request, now);
    let batches = [Some(&request), held.as_ref()].map(|own| own.map(|own| batch(view, &request, own, now)));
    let [Some((unplaced, movers)), before] = batches else { return Vec::new() };
    let (unplaced_before, movers_before) = before.unwrap_or_default();
    if [&unplaced, &movers, &unplaced_before, &movers_before].iter().all(|batch| batch.is_empty()) {
        return Vec::new();
    }
    reserve_for_preemptors(view, group, now);
    let request = PlacementRequest::new(view, group, now, Counts::default());
    let mut explanations = Vec::new();
    if let Some(held) = PlacementRequest::for_previous_spec(view, &request, now) {
        explanations.extend(of_batch(view, held, unplaced_before, movers_before));
    }
    explanations.extend(of_batch(view, request, unplaced, movers));
    view.roll_back();
    explanations
}

/// The slots that follow the spec of `own` (the request for the target spec, `ask`, or the one for the previous spec):
/// those without a node, and those that must leave theirs.
fn batch(
    view: &View,
    request: &PlacementRequest,
    own: &PlacementRequest,
    now: Time,
) -> (Vec<PendingSlot>, Vec<PendingSlot>) {
    let known = view.group(request.group);
    let wanted = if std::ptr::eq(request, own) { FollowedSpec::Target } else { FollowedSpec::Previous };
    let follows = |pending: &PendingSlot| {
        let slot = known.slot_at(&pending.slot).ok().map(|at| &known.slots[at]);
        slot.map_or(FollowedSpec::Target, |slot| rollout::followed_spec(view, request, slot)) == wanted
    };
    let mut unplaced = reconcile::unplaced(view, request.group, now);
    unplaced.retain(follows);
    let mut movers = if request.spec.kind.is_per_node() { Vec::new() } else { slots::slots_to_move(view, own, now) };
    movers.retain(follows);
    (unplaced, movers)
}

fn of_batch(
    view: &mut View,
    mut request: PlacementRequest,
    unplaced: Vec<PendingSlot>,
    movers: Vec<PendingSlot>,
) -> Vec<SlotsExplanation> {
    if request.spec.kind.is_per_node() {
        return global::explain_each(view, &request, unplaced);
    }
    let (stuck, unplaced): (Vec<_>, Vec<_>) =
        unplaced.into_iter().partition(|pending| slots::waits_for_home(view, &request, pending));
    // Slots that must leave their node are part of the batch: they run, but need another node.
    let mut batch = unplaced;
    batch.extend(movers);
    batch.sort_by(|a, b| a.slot.cmp(&b.slot));
    for pending in &batch {
        request.counts.remove_from(slots::counts_on(view, request.group, &pending.slot));
    }
    let mut held_back = if batch.is_empty() { Vec::new() } else { place_batch(view, &mut request, batch).waiting };
    if !stuck.is_empty() {
        held_back.push((stuck, slots::home_node_offline(view, &request)));
    }
    let named = |pending_slots: Vec<PendingSlot>| pending_slots.into_iter().map(|pending| pending.slot).collect();
    held_back.retain(|(pending_slots, _)| !pending_slots.is_empty());
    held_back.into_iter().map(|(pending_slots, why)| (named(pending_slots), why)).collect()
}

/// Why a batch, or the rest of it, fits on no node.
pub(crate) fn nowhere(view: &View, request: &PlacementRequest) -> Explanation {
    let filters: Vec<&'static Filter> = request.filters().collect();
    let nodes: Vec<NodeIx> = view.nodes.by_name_order().collect();
    let refusal_bits: Vec<u32> = nodes.iter().map(|node| refused_by(view, request, &filters, *node)).collect();
    let refused = filters.iter().enumerate().filter_map(|(at, filter)| {
        let count = refusal_bits.iter().filter(|bits| *bits & 1 << at != 0).count();
        (count > 0).then(|| (filter.reason, u32::try_from(count).unwrap_or(u32::MAX)))
    });
    let missing = missing_hosts(view, request, &nodes, &refusal_bits);
    Explanation {
        reason: primary(request, &filters, &refusal_bits),
        nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
        fits: u32::try_from(refusal_bits.iter().filter(|bits| **bits == 0).count()).unwrap_or(u32::MAX),
        refused: refused.collect::<BTreeMap<_, _>>(),
        nearest: nearest(view, request, &filters, &nodes, &refusal_bits),
        gate: None,
        missing,
    }
}

/// The explanation of a closed gate, which no node caused.
pub(crate) fn gated(view: &View, refusal: Refusal) -> Explanation {
    Explanation {
        reason: refusal.reason(),
        nodes: u32::try_from(view.nodes.by_name.len()).unwrap_or(u32::MAX),
        fits: 0,
        refused: BTreeMap::new(),
        nearest: None,
        gate: Some(refusal),
        missing: Vec::new(),
    }
}

/// Why one node refuses a slot that can only run there.
pub(crate) fn at_node(view: &View, request: &PlacementRequest, node: NodeIx) -> Explanation {
    let filters: Vec<&'static Filter> = request.filters().collect();
    let refusal_bits = [refused_by(view, request, &filters, node)];
    let refused = filters.iter().enumerate().filter(|(at, _)| refusal_bits[0] & 1 << at != 0);
    Explanation {
        reason: primary(request, &filters, &refusal_bits),
        nodes: 1,
        fits: 0,
        refused: refused.map(|(_, filter)| (filter.reason, 1)).collect(),
        nearest: nearest(view, request, &filters, &[node], &refusal_bits),
        gate: None,
        missing: Vec::new(),
    }
}

/// The details stored in the replica's status.
pub(crate) fn details(explanation: &Explanation) -> Details {
    let mut details = Details::new();
    if !explanation.missing.is_empty() {
        let names = explanation.missing.iter().map(NodeName::to_string).collect();
        details.insert("missing".to_owned(), Detail::List(names));
    }
    if let Some(Refusal::SecretsMissing { names }) = &explanation.gate {
        details.insert("missing".to_owned(), Detail::List(names.iter().map(ToString::to_string).collect()));
    }
    if let Some(Refusal::Dependency { service }) = &explanation.gate {
        details.insert("service".to_owned(), Detail::Text(service.clone()));
    }
    if let Some(Refusal::Quota { dimension, limit, used, needed }) = &explanation.gate {
        details.insert("dimension".to_owned(), Detail::Text(dimension.as_str().to_owned()));
        details.insert("limit".to_owned(), Detail::Number(*limit));
        details.insert("current_usage".to_owned(), Detail::Number(*used));
        details.insert("requested_delta".to_owned(), Detail::Number(*needed));
    }
    details
}

/// One bit per filter, set if the filter refuses the node.
fn refused_by(view: &View, request: &PlacementRequest, filters: &[&'static Filter], node: NodeIx) -> u32 {
    let candidate = CandidateNode::of_node(view, node);
    filters
        .iter()
        .enumerate()
        .fold(0, |bits, (at, filter)| bits | u32::from(!(filter.check)(request, &candidate)) << at)
}

fn primary(request: &PlacementRequest, filters: &[&'static Filter], refusal_bits: &[u32]) -> Reason {
    if refusal_bits.is_empty() {
        return Reason::NoNodesActive;
    }
    let mut seen = 0;
    for (at, filter) in filters.iter().enumerate() {
        seen |= 1 << at;
        if refusal_bits.iter().all(|bits| bits & seen != 0) {
            // One replica per pinned host is the strategy's rule: if all hosts have theirs, there are too few hosts.
            let pinned = request.spec.placement.strategy.is_pinned();
            let ran_out = pinned && filter.reason == Reason::MaxReplicasPerNode;
            return if ran_out { Reason::CannotSatisfyHostPlacement } else { filter.reason };
        }
    }
    // Some nodes fit, but too few for a service that is placed completely or not at all.
    let pinned = request.spec.placement.strategy.is_pinned();
    if pinned { Reason::CannotSatisfyHostPlacement } else { Reason::BatchIncomplete }
}

/// Pinned hosts that cannot take a replica, unknown hosts included. A host that has its replica is not missing.
fn missing_hosts(view: &View, request: &PlacementRequest, nodes: &[NodeIx], refusal_bits: &[u32]) -> Vec<NodeName> {
    if !request.spec.placement.strategy.is_pinned() {
        return Vec::new();
    }
    let usable = |name: &NodeName| {
        let Some(ix) = view.nodes.by_name.get(name) else { return false };
        let at = nodes.iter().position(|node| node == ix);
        request.counts.get(*ix) > 0 || at.is_some_and(|at| refusal_bits[at] == 0)
    };
    request.spec.placement.hosts.iter().filter(|name| !usable(name)).cloned().collect()
}

/// The node with the fewest failed filters, then the smallest shortfall, then the first name.
fn nearest(
    view: &View,
    request: &PlacementRequest,
    filters: &[&'static Filter],
    nodes: &[NodeIx],
    refusal_bits: &[u32],
) -> Option<NearMiss> {
    let failed = nodes.iter().zip(refusal_bits).filter(|(_, bits)| **bits != 0);
    let fewest = failed.clone().map(|(_, bits)| bits.count_ones()).min()?;
    let close = failed.filter(|(_, bits)| bits.count_ones() == fewest);
    let shortfall = |node: NodeIx, bits: u32| {
        let lacks = refusals(view, request, filters, node, bits);
        lacks.iter().fold(0_u64, |sum, refusal| sum.saturating_add(refusal.shortfall()))
    };
    // Nodes are in name order, and `min_by_key` returns the first of equals.
    let (node, bits) = close.min_by_key(|(node, bits)| shortfall(**node, **bits))?;
    let name = view.nodes.node(*node).name.clone();
    Some(NearMiss { node: name, lacks: refusals(view, request, filters, *node, *bits) })
}

fn refusals(
    view: &View,
    request: &PlacementRequest,
    filters: &[&'static Filter],
    node: NodeIx,
    bits: u32,
) -> Vec<Refusal> {
    let candidate = CandidateNode::of_node(view, node);
    let failing = filters.iter().enumerate().filter(|(at, _)| bits & 1 << at != 0);
    failing.map(|(_, filter)| (filter.explain)(request, &candidate)).collect()
}
