//! Decides slots again, at the end of a pass, that were left without a node.
//!
//! A slot that waited early in the pass was explained by the cluster as it was then. Later placements may have changed
//! the reason, and a service that must be near one decided later may now fit. So those slots are decided again on the
//! cluster as the plan leaves it: planning once more has nothing to add.
//!
//! Owns: replacing early answers. Must not touch: what was placed, stopped or closed before.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::{GroupPlan, Plan, PlanItem, SlotKey, Time, settings::Preemption};

use super::{
    GroupPass, global,
    preempt::{self, StoppingLoad},
    slots,
};
use crate::{
    placement::PendingSlot,
    request::{Counts, Locations, PlacementRequest},
    view::{GroupIx, NodeIx, View},
};

/// Rounds are repeated while they place something. A third is needed only by services that name each other in a cycle,
/// and by moves under a quota, where each stop admits the next: one round each.
const MAX_ROUNDS: usize = 12;

/// The slots a turn left without a node, with what is needed to decide them again.
#[derive(Default)]
pub(super) struct UnplacedSlots {
    pending_slots: Vec<PendingSlot>,
    /// The slot counts of the service as its turn left them.
    locations: Locations,
    /// Index of the turn's first item that is an answer (a wait and its slot opening) rather than a change.
    answers_from: usize,
    /// [`View::pass_changes`] when it was decided.
    reserved: usize,
}

impl UnplacedSlots {
    pub(super) fn new(
        view: &View,
        request: &PlacementRequest,
        pending_slots: Vec<PendingSlot>,
        answers_from: usize,
    ) -> Self {
        if pending_slots.is_empty() {
            return Self::default();
        }
        Self { pending_slots, locations: request.counts.locations(), answers_from, reserved: view.pass_changes() }
    }

