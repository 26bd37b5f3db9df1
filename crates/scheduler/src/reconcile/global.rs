//! Services that run one replica on every node that fits.
//!
//! A node of the wrong kind is no target; one that is merely full is a target that waits, with its reason. Replicas are
//! named after their node, so that a node joining or leaving renames nobody.
//!
//! Owns: the set of target nodes. Must not touch: other nodes; a global replica is never placed anywhere else.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::{
    Explanation, Generation, Health, Intent, NodeName, PlanItem, ServiceSpec, SlotKey, Time, replica::Wanted,
};

use super::{
    Pass, absence, changeover, handover, jobs, restart,
    rollout::{self, Follows},
    second_look::Leftover,
    slots, steps,
};
use crate::{
    ask::Ask,
    explain,
    feasibility::{self, gates},
    placement::{self, Vacancy},
    view::{NodeIx, View, fleet::takes_work, groups::Slot},
};

/// Brings a global service to one replica on every target.
pub(super) fn decide(pass: &mut Pass<'_>, ask: &mut Ask) {
    let group = ask.group;
    let mut closed = close_off_target(pass, ask);
    if jobs::is_job(ask.spec.kind) {
        closed.extend(jobs::collect(pass, ask, &closed));
        jobs::stop_outdated(pass, ask, &closed);
    }
    for slot in &closed {
        ask.counts.remove_from(slots::counts_on(pass.view, group, slot));
    }
    handover::settle(pass, ask);
    restart::restart_ended(pass, group);
    rollout::revive(pass, ask);
    rollout::judge(pass, ask);
    pass.view.waiting.remove(&group);
    let (held, mut vacancies) = vacancies(pass, ask, &closed);
    if jobs::is_job(ask.spec.kind) {
        let view = &*pass.view;
        let reruns = jobs::reruns(view, ask, &closed).into_iter();
        vacancies.extend(reruns.filter(|(_, node)| takes_work(view.fleet.node(*node))));
    }
    let vacancies = jobs::in_turn(pass, ask, vacancies, &closed, |(vacancy, _)| vacancy);
    place_held(pass, ask, held);
    let outdated = outdated(pass, ask, &closed);
    steps::take(pass, ask, &outdated, &BTreeSet::new(), &closed);
    place_each(pass, ask, vacancies);
    changeover::go_ahead(pass, ask, &mut closed);
    rollout::note_standing(pass, ask, &closed);
}

/// Places each replica on its node, or says why not.
fn place_each(pass: &mut Pass<'_>, ask: &mut Ask, vacancies: Vec<(Vacancy, NodeIx)>) {
    super::suppose_told(pass.view, ask.group, &pass.items);
    let mut barred = Vec::new();
    let mut full = Vec::new();
    let mut placed = Vec::new();
    for (vacancy, node) in vacancies {
        ask.counts.remove_from(slots::counts_on(pass.view, ask.group, &vacancy.slot));
        if let Some(refusal) = gates::bar(pass.view, ask, &vacancy) {
            barred.push((vacancy, explain::gated(pass.view, refusal)));
            continue;
        }
        match placement::place_at(pass.view, ask, vacancy, node) {
            Ok(found) => placed.push(found),
            Err(vacancy) => full.push((vacancy, node)),
        }
    }
    let moved = rollout::moved(pass.view, ask, &placed);
    pass.items.extend(placed.into_iter().map(PlanItem::Place));
    pass.items.extend(moved);
    slots::stop_replaced(pass, ask.group);
    pass.need_room(full.iter().map(|(vacancy, _)| vacancy.clone()).collect());
    // Explained only now: what one node got may be why another gets nothing.
    let explained = full.into_iter().map(|(vacancy, node)| (vacancy, explain::at_node(pass.view, ask, node)));
    let waits: Vec<(Vacancy, Explanation)> = barred.into_iter().chain(explained).collect();
    let left = waits.iter().map(|(vacancy, _)| vacancy.clone()).collect();
    pass.left = Leftover::new(pass.view, ask, left, pass.items.len());
    for (vacancy, why) in waits {
        pass.wait(ask, vec![vacancy.slot], &why);
    }
}

