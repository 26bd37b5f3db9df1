//! What has to change, group by group: slots opened and closed, generations placed, stopped and restarted.
//!
//! ```text
//! dirty groups ─▶ unwanted? close all
//!                 surplus?  close the least missed     missing? open
//!                 no valid node? ─▶ placement ─▶ Place, or Wait with a reason
//!                 newer generation runs? ─▶ Stop the older
//!                 ended? ─▶ Restart after its back-off, or GiveUp
//! ```
//!
//! Owns: the comparison of what is wanted with what is. Must not touch: which node is best.
//! Invariant: planning an applied plan gives nothing more to do; the view is the same after a plan as before.

mod abort;
pub(crate) mod absence;
pub(crate) mod attempt;
pub(crate) mod buckets;
pub(crate) mod changeover;
mod foresight;
pub(crate) mod global;
mod handover;
pub(crate) mod jobs;
mod nodes;
pub(crate) mod preempt;
mod proof;
mod reschedule;
mod restart;
pub(crate) mod rollout;
pub(crate) mod scale;
mod second_look;
pub(crate) mod slots;
pub(crate) mod steps;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use longshore_model::{
    Explanation, GroupPlan, NodePlan, Plan, PlanItem, SlotKey, StateIndex, Time, Wait, config::Preemption,
    replica::Wanted,
};

use self::{
    preempt::Leaving,
    second_look::{Answered, Brought, Leftover},
};
use crate::{
    ask::Ask,
    explain,
    placement::Vacancy,
    view::{
        GroupIx, View,
        groups::{Slot, is_live},
        rollouts::Standing,
    },
};

/// Decides everything that is due. The view is the same after as before: a plan takes effect through its events.
pub fn plan(view: &mut View, made_from: StateIndex, now: Time) -> Plan {
    let outstanding = view.outstanding();
    let (mut groups, mut nodes) = decide(view, now);
    if view.falls_short(&groups, &outstanding) {
        view.dirty.extend(&view.waiting);
        (groups, nodes) = decide(view, now);
    }
    view.promise(&groups);
    let deployments = rollout::conclude(view);
    abort::begin_nothing(view, &mut groups, &deployments);
    let wake_at = next_wake(view).into_iter().chain(nodes::next_change(view, now)).min();
    Plan { made_from, made_at: now, groups, nodes, deployments, wake_at }
}

/// Decides about every group that is due, then about whatever follows from that.
fn decide(view: &mut View, now: Time) -> (Vec<GroupPlan>, Vec<NodePlan>) {
    let changes = pass(view, now);
    foresight::complete(view, changes, now)
}

/// Decides once about every group that is due, the most important first.
fn pass(view: &mut View, now: Time) -> Vec<GroupPlan> {
    view.advance(now);
    view.fleet.refresh();
    let mut plan = Plan::default();
    let mut counts = std::mem::take(&mut view.counts);
    let mut answered = Vec::new();
    let mut leaving = Leaving::default();
    let mut turns = Turns::new(view);
    scale::close_first(view, &turns.queue, now);
    if turns.are_relieved(view) == Relief::Some {
        turns.add_waiting(view);
    }
    while let Some(group) = turns.next() {
        let pass = Pass::new(view, now);
        let ask = Ask::new(pass.view, group, now, counts);
        let (mut ask, outcome) = pass.decide(group, ask);
        let lost = preempt::make_room(view, &mut ask, &outcome.unmet, &mut leaving);
        let left = outcome.left.or_nothing(view, &ask, outcome.changes.as_ref());
        counts = ask.into_counts();
        view.set_alarm(group, outcome.wake_at);
        let place = outcome.changes.is_some().then_some(plan.groups.len());
        let told = left.answers_from();
        let brought = Brought::by(outcome.changes.as_ref(), &lost);
        answered.push(Answered { group, place, brought, left });
        second_look::note_lost(view, &mut answered, turns.add(view, lost), now);
        if let Some(changes) = outcome.changes {
            // The group stays dirty until its events have come back: a plan that is never committed, or only in
            // part, is simply made again.
            view.dirty.insert(group);
            suppose_told(view, group, &changes.items[..told]);
            plan.groups.push(changes);
            if turns.are_relieved(view) == Relief::Some {
                turns.forget(&second_look::withdraw(view, &mut plan, &mut answered));
                turns.add_waiting(view);
                second_look::look_at_relieved(view, &mut plan, &mut answered, &mut leaving, now);
            }
        }
    }
    view.counts = counts;
    second_look::look_again(view, &mut plan, &mut answered, &mut leaving, now);
    preempt::displace(view, &mut plan);
    view.roll_back();
    plan.groups
}

