//! One attempt to place a batch: the gates, the strategy, and for everybody left over the reason.
//!
//! Plan and explanation both go through here, so that what is explained is what was tried.
//!
//! Owns: all-or-nothing. Invariant: every vacancy handed in comes back placed or held back with an explanation.

use std::collections::BTreeSet;

use longshore_model::{Explanation, Placement, Reason, Refusal, Strategy, service::Batching};

use crate::{
    ask::Ask,
    explain,
    feasibility::gates::{self, Gate, dependencies},
    placement::{self, Vacancy},
    view::{NodeIx, View},
};

use super::{reschedule, slots};

/// What came of an attempt.
#[derive(Default)]
pub(crate) struct Attempt {
    pub(crate) placed: Vec<Placement>,
    pub(crate) held_back: Vec<(Vec<Vacancy>, Explanation)>,
}

/// Places what can be placed. Reservations stay until the pass takes them back.
pub(crate) fn attempt(view: &mut View, ask: &mut Ask, mut vacancies: Vec<Vacancy>) -> Attempt {
    let mut outcome = Attempt::default();
    let barred = match gates::check(view, ask, vacancies.len()) {
        Gate::Open => None,
        // Pinned hosts are taken all together or not at all. Were some let in, less of a quota could mean more replicas.
        Gate::Partly { refusal, .. } if ask.spec.placement.strategy == Strategy::Hosts => {
            Some((std::mem::take(&mut vacancies), refusal))
        }
        Gate::Partly { allowed, refusal } => Some((vacancies.split_off(allowed), refusal)),
        Gate::Shut(refusal) => Some((std::mem::take(&mut vacancies), refusal)),
    };
    let (vacancies, early) = split_early(view, ask, vacancies);
    match ask.spec.placement.batching {
        Batching::AsManyAsFit => as_many_as_fit(view, ask, vacancies, &mut outcome),
        Batching::AllOrNothing => {
            let barred = barred.as_ref().map_or(0, |(barred, _)| barred.len());
            all_or_nothing(view, ask, vacancies, barred, &mut outcome);
        }
    }
    if let Some((early, refusal)) = early {
        outcome.held_back.push((early, explain::gated(view, refusal)));
    }
    if let Some((barred, refusal)) = barred {
        // The gate is asked again: what was just placed counts in the numbers that are shown, and whoever it let in and
        // found no node still stands before those it barred.
        let before: usize = outcome.held_back.iter().map(|(vacancies, _)| vacancies.len()).sum();
        let refusal = match gates::check(view, ask, before + barred.len()) {
            Gate::Open => refusal,
            Gate::Partly { refusal, .. } | Gate::Shut(refusal) => refusal,
        };
        outcome.held_back.push((barred, explain::gated(view, refusal)));
    }
    outcome
}

/// Those whose time has come, and those that wait for a service that comes first.
fn split_early(view: &View, ask: &Ask, vacancies: Vec<Vacancy>) -> (Vec<Vacancy>, Option<(Vec<Vacancy>, Refusal)>) {
    let starts = |vacancy: &Vacancy| dependencies::starts(view, ask, vacancy);
    let first = vacancies.iter().find(|vacancy| starts(vacancy));
    let unmet = first.and_then(|first| dependencies::holding_back(view, ask, first));
    let Some(refusal) = unmet else { return (vacancies, None) };
    let (early, due) = vacancies.into_iter().partition(starts);
    (due, Some((early, refusal)))
}

fn as_many_as_fit(view: &mut View, ask: &mut Ask, vacancies: Vec<Vacancy>, outcome: &mut Attempt) {
    let (vacancies, movers) = reschedule::split(view, ask, vacancies);
    let (vacancies, doubled) = split_doubled(view, ask, vacancies);
    let (placed, mut left) = placement::place(view, ask, vacancies);
    outcome.placed = placed;
    for (vacancy, left_behind) in movers.into_iter().chain(doubled) {
        let older = slots::beside(view, ask.group, &vacancy.slot);
        older.iter().for_each(|node| ask.counts.remove_beside(*node));
        let avoiding = ask.avoid(&left_behind);
        let (placed, unplaced) = placement::place(view, ask, vec![vacancy]);
        ask.avoid_no_longer(&avoiding);
        let taken = placed.first().and_then(|placed| view.fleet.by_name.get(&placed.node).copied());
        older.into_iter().filter(|node| Some(*node) != taken).for_each(|node| ask.counts.add_beside(node));
        outcome.placed.extend(placed);
        left.extend(unplaced);
    }
    if !left.is_empty() {
        let mut why = explain::nowhere(view, ask);
        if why.missing.is_empty() && ask.spec.placement.strategy == Strategy::Hosts {
            // Every pinned host is fine; there are just too few of them.
            let taken = ask.counts.nodes().count();
            why.gate = Some(too_few(ask.spec.placement.hosts.len().saturating_sub(taken), left.len()));
        }
        outcome.held_back.push((left, why));
    }
}

/// Those with an older generation that shall run too are placed one by one: it is not in its own slot's way, though in that
/// of every other.
fn split_doubled(view: &View, ask: &Ask, vacancies: Vec<Vacancy>) -> (Vec<Vacancy>, Vec<(Vacancy, BTreeSet<NodeIx>)>) {
    // Pinned hosts are taken all together or not at all.
    if !ask.counts.has_beside() || ask.spec.placement.strategy == Strategy::Hosts {
        return (vacancies, Vec::new());
    }
    let is_single = |vacancy: &Vacancy| slots::beside(view, ask.group, &vacancy.slot).is_empty();
    let (single, doubled): (Vec<_>, Vec<_>) = vacancies.into_iter().partition(is_single);
    (single, doubled.into_iter().map(|vacancy| (vacancy, BTreeSet::new())).collect())
}

fn all_or_nothing(view: &mut View, ask: &mut Ask, vacancies: Vec<Vacancy>, barred: usize, outcome: &mut Attempt) {
    if vacancies.is_empty() {
        return;
    }
    let mark = view.mark();
    let (_, movers) = reschedule::split(view, ask, vacancies.clone());
    let avoiding = ask.avoid(&movers.into_iter().flat_map(|(_, left_behind)| left_behind).collect());
    let (placed, left) = placement::place(view, ask, vacancies.clone());
    ask.avoid_no_longer(&avoiding);
    if left.is_empty() && barred == 0 {
        outcome.placed = placed;
        return;
    }
    let mut why = explain::nowhere(view, ask);
    if !placed.is_empty() {
        why.reason = Reason::BatchIncomplete;
        why.gate = Some(too_few(placed.len(), vacancies.len() + barred));
    }
    view.roll_back_to(mark, ask);
    for placement in &placed {
        ask.counts.remove_from(view.fleet.by_name.get(&placement.node).copied());
    }
    outcome.held_back.push((vacancies, why));
}

fn too_few(fits: usize, wanted: usize) -> Refusal {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Refusal::Batch { fits: number(fits), wanted: number(wanted) }
}
