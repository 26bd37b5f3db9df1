//! What has to change, group by group: slots opened and closed, generations placed, stopped and restarted.
//!
//! ```text
//! dirty groups ─▶ removed?  close all slots
//!                 surplus?  close slots (see scale)    missing? open
//!                 no valid node? ─▶ placement ─▶ Place, or Wait with a reason
//!                 newer generation ready? ─▶ Stop the older
//!                 ended? ─▶ Restart after its back-off, or GiveUp
//! ```
//!
//! Owns: the comparison of desired and observed state. Must not touch: which node is best.
//! Invariant: planning again after a plan was applied gives an empty plan; the view is the same after a plan as before.

pub(crate) mod buckets;
mod fixpoint;
mod generation_cutover;
pub(crate) mod global;
pub(crate) mod jobs;
pub(crate) mod mode_change;
pub(crate) mod node_loss;
mod nodes;
pub(crate) mod place_batch;
pub(crate) mod preempt;
mod readiness;
mod reschedule;
pub(crate) mod restart;
mod revisit_unplaced;
pub(crate) mod rollout;
mod rollout_abort;
pub(crate) mod rollout_steps;
pub(crate) mod scale;
pub(crate) mod slots;
mod step_deadline;
mod step_pace;
mod step_retry;
mod stop;
mod superseded_canary;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use longshore_model::{
    Explanation, GroupPlan, NodePlan, Plan, PlanItem, SlotGeneration, SlotKey, StateIndex, Time, Wait,
    replica::DesiredState, settings::Preemption,
};

use self::{
    preempt::StoppingLoad,
    revisit_unplaced::{DecidedGroup, UnplacedSlots},
};
use crate::{
    explain,
    placement::PendingSlot,
    request::PlacementRequest,
    view::{
        GroupIx, View,
        groups::{Slot, is_live},
        rollouts::GroupProgress,
    },
};

/// Decides everything that is due. The view is unchanged afterwards: a plan takes effect through its events.
pub fn plan(view: &mut View, made_from: StateIndex, now: Time) -> Plan {
    let outstanding = view.outstanding_placements();
    let (mut groups, mut nodes) = decide(view, now);
    if view.falls_short(&groups, &outstanding) {
        view.dirty.extend(&view.waiting);
        (groups, nodes) = decide(view, now);
    }
    view.record_outstanding(&groups);
    let deployments = rollout::conclude(view);
    rollout_abort::drop_started_steps(view, &mut groups, &deployments);
    let wake_at = next_wake(view).into_iter().chain(nodes::next_change(view, now)).min();
    Plan { made_from, made_at: now, groups, nodes, deployments, wake_at }
}

/// Decides every group that is due, then whatever follows from those decisions.
fn decide(view: &mut View, now: Time) -> (Vec<GroupPlan>, Vec<NodePlan>) {
    let changes = pass(view, now);
    fixpoint::complete(view, changes, now)
}

/// Decides every group that is due once, the most important first.
fn pass(view: &mut View, now: Time) -> Vec<GroupPlan> {
    view.advance(now);
    view.nodes.refresh();
    let mut plan = Plan::default();
    let mut counts = std::mem::take(&mut view.counts);
    let mut decided = Vec::new();
    let mut stopping = StoppingLoad::default();
    let mut turns = TurnQueue::new(view);
    scale::assume_closings(view, &turns.queue, now);
    if turns.quota_was_freed(view) {
        turns.add_waiting(view);
    }
    while let Some(group) = turns.next() {
        let pass = GroupPass::new(view, now);
        let request = PlacementRequest::new(pass.view, group, now, counts);
        let (mut request, outcome) = pass.decide(group, request);
        let lost = preempt::make_room(view, &mut request, &outcome.needs_preemption, &mut stopping);
        let unplaced = outcome.unplaced.or_empty(view, &request, outcome.changes.as_ref());
        counts = request.into_counts();
        view.set_wake_at(group, outcome.wake_at);
        let plan_index = outcome.changes.is_some().then_some(plan.groups.len());
        let answers_from = unplaced.answers_from();
        let changed_cluster = revisit_unplaced::changes_cluster(outcome.changes.as_ref(), &lost);
        decided.push(DecidedGroup { group, plan_index, changed_cluster, unplaced });
        revisit_unplaced::add_displaced(view, &mut decided, turns.add(view, lost), now);
        if let Some(changes) = outcome.changes {
            // The group stays dirty until its events arrive: a plan that is not committed, or only in part, is made
            // again.
            view.dirty.insert(group);
            assume_stops(view, group, &changes.items[..answers_from]);
            plan.groups.push(changes);
            if turns.quota_was_freed(view) {
                turns.forget(&revisit_unplaced::withdraw(view, &mut plan, &mut decided));
                turns.add_waiting(view);
                revisit_unplaced::revisit_quota_waiters(view, &mut plan, &mut decided, &mut stopping, now);
            }
        }
    }
    view.counts = counts;
    revisit_unplaced::revisit(view, &mut plan, &mut decided, &mut stopping, now);
    preempt::add_stops_to_plan(view, &mut plan);
    view.roll_back();
    plan.groups
}