/// What a turn tells to stop counts as told for the rest of the pass: it gives its share of a quota back.
fn suppose_told(view: &mut View, group: GroupIx, items: &[PlanItem]) {
    let closed = items.iter().filter_map(|item| match item {
        PlanItem::Close(slot) | PlanItem::Collect { slot, .. } => Some(slot.clone()),
        _ => None,
    });
    let closed: BTreeSet<SlotKey> = closed.collect();
    if !closed.is_empty() {
        view.suppose_closing(group, closed);
    }
    for item in items {
        match item {
            PlanItem::Stop { slot, generation } | PlanItem::Reschedule { slot, generation, .. } => {
                view.suppose_stopping(group, slot, *generation);
            }
            PlanItem::Close(_)
            | PlanItem::Collect { .. }
            | PlanItem::Open(_)
            | PlanItem::Place(_)
            | PlanItem::Wait(_)
            | PlanItem::Restart { .. }
            | PlanItem::Step { .. }
            | PlanItem::NoRoom { .. }
            | PlanItem::Promote
            | PlanItem::GiveUp { .. }
            | PlanItem::EvenedOut => {}
        }
    }
}

/// The groups of a pass, in the order of their turns. Whoever loses a replica to one before it is added.
struct Turns {
    queue: VecDeque<GroupIx>,
    had: BTreeSet<GroupIx>,
    /// How many had been told to stop when it was last asked.
    told: usize,
}

/// Whether somebody gave back some of a quota.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relief {
    Some,
    None,
}

impl Turns {
    fn new(view: &mut View) -> Self {
        Self { queue: view.take_dirty().into(), had: BTreeSet::new(), told: 0 }
    }

    fn next(&mut self) -> Option<GroupIx> {
        let next = self.queue.pop_front()?;
        self.had.insert(next);
        Some(next)
    }

    /// Adds groups that lost a slot's generation. Those that had their turn are given back: they need a second look.
    fn add(&mut self, view: &View, lost: Vec<(GroupIx, SlotKey)>) -> Vec<(GroupIx, SlotKey)> {
        let (late, early): (Vec<_>, Vec<_>) = lost.into_iter().partition(|(group, _)| self.had.contains(group));
        for (group, _) in early {
            self.insert(view, group);
        }
        late
    }

    /// Whether somebody was told to stop since it was last asked: that gives some of a quota back.
    fn are_relieved(&mut self, view: &View) -> Relief {
        if view.quotas.is_empty() || view.told_to_stop() == self.told {
            return Relief::None;
        }
        self.told = view.told_to_stop();
        Relief::Some
    }

    /// Those whose answer was withdrawn count as not asked.
    fn forget(&mut self, withdrawn: &[GroupIx]) {
        self.had.retain(|group| !withdrawn.contains(group));
    }

