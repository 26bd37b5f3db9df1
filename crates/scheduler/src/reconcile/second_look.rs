//! A second look, at the end of a pass, at what was left without a node.
//!
//! Whoever waited early in the pass was explained by the cluster as it was then. What others took since may have
//! changed the reason, and a service that wants to be near one decided later may have found its place. So the answer
//! is worked out again, on the cluster as the plan leaves it: planning once more has nothing to add.
//!
//! Owns: replacing early answers. Must not touch: what was placed, stopped or closed before.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::{GroupPlan, Plan, PlanItem, SlotKey, Time, config::Preemption};

use super::{
    Pass, global,
    preempt::{self, Leaving},
    slots,
};
use crate::{
    ask::{Ask, Counts, Whereabouts},
    placement::Vacancy,
    view::{GroupIx, NodeIx, View},
};

/// Looks are repeated while they place somebody. Only services that name each other in a circle need a third, and those
/// that move under a quota, where each that is stopped lets the next one in, one each.
const MOST_LOOKS: usize = 12;

/// What a turn left without a node, with what is needed to ask again.
#[derive(Default)]
pub(super) struct Leftover {
    vacancies: Vec<Vacancy>,
    /// Where the slots of the service are, as its turn left them.
    whereabouts: Whereabouts,
    /// Where its answers begin among the turn's items.
    answers_from: usize,
    /// How much was reserved when it was answered.
    reserved: usize,
}

impl Leftover {
    pub(super) fn new(view: &View, ask: &Ask, vacancies: Vec<Vacancy>, answers_from: usize) -> Self {
        if vacancies.is_empty() {
            return Self::default();
        }
        Self { vacancies, whereabouts: ask.counts.whereabouts(), answers_from, reserved: view.reserved() }
    }

    /// Itself, or what a turn that left nobody leaves: where others may be displaced, somebody may be left later.
    pub(super) fn or_nothing(self, view: &View, ask: &Ask, changes: Option<&GroupPlan>) -> Self {
        if !self.vacancies.is_empty() {
            return self;
        }
        let answers_from = changes.map_or(0, |changes| changes.items.len());
        match view.config.preemption {
            Preemption::Off => Self { answers_from, ..self },
            Preemption::On => Self { answers_from, whereabouts: ask.counts.whereabouts(), ..self },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.vacancies.is_empty()
    }

    /// Adds items to those of the turn that are no answers.
    pub(super) fn put_before(&mut self, items: &mut Vec<PlanItem>, added: impl Iterator<Item = PlanItem>) {
        let answers = items.split_off(self.answers_from);
        items.extend(added);
        self.answers_from = items.len();
        items.extend(answers);
    }

    /// How many items of the turn are no answers, and stay whatever a second look brings.
    pub(super) fn answers_from(&self) -> usize {
        self.answers_from
    }

    /// A slot lost its generation on a node after the turn.
    fn lose(&mut self, node: Option<NodeIx>, vacancy: Vacancy) {
        if let Some(node) = node {
            self.whereabouts.lose(node);
        }
        self.vacancies.push(vacancy);
    }
}

/// A group that was answered, and where in the plan its changes are, if it has any.
pub(super) struct Answered {
    pub(super) group: GroupIx,
    pub(super) place: Option<usize>,
    pub(super) brought: Brought,
    pub(super) left: Leftover,
}

/// What a turn did to the cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Brought {
    /// Something was placed, stopped, opened or displaced.
    Change,
    /// At most other words for why something waits.
    NoChange,
}

impl Brought {
    pub(super) fn by(changes: Option<&GroupPlan>, lost: &[(GroupIx, SlotKey)]) -> Self {
        let mut items = changes.into_iter().flat_map(|changes| &changes.items);
        let waits_only = items.all(|item| matches!(item, PlanItem::Wait(_)));
        if waits_only && lost.is_empty() { Self::NoChange } else { Self::Change }
    }
}

/// Looks again at every group that was answered before the last reservation of the pass.
pub(super) fn look_again(
    view: &mut View,
    plan: &mut Plan,
    answered: &mut Vec<Answered>,
    leaving: &mut Leaving,
    now: Time,
) {
    for _ in 0..MOST_LOOKS {
        let before = view.reserved();
        for at in 0..answered.len() {
            let answer = &mut answered[at];
            if !answer.left.vacancies.is_empty() && answer.left.reserved != view.reserved() {
                let lost = answer_anew(view, plan, answer, leaving, now);
                note_lost(view, answered, lost, now);
            }
        }
        if view.reserved() == before {
            break;
        }
    }
    plan.groups.retain(|group| !group.items.is_empty());
}