/// Assumes the stops of a turn for the rest of the pass: they give back quota.
fn assume_stops(view: &mut View, group: GroupIx, items: &[PlanItem]) {
    let closed = items.iter().filter_map(|item| match item {
        PlanItem::Close(slot) | PlanItem::Collect(SlotGeneration { slot, .. }) => Some(slot.clone()),
        _ => None,
    });
    let closed: BTreeSet<SlotKey> = closed.collect();
    if !closed.is_empty() {
        view.assume_closing(group, closed);
    }
    for item in items {
        match item {
            PlanItem::Stop(key) | PlanItem::Reschedule { key, .. } => view.assume_stopping(group, key),
            PlanItem::Close(_)
            | PlanItem::Collect(_)
            | PlanItem::Open(_)
            | PlanItem::Place(_)
            | PlanItem::Wait(_)
            | PlanItem::Restart { .. }
            | PlanItem::Step { .. }
            | PlanItem::NoRoom { .. }
            | PlanItem::Blocked { .. }
            | PlanItem::Promote
            | PlanItem::GiveUp { .. }
            | PlanItem::EvenOutDone => {}
        }
    }
}

/// The groups of a pass in the order of their turns. A group that loses a replica to an earlier one is added.
struct TurnQueue {
    queue: VecDeque<GroupIx>,
    decided: BTreeSet<GroupIx>,
    /// The pass's number of stops when [`TurnQueue::quota_was_freed`] was last called.
    stops_seen: usize,
}

impl TurnQueue {
    fn new(view: &mut View) -> Self {
        Self { queue: view.take_dirty().into(), decided: BTreeSet::new(), stops_seen: 0 }
    }

    fn next(&mut self) -> Option<GroupIx> {
        let next = self.queue.pop_front()?;
        self.decided.insert(next);
        Some(next)
    }

    /// Adds groups that lost a generation to preemption. Returns those that had their turn already: they must be
    /// revisited.
    fn add(&mut self, view: &View, lost: Vec<(GroupIx, SlotKey)>) -> Vec<(GroupIx, SlotKey)> {
        let (late, early): (Vec<_>, Vec<_>) = lost.into_iter().partition(|(group, _)| self.decided.contains(group));
        for (group, _) in early {
            self.insert(view, group);
        }
        late
    }

    /// Whether anything was stopped since the last call: that gives back quota.
    fn quota_was_freed(&mut self, view: &View) -> bool {
        if view.quotas.is_empty() || view.stops_in_pass() == self.stops_seen {
            return false;
        }
        self.stops_seen = view.stops_in_pass();
        true
    }

    /// Treats groups whose decision was withdrawn as not decided.
    fn forget(&mut self, withdrawn: &[GroupIx]) {
        self.decided.retain(|group| !withdrawn.contains(group));
    }

    /// Adds the undecided groups that wait in a namespace with a quota.
    fn add_waiting(&mut self, view: &View) {
        for group in view.waiting.iter().filter(|group| view.has_quota(**group)) {
            if !self.decided.contains(group) {
                self.insert(view, *group);
            }
        }
    }

    fn insert(&mut self, view: &View, group: GroupIx) {
        if !self.queue.contains(&group) {
            let before = self.queue.iter().position(|other| view.precedes(group, *other));
            self.queue.insert(before.unwrap_or(self.queue.len()), group);
        }
    }
}

