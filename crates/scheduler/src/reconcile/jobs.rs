//! Work that ends: how much of it runs at once, when it runs again, and when it is no longer shown.
//!
//! ```text
//! open ──▶ placed ──▶ completed, or given up ──an hour──▶ collected
//!            │ another spec: stop              │ another spec: the next generation,
//!            └───────────▶ then run again ◀────┘ once what was given up has stopped
//! ```
//!
//! A replica of a job is never run beside another generation of itself, and what has ended is not run again unless the
//! spec changed.
//!
//! Owns: those rules. Must not touch: restarts, which jobs have like anybody, and the choice of nodes.

use std::collections::BTreeSet;

use longshore_model::{
    PlanItem, ReplicaState, RuntimeCode, ServiceKind, SlotKey, replica::Wanted, service::RestartCondition,
};

use super::{Pass, slots};
use crate::{
    ask::Ask,
    placement::Vacancy,
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Replica, Slot, is_live},
    },
};

/// Whether work of a kind ends.
pub(crate) const fn is_job(kind: ServiceKind) -> bool {
    match kind {
        ServiceKind::Batch | ServiceKind::Sysbatch => true,
        ServiceKind::Service | ServiceKind::System => false,
    }
}

/// Whether a job's generation has ended, well or for good.
pub(super) fn has_ended(group: &Group, replica: &Replica) -> bool {
    let for_good = replica.code == Some(RuntimeCode::RestartExhausted)
        || (group.spec.restart.condition == RestartCondition::None && group.spec.reschedule.is_none());
    match replica.state {
        ReplicaState::Completed => is_job(replica.terms.kind),
        ReplicaState::Failed => for_good,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Running
        | ReplicaState::Degraded
        | ReplicaState::Draining
        | ReplicaState::Stopped
        | ReplicaState::Lost => false,
    }
}

/// Collects what ended long enough ago; gives back which slots go.
pub(super) fn collect(pass: &mut Pass<'_>, ask: &Ask, closed: &BTreeSet<SlotKey>) -> BTreeSet<SlotKey> {
    let known = pass.view.group(ask.group);
    let keep = pass.view.config.gc_finished;
    let mut gone = BTreeSet::new();
    let mut items = Vec::new();
    let mut wake_at = None;
    for slot in known.wanted_slots().filter(|slot| !closed.contains(&slot.key)) {
        let Some(replica) = slot.current().filter(|replica| has_ended(known, replica)) else { continue };
        if slots::is_outdated(ask, replica) || replica.generation != slot.newest {
            continue;
        }
        let at = replica.since.after(keep);
        if at <= pass.now {
            gone.insert(slot.key.clone());
            items.push(PlanItem::Collect { slot: slot.key.clone(), generation: replica.generation });
        } else {
            wake_at = Some(wake_at.map_or(at, |earlier: longshore_model::Time| earlier.min(at)));
        }
    }
    pass.items.extend(items);
    if let Some(at) = wake_at {
        pass.wake(at);
    }
    gone
}

/// Stops what still runs on another spec, an older generation that was kept beside the last included: its slot runs again once
/// all of it has stopped. What was given up may run on, as for its check, and is stopped too.
pub(super) fn stop_outdated(pass: &mut Pass<'_>, ask: &Ask, closed: &BTreeSet<SlotKey>) {
    let known = pass.view.group(ask.group);
    let slots = known.wanted_slots().filter(|slot| !closed.contains(&slot.key));
    let outdated = slots.flat_map(|slot| {
        let running = slot.replicas.iter().filter(|replica| replica.wanted == Wanted::Run);
        let stops = running.filter(|it| slots::is_outdated(ask, it) && it.state != ReplicaState::Completed);
        stops.map(|replica| (slot.key.clone(), replica.generation))
    });
    for (slot, generation) in outdated.collect::<Vec<_>>() {
        pass.view.suppose_stopping(ask.group, &slot, generation);
        pass.items.push(PlanItem::Stop { slot, generation });
    }
}

/// Slots whose work has ended well on another spec and that run again, each with the node it was on.
pub(super) fn reruns(view: &View, ask: &Ask, closed: &BTreeSet<SlotKey>) -> Vec<(Vacancy, NodeIx)> {
    let known = view.group(ask.group);
    let slots = known.wanted_slots().filter(|slot| !closed.contains(&slot.key));
    let ended = slots.filter_map(|slot| {
        let replica = slot.current()?;
        let ended = replica.state == ReplicaState::Completed && has_ended(known, replica);
        let again = slots::is_outdated(ask, replica) && ended && is_alone(view, slot, replica);
        again.then(|| (slots::next_generation(slot), replica.node))
    });
    ended.collect()
}

/// Whether nothing of a slot is at work beside one of its generations, as far as anybody can see.
fn is_alone(view: &View, slot: &Slot, replica: &Replica) -> bool {
    let others = slot.replicas.iter().filter(|other| other.generation != replica.generation);
    let mut seen = others.filter(|other| !view.fleet.is_down(other.node));
    seen.all(|other| matches!(other.state, ReplicaState::Completed | ReplicaState::Failed))
}

