//! Why a replica has no node: the primary reason, refusals counted per filter over all nodes, and the nearest miss.
//!
//! Owns: the answer "no". It is worked out only where nothing fits, at filters × nodes. Must not touch: the choice.
//! Invariant: the primary reason is the first filter, in order, that empties what the earlier ones left.

pub(crate) mod placed;

use std::collections::BTreeMap;

use longshore_model::{
    Explanation, GroupKey, NearMiss, NodeName, Reason, Refusal, SlotKey, Strategy, Time,
    config::Preemption,
    replica::{Detail, Details},
};

use crate::{
    ask::{Ask, Counts},
    feasibility::{Filter, Site},
    placement::Vacancy,
    reconcile::{
        self,
        attempt::attempt,
        global, preempt,
        rollout::{self, Follows},
        slots, steps,
    },
    view::{GroupIx, NodeIx, View},
};

/// Slots and why they are not where they should be.
type Fate = (Vec<SlotKey>, Explanation);

/// Why slots of a group have no node, or not the one they have to move to, or not the generation they have to change to,
/// by the view as it is; empty where all have theirs, or could.
pub fn explain(view: &mut View, group: &GroupKey, now: Time) -> Vec<Fate> {
    view.advance(now);
    view.fleet.refresh();
    let Some(&ix) = view.group_ids.get(group) else { return Vec::new() };
    let mut fates = misplaced(view, ix, now);
    if view.rollout_of(group).is_some() {
        keep_room_of_others(view, ix, now);
        let mut ask = Ask::new(view, ix, now, Counts::default());
        fates.extend(steps::hindered(view, &mut ask, now));
        view.roll_back();
    }
    fates
}

/// Where others may be displaced, the room that is being made for them is not anybody's.
fn keep_room_of_others(view: &mut View, group: GroupIx, now: Time) {
    if view.config.preemption == Preemption::On {
        preempt::keep_room_of_those_before(view, group, now);
    }
}

/// Why slots have no node, or have to leave the one they have. A slot whose step in a rollout has not come is explained by
/// the spec it had before.
fn misplaced(view: &mut View, group: GroupIx, now: Time) -> Vec<Fate> {
    let ask = Ask::new(view, group, now, Counts::default());
    let held = Ask::held(view, &ask, now);
    let batches = [Some(&ask), held.as_ref()].map(|own| own.map(|own| batch(view, (&ask, own), now)));
    let [Some((unplaced, movers)), before] = batches else { return Vec::new() };
    let (unplaced_before, movers_before) = before.unwrap_or_default();
    if [&unplaced, &movers, &unplaced_before, &movers_before].iter().all(|batch| batch.is_empty()) {
        return Vec::new();
    }
    keep_room_of_others(view, group, now);
    let ask = Ask::new(view, group, now, Counts::default());
    let mut fates = Vec::new();
    if let Some(held) = Ask::held(view, &ask, now) {
        fates.extend(of_batch(view, held, unplaced_before, movers_before));
    }
    fates.extend(of_batch(view, ask, unplaced, movers));
    view.roll_back();
    fates
}

/// Slots that follow one of the specs of a group and have no node, and such that run where they may not stay.
fn batch(view: &View, (ask, own): (&Ask, &Ask), now: Time) -> (Vec<Vacancy>, Vec<Vacancy>) {
    let known = view.group(ask.group);
    let wanted = if std::ptr::eq(ask, own) { Follows::Target } else { Follows::Held };
    let follows = |vacancy: &Vacancy| {
        let slot = known.slot_at(&vacancy.slot).ok().map(|at| &known.slots[at]);
        slot.map_or(Follows::Target, |slot| rollout::follows(view, ask, slot)) == wanted
    };
    let mut unplaced = reconcile::unplaced(view, ask.group, now);
    unplaced.retain(follows);
    let mut movers = if ask.spec.kind.is_per_node() { Vec::new() } else { slots::movers(view, own, now) };
    movers.retain(follows);
    (unplaced, movers)
}