/// The earliest time at which a decision could change without an event.
fn next_wake(view: &View) -> Option<Time> {
    let wakeup = view.wakeups.first().map(|(at, _)| *at);
    let cooldown = view.config.address_cooldown;
    let cooled =
        view.cooling_addresses.first().map(|(since, _, _)| since.after(cooldown)).filter(|_| !view.waiting.is_empty());
    wakeup.into_iter().chain(cooled).min()
}

/// Desired slots of a group without a node they could run on, each with its next generation. Slots whose replacement
/// is held back (lost node, see [`node_loss`]) are not included.
pub(crate) fn unplaced(view: &View, group: GroupIx, now: Time) -> Vec<PendingSlot> {
    let record = view.group(group);
    if view.is_stopped(&record.key) {
        return Vec::new();
    }
    let lost = record.desired_slots().filter(|slot| slots::is_without_node(view, slot));
    let is_replacement_held =
        |slot: &&Slot| slot.current().is_some_and(|it| node_loss::is_replacement_held(view, &record.spec, it, now));
    let lost = lost.filter(|slot| record.spec.is_stateful() || !is_replacement_held(slot));
    lost.map(slots::next_generation).collect()
}

/// One group's turn in a pass.
struct GroupPass<'a> {
    view: &'a mut View,
    now: Time,
    wake_at: Option<Time>,
    items: Vec<PlanItem>,
    /// Slots that fit on no node and may preempt others.
    needs_preemption: Vec<PendingSlot>,
    /// Slots without a node for any reason.
    unplaced: UnplacedSlots,
    /// Why steps could not begin until their deadline.
    blocked_by: Option<Explanation>,
}

/// The result of one group's turn.
struct GroupOutcome {
    changes: Option<GroupPlan>,
    wake_at: Option<Time>,
    needs_preemption: Vec<PendingSlot>,
    unplaced: UnplacedSlots,
}

impl<'a> GroupPass<'a> {
    fn new(view: &'a mut View, now: Time) -> Self {
        Self {
            view,
            now,
            wake_at: None,
            items: Vec::new(),
            needs_preemption: Vec::new(),
            unplaced: UnplacedSlots::default(),
            blocked_by: None,
        }
    }

    fn decide(mut self, group: GroupIx, mut request: PlacementRequest) -> (PlacementRequest, GroupOutcome) {
        match self.view.group(group).desired {
            DesiredState::Stop => {
                scale::close_all(&mut self, group);
                self.view.set_group_progress(&request.key, group, GroupProgress::Finished);
            }
            DesiredState::Run if self.view.is_stopped(&request.key) => stop::stop_all(&mut self, group),
            DesiredState::Run if request.spec.kind.is_per_node() => global::decide(&mut self, &mut request),
            DesiredState::Run if request.spec.kind.is_job() => jobs::decide(&mut self, group, &mut request),
            DesiredState::Run => self.decide_counted(group, &mut request),
        }
        let changes = (!self.items.is_empty()).then(|| GroupPlan {
            group: request.key.clone(),
            reservation: Arc::clone(&request.reservation),
            items: self.items,
        });
        (
            request,
            GroupOutcome {
                changes,
                wake_at: self.wake_at,
                needs_preemption: self.needs_preemption,
                unplaced: self.unplaced,
            },
        )
    }

    /// Decides a service with a count.
    fn decide_counted(&mut self, group: GroupIx, request: &mut PlacementRequest) {
        self.view.waiting.remove(&group);
        let mut closed = scale::close_surplus(self, group);
        generation_cutover::stop_superseded(self, request);
        restart::restart_ended(self, group);
        rollout::return_to_older(self, request);
        rollout::judge_steps(self, request);
        let needs = slots::needs(self, request, &closed);
        self.place_with_previous_spec(request, needs.with_previous_spec);
        let due = rollout_steps::take_steps(self, request, &needs.outdated, &needs.leaving, &closed);
        let mut left = slots::moving_without_step(self, request, &needs.leaving);
        left.extend(superseded_canary::withdraw(self, request, &needs.outdated, &needs.leaving));
        let mut pending_slots = needs.pending_slots;
        let missing = scale::missing(self, group, &closed);
        if rollout::holds_growth(self.view, request) { &mut left } else { &mut pending_slots }.extend(missing);
        self.place_with_previous_spec(request, left);
        self.place(request, pending_slots);
        mode_change::close_ahead(self, request, &mut closed);
        step_deadline::watch(self, request, &due);
        rollout::record_progress(self, request, &closed);
    }

