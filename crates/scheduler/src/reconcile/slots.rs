//! Slots that need a new generation, and generations that are no longer needed.
//!
//! A replica stays while its node is valid: wanted or paused, not down, and of the right kind still. One whose node is
//! down is replaced, unless it is waited for; one whose node is alive but drained or no longer right moves
//! make-before-break. One with data never leaves its node: it waits there.
//!
//! Owns: validity of an existing placement. Must not touch: the choice of the next node.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Explanation, Generation, Health, Placement, PlanItem, Reason, RuntimeCode, SlotKey, Terms, Time,
    service::ServiceSpec,
};
use smallvec::SmallVec;

use super::{
    Pass, absence,
    buckets::{self, Bucket},
    changeover, handover, jobs,
    rollout::{self, Follows, Part},
    steps::blocks_successor,
};
use crate::{
    ask::{Ask, making},
    explain,
    feasibility::gates::dependencies,
    placement::Vacancy,
    view::{
        GroupIx, NodeIx, View,
        groups::{Replica, Slot},
    },
};

/// What is to be done about a slot.
enum Need {
    /// It is where it should be.
    Nothing,
    /// It needs its next generation somewhere.
    Place,
    /// Its node is away and holds its data.
    WaitForHome,
    /// Its spec changed; its turn comes.
    Update,
}

/// Whether a wanted slot has no generation that could run.
pub(crate) fn is_without_node(view: &View, slot: &Slot) -> bool {
    still_runs(view, slot).is_none()
}

/// The generation of a slot that needs no other, if any: it shall run and its node is not down, or it was given up.
pub(super) fn still_runs<'a>(view: &View, slot: &'a Slot) -> Option<&'a Replica> {
    slot.current().filter(|replica| {
        let given_up = replica.code == Some(RuntimeCode::RestartExhausted);
        given_up || view.fleet.node(replica.node).health != Health::Down
    })
}

/// Stops generations that serve nobody as soon as this pass has found them a successor, rather than start them again.
/// On a node that is down nobody hears it until the node is back, but then it must.
pub(super) fn stop_replaced(pass: &mut Pass<'_>, group: GroupIx) {
    let known = pass.view.group(group);
    if known.slots.is_empty() {
        return;
    }
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(given_up).collect();
    let mut stops: BTreeMap<SlotKey, Generation> = BTreeMap::new();
    for item in &pass.items {
        let PlanItem::Place(placement) = item else { continue };
        let replica = known.slot_at(&placement.slot).ok().and_then(|at| known.slots[at].current());
        let slot = known.slot_at(&placement.slot).ok().map(|at| &known.slots[at]);
        let useless = |replica: &&Replica| {
            let stays_served = slot.is_some_and(|slot| handover::older_serves(pass.view, slot, replica));
            let serves_nobody = handover::serves_nobody(pass.view, &known.spec, replica, pass.now);
            serves_nobody || stays_served || given_up.contains(&placement.slot)
        };
        if let Some(replica) = replica.filter(useless) {
            stops.insert(placement.slot.clone(), replica.generation);
        }
    }
    if !stops.is_empty() {
        pass.items.retain(|item| match item {
            PlanItem::Restart { slot, .. } | PlanItem::GiveUp { slot, .. } => !stops.contains_key(slot),
            PlanItem::Open(_)
            | PlanItem::Place(_)
            | PlanItem::Wait(_)
            | PlanItem::Stop { .. }
            | PlanItem::Close(_)
            | PlanItem::Step { .. }
            | PlanItem::NoRoom { .. }
            | PlanItem::Promote
            | PlanItem::Reschedule { .. }
            | PlanItem::Collect { .. }
            | PlanItem::EvenedOut => true,
        });
    }
    pass.items.extend(stops.into_iter().map(|(slot, generation)| PlanItem::Stop { slot, generation }));
}

/// What the slots of a group need.
#[derive(Default)]
pub(super) struct Needs {
    /// Their next generation, now, in order.
    pub(super) vacancies: Vec<Vacancy>,
    /// The same, as before the rollout whose turn for them has not come.
    pub(super) held: Vec<Vacancy>,
    /// Another spec, when their turn comes.
    pub(super) outdated: Vec<SlotKey>,
    /// Those of them that need another node in any case, so that they change at once.
    pub(super) leaving: BTreeSet<SlotKey>,
}

