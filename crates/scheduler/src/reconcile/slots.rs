//! Slots that need a new generation, and generations that are no longer needed.
//!
//! A replica stays while its node is valid: wanted or paused, not down, and of the right kind still. One whose node is
//! down is replaced, unless it is waited for; one whose node is alive but drained or no longer right moves
//! make-before-break. One with data never leaves its node: it waits there.
//!
//! Owns: validity of an existing placement. Must not touch: the choice of the next node.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    Explanation, Generation, Health, Intent, PlanItem, Reason, ReplicaState, RuntimeCode, SlotKey, Time,
    service::{ServiceSpec, UpdateOrder},
};

use super::{Pass, absence, handover, jobs};
use crate::{
    ask::Ask,
    explain,
    placement::{self, Vacancy},
    view::{
        GroupIx, NodeIx, View,
        fleet::takes_work,
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

/// Slots that need their next generation now, in order. Slots that are leaving do not count on their old node.
pub(super) fn vacancies(pass: &mut Pass<'_>, ask: &mut Ask, closed: &BTreeSet<SlotKey>) -> Vec<Vacancy> {
    let group = ask.group;
    let mut vacancies = Vec::new();
    let mut homeless = Vec::new();
    let mut outdated = Vec::new();
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(given_up).collect();
    for slot in pass.view.group(group).wanted_slots() {
        let leaving = slot.counts_on();
        if closed.contains(&slot.key) {
            ask.counts.remove_from(leaving);
            continue;
        }
        match need(pass.view, ask, slot, &given_up, pass.now) {
            Need::Nothing => {}
            Need::Place => {
                ask.counts.remove_from(leaving);
                vacancies.push(next_generation(slot));
            }
            Need::WaitForHome => homeless.push(slot.key.clone()),
            Need::Update => outdated.push(slot.key.clone()),
        }
    }
    if !homeless.is_empty() {
        let why = home_is_away(pass.view, ask);
        pass.wait(ask, homeless, &why);
    }
    vacancies.extend(update_in_place(pass, ask, &outdated, closed));
    vacancies
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

/// The node a slot's current generation is on.
pub(crate) fn node_of(view: &View, group: GroupIx, slot: &SlotKey) -> Option<NodeIx> {
    let known = view.group(group);
    known.slots[known.slot_at(slot).ok()?].current().map(|replica| replica.node)
}

/// Gives outdated slots their new generation beside the old one where that fits; gives back those that need
/// another node.
fn update_in_place(
    pass: &mut Pass<'_>,
    ask: &mut Ask,
    outdated: &[SlotKey],
    closed: &BTreeSet<SlotKey>,
) -> Vec<Vacancy> {
    let mut homeless = Vec::new();
    for (vacancy, node) in updates(pass, ask, outdated, closed) {
        ask.counts.remove_from(Some(node));
        match placement::place_at(pass.view, ask, vacancy, node) {
            Ok(placed) => pass.items.push(PlanItem::Place(placed)),
            // What has data on the node waits for room there, on its old spec.
            Err(_) if ask.spec.is_stateful() => ask.counts.add(node),
            Err(vacancy) => homeless.push(vacancy),
        }
    }
    homeless
}

pub(crate) fn next_generation(slot: &Slot) -> Vacancy {
    Vacancy { slot: slot.key.clone(), generation: Generation(slot.newest.0 + 1) }
}

fn need(view: &View, ask: &Ask, slot: &Slot, given_up: &BTreeSet<&SlotKey>, now: Time) -> Need {
    let Some(replica) = slot.current() else {
        return if may_have_successor(view, &ask.spec, slot) { Need::Place } else { Need::Nothing };
    };
    if jobs::is_job(ask.spec.kind) && jobs::has_ended(view.group(ask.group), replica) {
        return Need::Nothing;
    }
    if replica.code == Some(RuntimeCode::RestartExhausted) || given_up.contains(&slot.key) {
        // Given up means given up, also when its node is lost: only another spec, or the next apply, tries again. With a node
        // that leaves for good the record of its failures leaves too.
        if handover::is_leaving_with_its_node(view, ask, replica) {
            return Need::Place;
        }
        return if is_outdated(ask, replica) { Need::Update } else { Need::Nothing };
    }
    let node = view.fleet.node(replica.node);
    if node.health == Health::Down || node.intent == Intent::Removed {
        return match ask.spec.is_stateful() {
            true => Need::WaitForHome,
            false if absence::is_held(view, &ask.spec, replica, now) => Need::Nothing,
            false => Need::Place,
        };
    }
    // A job is left to end where it runs: moving it would be to run it twice.
    if !jobs::is_job(ask.spec.kind) && handover::must_leave(view, ask, replica) {
        return Need::Place;
    }
    if is_outdated(ask, replica) { Need::Update } else { Need::Nothing }
}

/// Whether a generation was made from another spec, or to another end, than its service has now.
pub(crate) fn is_outdated(ask: &Ask, replica: &Replica) -> bool {
    (&replica.terms.spec_hash, replica.terms.kind) != (&ask.terms.spec_hash, ask.terms.kind)
}

/// Whether a slot without a generation that shall run can get its next one now, or waits for the old one to stop. One on
/// a node that is down blocks nobody: its port is not wanted there, and its volume's home is asked about by a filter.
pub(super) fn may_have_successor(view: &View, spec: &ServiceSpec, slot: &Slot) -> bool {
    let mut alive = slot.replicas.iter().filter(|replica| view.fleet.node(replica.node).health != Health::Down);
    slot.current().is_none() && (alive.next().is_none() || !blocks_successor(spec))
}

/// Whether two generations of a slot cannot be alive together: they would fight for a port or a volume, or do the same
/// work twice.
fn blocks_successor(spec: &ServiceSpec) -> bool {
    if jobs::is_job(spec.kind) {
        return true;
    }
    let host_port = spec.ports.iter().any(|port| port.mode == longshore_model::service::PortMode::Host);
    spec.update.order == Some(UpdateOrder::StopFirst) || host_port || spec.volumes().next().is_some()
}

/// As many outdated slots as may be under way at once, by index, each with the node it is on. Where both generations
/// cannot coexist the old one is stopped instead, and the slot comes back without a node once it has.
pub(super) fn updates(
    pass: &mut Pass<'_>,
    ask: &Ask,
    outdated: &[SlotKey],
    closed: &BTreeSet<SlotKey>,
) -> Vec<(Vacancy, NodeIx)> {
    let known = pass.view.group(ask.group);
    let staying = known.wanted_slots().filter(|slot| !closed.contains(&slot.key));
    let given_up: BTreeSet<&SlotKey> = pass.items.iter().filter_map(given_up).collect();
    let restarted: BTreeSet<&SlotKey> = pass.items.iter().filter_map(restarted).collect();
    let is_under_way =
        |slot: &Slot| restarted.contains(&slot.key) || (!is_settled(pass.view, slot) && !given_up.contains(&slot.key));
    let mut under_way = staying.filter(|slot| is_under_way(slot)).count();
    let parallelism = match ask.spec.update.parallelism {
        0 => usize::MAX,
        limit => limit as usize,
    };
    let turn = outdated.iter().filter_map(|key| known.slot_at(key).ok().map(|at| &known.slots[at]));
    let turn = turn.filter_map(|slot| Some((slot, slot.current()?)));
    // Its data keeps it on its node: stopped there while the node takes no new work, it could not start again.
    let stuck = |replica: &Replica| ask.spec.is_stateful() && !takes_work(pass.view.fleet.node(replica.node));
    let turn = turn.filter(|(_, replica)| !stuck(replica));
    // A slot that is under way anyway takes nobody's turn.
    let turn = turn.filter(|(slot, _)| {
        let fresh = usize::from(!is_under_way(slot));
        let may = fresh == 0 || under_way < parallelism;
        under_way += if may { fresh } else { 0 };
        may
    });
    if !blocks_successor(&ask.spec) {
        return turn.map(|(slot, replica)| (next_generation(slot), replica.node)).collect();
    }
    let stop =
        |(slot, replica): (&Slot, &Replica)| PlanItem::Stop { slot: slot.key.clone(), generation: replica.generation };
    let stops: Vec<PlanItem> = turn.map(stop).collect();
    pass.items.extend(stops);
    Vec::new()
}

fn restarted(item: &PlanItem) -> Option<&SlotKey> {
    if let PlanItem::Restart { slot, .. } = item { Some(slot) } else { None }
}

pub(super) fn given_up(item: &PlanItem) -> Option<&SlotKey> {
    if let PlanItem::GiveUp { slot, .. } = item { Some(slot) } else { None }
}

/// Whether a slot runs one generation and no change is under way. One that failed for good holds nobody up, nor does one
/// that is out of sight.
fn is_settled(view: &View, slot: &Slot) -> bool {
    let current = slot.current().map(|replica| replica.generation);
    let in_sight = |replica: &&Replica| view.fleet.node(replica.node).health != Health::Down;
    let others = slot.replicas.iter().filter(|replica| Some(replica.generation) != current);
    let alive = others.filter(in_sight).count() == 0;
    let settled = |replica: &Replica| {
        matches!(replica.state, ReplicaState::Running | ReplicaState::Failed | ReplicaState::Completed)
    };
    alive && slot.current().is_some_and(settled)
}