    /// Places slots whose step in a rollout has not come, with the previous spec.
    fn place_with_previous_spec(&mut self, request: &mut PlacementRequest, pending_slots: Vec<PendingSlot>) {
        let Some(mut previous) =
            PlacementRequest::for_previous_spec(self.view, request, self.now).filter(|_| !pending_slots.is_empty())
        else {
            return;
        };
        assume_stops(self.view, request.group, &self.items);
        let outcome = place_batch::place_batch(self.view, &mut previous, pending_slots);
        for mut placed in outcome.placed {
            if let Some(&node) = self.view.nodes.by_name.get(&placed.node) {
                request.count_slot(node);
            }
            placed.reservation = Some(Arc::clone(&previous.reservation));
            self.items.push(PlanItem::Place(placed));
        }
        for (pending_slots, why) in outcome.waiting {
            self.wait(&previous, pending_slots.into_iter().map(|pending| pending.slot).collect(), &why);
        }
    }

    /// Places what can be placed; the rest waits with an explanation.
    fn place(&mut self, request: &mut PlacementRequest, pending_slots: Vec<PendingSlot>) {
        if pending_slots.is_empty() {
            return slots::stop_replaced(self, request.group);
        }
        assume_stops(self.view, request.group, &self.items);
        let mut outcome = place_batch::place_batch(self.view, request, pending_slots);
        slots::keep_old_dependency_fingerprints(self.view, request, &mut outcome.placed);
        let moved = rollout::moved(self.view, request, &outcome.placed);
        self.items.extend(outcome.placed.into_iter().map(PlanItem::Place));
        self.items.extend(moved);
        slots::stop_replaced(self, request.group);
        // Slots are opened in order: an index below the counter whose slot does not exist counts as used.
        outcome.waiting.sort_by(|(a, _), (b, _)| a.first().map(|a| &a.slot).cmp(&b.first().map(|b| &b.slot)));
        let unplaced = outcome.waiting.iter().flat_map(|(pending_slots, _)| pending_slots.iter().cloned()).collect();
        self.unplaced = UnplacedSlots::new(self.view, request, unplaced, self.items.len());
        self.need_room(preempt::in_need_of_room(&request.spec, &outcome.waiting));
        for (pending_slots, why) in outcome.waiting {
            self.wait(request, pending_slots.into_iter().map(|pending| pending.slot).collect(), &why);
        }
    }

    /// Records slots that may preempt others, where the cluster allows preemption.
    fn need_room(&mut self, pending_slots: Vec<PendingSlot>) {
        match self.view.config.preemption {
            Preemption::Off => {}
            Preemption::On => self.needs_preemption.extend(pending_slots),
        }
    }

    /// Records why slots wait, where the reason is new. A slot with a usable replica does not wait: it stays until
    /// another node has capacity.
    fn wait(&mut self, request: &PlacementRequest, slots: Vec<SlotKey>, why: &Explanation) {
        self.view.waiting.insert(request.group);
        let group = self.view.group(request.group);
        let details = explain::details(why);
        let mut news = Vec::new();
        for slot in slots {
            let Ok(at) = group.slot_at(&slot) else {
                self.items.push(PlanItem::Open(slot.clone()));
                news.push(slot);
                continue;
            };
            match slots::usable_replica(self.view, &group.slots[at]) {
                Some(_) => {}
                None if group.slots[at].waits_for(why.reason, &details) => {}
                // It ended for good before its node went down; that state is what is shown.
                None if self.has_live(&group.slots[at]) => {}
                None => news.push(slot),
            }
        }
        if !news.is_empty() {
            self.items.push(PlanItem::Wait(Wait { slots: news, reason: why.reason, details }));
        }
    }

    /// Whether a slot has a live generation that this pass does not stop.
    fn has_live(&self, slot: &Slot) -> bool {
        let stop = |generation| PlanItem::Stop(slot.key.generation(generation));
        slot.replicas.iter().any(|replica| is_live(replica) && !self.items.contains(&stop(replica.generation)))
    }

    /// Requests another turn at a time.
    fn wake(&mut self, at: Time) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}
