//! A service that is spread unevenly, because a node came after it was placed, is evened out on demand.
//!
//! Owns: which replica goes first: from the fullest branch and node, the highest index. Where it goes, its strategy says.
//! Must not touch: services nobody asked about. Invariant: every move makes the spread more even, so it comes to an end.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    Assignment, Attempt, Event, Generation, GroupPlan, NodeName, Placement, PlanItem, ReplicaState, Strategy, Time,
    rebalance::{EveningOut, MoveCause, PlannedMove, Pressure, Weighed},
    replica::{Details, Wanted},
};

use super::{
    Cycle, Rebalancer, candidates,
    gates::{self, Change, REPLICA_COOLDOWN},
    relieve::by_strategy,
    score::{self, MOVE_COST},
    skips::Subject,
    spread,
};
use crate::{
    ask::{Ask, Counts},
    reconcile::slots,
    view::{GroupIx, NodeIx, View, groups::Slot},
};

/// What is to be done about a service that was asked to be evened out.
enum Outcome {
    Moves(Box<Placement>),
    /// Something is under way, or rests, or would make a node hot.
    NotYet,
    Even,
}

/// Goes on with the services that were asked to be evened out, most important first, up to the first move.
pub(super) fn even_out(
    rebalancer: &mut Rebalancer,
    view: &mut View,
    fresh: &BTreeMap<NodeName, Pressure>,
    now: Time,
    cycle: &mut Cycle,
) {
    let asked = view.group_ids.values().copied().filter(|group| is_asked(view, *group));
    let mut asked: Vec<GroupIx> = asked.collect();
    asked.sort_by(|a, b| view.order(*a, *b));
    for group in asked {
        let mut ask = Ask::new(view, group, now, Counts::default());
        let outcome = Evening { rebalancer, fresh, now, rest: Rest::Counts }.look(view, &mut ask);
        let (terms, key) = (Arc::clone(&ask.terms), ask.key);
        let item = match outcome {
            Outcome::NotYet => continue,
            Outcome::Even => PlanItem::EvenedOut,
            Outcome::Moves(placement) => PlanItem::Place(*placement),
        };
        let moves = matches!(item, PlanItem::Place(_));
        cycle.plan.groups.push(GroupPlan { group: key, terms, items: vec![item] });
        if moves {
            break;
        }
    }
}

fn is_asked(view: &View, group: GroupIx) -> bool {
    let known = view.group(group);
    known.evening_out == EveningOut::Asked && known.wanted == Wanted::Run
}

/// The moves it would take to even out every service that allows it, one after the other, were nothing else to happen. The
/// view is left as if they had been made.
pub(super) fn preview(
    rebalancer: &Rebalancer,
    view: &mut View,
    fresh: &BTreeMap<NodeName, Pressure>,
    now: Time,
) -> Vec<PlannedMove> {
    let wanted = view.group_ids.values().copied().filter(|group| view.group(*group).wanted == Wanted::Run);
    let mut groups: Vec<GroupIx> = wanted.collect();
    groups.sort_by(|a, b| view.order(*a, *b));
    let evening = Evening { rebalancer, fresh, now, rest: Rest::IsOver };
    let mut moves = Vec::new();
    for group in groups {
        // Each move makes the spread more even, so this ends by itself; the bound only keeps a mistake from looping.
        for _ in 0..=view.group(group).slots.len() {
            let mut ask = Ask::new(view, group, now, Counts::default());
            let Outcome::Moves(placement) = evening.look(view, &mut ask) else { break };
            moves.extend(make(view, &ask, *placement, now));
        }
    }
    moves
}

/// Takes a move for made: the new generation runs, the old one is gone.
fn make(view: &mut View, ask: &Ask, placement: Placement, now: Time) -> Option<PlannedMove> {
    let from = slots::node_of(view, ask.group, &placement.slot)?;
    let from = view.fleet.node(from).name.clone();
    let (group, slot, generation, to) = (ask.key.clone(), placement.slot, placement.generation, placement.node);
    let assignment = Assignment {
        node: to.clone(),
        address: placement.address,
        placed_at: now,
        terms: Arc::clone(&ask.terms),
        devices: placement.devices,
    };
    let old = Generation(generation.0.saturating_sub(1));
    let runs = Event::Observed {
        group: group.clone(),
        slot: slot.clone(),
        generation,
        attempt: Attempt(0),
        state: ReplicaState::Running,
        code: None,
        details: Details::new(),
        failures: 0,
        at: now,
        rival: None,
    };
    view.apply(&Event::Placed { group: group.clone(), slot: slot.clone(), generation, assignment });
    view.apply(&runs);
    view.apply(&Event::Released { group: group.clone(), slot: slot.clone(), generation: old, at: now });
    view.fleet.refresh();
    Some(PlannedMove { group, slot, from, to })
}