/// Takes back the answers of those who wait under a quota and were given nothing; gives back who. They have a whole turn
/// again, as if they had not been asked: what goes before a placement in a turn, and by which spec a slot is placed, would
/// otherwise depend on whether a group was due anyway.
pub(super) fn withdraw(view: &mut View, plan: &mut Plan, answered: &mut Vec<Answered>) -> Vec<GroupIx> {
    let is_void = |answer: &Answered| {
        let waits = view.waiting.contains(&answer.group) && view.has_quota(answer.group);
        waits && answer.brought == Brought::NoChange
    };
    let void: Vec<Answered> = answered.extract_if(.., |answer| is_void(answer)).collect();
    for answer in &void {
        if let Some(place) = answer.place {
            plan.groups[place].items.clear();
        }
        view.dirty.remove(&answer.group);
    }
    let withdrawn: Vec<GroupIx> = void.into_iter().map(|answer| answer.group).collect();
    view.lift_claims(|group| withdrawn.contains(&group));
    withdrawn
}

/// Looks at once at whoever waits for some of a quota and had its turn before some was given back. Those whose turn has
/// not come must not be served first: whether a group was due anyway would decide who gets it.
pub(super) fn look_at_relieved(
    view: &mut View,
    plan: &mut Plan,
    answered: &mut Vec<Answered>,
    leaving: &mut Leaving,
    now: Time,
) {
    for at in 0..answered.len() {
        let answer = &mut answered[at];
        if view.has_quota(answer.group) && !answer.left.vacancies.is_empty() {
            let lost = answer_anew(view, plan, answer, leaving, now);
            note_lost(view, answered, lost, now);
        }
    }
}

/// Slots that were displaced after their group's turn, or without one, need a node too.
pub(super) fn note_lost(view: &View, answered: &mut Vec<Answered>, lost: Vec<(GroupIx, SlotKey)>, now: Time) {
    for (group, slot) in lost {
        let known = view.group(group);
        let Ok(at) = known.slot_at(&slot) else { continue };
        if !slots::may_have_successor(view, &known.spec, &known.slots[at]) {
            continue;
        }
        let vacancy = slots::next_generation(&known.slots[at]);
        if let Some(answer) = answered.iter_mut().find(|answer| answer.group == group) {
            answer.left.lose(known.slots[at].replicas.last().map(|replica| replica.node), vacancy);
        } else {
            let ask = Ask::new(view, group, now, Counts::default());
            let left = Leftover { reserved: 0, ..Leftover::new(view, &ask, vec![vacancy], 0) };
            answered.push(Answered { group, place: None, brought: Brought::Change, left });
        }
    }
}

fn answer_anew(
    view: &mut View,
    plan: &mut Plan,
    answer: &mut Answered,
    leaving: &mut Leaving,
    now: Time,
) -> Vec<(GroupIx, SlotKey)> {
    let Leftover { vacancies, whereabouts, answers_from, .. } = std::mem::take(&mut answer.left);
    let mut ask = Ask::resumed(view, answer.group, now, &whereabouts);
    // Room kept for itself, or for whoever matters less, does not stand in its way.
    let after: BTreeSet<GroupIx> = view.claimants().filter(|other| !view.precedes(*other, answer.group)).collect();
    let lifted = view.lift_claims(|group| after.contains(&group));
    let mut pass = Pass::new(view, now);
    if ask.spec.kind.is_per_node() {
        global::place_again(&mut pass, &mut ask, vacancies);
    } else {
        pass.place(&mut ask, vacancies);
    }
    let Pass { items, left, unmet, .. } = pass;
    let lost = preempt::make_room(view, &mut ask, &unmet, leaving);
    view.put_back_claims(lifted, answer.group);
    let told = if left.vacancies.is_empty() { items.len() } else { left.answers_from };
    super::suppose_told(view, answer.group, &items[..told]);
    let kept = answer.place.map(|place| &mut plan.groups[place].items);
    answer.left = Leftover { answers_from: answers_from + left.answers_from, ..left };
    match kept {
        Some(kept) => {
            kept.truncate(answers_from);
            kept.extend(items);
        }
        None if items.is_empty() => {}
        None => {
            view.dirty.insert(answer.group);
            answer.place = Some(plan.groups.len());
            plan.groups.push(GroupPlan { group: ask.key.clone(), terms: Arc::clone(&ask.terms), items });
        }
    }
    lost
}