/// How many more replicas of a group may be at work: as many as there are, unless it is a job of which only some may be at once.
/// One that failed and is to be started again is not at work until it is.
pub(super) fn turns_left(group: &Group) -> usize {
    let Some(most) = group.spec.max_concurrent.filter(|_| is_job(group.spec.kind)) else { return usize::MAX };
    let rests = |replica: &Replica| has_ended(group, replica) || replica.state == ReplicaState::Failed;
    let works = |slot: &Slot| slot.current().is_none_or(|replica| !rests(replica)) || an_older_works(slot);
    let at_work = group.wanted_slots().filter(|slot| works(slot)).count();
    (most as usize).saturating_sub(at_work)
}

/// Whether a generation that came back from a lost node is at work, whatever became of the one that replaced it.
pub(super) fn an_older_works(slot: &Slot) -> bool {
    let current = slot.current().map(|replica| replica.generation);
    let older = slot.replicas.iter().filter(|replica| Some(replica.generation) != current && is_live(replica));
    older.into_iter().any(|replica| !matches!(replica.state, ReplicaState::Completed | ReplicaState::Failed))
}

/// As many vacancies as may be under way beside what is. One whose last generation is out of sight goes first: it may be at work
/// still, so its turn is its own, and those that failed and rest do not hold it. What has no turn yet and no generation to show
/// is closed: its place is opened again when its turn comes.
pub(super) fn in_turn<T>(
    pass: &mut Pass<'_>,
    ask: &Ask,
    mut vacancies: Vec<T>,
    closed: &BTreeSet<SlotKey>,
    vacancy: impl Fn(&T) -> &Vacancy,
) -> Vec<T> {
    let Some(most) = ask.spec.max_concurrent.filter(|_| is_job(ask.spec.kind)) else { return vacancies };
    let known = pass.view.group(ask.group);
    let asking: BTreeSet<SlotKey> = vacancies.iter().map(|it| vacancy(it).slot.clone()).collect();
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(slots::given_up).collect();
    let under_way = |slot: &&Slot| {
        let ended = |replica| has_ended(known, replica) || given_up.contains(&slot.key);
        let unfinished = slot.current().is_none_or(|replica| !ended(replica)) || an_older_works(slot);
        !closed.contains(&slot.key) && !asking.contains(&slot.key) && unfinished
    };
    let busy = known.wanted_slots().filter(under_way).count();
    let rests =
        |slot: &&Slot| slot.current().is_some_and(|it| it.state == ReplicaState::Failed) && !an_older_works(slot);
    let resting = known.wanted_slots().filter(under_way).filter(rests).count();
    let may_work = |key: &SlotKey| {
        let current = known.slot_at(key).ok().and_then(|at| known.slots[at].current());
        current.is_some_and(|replica| replica.state != ReplicaState::Failed && !has_ended(known, replica))
    };
    vacancies.sort_by_cached_key(|it| !may_work(&vacancy(it).slot));
    let lost = vacancies.iter().filter(|it| may_work(&vacancy(it).slot)).count();
    let most = most as usize;
    // A lost one counts as at work already where it is asked who may start again, so the limit holds.
    let turns = lost.min(most.saturating_sub(busy - resting)).max(most.saturating_sub(busy));
    let later = vacancies.split_off(turns.min(vacancies.len()));
    let idle = later.iter().map(|it| &vacancy(it).slot).filter(|key| {
        let slot = known.slot_at(key).ok().map(|at| &known.slots[at]);
        slot.is_some_and(|slot| slot.current().is_none())
    });
    let idle: Vec<SlotKey> = idle.cloned().collect();
    pass.items.extend(idle.into_iter().map(PlanItem::Close));
    vacancies
}

/// Brings a job with a count forward.
pub(super) fn decide(pass: &mut Pass<'_>, group: GroupIx, ask: &mut Ask) {
    pass.view.waiting.remove(&group);
    let surplus = super::scale::close_surplus(pass, group);
    let mut closed = collect(pass, ask, &surplus);
    closed.extend(surplus.iter().cloned());
    super::handover::settle(pass, ask);
    stop_outdated(pass, ask, &closed);
    super::restart::restart_ended(pass, group);
    let mut vacancies = slots::needs(pass, ask, &closed).vacancies;
    for (vacancy, node) in reruns(pass.view, ask, &closed) {
        ask.counts.remove_from(Some(node));
        vacancies.push(vacancy);
    }
    vacancies.sort_by(|a, b| a.slot.cmp(&b.slot));
    // What is collected is done: it leaves no gap.
    vacancies.extend(super::scale::missing(pass, group, &surplus));
    let vacancies = in_turn(pass, ask, vacancies, &closed, |vacancy| vacancy);
    pass.place(ask, vacancies);
    super::rollout::note_standing(pass, ask, &closed);
}
