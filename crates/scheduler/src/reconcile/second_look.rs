//! A second look, at the end of a pass, at what was left without a node.
//!
//! Whoever waited early in the pass was explained by the cluster as it was then. What others took since may have
//! changed the reason, and a service that wants to be near one decided later may have found its place. So the answer
//! is worked out again, on the cluster as the plan leaves it: planning once more has nothing to add.
//!
//! Owns: replacing early answers. Must not touch: what was placed, stopped or closed before.

use std::sync::Arc;

use longshore_model::{GroupPlan, Plan, Time};

use super::{Pass, global};
use crate::{
    ask::{Ask, Counts},
    placement::Vacancy,
    view::{GroupIx, NodeIx, View},
};

/// Looks are repeated while they place somebody. Only services that name each other in a circle need a third.
const MOST_LOOKS: usize = 4;

/// What a turn left without a node, with what is needed to ask again.
#[derive(Default)]
pub(super) struct Leftover {
    vacancies: Vec<Vacancy>,
    /// Slots of the service by node, as its turn left them.
    slots_by_node: Vec<(NodeIx, u32)>,
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
        let slots_by_node = ask.counts.nodes().map(|node| (node, ask.counts.get(node))).collect();
        Self { vacancies, slots_by_node, answers_from, reserved: view.reserved() }
    }
}

/// A group that was answered, and where in the plan its changes are, if it has any.
pub(super) struct Answered {
    pub(super) group: GroupIx,
    pub(super) place: Option<usize>,
    pub(super) left: Leftover,
}

/// Looks again at every group that was answered before the last reservation of the pass.
pub(super) fn look_again(view: &mut View, plan: &mut Plan, answered: &mut [Answered], now: Time) {
    for _ in 0..MOST_LOOKS {
        let before = view.reserved();
        for answer in answered.iter_mut().filter(|answer| !answer.left.vacancies.is_empty()) {
            if answer.left.reserved != view.reserved() {
                answer_anew(view, plan, answer, now);
            }
        }
        if view.reserved() == before {
            break;
        }
    }
    plan.groups.retain(|group| !group.items.is_empty());
}

fn answer_anew(view: &mut View, plan: &mut Plan, answer: &mut Answered, now: Time) {
    let Leftover { vacancies, slots_by_node, answers_from, .. } = std::mem::take(&mut answer.left);
    let mut ask = Ask::resumed(view, answer.group, now, Counts::default(), &slots_by_node);
    let mut pass = Pass::new(view, now);
    if ask.spec.kind.is_per_node() {
        global::place_again(&mut pass, &mut ask, vacancies);
    } else {
        pass.place(&mut ask, vacancies);
    }
    let Pass { items, left, .. } = pass;
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
}