/// Sorts the slots of a group by what they need. Slots that are leaving do not count on their old node.
pub(super) fn needs(pass: &mut Pass<'_>, ask: &mut Ask, closed: &BTreeSet<SlotKey>) -> Needs {
    let group = ask.group;
    let mut needs = Needs::default();
    let mut homeless = Vec::new();
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(given_up).collect();
    let stopped: BTreeSet<(&SlotKey, Generation)> = pass.items.iter().filter_map(stopped).collect();
    let held = Ask::held(pass.view, ask, pass.now);
    let free = Part::of(pass.view, ask).is_some_and(|part| part.is_free());
    for slot in pass.view.group(group).wanted_slots() {
        let leaving = slot.counts_on();
        if closed.contains(&slot.key) {
            ask.counts.remove_from(leaving);
            continue;
        }
        // What is named as the service no longer names its replicas serves as it is until it goes.
        if changeover::is_misnamed(&ask.spec, &slot.key) {
            continue;
        }
        // What is told to stop in this turn is decided about when it has been.
        if slot.current().is_some_and(|replica| stopped.contains(&(&slot.key, replica.generation))) {
            continue;
        }
        let own = held.as_ref().filter(|_| rollout::follows(pass.view, ask, slot) == Follows::Held);
        match need(pass.view, own.unwrap_or(ask), slot, &given_up, pass.now) {
            Need::Place if own.is_some() && free && slot.current().is_some_and(|it| is_outdated(ask, it)) => {
                needs.outdated.push(slot.key.clone());
                needs.leaving.insert(slot.key.clone());
            }
            Need::Place => {
                ask.counts.remove_from(leaving);
                let vacancies = if own.is_some() { &mut needs.held } else { &mut needs.vacancies };
                vacancies.push(next_generation(slot));
            }
            Need::WaitForHome => homeless.push(slot.key.clone()),
            Need::Nothing | Need::Update => {
                if slot.current().is_some_and(|replica| is_outdated(ask, replica)) {
                    needs.outdated.push(slot.key.clone());
                }
            }
        }
    }
    if !homeless.is_empty() {
        let why = home_is_away(pass.view, ask);
        pass.wait(ask, homeless, &why);
    }
    needs
}

/// What is replaced while a service it is to be restarted after is not made anew yet is restarted after it all the same: it
/// counts as made when the one it replaces was.
pub(super) fn replace_as_made(view: &View, ask: &Ask, placed: &mut [Placement]) {
    if ask.restarts_after.is_empty() || dependencies::unmet(view, &ask.key, &ask.spec).is_none() {
        return;
    }
    let known = view.group(ask.group);
    for placement in placed {
        let last = known.slot_at(&placement.slot).ok().and_then(|at| known.slots[at].replicas.last());
        if let Some(last) = last.filter(|last| !last.terms.was_made_after(&ask.restarts_after, &ask.terms.made_after)) {
            let made_after = last.terms.made_after.clone();
            placement.terms = Some(Arc::new(Terms { made_after, ..Terms::clone(&ask.terms) }));
        }
    }
}

/// Slots that need another node and could not change on the way: they get another of what they had.
pub(super) fn left_behind(pass: &Pass<'_>, ask: &mut Ask, leaving: &BTreeSet<SlotKey>) -> Vec<Vacancy> {
    let stepped = |slot: &SlotKey| {
        pass.items.iter().any(|item| matches!(item, PlanItem::Step { slot: other, .. } if other == slot))
    };
    let known = pass.view.group(ask.group);
    let left = leaving.iter().filter(|slot| !stepped(slot)).filter_map(|slot| known.slot_at(slot).ok());
    let left: Vec<&Slot> = left.map(|at| &known.slots[at]).collect();
    for slot in &left {
        ask.counts.remove_from(slot.counts_on());
    }
    left.into_iter().map(next_generation).collect()
}

/// The answer for replicas whose data is on a node that is down.
pub(crate) fn home_is_away(view: &View, ask: &Ask) -> Explanation {
    let mut why = explain::nowhere(view, ask);
    why.reason = Reason::VolumeHomeNodeOffline;
    // A bind mount has no volume to ask the filters about, yet its data is as far from every node.
    why.refused.insert(why.reason, why.nodes);
    why.fits = 0;
    why
}

