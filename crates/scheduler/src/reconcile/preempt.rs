//! Preemption: what fits nowhere may displace what matters less, where the cluster allows it.
//!
//! It is part of a group's turn, so that whoever matters less comes after it and sees what was decided:
//!
//! ```text
//! fits nowhere ─▶ fits once what is told to stop has stopped? ── yes ─▶ keep that room
//!                                 └── no ─▶ victims are told to stop, and their room is kept
//! ```
//!
//! Room that is kept counts as taken for the rest of the pass. Without that, what was displaced would take back the room
//! of the first victim to stop while the second is still stopping, and the newcomer would displace for ever. Nobody is
//! placed here: room is free only when victims are seen to have stopped, and then the most important comes first.
//!
//! Owns: the choice of victims. Never stateful ones, never of a priority less than ten below, never what the newcomer
//! depends on, never more than needed, fewest and lowest first; and the room kept. Both are worked out from the view alone, so that the next pass, with
//! the victims stopping, keeps the same room and finds no others.
//! Invariant: taking any victim back would leave the newcomer without room.

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeSet,
    sync::Arc,
};

use longshore_model::{
    Explanation, Generation, GroupPlan, Plan, PlanItem, Refusal, ServiceSpec, SlotKey, Strategy, Time, replica::Wanted,
    service::Batching,
};

use super::{attempt::attempt, jobs, slots};
use crate::{
    ask::{Ask, Counts},
    feasibility::{self, gates::dependencies},
    placement::Vacancy,
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Replica, Slot, is_live},
        occupancy::Holding,
    },
};

/// How far below a victim's priority must be, so that near equals never fight.
const PRIORITY_GAP: u8 = 10;

/// Everything told to stop that still takes room, counted anew when a pass has told somebody else to.
#[derive(Default)]
pub(crate) struct Leaving {
    counted: Vec<(NodeIx, Holding)>,
    /// How many this pass had told when it was counted.
    told: Option<usize>,
}

/// A generation that has to go.
#[derive(Clone, Debug)]
struct Victim {
    group: GroupIx,
    slot: SlotKey,
    generation: Generation,
    holding: Holding,
    priority: u8,
}

/// Keeps room for slots that fit nowhere, displacing others where there is no other way. Gives back the slots that lost
/// a generation.
pub(super) fn make_room(
    view: &mut View,
    ask: &mut Ask,
    unmet: &[Vacancy],
    leaving: &mut Leaving,
) -> Vec<(GroupIx, SlotKey)> {
    if unmet.is_empty() {
        return Vec::new();
    }
    leaving.suppose_gone(view);
    let victims = victims(view, ask, unmet);
    leaving.suppose_back(view);
    let mut losers = Vec::new();
    for Victim { group, slot, generation, .. } in victims {
        view.displace(group, &slot, generation);
        losers.push((group, slot));
    }
    keep_room(view, ask, unmet, leaving);
    losers
}

/// Keeps the room that slots have, and will have once everything told to stop has stopped: on the first nodes by name,
/// because nothing that happens meanwhile changes that order.
fn keep_room(view: &mut View, ask: &mut Ask, unmet: &[Vacancy], leaving: &mut Leaving) {
    let mut kept = Vec::new();
    // What a batch that wants all or nothing could have now is kept first, or others would take it while it waits.
    let unmet = claim_each(view, ask, unmet.to_vec(), &mut kept);
    leaving.suppose_gone(view);
    let unmet = claim_each(view, ask, unmet, &mut kept);
    if is_whole(&ask.spec) && !unmet.is_empty() {
        view.lift_claims(|group| group == ask.group);
    }
    for node in kept {
        ask.take_back(node);
    }
    leaving.suppose_back(view);
}

/// Keeps room for as many as have any; gives back the others.
fn claim_each(view: &mut View, ask: &mut Ask, vacancies: Vec<Vacancy>, kept: &mut Vec<NodeIx>) -> Vec<Vacancy> {
    let mut left = Vec::new();
    for vacancy in vacancies {
        let takes = |node: &NodeIx| is_possible(view, &vacancy, *node) && ask.could_take(view, *node);
        let first = view.fleet.in_order().find(takes);
        let Some(node) = first else {
            left.push(vacancy);
            continue;
        };
        view.claim(ask, node);
        ask.put(node);
        kept.push(node);
    }
    left
}