    /// Itself, or for a turn that left no slot what is needed to add one later, where preemption is on.
    pub(super) fn or_empty(self, view: &View, request: &PlacementRequest, changes: Option<&GroupPlan>) -> Self {
        if !self.pending_slots.is_empty() {
            return self;
        }
        let answers_from = changes.map_or(0, |changes| changes.items.len());
        match view.config.preemption {
            Preemption::Off => Self { answers_from, ..self },
            Preemption::On => Self { answers_from, locations: request.counts.locations(), ..self },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending_slots.is_empty()
    }

    /// Inserts items before the turn's answers.
    pub(super) fn insert_before_answers(&mut self, items: &mut Vec<PlanItem>, added: impl Iterator<Item = PlanItem>) {
        let answers = items.split_off(self.answers_from);
        items.extend(added);
        self.answers_from = items.len();
        items.extend(answers);
    }

    /// The number of the turn's items that stay whatever a later decision says.
    pub(super) fn answers_from(&self) -> usize {
        self.answers_from
    }

    /// Adds a slot that lost its generation on a node after the turn.
    fn lose(&mut self, node: Option<NodeIx>, pending: PendingSlot) {
        if let Some(node) = node {
            self.locations.lose(node);
        }
        self.pending_slots.push(pending);
    }
}

/// A group that had its turn, and the index of its changes in the plan, if it has any.
pub(super) struct DecidedGroup {
    pub(super) group: GroupIx,
    pub(super) plan_index: Option<usize>,
    /// See [`changes_cluster`].
    pub(super) changed_cluster: bool,
    pub(super) unplaced: UnplacedSlots,
}

/// Whether a turn changed the cluster (placed, stopped, opened or displaced something) rather than only a wait reason.
pub(super) fn changes_cluster(changes: Option<&GroupPlan>, lost: &[(GroupIx, SlotKey)]) -> bool {
    let mut items = changes.into_iter().flat_map(|changes| &changes.items);
    let waits_only = items.all(|item| matches!(item, PlanItem::Wait(_)));
    !waits_only || !lost.is_empty()
}

/// Decides every group again that was decided before the last change of the pass.
pub(super) fn revisit(
    view: &mut View,
    plan: &mut Plan,
    decided: &mut Vec<DecidedGroup>,
    stopping: &mut StoppingLoad,
    now: Time,
) {
    for _ in 0..MAX_ROUNDS {
        let before = view.pass_changes();
        for at in 0..decided.len() {
            let decision = &mut decided[at];
            if !decision.unplaced.pending_slots.is_empty() && decision.unplaced.reserved != view.pass_changes() {
                let lost = decide_again(view, plan, decision, stopping, now);
                add_displaced(view, decided, lost, now);
            }
        }
        if view.pass_changes() == before {
            break;
        }
    }
    plan.groups.retain(|group| !group.items.is_empty());
}

/// Withdraws the decisions of groups that wait under a quota and got nothing. Returns these groups. They get a
/// complete turn, as if they had not been decided: otherwise what precedes a placement in a turn, and which spec a
/// slot is placed with, would depend on whether the group was due anyway.
pub(super) fn withdraw(view: &mut View, plan: &mut Plan, decided: &mut Vec<DecidedGroup>) -> Vec<GroupIx> {
    let is_void = |decision: &DecidedGroup| {
        let waits = view.waiting.contains(&decision.group) && view.has_quota(decision.group);
        waits && !decision.changed_cluster
    };
    let void: Vec<DecidedGroup> = decided.extract_if(.., |decision| is_void(decision)).collect();
    for decision in &void {
        if let Some(index) = decision.plan_index {
            plan.groups[index].items.clear();
        }
        view.dirty.remove(&decision.group);
    }
    let withdrawn: Vec<GroupIx> = void.into_iter().map(|decision| decision.group).collect();
    view.release_claims(|group| withdrawn.contains(&group));
    withdrawn
}

/// Decides groups again at once that wait for quota and had their turn before some was given back. Groups whose turn
/// has not come must not be served first: whether a group was due anyway would then decide which one gets it.
pub(super) fn revisit_quota_waiters(
    view: &mut View,
    plan: &mut Plan,
    decided: &mut Vec<DecidedGroup>,
    stopping: &mut StoppingLoad,
    now: Time,
) {
    for at in 0..decided.len() {
        let decision = &mut decided[at];
        if view.has_quota(decision.group) && !decision.unplaced.pending_slots.is_empty() {
            let lost = decide_again(view, plan, decision, stopping, now);
            add_displaced(view, decided, lost, now);
        }
    }
}

/// Adds slots that were displaced after their group's turn, or whose group had none: they need a node too.
pub(super) fn add_displaced(view: &View, decided: &mut Vec<DecidedGroup>, lost: Vec<(GroupIx, SlotKey)>, now: Time) {
    for (group, slot) in lost {
        let record = view.group(group);
        let Ok(at) = record.slot_at(&slot) else { continue };
        if !slots::may_have_successor(view, &record.spec, &record.slots[at]) {
            continue;
        }
        let pending = slots::next_generation(&record.slots[at]);
        if let Some(decision) = decided.iter_mut().find(|decision| decision.group == group) {
            decision.unplaced.lose(record.slots[at].replicas.last().map(|replica| replica.node), pending);
        } else {
            let request = PlacementRequest::new(view, group, now, Counts::default());
            let left = UnplacedSlots { reserved: 0, ..UnplacedSlots::new(view, &request, vec![pending], 0) };
            decided.push(DecidedGroup { group, plan_index: None, changed_cluster: true, unplaced: left });
        }
    }
}

fn decide_again(
    view: &mut View,
    plan: &mut Plan,
    decision: &mut DecidedGroup,
    stopping: &mut StoppingLoad,
    now: Time,
) -> Vec<(GroupIx, SlotKey)> {
    let UnplacedSlots { pending_slots, locations, answers_from, .. } = std::mem::take(&mut decision.unplaced);
    let mut request = PlacementRequest::resume(view, decision.group, now, &locations);
    // Claims of the group itself, and of less important groups, do not count against it.
    let after: BTreeSet<GroupIx> = view.claimants().filter(|other| !view.precedes(*other, decision.group)).collect();
    let released = view.release_claims(|group| after.contains(&group));
    let mut pass = GroupPass::new(view, now);
    if request.spec.kind.is_per_node() {
        global::place_again(&mut pass, &mut request, pending_slots);
    } else {
        pass.place(&mut request, pending_slots);
    }
    let GroupPass { items, unplaced: left, needs_preemption, .. } = pass;
    let lost = preempt::make_room(view, &mut request, &needs_preemption, stopping);
    view.restore_claims(released, decision.group);
    let changes = if left.pending_slots.is_empty() { items.len() } else { left.answers_from };
    super::assume_stops(view, decision.group, &items[..changes]);
    let kept = decision.plan_index.map(|index| &mut plan.groups[index].items);
    decision.unplaced = UnplacedSlots { answers_from: answers_from + left.answers_from, ..left };
    match kept {
        Some(kept) => {
            kept.truncate(answers_from);
            kept.extend(items);
        }
        None if items.is_empty() => {}
        None => {
            view.dirty.insert(decision.group);
            decision.plan_index = Some(plan.groups.len());
            plan.groups.push(GroupPlan {
                group: request.key.clone(),
                reservation: Arc::clone(&request.reservation),
                items,
            });
        }
    }
    lost
}