/// The same once more, for those that found no room before.
pub(super) fn place_again(pass: &mut Pass<'_>, ask: &mut Ask, vacancies: Vec<Vacancy>) {
    let node = |vacancy: &Vacancy| match &vacancy.slot {
        SlotKey::Node(name) => pass.view.fleet.by_name.get(name).copied(),
        SlotKey::Index(_) => None,
    };
    let vacancies = vacancies.into_iter().filter_map(|vacancy| Some((node(&vacancy)?, vacancy)));
    let vacancies: Vec<_> = vacancies.map(|(node, vacancy)| (vacancy, node)).collect();
    place_each(pass, ask, vacancies);
}

/// A replica to be placed, and its node.
type Seat = (Vacancy, NodeIx);

/// Every replica to be placed, with its node: first those that get another of what they had, then the others.
fn vacancies(pass: &Pass<'_>, ask: &Ask, closed: &BTreeSet<SlotKey>) -> (Vec<Seat>, Vec<Seat>) {
    let view = &*pass.view;
    let empty = view.fleet.in_order().filter_map(|node| Some((vacancy(view, ask, node)?, node)));
    let empty = empty.filter(|(vacancy, _)| !closed.contains(&vacancy.slot));
    let known = view.group(ask.group);
    let is_held = |(vacancy, _): &Seat| {
        let slot = known.slot_at(&vacancy.slot).ok().map(|at| &known.slots[at]);
        slot.is_some_and(|slot| rollout::follows(view, ask, slot) == Follows::Held)
    };
    empty.partition(is_held)
}

/// Places replicas whose step in a rollout has not come on their nodes, as they were, or says why not.
fn place_held(pass: &mut Pass<'_>, ask: &mut Ask, vacancies: Vec<(Vacancy, NodeIx)>) {
    let Some(mut held) = Ask::held(pass.view, ask, pass.now).filter(|_| !vacancies.is_empty()) else { return };
    for (vacancy, node) in vacancies {
        held.counts.remove_from(slots::counts_on(pass.view, ask.group, &vacancy.slot));
        match placement::place_at(pass.view, &mut held, vacancy, node) {
            Ok(mut placed) => {
                placed.terms = Some(Arc::clone(&held.terms));
                pass.items.push(PlanItem::Place(placed));
            }
            Err(vacancy) => {
                let why = explain::at_node(pass.view, &held, node);
                pass.wait(&held, vec![vacancy.slot], &why);
            }
        }
    }
}

/// Replicas whose spec changed, on nodes that take work.
pub(super) fn outdated(pass: &Pass<'_>, ask: &Ask, closed: &BTreeSet<SlotKey>) -> Vec<SlotKey> {
    let view = &*pass.view;
    // What is told to stop in this turn, so that an older one counts again, is decided about when it has been.
    let stopped: BTreeSet<(&SlotKey, Generation)> = pass.items.iter().filter_map(slots::stopped).collect();
    let goes = |slot: &Slot| slot.current().is_some_and(|replica| stopped.contains(&(&slot.key, replica.generation)));
    let own = view.group(ask.group).wanted_slots().filter(|slot| !changeover::is_misnamed(&ask.spec, &slot.key));
    let staying = own.filter(|slot| !closed.contains(&slot.key) && !goes(slot));
    let changed = staying.filter(|slot| slot.current().is_some_and(|replica| slots::is_outdated(ask, replica)));
    let changed = changed.filter(|slot| slot.current().is_some_and(|it| takes_work(view.fleet.node(it.node))));
    changed.map(|slot| slot.key.clone()).collect()
}