    /// Adds whoever waits in a namespace with a quota and has no answer yet.
    fn add_waiting(&mut self, view: &View) {
        for group in view.waiting.iter().filter(|group| view.has_quota(**group)) {
            if !self.had.contains(group) {
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

/// The earliest instant at which the answer could change without an event.
fn next_wake(view: &View) -> Option<Time> {
    let alarm = view.alarms.first().map(|(at, _)| *at);
    let cooldown = view.config.address_cooldown;
    let rested = view.resting.first().map(|(since, _, _)| since.after(cooldown)).filter(|_| !view.waiting.is_empty());
    alarm.into_iter().chain(rested).min()
}

/// Slots of a group that are wanted and have no node they could run on, each with the generation it would get.
/// One that is waited for, or that nobody takes off its node for now, is not among them.
pub(crate) fn unplaced(view: &View, group: GroupIx, now: Time) -> Vec<Vacancy> {
    let known = view.group(group);
    let lost = known.wanted_slots().filter(|slot| slots::is_without_node(view, slot));
    let held = |slot: &&Slot| slot.current().is_some_and(|it| absence::is_held(view, &known.spec, it, now));
    let lost = lost.filter(|slot| known.spec.is_stateful() || !held(slot));
    lost.map(slots::next_generation).collect()
}

/// One group's turn in a pass.
struct Pass<'a> {
    view: &'a mut View,
    now: Time,
    wake_at: Option<Time>,
    items: Vec<PlanItem>,
    /// Slots no node has room for, where others may be displaced for them.
    unmet: Vec<Vacancy>,
    /// Slots without a node for whatever reason.
    left: Leftover,
}

/// What a turn brought.
struct Outcome {
    changes: Option<GroupPlan>,
    wake_at: Option<Time>,
    unmet: Vec<Vacancy>,
    left: Leftover,
}

impl<'a> Pass<'a> {
    fn new(view: &'a mut View, now: Time) -> Self {
        Self { view, now, wake_at: None, items: Vec::new(), unmet: Vec::new(), left: Leftover::default() }
    }

    fn decide(mut self, group: GroupIx, mut ask: Ask) -> (Ask, Outcome) {
        match self.view.group(group).wanted {
            Wanted::Stop => {
                scale::close_all(&mut self, group);
                self.view.stand(&ask.key, group, Standing::Finished);
            }
            Wanted::Run if ask.spec.kind.is_per_node() => global::decide(&mut self, &mut ask),
            Wanted::Run if jobs::is_job(ask.spec.kind) => jobs::decide(&mut self, group, &mut ask),
            Wanted::Run => self.decide_counted(group, &mut ask),
        }
        let changes = (!self.items.is_empty()).then(|| GroupPlan {
            group: ask.key.clone(),
            terms: Arc::clone(&ask.terms),
            items: self.items,
        });
        (ask, Outcome { changes, wake_at: self.wake_at, unmet: self.unmet, left: self.left })
    }

    /// A service with a count.
    fn decide_counted(&mut self, group: GroupIx, ask: &mut Ask) {
        self.view.waiting.remove(&group);
        let mut closed = scale::close_surplus(self, group);
        handover::settle(self, ask);
        restart::restart_ended(self, group);
        rollout::revive(self, ask);
        rollout::judge(self, ask);
        let needs = slots::needs(self, ask, &closed);
        self.place_held(ask, needs.held);
        steps::take(self, ask, &needs.outdated, &needs.leaving, &closed);
        let left = slots::left_behind(self, ask, &needs.leaving);
        self.place_held(ask, left);
        let mut vacancies = needs.vacancies;
        vacancies.extend(scale::missing(self, group, &closed));
        self.place(ask, vacancies);
        changeover::go_ahead(self, ask, &mut closed);
        rollout::note_standing(self, ask, &closed);
    }

    /// Places slots whose step in a rollout has not come: they get another of what they had.
    fn place_held(&mut self, ask: &mut Ask, vacancies: Vec<Vacancy>) {
        let Some(mut held) = Ask::held(self.view, ask, self.now).filter(|_| !vacancies.is_empty()) else { return };
        suppose_told(self.view, ask.group, &self.items);
        let outcome = attempt::attempt(self.view, &mut held, vacancies);
        for mut placed in outcome.placed {
            if let Some(&node) = self.view.fleet.by_name.get(&placed.node) {
                ask.put(node);
            }
            placed.terms = Some(Arc::clone(&held.terms));
            self.items.push(PlanItem::Place(placed));
        }
        for (vacancies, why) in outcome.held_back {
            self.wait(&held, vacancies.into_iter().map(|vacancy| vacancy.slot).collect(), &why);
        }
    }

    /// Places what can be placed; the rest waits, explained.
    fn place(&mut self, ask: &mut Ask, vacancies: Vec<Vacancy>) {
        if vacancies.is_empty() {
            return slots::stop_replaced(self, ask.group);
        }
        suppose_told(self.view, ask.group, &self.items);
        let mut outcome = attempt::attempt(self.view, ask, vacancies);
        slots::replace_as_made(self.view, ask, &mut outcome.placed);
        let moved = rollout::moved(self.view, ask, &outcome.placed);
        self.items.extend(outcome.placed.into_iter().map(PlanItem::Place));
        self.items.extend(moved);
        slots::stop_replaced(self, ask.group);
        // Slots are opened in order: an index below the counter whose slot is not there counts as used up.
        outcome.held_back.sort_by(|(a, _), (b, _)| a.first().map(|a| &a.slot).cmp(&b.first().map(|b| &b.slot)));
        let left = outcome.held_back.iter().flat_map(|(vacancies, _)| vacancies.iter().cloned()).collect();
        self.left = Leftover::new(self.view, ask, left, self.items.len());
        self.need_room(preempt::in_need_of_room(&ask.spec, &outcome.held_back));
        for (vacancies, why) in outcome.held_back {
            self.wait(ask, vacancies.into_iter().map(|vacancy| vacancy.slot).collect(), &why);
        }
    }

    /// Notes slots that others may be displaced for, where the cluster allows it.
    fn need_room(&mut self, vacancies: Vec<Vacancy>) {
        match self.view.config.preemption {
            Preemption::Off => {}
            Preemption::On => self.unmet.extend(vacancies),
        }
    }

    /// Records why slots wait, where that is news. A slot that still runs does not wait: it stays where it is until there is
    /// room.
    fn wait(&mut self, ask: &Ask, slots: Vec<SlotKey>, why: &Explanation) {
        self.view.waiting.insert(ask.group);
        let known = self.view.group(ask.group);
        let details = explain::details(why);
        let mut news = Vec::new();
        for slot in slots {
            let Ok(at) = known.slot_at(&slot) else {
                self.items.push(PlanItem::Open(slot.clone()));
                news.push(slot);
                continue;
            };
            match slots::still_runs(self.view, &known.slots[at]) {
                Some(_) => {}
                None if known.slots[at].waits_for(why.reason, &details) => {}
                // It ended for good before its node went down; that is what is said of it.
                None if self.has_live(&known.slots[at]) => {}
                None => news.push(slot),
            }
        }
        if !news.is_empty() {
            self.items.push(PlanItem::Wait(Wait { slots: news, reason: why.reason, details }));
        }
    }

    /// Whether a slot has a generation that is alive and not stopped by this pass.
    fn has_live(&self, slot: &Slot) -> bool {
        let stop = |generation| PlanItem::Stop { slot: slot.key.clone(), generation };
        slot.replicas.iter().any(|replica| is_live(replica) && !self.items.contains(&stop(replica.generation)))
    }

    /// Asks to be woken at an instant.
    fn wake(&mut self, at: Time) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}