fn of_batch(view: &mut View, mut ask: Ask, unplaced: Vec<Vacancy>, movers: Vec<Vacancy>) -> Vec<Fate> {
    if ask.spec.kind.is_per_node() {
        return global::explain_each(view, &ask, unplaced);
    }
    let (stuck, unplaced): (Vec<_>, Vec<_>) =
        unplaced.into_iter().partition(|vacancy| slots::waits_for_home(view, &ask, vacancy));
    // Slots that run where they may not stay are part of the batch: they are served, and yet want another node.
    let mut batch = unplaced;
    batch.extend(movers);
    batch.sort_by(|a, b| a.slot.cmp(&b.slot));
    for vacancy in &batch {
        ask.counts.remove_from(slots::counts_on(view, ask.group, &vacancy.slot));
    }
    let mut held_back = if batch.is_empty() { Vec::new() } else { attempt(view, &mut ask, batch).held_back };
    if !stuck.is_empty() {
        held_back.push((stuck, slots::home_is_away(view, &ask)));
    }
    let named = |vacancies: Vec<Vacancy>| vacancies.into_iter().map(|vacancy| vacancy.slot).collect();
    held_back.retain(|(vacancies, _)| !vacancies.is_empty());
    held_back.into_iter().map(|(vacancies, why)| (named(vacancies), why)).collect()
}

/// Why a batch, or what is left of it, fits nowhere.
pub(crate) fn nowhere(view: &View, ask: &Ask) -> Explanation {
    let filters: Vec<&'static Filter> = ask.filters().collect();
    let nodes: Vec<NodeIx> = view.fleet.in_order().collect();
    let verdicts: Vec<u32> = nodes.iter().map(|node| verdict(view, ask, &filters, *node)).collect();
    let refused = filters.iter().enumerate().filter_map(|(at, filter)| {
        let count = verdicts.iter().filter(|verdict| *verdict & 1 << at != 0).count();
        (count > 0).then(|| (filter.reason, u32::try_from(count).unwrap_or(u32::MAX)))
    });
    let missing = missing_hosts(view, ask, &nodes, &verdicts);
    Explanation {
        reason: primary(ask, &filters, &verdicts),
        nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
        fits: u32::try_from(verdicts.iter().filter(|verdict| **verdict == 0).count()).unwrap_or(u32::MAX),
        refused: refused.collect::<BTreeMap<_, _>>(),
        nearest: nearest(view, ask, &filters, &nodes, &verdicts),
        gate: None,
        missing,
    }
}

/// A refusal that is no node's fault.
pub(crate) fn gated(view: &View, refusal: Refusal) -> Explanation {
    Explanation {
        reason: refusal.reason(),
        nodes: u32::try_from(view.fleet.by_name.len()).unwrap_or(u32::MAX),
        fits: 0,
        refused: BTreeMap::new(),
        nearest: None,
        gate: Some(refusal),
        missing: Vec::new(),
    }
}

/// Why one node refuses, for a service that wants exactly that node.
pub(crate) fn at_node(view: &View, ask: &Ask, node: NodeIx) -> Explanation {
    let filters: Vec<&'static Filter> = ask.filters().collect();
    let verdicts = [verdict(view, ask, &filters, node)];
    let refused = filters.iter().enumerate().filter(|(at, _)| verdicts[0] & 1 << at != 0);
    Explanation {
        reason: primary(ask, &filters, &verdicts),
        nodes: 1,
        fits: 0,
        refused: refused.map(|(_, filter)| (filter.reason, 1)).collect(),
        nearest: nearest(view, ask, &filters, &[node], &verdicts),
        gate: None,
        missing: Vec::new(),
    }
}

/// The particulars kept in the replica's status.
pub(crate) fn details(explanation: &Explanation) -> Details {
    let mut details = Details::new();
    if !explanation.missing.is_empty() {
        let names = explanation.missing.iter().map(NodeName::to_string).collect();
        details.insert("missing".to_owned(), Detail::List(names));
    }
    if let Some(Refusal::SecretsMissing { names }) = &explanation.gate {
        details.insert("missing".to_owned(), Detail::List(names.iter().map(ToString::to_string).collect()));
    }
    if let Some(Refusal::Dependency { service }) = &explanation.gate {
        details.insert("service".to_owned(), Detail::Text(service.clone()));
    }
    if let Some(Refusal::Quota { dimension, limit, used, needed }) = &explanation.gate {
        details.insert("dimension".to_owned(), Detail::Text(dimension.as_str().to_owned()));
        details.insert("limit".to_owned(), Detail::Number(*limit));
        details.insert("current_usage".to_owned(), Detail::Number(*used));
        details.insert("requested_delta".to_owned(), Detail::Number(*needed));
    }
    details
}

