//! Places one batch: gates, then the strategy, then a reason for every slot left over.
//!
//! Plan and explanation both use it, so that the explanation matches the attempt.
//!
//! Owns: all-or-nothing. Invariant: every pending slot passed in is returned as placed or as waiting with an
//! explanation.

use std::collections::BTreeSet;

use longshore_model::{Explanation, Placement, Reason, Refusal, service::Batching};

use crate::{
    explain,
    feasibility::gates::{self, Gate, dependencies},
    placement::{self, PendingSlot},
    request::PlacementRequest,
    view::{NodeIx, View},
};

use super::{reschedule, slots};

/// The result for a batch.
#[derive(Default)]
pub(crate) struct BatchOutcome {
    pub(crate) placed: Vec<Placement>,
    pub(crate) waiting: Vec<(Vec<PendingSlot>, Explanation)>,
}

/// Places what can be placed. Reservations stay until the pass is rolled back.
pub(crate) fn place_batch(
    view: &mut View,
    request: &mut PlacementRequest,
    mut pending_slots: Vec<PendingSlot>,
) -> BatchOutcome {
    let mut outcome = BatchOutcome::default();
    let barred = match gates::check(view, request, pending_slots.len()) {
        Gate::Open => None,
        // Pinned hosts are taken all together or not at all. If some were placed, a smaller quota could mean more
        // replicas.
        Gate::Partly { refusal, .. } if request.spec.placement.strategy.is_pinned() => {
            Some((std::mem::take(&mut pending_slots), refusal))
        }
        Gate::Partly { allowed, refusal } => Some((pending_slots.split_off(allowed), refusal)),
        Gate::Shut(refusal) => Some((std::mem::take(&mut pending_slots), refusal)),
    };
    let (pending_slots, early) = split_early(view, request, pending_slots);
    match request.spec.placement.batching {
        Batching::AsManyAsFit => as_many_as_fit(view, request, pending_slots, &mut outcome),
        Batching::AllOrNothing => {
            let barred = barred.as_ref().map_or(0, |(barred, _)| barred.len());
            all_or_nothing(view, request, pending_slots, barred, &mut outcome);
        }
    }
    if let Some((early, refusal)) = early {
        outcome.waiting.push((early, explain::gated(view, refusal)));
    }
    if let Some((barred, refusal)) = barred {
        // The gate is checked again: what was just placed counts in the numbers shown, and slots that passed the gate
        // but found no node come before those it refused.
        let before: usize = outcome.waiting.iter().map(|(pending_slots, _)| pending_slots.len()).sum();
        let refusal = match gates::check(view, request, before + barred.len()) {
            Gate::Open => refusal,
            Gate::Partly { refusal, .. } | Gate::Shut(refusal) => refusal,
        };
        outcome.waiting.push((barred, explain::gated(view, refusal)));
    }
    outcome
}

/// Splits off the slots that wait for a dependency to be met.
fn split_early(
    view: &View,
    request: &PlacementRequest,
    pending_slots: Vec<PendingSlot>,
) -> (Vec<PendingSlot>, Option<(Vec<PendingSlot>, Refusal)>) {
    let starts = |pending: &PendingSlot| dependencies::is_first_start(view, request, pending);
    let first = pending_slots.iter().find(|pending| starts(pending));
    let unmet = first.and_then(|first| dependencies::blocking(view, request, first));
    let Some(refusal) = unmet else { return (pending_slots, None) };
    let (early, due) = pending_slots.into_iter().partition(starts);
    (due, Some((early, refusal)))
}

fn as_many_as_fit(
    view: &mut View,
    request: &mut PlacementRequest,
    pending_slots: Vec<PendingSlot>,
    outcome: &mut BatchOutcome,
) {
    let (pending_slots, movers) = reschedule::split(view, request, pending_slots);
    let (pending_slots, doubled) = split_doubled(view, request, pending_slots);
    let (placed, mut left) = placement::place(view, request, pending_slots);
    outcome.placed = placed;
    for (pending, left_behind) in movers.into_iter().chain(doubled) {
        let older = slots::overlap_nodes(view, request.group, &pending.slot);
        older.iter().for_each(|node| request.counts.remove_overlap(*node));
        let avoiding = request.avoid(&left_behind);
        let (placed, unplaced) = placement::place(view, request, vec![pending]);
        request.stop_avoiding(&avoiding);
        let taken = placed.first().and_then(|placed| view.nodes.by_name.get(&placed.node).copied());
        older.into_iter().filter(|node| Some(*node) != taken).for_each(|node| request.counts.add_overlap(node));
        outcome.placed.extend(placed);
        left.extend(unplaced);
    }
    if !left.is_empty() {
        let mut why = explain::nowhere(view, request);
        if why.missing.is_empty() && request.spec.placement.strategy.is_pinned() {
            // Every pinned host is feasible; there are too few of them.
            let taken = request.counts.nodes().count();
            why.gate = Some(too_few(request.spec.placement.hosts.len().saturating_sub(taken), left.len()));
        }
        outcome.waiting.push((left, why));
    }
}

/// Splits off the slots with an older generation that is still desired. They are placed one by one: the older
/// generation limits every other slot, but not its own.
fn split_doubled(
    view: &View,
    request: &PlacementRequest,
    pending_slots: Vec<PendingSlot>,
) -> (Vec<PendingSlot>, Vec<(PendingSlot, BTreeSet<NodeIx>)>) {
    // Pinned hosts are taken all together or not at all.
    if !request.counts.has_overlap() || request.spec.placement.strategy.is_pinned() {
        return (pending_slots, Vec::new());
    }
    let is_single = |pending: &PendingSlot| slots::overlap_nodes(view, request.group, &pending.slot).is_empty();
    let (single, doubled): (Vec<_>, Vec<_>) = pending_slots.into_iter().partition(is_single);
    (single, doubled.into_iter().map(|pending| (pending, BTreeSet::new())).collect())
}

fn all_or_nothing(
    view: &mut View,
    request: &mut PlacementRequest,
    pending_slots: Vec<PendingSlot>,
    barred: usize,
    outcome: &mut BatchOutcome,
) {
    if pending_slots.is_empty() {
        return;
    }
    let savepoint = view.savepoint();
    let (_, movers) = reschedule::split(view, request, pending_slots.clone());
    let avoiding = request.avoid(&movers.into_iter().flat_map(|(_, left_behind)| left_behind).collect());
    let (placed, left) = placement::place(view, request, pending_slots.clone());
    request.stop_avoiding(&avoiding);
    if left.is_empty() && barred == 0 {
        outcome.placed = placed;
        return;
    }
    let mut why = explain::nowhere(view, request);
    if !placed.is_empty() {
        why.reason = Reason::BatchIncomplete;
        why.gate = Some(too_few(placed.len(), pending_slots.len() + barred));
    }
    view.roll_back_to(savepoint, request);
    for placement in &placed {
        request.counts.remove_from(view.nodes.by_name.get(&placement.node).copied());
    }
    outcome.waiting.push((pending_slots, why));
}

fn too_few(fits: usize, wanted: usize) -> Refusal {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Refusal::Batch { fits: number(fits), wanted: number(wanted) }
}