/// Keeps the room of every group that waits and is decided before this one, so that an explanation sees the cluster as
/// the pass does.
pub(crate) fn keep_room_of_those_before(view: &mut View, group: GroupIx, now: Time) {
    let mut leaving = Leaving::default();
    let mut before: Vec<GroupIx> = view.waiting.iter().copied().filter(|other| view.precedes(*other, group)).collect();
    before.sort_by(|a, b| if view.precedes(*a, *b) { Ordering::Less } else { Ordering::Greater });
    for other in before {
        let mut ask = Ask::new(view, other, now, Counts::default());
        let mut unmet = super::unplaced(view, other, now);
        if !ask.spec.kind.is_per_node() {
            unmet.extend(slots::movers(view, &ask, now));
            unmet.sort_by(|a, b| a.slot.cmp(&b.slot));
            for vacancy in &unmet {
                ask.counts.remove_from(slots::counts_on(view, other, &vacancy.slot));
            }
            let held_back = attempt(view, &mut ask, unmet).held_back;
            unmet = in_need_of_room(&ask.spec, &held_back);
        }
        keep_room(view, &mut ask, &unmet, &mut leaving);
    }
}

/// The slots held back that room would help, rather than a larger quota, a secret or another place for a volume.
pub(super) fn in_need_of_room(spec: &ServiceSpec, held_back: &[(Vec<Vacancy>, Explanation)]) -> Vec<Vacancy> {
    let helps = |why: &Explanation| matches!(why.gate, None | Some(Refusal::Batch { .. }));
    if is_whole(spec) && !held_back.iter().all(|(_, why)| helps(why)) {
        return Vec::new();
    }
    held_back.iter().filter(|(_, why)| helps(why)).flat_map(|(vacancies, _)| vacancies.iter().cloned()).collect()
}

impl Victim {
    fn is(&self, other: &Self) -> bool {
        (self.group, &self.slot, self.generation) == (other.group, &other.slot, other.generation)
    }
}

/// A node, and who has to go there.
type Chosen = (NodeIx, Vec<Victim>);

/// Whether a service is of no use in part, so that victims for a part of it would go for nothing.
fn is_whole(spec: &ServiceSpec) -> bool {
    spec.placement.batching == Batching::AllOrNothing || spec.placement.strategy == Strategy::Hosts
}

/// Puts the ends of those displaced into the plan, each with its own group and before what follows from it.
pub(super) fn displace(view: &mut View, plan: &mut Plan) {
    for (group, slot, generation) in view.displaced() {
        let stop = PlanItem::Stop { slot: slot.clone(), generation };
        view.dirty.insert(group);
        let known = view.group(group);
        if let Some(changes) = plan.groups.iter_mut().find(|changes| changes.group == known.key) {
            changes.items.insert(0, stop);
            continue;
        }
        let replica = known.slot_at(&slot).ok().and_then(|at| known.slots[at].replicas.last());
        let terms = replica.map(|replica| Arc::clone(&replica.terms)).unwrap_or_default();
        plan.groups.push(GroupPlan { group: known.key.clone(), terms, items: vec![stop] });
    }
}

impl Leaving {
    /// Everything told to stop is taken for stopped.
    fn suppose_gone(&mut self, view: &mut View) {
        if self.told != Some(view.told_to_stop()) {
            self.told = Some(view.told_to_stop());
            self.counted = stopping(view);
        }
        for (node, holding) in &self.counted {
            view.save_load(*node);
            holding.unload(&mut view.fleet, *node);
        }
    }

    /// And is there again.
    fn suppose_back(&self, view: &mut View) {
        for (node, holding) in &self.counted {
            holding.load(&mut view.fleet, *node);
        }
        view.settle_lanes();
    }
}

/// What was told to stop and has not stopped.
fn stopping(view: &View) -> Vec<(NodeIx, Holding)> {
    let replicas = view.groups.iter().flatten().flat_map(|group| &group.slots).flat_map(|slot| &slot.replicas);
    let stopping = replicas.filter(|replica| !is_live(replica));
    let stopping = stopping.filter(|replica| crate::occupies(replica.terms.kind, replica.state));
    stopping.map(|replica| (replica.node, Holding::of(replica))).collect()
}

