//! Preemption: what fits nowhere may displace what matters less, where the cluster allows it.
//!
//! It runs at the end of a pass, on the view with everything the pass decided, and asks: once all that is told to stop
//! has stopped, who still does not fit? Only for those are victims looked for, so that a pass made while victims are
//! still stopping finds no new ones. Nobody is placed here: the room is free only when the victims are seen to have
//! stopped, and then the most important of those that wait comes first anyway.
//!
//! Owns: the choice of victims. Never stateful ones, never of a priority less than ten below, never more than needed,
//! fewest and lowest first.
//! Invariant: taking any victim back would leave the newcomer without room.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    Generation, GroupKey, GroupPlan, Plan, PlanItem, ReplicaState, SlotKey, Terms, Time, replica::Wanted,
};

use crate::{
    ask::Ask,
    feasibility,
    placement::{self, Vacancy},
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Replica, is_live},
        occupancy,
    },
};

/// How far below a victim's priority must be, so that near equals never fight.
const PRIORITY_GAP: u8 = 10;

/// Slots of a group that fit nowhere in this pass.
pub(super) struct Unmet {
    pub(super) group: GroupIx,
    pub(super) vacancies: Vec<Vacancy>,
}

/// A generation that is on its way out.
type Going = (GroupKey, SlotKey, Generation);

/// A generation that has to go.
#[derive(Clone, Debug)]
pub(super) struct Victim {
    pub(super) group: GroupKey,
    pub(super) slot: SlotKey,
    pub(super) generation: Generation,
    replica: Replica,
    priority: u8,
}

/// Finds victims for what fits nowhere, most important first. The view is left full of suppositions; the pass takes them
/// back with everything else.
pub(super) fn victims(view: &mut View, plan: &Plan, unmet: Vec<Unmet>, now: Time) -> Vec<Victim> {
    if unmet.is_empty() {
        return Vec::new();
    }
    let mut going = suppose_stopped(view, plan);
    let mut all = Vec::new();
    for Unmet { group, vacancies } in unmet {
        let mut ask = Ask::new(view, group, now, crate::ask::Counts::default());
        for vacancy in still_unmet(view, &mut ask, vacancies) {
            let Some((node, chosen)) = best_node(view, &ask, &vacancy, &going) else { continue };
            for victim in &chosen {
                going.insert((victim.group.clone(), victim.slot.clone(), victim.generation));
                view.suppose_gone(node, &victim.replica.terms);
            }
            view.reserve(&ask, &vacancy.slot, vacancy.generation, node);
            ask.counts.add(node);
            // Asked again until the plan has been committed: the victims go for its sake.
            view.dirty.insert(group);
            all.extend(chosen);
        }
        view.settle_lanes();
    }
    all
}

/// Keeps room that is becoming free for whoever fits once everything there has stopped, so that nobody less important,
/// decided later in the pass, takes it piece by piece. Gives back who finds no such room.
pub(super) fn claim(view: &mut View, group: GroupIx, vacancies: Vec<Vacancy>, now: Time) -> Vec<Vacancy> {
    if vacancies.is_empty() {
        return vacancies;
    }
    let stopping = stopping_by_node(view);
    let mut ask = Ask::new(view, group, now, crate::ask::Counts::default());
    let mut left = Vec::new();
    for vacancy in vacancies {
        let own = own_node(view, &vacancy);
        let mut nodes = view.fleet.in_order().filter(|node| own.is_none_or(|own| own == *node)).collect::<Vec<_>>();
        nodes.retain(|node| stopping.get(node).is_some_and(|stopping| would_fit(view, &ask, *node, stopping)));
        let Some(node) = nodes.first().copied() else {
            left.push(vacancy);
            continue;
        };
        view.reserve(&ask, &vacancy.slot, vacancy.generation, node);
        ask.counts.add(node);
    }
    view.settle_lanes();
    left
}