/// One bit for each filter that refuses the node.
fn verdict(view: &View, ask: &Ask, filters: &[&'static Filter], node: NodeIx) -> u32 {
    let site = Site::of_node(view, node);
    filters.iter().enumerate().fold(0, |bits, (at, filter)| bits | u32::from(!(filter.check)(ask, &site)) << at)
}

fn primary(ask: &Ask, filters: &[&'static Filter], verdicts: &[u32]) -> Reason {
    if verdicts.is_empty() {
        return Reason::NoNodesActive;
    }
    let mut seen = 0;
    for (at, filter) in filters.iter().enumerate() {
        seen |= 1 << at;
        if verdicts.iter().all(|verdict| verdict & seen != 0) {
            // One replica on each pinned host is the strategy's own rule: when all have theirs, hosts have run out.
            let pinned = ask.spec.placement.strategy == Strategy::Hosts;
            let ran_out = pinned && filter.reason == Reason::MaxReplicasPerNode;
            return if ran_out { Reason::CannotSatisfyHostPlacement } else { filter.reason };
        }
    }
    // Some nodes fit, but not enough of them for a service that is placed whole or not at all.
    match ask.spec.placement.strategy {
        Strategy::Hosts => Reason::CannotSatisfyHostPlacement,
        Strategy::Spread | Strategy::Pack | Strategy::Global | Strategy::Binpack | Strategy::Hash => {
            Reason::BatchIncomplete
        }
    }
}

/// Pinned hosts that cannot take a replica, unknown ones included. Hosts that have theirs are not missing.
fn missing_hosts(view: &View, ask: &Ask, nodes: &[NodeIx], verdicts: &[u32]) -> Vec<NodeName> {
    if ask.spec.placement.strategy != Strategy::Hosts {
        return Vec::new();
    }
    let usable = |name: &NodeName| {
        let Some(ix) = view.fleet.by_name.get(name) else { return false };
        let at = nodes.iter().position(|node| node == ix);
        ask.counts.get(*ix) > 0 || at.is_some_and(|at| verdicts[at] == 0)
    };
    ask.spec.placement.hosts.iter().filter(|name| !usable(name)).cloned().collect()
}

/// Fewest filters failed, then the smallest shortfall, then the name. Only one node's sentences are made.
fn nearest(
    view: &View,
    ask: &Ask,
    filters: &[&'static Filter],
    nodes: &[NodeIx],
    verdicts: &[u32],
) -> Option<NearMiss> {
    let failed = nodes.iter().zip(verdicts).filter(|(_, verdict)| **verdict != 0);
    let fewest = failed.clone().map(|(_, verdict)| verdict.count_ones()).min()?;
    let close = failed.filter(|(_, verdict)| verdict.count_ones() == fewest);
    let shortfall = |node: NodeIx, verdict: u32| {
        let lacks = refusals(view, ask, filters, node, verdict);
        lacks.iter().fold(0_u64, |sum, refusal| sum.saturating_add(refusal.shortfall()))
    };
    // Nodes come in order of names, and `min_by_key` keeps the first of equals.
    let (node, verdict) = close.min_by_key(|(node, verdict)| shortfall(**node, **verdict))?;
    let name = view.fleet.node(*node).name.clone();
    Some(NearMiss { node: name, lacks: refusals(view, ask, filters, *node, *verdict) })
}

fn refusals(view: &View, ask: &Ask, filters: &[&'static Filter], node: NodeIx, verdict: u32) -> Vec<Refusal> {
    let site = Site::of_node(view, node);
    let failing = filters.iter().enumerate().filter(|(at, _)| verdict & 1 << at != 0);
    failing.map(|(_, filter)| (filter.explain)(ask, &site)).collect()
}