/// Whether a slot may be on a node as far as its name says.
fn is_possible(view: &View, vacancy: &Vacancy, node: NodeIx) -> bool {
    match &vacancy.slot {
        SlotKey::Node(name) => view.fleet.node(node).name == *name,
        SlotKey::Index(_) => true,
    }
}

/// Who has to go for those that fit nowhere even once everything told to stop has stopped. The view is left as it was.
fn victims(view: &mut View, ask: &mut Ask, unmet: &[Vacancy]) -> Vec<Victim> {
    let mut found: Vec<Chosen> = Vec::new();
    let mut put = Vec::new();
    for vacancy in unmet {
        let Some((node, chosen)) = best_node(view, ask, vacancy, &found) else { continue };
        for victim in &chosen {
            victim.holding.unload(&mut view.fleet, node);
        }
        put.push(put_on(view, ask, node));
        found.push((node, chosen));
    }
    take_off(view, ask, put);
    let chosen = spare_again(view, ask, &found);
    for (node, victim) in &chosen {
        victim.holding.load(&mut view.fleet, *node);
    }
    if is_whole(&ask.spec) && found.len() < unmet.len() {
        return Vec::new();
    }
    chosen.into_iter().map(|(_, victim)| victim).collect()
}

/// Supposes one of the newcomers on a node that can take it.
fn put_on(view: &mut View, ask: &mut Ask, node: NodeIx) -> (NodeIx, Holding) {
    let holding = ask.holding(view, node);
    holding.load(&mut view.fleet, node);
    ask.put(node);
    (node, holding)
}

/// Takes supposed newcomers off their nodes again.
fn take_off(view: &mut View, ask: &mut Ask, put: Vec<(NodeIx, Holding)>) {
    for (node, holding) in put {
        holding.unload(&mut view.fleet, node);
        ask.take_back(node);
    }
}

/// Lets go of victims that a later choice made superfluous, the most important first. Gives back the others, still gone.
fn spare_again(view: &mut View, ask: &mut Ask, found: &[Chosen]) -> Vec<(NodeIx, Victim)> {
    let victims = found.iter().flat_map(|(node, victims)| victims.iter().map(|victim| (*node, victim.clone())));
    let mut victims: Vec<(NodeIx, Victim)> = victims.collect();
    victims.sort_by_key(|(_, victim)| Reverse(victim.priority));
    let mut at = 0;
    while at < victims.len() {
        let (node, holding) = (victims[at].0, victims[at].1.holding.clone());
        holding.load(&mut view.fleet, node);
        if all_fit(view, ask, found) {
            victims.remove(at);
        } else {
            holding.unload(&mut view.fleet, node);
            at += 1;
        }
    }
    victims
}

/// Whether as many as were found a node still fit on these nodes, a node's own replica on its own.
fn all_fit(view: &mut View, ask: &mut Ask, found: &[Chosen]) -> bool {
    let nodes: BTreeSet<NodeIx> = found.iter().map(|(node, _)| *node).collect();
    let mut put = Vec::new();
    for (own, _) in found {
        let may_be = |node: &NodeIx| !ask.spec.kind.is_per_node() || node == own;
        let takes = |node: &NodeIx| may_be(node) && ask.could_take(view, *node);
        let Some(node) = nodes.iter().copied().find(takes) else { break };
        put.push(put_on(view, ask, node));
    }
    let all = put.len() == found.len();
    take_off(view, ask, put);
    all
}

/// The node where the fewest and lowest have to go, and who.
fn best_node(view: &mut View, ask: &Ask, vacancy: &Vacancy, taken: &[Chosen]) -> Option<Chosen> {
    let possible = view.fleet.in_order().filter(|node| is_possible(view, vacancy, *node));
    let nodes: Vec<NodeIx> = possible.filter(|node| feasibility::is_domain(ask, view, *node)).collect();
    let mut best: Option<Chosen> = None;
    for node in nodes {
        let mut candidates = displaceable(view, ask, node);
        candidates.retain(|one| !taken.iter().flat_map(|(_, victims)| victims).any(|victim| victim.is(one)));
        let Some(chosen) = choose(view, ask, node, candidates) else { continue };
        // Nodes come in order of names, and only a better one replaces the first.
        if best.as_ref().is_none_or(|(_, least)| cost(&chosen) < cost(least)) {
            best = Some((node, chosen));
        }
    }
    best
}