/// What was told to stop before this pass and still occupies its node.
fn stopping_by_node(view: &View) -> BTreeMap<NodeIx, Vec<Arc<Terms>>> {
    let mut stopping: BTreeMap<NodeIx, Vec<Arc<Terms>>> = BTreeMap::new();
    let slots = view.groups.iter().flatten().flat_map(|group| &group.slots);
    for replica in slots.flat_map(|slot| &slot.replicas) {
        let ending = replica.wanted == Wanted::Stop && replica.state != ReplicaState::Lost;
        if ending && crate::occupies(replica.terms.kind, replica.state) {
            stopping.entry(replica.node).or_default().push(Arc::clone(&replica.terms));
        }
    }
    stopping
}

/// Whether a node takes one more once these have stopped. The view is left as it was.
fn would_fit(view: &mut View, ask: &Ask, node: NodeIx, stopping: &[Arc<Terms>]) -> bool {
    for terms in stopping {
        occupancy::unload(&mut view.fleet, node, terms);
    }
    let fits = ask.accepts(view, node);
    for terms in stopping {
        occupancy::load(&mut view.fleet, node, terms);
    }
    fits
}

/// Puts the victims' ends into the plan, each with its own group.
pub(super) fn displace(view: &mut View, plan: &mut Plan, victims: Vec<Victim>) {
    for victim in victims {
        let stop = PlanItem::Stop { slot: victim.slot, generation: victim.generation };
        view.dirty.extend(view.group_ids.get(&victim.group));
        match plan.groups.iter_mut().find(|changes| changes.group == victim.group) {
            Some(changes) => changes.items.push(stop),
            None => plan.groups.push(GroupPlan { group: victim.group, terms: victim.replica.terms, items: vec![stop] }),
        }
    }
}

/// Who fits nowhere even once everything told to stop has stopped.
fn still_unmet(view: &mut View, ask: &mut Ask, vacancies: Vec<Vacancy>) -> Vec<Vacancy> {
    if !ask.spec.kind.is_per_node() {
        return placement::place(view, ask, vacancies).1;
    }
    let mut left = Vec::new();
    for vacancy in vacancies {
        if let Some(node) = own_node(view, &vacancy) {
            left.extend(placement::place_at(view, ask, vacancy, node).err());
        }
    }
    left
}

/// The node a slot is named after.
fn own_node(view: &View, vacancy: &Vacancy) -> Option<NodeIx> {
    match &vacancy.slot {
        SlotKey::Node(name) => view.fleet.by_name.get(name).copied(),
        SlotKey::Index(_) => None,
    }
}

/// Everything told to stop, by this plan or before, is taken for stopped; gives back who.
fn suppose_stopped(view: &mut View, plan: &Plan) -> BTreeSet<Going> {
    let told = told_to_stop(plan);
    let mut stopping = BTreeMap::new();
    for group in view.groups.iter().flatten() {
        let all = group.slots.iter().flat_map(|slot| slot.replicas.iter().map(move |replica| (slot, replica)));
        for (slot, replica) in all.filter(|(_, replica)| crate::occupies(replica.terms.kind, replica.state)) {
            let closed = told.contains(&(group.key.clone(), slot.key.clone(), None));
            let stopped = told.contains(&(group.key.clone(), slot.key.clone(), Some(replica.generation)));
            if closed || stopped || !is_live(replica) {
                let going = (group.key.clone(), slot.key.clone(), replica.generation);
                stopping.insert(going, (replica.node, Arc::clone(&replica.terms)));
            }
        }
    }
    for (node, terms) in stopping.values() {
        view.suppose_gone(*node, terms);
    }
    view.settle_lanes();
    stopping.into_keys().collect()
}

/// What a plan tells to stop: whole slots, or one generation of them.
fn told_to_stop(plan: &Plan) -> BTreeSet<(GroupKey, SlotKey, Option<Generation>)> {
    let items = plan.groups.iter().flat_map(|part| part.items.iter().map(move |item| (&part.group, item)));
    let told = items.filter_map(|(group, item)| match item {
        PlanItem::Close(slot) => Some((group.clone(), slot.clone(), None)),
        PlanItem::Stop { slot, generation } => Some((group.clone(), slot.clone(), Some(*generation))),
        PlanItem::Open(_)
        | PlanItem::Place(_)
        | PlanItem::Wait(_)
        | PlanItem::Restart { .. }
        | PlanItem::GiveUp { .. } => None,
    });
    told.collect()
}