/// A node that should have a replica and has none.
fn vacancy(view: &View, ask: &Ask, node: NodeIx) -> Option<Vacancy> {
    let known = view.fleet.node(node);
    if !feasibility::may_stay(ask, view, node) {
        return None;
    }
    let group = view.group(ask.group);
    let key = SlotKey::Node(known.name.clone());
    let generation = match group.slot_at(&key) {
        // A job that is done there, though no longer shown, is done.
        Err(_) if group.collected.nodes.contains_key(&known.name) => return None,
        // A node that takes no new work is no target; a slot that it already has waits there.
        Err(_) if !takes_work(known) => return None,
        Err(_) => Generation(1),
        Ok(at) if group.slots[at].wanted == Wanted::Stop => return None,
        Ok(at) if slots::may_have_successor(view, &ask.spec, &group.slots[at]) => {
            Generation(group.slots[at].newest.0 + 1)
        }
        Ok(_) => return None,
    };
    Some(Vacancy { slot: key, generation })
}

/// Closes the replicas of nodes that are no target any more, drained nodes and nodes that are down included: the count
/// follows the nodes that are there. A paused or suspect node keeps its replica, and work that is done stays done.
fn close_off_target(pass: &mut Pass<'_>, ask: &Ask) -> BTreeSet<SlotKey> {
    let view = &*pass.view;
    let group = view.group(ask.group);
    let is_done = |slot: &Slot| slot.current().is_some_and(|replica| jobs::has_ended(group, replica));
    // Until its step has come a replica is waited for as it was before the rollout.
    let waited_by = |slot: &Slot| rollout::spec_of(view, ask, slot);
    let stays = |name: &NodeName, slot: &Slot| {
        view.fleet.by_name.get(name).is_some_and(|node| {
            // What has ended is shown until it is collected, whatever becomes of the node.
            let done = jobs::is_job(ask.spec.kind) && is_done(slot);
            done || (is_there(view, waited_by(slot), *node, slot, pass.now) && feasibility::may_stay(ask, view, *node))
        })
    };
    let own = |slot: &Slot| match &slot.key {
        SlotKey::Node(name) => Some(stays(name, slot)),
        // Left from when the service had a count.
        SlotKey::Index(_) => None,
    };
    let gone = group.wanted_slots().filter(|slot| own(slot) == Some(false)).map(|slot| slot.key.clone());
    let mut gone: BTreeSet<SlotKey> = gone.collect();
    if group.wanted_slots().any(|slot| own(slot).is_none()) {
        let staying = group.wanted_slots().filter(|slot| own(slot) == Some(true)).count();
        let is_new = |node: &NodeIx| vacancy(view, ask, *node).is_some_and(|it| group.slot_at(&it.slot).is_err());
        let wanted = staying + view.fleet.in_order().filter(is_new).count();
        let going = changeover::going(view, group, (wanted, &gone), pass.now);
        gone.extend(going);
    }
    pass.items.extend(gone.iter().cloned().map(PlanItem::Close));
    gone
}

/// Whether a node counts as there for the replica it has: nobody empties it, and it is up, or waited for.
fn is_there(view: &View, spec: &ServiceSpec, node: NodeIx, slot: &Slot, now: Time) -> bool {
    let known = view.fleet.node(node);
    let waited_for = || {
        let current = slot.current();
        current.is_some_and(|it| absence::is_held(view, spec, it, now) || absence::is_waited_for(view, spec, it, now))
    };
    matches!(known.intent, Intent::Active | Intent::Paused) && (known.health != Health::Down || waited_for())
}

/// Why each waiting node's replica waits: the reason and the miss are its node's, the counts those of all nodes.
pub(crate) fn explain_each(view: &View, ask: &Ask, unplaced: Vec<Vacancy>) -> Vec<(Vec<SlotKey>, Explanation)> {
    let mut fates: Vec<(Vec<SlotKey>, Explanation)> = Vec::new();
    let everywhere = explain::nowhere(view, ask);
    for vacancy in unplaced {
        let SlotKey::Node(name) = &vacancy.slot else { continue };
        let Some(&node) = view.fleet.by_name.get(name) else { continue };
        let why = match gates::bar(view, ask, &vacancy) {
            Some(refusal) => explain::gated(view, refusal),
            None => Explanation {
                nodes: everywhere.nodes,
                fits: everywhere.fits,
                refused: everywhere.refused.clone(),
                ..explain::at_node(view, ask, node)
            },
        };
        fates.push((vec![vacancy.slot], why));
    }
    fates
}