/// How much a set of victims costs: their number, then the highest priority, then all of them.
fn cost(victims: &[Victim]) -> (usize, u8, u64) {
    let highest = victims.iter().map(|victim| victim.priority).max().unwrap_or(0);
    (victims.len(), highest, victims.iter().map(|victim| u64::from(victim.priority)).sum())
}

/// A smallest set of victims that makes room on a node, or nothing. The view is left as it was.
fn choose(view: &mut View, ask: &Ask, node: NodeIx, candidates: Vec<Victim>) -> Option<Vec<Victim>> {
    let mut chosen = Vec::new();
    for victim in candidates {
        if ask.could_take(view, node) {
            break;
        }
        victim.holding.unload(&mut view.fleet, node);
        chosen.push(victim);
    }
    let fits = ask.could_take(view, node);
    if fits {
        spare(view, ask, node, &mut chosen);
    }
    for victim in &chosen {
        victim.holding.load(&mut view.fleet, node);
    }
    fits.then_some(chosen)
}

/// Lets go of victims that turned out not to be needed, the most important first.
fn spare(view: &mut View, ask: &Ask, node: NodeIx, chosen: &mut Vec<Victim>) {
    let mut at = chosen.len();
    while at > 0 {
        at -= 1;
        chosen[at].holding.load(&mut view.fleet, node);
        if ask.could_take(view, node) {
            chosen.remove(at);
        } else {
            chosen[at].holding.unload(&mut view.fleet, node);
        }
    }
}

/// Who may be displaced from a node: the lowest priority first, among equals who comes closest to what is needed.
fn displaceable(view: &View, ask: &Ask, node: NodeIx) -> Vec<Victim> {
    // What somebody as important as the newcomer needs is decided before it, and would only come back.
    let newcomer = view.most_important_in_need(ask.group);
    let comes_after = |other: GroupIx| view.order(newcomer, view.most_important_in_need(other)) == Ordering::Less;
    // What the newcomer depends on would take away, by going, the very reason for which it may come.
    let needed_first = dependencies::all_of(view, &ask.key, &ask.spec);
    let others = view.fleet.tenants[node.at()].keys().copied().filter(|other| comes_after(*other));
    let others = others.filter(|other| !needed_first.contains(&view.group(*other).key));
    let mut found: Vec<Victim> = others.flat_map(|group| on_node(view, group, ask, node)).collect();
    let needed = ask.terms.memory_total();
    found.sort_by_cached_key(|victim| {
        let distance = needed.abs_diff(victim.holding.terms.memory_total());
        (victim.priority, distance, view.group(victim.group).key.clone(), victim.slot.clone())
    });
    found
}

fn on_node(view: &View, ix: GroupIx, ask: &Ask, node: NodeIx) -> Vec<Victim> {
    let group = view.group(ix);
    if !may_be_displaced(group, ask) {
        return Vec::new();
    }
    let here = group.slots.iter().flat_map(|slot| slot.replicas.iter().map(move |replica| (slot, replica)));
    let here = here.filter(|(_, replica)| replica.node == node && is_live(replica));
    let here = here.filter(|(_, replica)| crate::occupies(replica.terms.kind, replica.state));
    let here = here.filter(|(_, replica)| replica.terms.volumes.is_empty());
    // Whoever is displaced looks for another node, and work that has ended is not done again.
    let here = here.filter(|(_, replica)| !jobs::is_job(group.spec.kind) || !jobs::has_ended(group, replica));
    let victim = |(slot, replica): (&Slot, &Replica)| Victim {
        group: ix,
        slot: slot.key.clone(),
        generation: replica.generation,
        holding: Holding::of(replica),
        priority: group.spec.priority,
    };
    here.map(victim).collect()
}

/// Whether a service's replicas may go for the newcomer.
fn may_be_displaced(group: &Group, ask: &Ask) -> bool {
    let low = group.spec.priority.saturating_add(PRIORITY_GAP) <= ask.spec.priority;
    low && !group.spec.is_stateful() && group.wanted == Wanted::Run
}