/// The node where the fewest and lowest have to go, and who.
fn best_node(view: &mut View, ask: &Ask, vacancy: &Vacancy, going: &BTreeSet<Going>) -> Option<(NodeIx, Vec<Victim>)> {
    let own = own_node(view, vacancy);
    let possible = view.fleet.in_order().filter(|node| own.is_none_or(|own| own == *node));
    let nodes: Vec<NodeIx> = possible.filter(|node| feasibility::is_domain(ask, view, *node)).collect();
    let mut best: Option<(NodeIx, Vec<Victim>)> = None;
    for node in nodes {
        let Some(chosen) = choose(view, ask, node, going) else { continue };
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
fn choose(view: &mut View, ask: &Ask, node: NodeIx, going: &BTreeSet<Going>) -> Option<Vec<Victim>> {
    let mut chosen = Vec::new();
    for victim in displaceable(view, ask, node, going) {
        if ask.accepts(view, node) {
            break;
        }
        occupancy::unload(&mut view.fleet, node, &victim.replica.terms);
        chosen.push(victim);
    }
    let fits = ask.accepts(view, node);
    if fits {
        spare(view, ask, node, &mut chosen);
    }
    for victim in &chosen {
        occupancy::load(&mut view.fleet, node, &victim.replica.terms);
    }
    fits.then_some(chosen)
}

/// Lets go of victims that turned out not to be needed, the most important first.
fn spare(view: &mut View, ask: &Ask, node: NodeIx, chosen: &mut Vec<Victim>) {
    let mut at = chosen.len();
    while at > 0 {
        at -= 1;
        occupancy::load(&mut view.fleet, node, &chosen[at].replica.terms);
        if ask.accepts(view, node) {
            chosen.remove(at);
        } else {
            occupancy::unload(&mut view.fleet, node, &chosen[at].replica.terms);
        }
    }
}

/// Who may be displaced from a node: the lowest priority first, among equals who comes closest to what is needed.
fn displaceable(view: &View, ask: &Ask, node: NodeIx, going: &BTreeSet<Going>) -> Vec<Victim> {
    let lower = view.fleet.tenants[node.at()].keys().copied().filter(|group| *group != ask.group);
    let mut found: Vec<Victim> = lower.flat_map(|group| on_node(view.group(group), ask, node)).collect();
    // Whoever goes anyway makes no more room by going twice.
    found.retain(|victim| !going.contains(&(victim.group.clone(), victim.slot.clone(), victim.generation)));
    let needed = ask.terms.memory_total();
    found.sort_by_key(|victim| {
        let distance = needed.abs_diff(victim.replica.terms.memory_total());
        (victim.priority, distance, victim.group.clone(), victim.slot.clone())
    });
    found
}

fn on_node(group: &Group, ask: &Ask, node: NodeIx) -> Vec<Victim> {
    let low = group.spec.priority.saturating_add(PRIORITY_GAP) <= ask.spec.priority;
    if !low || group.spec.is_stateful() {
        return Vec::new();
    }
    let here = group.slots.iter().flat_map(|slot| slot.replicas.iter().map(move |replica| (slot, replica)));
    let here = here.filter(|(_, replica)| replica.node == node && is_live(replica));
    let here = here.filter(|(_, replica)| crate::occupies(replica.terms.kind, replica.state));
    let victim = |(slot, replica): (&crate::view::groups::Slot, &Replica)| Victim {
        group: group.key.clone(),
        slot: slot.key.clone(),
        generation: replica.generation,
        replica: replica.clone(),
        priority: group.spec.priority,
    };
    here.map(victim).collect()
}