/// Whether a replica that was moved lately is left alone for a while.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Counts,
    IsOver,
}

struct Evening<'a> {
    rebalancer: &'a Rebalancer,
    fresh: &'a BTreeMap<NodeName, Pressure>,
    now: Time,
    rest: Rest,
}

impl Evening<'_> {
    fn look(&self, view: &mut View, ask: &mut Ask) -> Outcome {
        if ask.spec.placement.strategy != Strategy::Spread || !candidates::is_movable(&ask.spec) {
            return Outcome::Even;
        }
        if view.group(ask.group).wanted_slots().any(|slot| is_under_way(ask, slot)) {
            return Outcome::NotYet;
        }
        let mut later = false;
        for src in by_crowd(view, ask) {
            match self.from(view, ask, src) {
                Outcome::Moves(placement) => return Outcome::Moves(placement),
                Outcome::NotYet => later = true,
                Outcome::Even => {}
            }
        }
        if later { Outcome::NotYet } else { Outcome::Even }
    }

    /// Whether one of the service's replicas on a node had better be elsewhere.
    fn from(&self, view: &mut View, ask: &mut Ask, src: NodeIx) -> Outcome {
        let Some((slot, generation)) = candidates::slots_on(view, ask, src).pop() else { return Outcome::Even };
        let known = view.group(ask.group);
        let Ok(at) = known.slot_at(&slot) else { return Outcome::Even };
        let moved_at = known.slots[at].moved_at.filter(|_| self.rest == Rest::Counts);
        let rests = moved_at.is_some_and(|moved| self.now.since(moved) < REPLICA_COOLDOWN);
        let vacancy = slots::next_generation(&known.slots[at]);
        ask.take_back(src);
        let found = by_strategy(view, ask, vacancy);
        if let Some((_, dst)) = &found {
            ask.take_back(*dst);
        }
        let better = found.filter(|(_, dst)| {
            let (from, to) = spread::first_difference(view, ask, src, *dst);
            *dst != src && from > to
        });
        ask.put(src);
        let Some((mut placement, dst)) = better else { return Outcome::Even };
        let subject = Subject { group: ask.key.clone(), slot, generation };
        let weighed = self.weigh(view, &subject, src, dst);
        if rests || weighed.is_none() {
            return Outcome::NotYet;
        }
        placement.moved = weighed.map(Box::new);
        Outcome::Moves(Box::new(placement))
    }

    /// What is known of the two nodes; nothing where the destination would become hot.
    fn weigh(&self, view: &View, subject: &Subject, src: NodeIx, dst: NodeIx) -> Option<Weighed> {
        let change = |node: NodeIx, by: fn(Pressure, Pressure) -> Change| {
            let known = view.fleet.node(node);
            let before = *self.fresh.get(&known.name)?;
            Some(by(before, self.rebalancer.footprint_of(view, subject, known)))
        };
        let (from, to) = (&view.fleet.node(src).name, &view.fleet.node(dst).name);
        let destination = change(dst, Change::with);
        if destination.is_some_and(|change| gates::destination_cap(change).is_some()) {
            return None;
        }
        let known = change(src, Change::without).map(|source| {
            let leaves = self.rebalancer.footprint_of(view, subject, view.fleet.node(src));
            score::weigh(from, source, leaves, None)
        });
        let weighed = known.unwrap_or_else(|| unknown(from));
        Some(Weighed {
            cause: MoveCause::EvenOut,
            dst: Some(to.clone()),
            dst_before: destination.map(|change| change.before.composite()),
            dst_after: destination.map(|change| change.after.composite()),
            ..weighed
        })
    }
}

/// What is weighed where nothing is measured.
fn unknown(src: &NodeName) -> Weighed {
    Weighed {
        cause: MoveCause::EvenOut,
        src: src.clone(),
        dst: None,
        dominant: None,
        relief: None,
        score: None,
        move_cost: MOVE_COST,
        src_before: None,
        src_after: None,
        dst_before: None,
        dst_after: None,
    }
}

/// Whether a slot is just being started, moved or changed. One that waits or failed for good holds nobody up.
fn is_under_way(ask: &Ask, slot: &Slot) -> bool {
    let [replica] = slot.replicas.as_slice() else { return !slot.replicas.is_empty() };
    slots::is_outdated(ask, replica)
        || matches!(
            replica.state,
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting | ReplicaState::Draining
        )
}

/// The nodes with any of the service, the fullest branch and node first, then by name from the end.
fn by_crowd(view: &View, ask: &Ask) -> Vec<NodeIx> {
    let mut nodes: Vec<NodeIx> = view.fleet.in_order().filter(|node| ask.counts.get(*node) > 0).collect();
    nodes.reverse();
    nodes.sort_by_key(|node| std::cmp::Reverse(spread::crowd(view, ask, *node)));
    nodes
}