/// Whether a slot stays with a node that is down because its data is there.
pub(crate) fn waits_for_home(view: &View, ask: &Ask, vacancy: &Vacancy) -> bool {
    ask.spec.is_stateful() && node_of(view, ask.group, &vacancy.slot).is_some()
}

/// Slots that run where they may not stay, each with the generation it would get elsewhere.
pub(crate) fn movers(view: &View, ask: &Ask, now: Time) -> Vec<Vacancy> {
    let running = view.group(ask.group).wanted_slots().filter(|slot| still_runs(view, slot).is_some());
    let moves = |slot: &&Slot| matches!(need(view, ask, slot, &BTreeSet::new(), now), Need::Place);
    running.filter(moves).map(next_generation).collect()
}

/// The node a slot counts on.
pub(crate) fn counts_on(view: &View, group: GroupIx, slot: &SlotKey) -> Option<NodeIx> {
    let known = view.group(group);
    known.slots[known.slot_at(slot).ok()?].counts_on()
}

/// Other nodes with an older generation of a slot that shall run too.
pub(super) fn beside(view: &View, group: GroupIx, slot: &SlotKey) -> SmallVec<[NodeIx; 1]> {
    let known = view.group(group);
    known.slot_at(slot).map_or_else(|_| SmallVec::new(), |at| known.slots[at].beside())
}

/// The node a slot's current generation is on.
pub(crate) fn node_of(view: &View, group: GroupIx, slot: &SlotKey) -> Option<NodeIx> {
    let known = view.group(group);
    known.slots[known.slot_at(slot).ok()?].current().map(|replica| replica.node)
}

pub(crate) fn next_generation(slot: &Slot) -> Vacancy {
    Vacancy { slot: slot.key.clone(), generation: Generation(slot.newest.0 + 1) }
}

fn need(view: &View, ask: &Ask, slot: &Slot, given_up: &BTreeSet<&SlotKey>, now: Time) -> Need {
    let Some(replica) = slot.current() else {
        return if may_have_successor(view, &ask.spec, slot) { Need::Place } else { Need::Nothing };
    };
    let updated = || if is_outdated(ask, replica) { Need::Update } else { Need::Nothing };
    match buckets::of(view, ask, (slot, replica), given_up, now) {
        Bucket::Lost | Bucket::Disconnecting | Bucket::Expiring if ask.spec.is_stateful() => Need::WaitForHome,
        Bucket::Disconnecting if absence::is_held(view, &ask.spec, replica, now) => Need::Nothing,
        Bucket::Lost | Bucket::Disconnecting | Bucket::Expiring | Bucket::Migrating => Need::Place,
        Bucket::Ignored if jobs::is_job(ask.spec.kind) && jobs::has_ended(view.group(ask.group), replica) => {
            Need::Nothing
        }
        // Given up means given up, also when its node is lost: only another spec, or the next apply, tries again.
        Bucket::Ignored
        | Bucket::Reconnecting
        | Bucket::RescheduleNow
        | Bucket::RescheduleLater
        | Bucket::Untainted => updated(),
    }
}

/// Whether a generation was made from another spec, to another end, with other secrets, or before a restart was asked for,
/// of itself or of a service it is to be restarted after.
pub(crate) fn is_outdated(ask: &Ask, replica: &Replica) -> bool {
    !making::is_made_of(&replica.terms, &ask.terms, &ask.restarts_after)
}

/// Whether a slot without a generation that shall run can get its next one now, or waits for the old one to stop. One on
/// a node that is down blocks nobody: its port is not wanted there, and its volume's home is asked about by a filter.
pub(super) fn may_have_successor(view: &View, spec: &ServiceSpec, slot: &Slot) -> bool {
    let mut alive = slot.replicas.iter().filter(|replica| view.fleet.node(replica.node).health != Health::Down);
    slot.current().is_none() && (alive.next().is_none() || !blocks_successor(spec))
}

pub(super) fn given_up(item: &PlanItem) -> Option<&SlotKey> {
    if let PlanItem::GiveUp { slot, .. } = item { Some(slot) } else { None }
}

pub(super) fn stopped(item: &PlanItem) -> Option<(&SlotKey, Generation)> {
    if let PlanItem::Stop { slot, generation } = item { Some((slot, *generation)) } else { None }
}
