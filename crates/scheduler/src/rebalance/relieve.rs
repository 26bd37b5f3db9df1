//! The hottest node gives a replica away.
//!
//! Owns: the walk over candidates and destinations, and what is said of those that stay.
//! Must not touch: the gates' numbers. Invariant: the view is the same after as before.

use std::collections::BTreeMap;

use longshore_model::{
    GroupPlan, NodeName, PlanItem, SkipReason, SlotKey, Time,
    rebalance::{Pressure, Weighed},
};

use super::{
    Cycle, Rebalancer, candidates,
    gates::{self, CONSECUTIVE, Change, Considered},
    score::{self, Pair},
    skips::{Skip, Subject},
};
use crate::{
    ask::{Ask, Counts},
    placement::{self, Vacancy},
    view::{GroupIx, NodeIx, View, fleet::takes_work, groups::Slot},
};

/// A node and how busy it has been.
#[derive(Clone, Copy)]
struct Place<'a> {
    name: &'a NodeName,
    node: NodeIx,
    pressure: Pressure,
}

/// Moves at most one replica off the hottest node, if it has been hot for long enough and others are not.
pub(super) fn relieve(
    rebalancer: &mut Rebalancer,
    view: &mut View,
    fresh: &BTreeMap<NodeName, Pressure>,
    now: Time,
    cycle: &mut Cycle,
) {
    let mut places: Vec<Place<'_>> = fresh.iter().filter_map(|(name, pressure)| place(view, name, *pressure)).collect();
    // Stable: of two alike the first name is the coolest and, from the other end, the hottest.
    places.sort_by_key(|place| place.pressure.composite());
    let (Some(coolest), Some(top)) = (places.first(), places.last()) else { return };
    let hottest = places.iter().find(|place| place.pressure.composite() == top.pressure.composite());
    let Some(&src) = hottest else { return };
    let sustained = rebalancer.machines.get(src.name).is_some_and(|machine| machine.hot_cycles >= CONSECUTIVE);
    if !sustained || !gates::is_imbalanced(src.pressure, coolest.pressure) {
        return;
    }
    let takes = |place: &&Place<'_>| place.node != src.node && takes_work(view.fleet.node(place.node));
    let destinations: Vec<Place<'_>> = places.iter().filter(takes).copied().collect();
    let (best, skips) = Search { rebalancer, view, src, destinations, now }.look();
    for (subject, reason, weighed) in skips {
        let count = rebalancer.told.count(src.name, subject.as_ref(), reason);
        cycle.skips.push(Skip { subject, reason, weighed, count });
    }
    if let Some((pair, weighed)) = best
        && let Some(part) = carry_over(view, &pair, src.node, weighed, now)
    {
        let leaves = rebalancer.footprint_of(view, &pair.subject, view.fleet.node(src.node));
        let Some(&dst) = view.fleet.by_name.get(&pair.dst) else { return };
        let comes = rebalancer.footprint_of(view, &pair.subject, view.fleet.node(dst));
        rebalancer.suppose_moved((src.name, leaves), (&pair.dst, comes));
        cycle.plan.groups.push(part);
    }
}

fn place<'a>(view: &View, name: &'a NodeName, pressure: Pressure) -> Option<Place<'a>> {
    view.fleet.by_name.get(name).map(|node| Place { name, node: *node, pressure })
}

type Skipped = (Option<Subject>, SkipReason, Weighed);

/// One look at everything on the hot node.
struct Search<'a> {
    rebalancer: &'a Rebalancer,
    view: &'a View,
    src: Place<'a>,
    /// Coolest first.
    destinations: Vec<Place<'a>>,
    now: Time,
}

/// What became of one candidate.
enum Verdict {
    Moves(Vec<(Pair, Weighed)>),
    Stays(SkipReason, Weighed),
}

impl Search<'_> {
    /// The best move, and why the others stay.
    fn look(&self) -> (Option<(Pair, Weighed)>, Vec<Skipped>) {
        let mut best: Option<(Pair, Weighed)> = None;
        let mut skips = Vec::new();
        let mut looked_at = 0_usize;
        for group in candidates::groups_on(self.view, self.src.node) {
            let mut ask = Ask::new(self.view, group, self.now, Counts::default());
            for (slot, generation) in candidates::slots_on(self.view, &ask, self.src.node) {
                looked_at += 1;
                let subject = Subject { group: ask.key.clone(), slot, generation };
                ask.take_back(self.src.node);
                let verdict = self.judge(&ask, &subject);
                ask.put(self.src.node);
                match verdict {
                    Verdict::Moves(pairs) => best = pairs.into_iter().chain(best).min_by(|a, b| a.0.cmp(&b.0)),
                    Verdict::Stays(reason, weighed) => skips.push((Some(subject), reason, weighed)),
                }
            }
        }
        if looked_at == 0 {
            skips.push((None, SkipReason::NoCandidate, self.nobody()));
        }
        (best, skips)
    }

    fn nobody(&self) -> Weighed {
        let source = Change { before: self.src.pressure, after: self.src.pressure };
        let weighed = score::weigh(self.src.name, source, Pressure::default(), None);
        Weighed { relief: None, score: None, src_after: None, ..weighed }
    }

    /// Whether and where one replica could go. The ask does not count it where it is.
    fn judge(&self, ask: &Ask, subject: &Subject) -> Verdict {
        let leaves = self.rebalancer.footprint_of(self.view, subject, self.view.fleet.node(self.src.node));
        let source = Change::without(self.src.pressure, leaves);
        let weigh = |dst: Option<(&NodeName, Change)>| score::weigh(self.src.name, source, leaves, dst);
        let resting = slot_of(self.view, ask.group, &subject.slot)
            .and_then(|slot| gates::replica_cooldown(slot, slot.current()?, self.now));
        if let Some(reason) = resting {
            return Verdict::Stays(reason, weigh(None));
        }
        let mut pairs = Vec::new();
        let mut refusals = Vec::new();
        for dst in &self.destinations {
            let comes = self.rebalancer.footprint_of(self.view, subject, self.view.fleet.node(dst.node));
            let change = Change::with(dst.pressure, comes);
            let considered = Considered { ask, src: (self.src.node, source), dst: (dst.node, change) };
            if let Some(reason) = gates::refuses(self.view, &considered, self.now) {
                refusals.push((reason, (dst.name, change)));
                continue;
            }
            let relief = leaves.of(self.src.pressure.dominant());
            let pair = Pair::new(subject.clone(), dst.name.clone(), relief, dst.pressure.composite());
            pairs.push((pair, weigh(Some((dst.name, change)))));
        }
        if !pairs.is_empty() {
            return Verdict::Moves(pairs);
        }
        match refusals.first() {
            Some((reason, coolest)) if refusals.iter().all(|(other, _)| other == reason) => {
                Verdict::Stays(*reason, weigh(Some(*coolest)))
            }
            Some(_) | None => Verdict::Stays(SkipReason::NoEligibleDst, weigh(None)),
        }
    }
}

fn slot_of<'a>(view: &'a View, group: GroupIx, slot: &SlotKey) -> Option<&'a Slot> {
    let known = view.group(group);
    known.slot_at(slot).ok().map(|at| &known.slots[at])
}

/// The next generation of a slot on its new node, as a change of its group. What it reserves is taken back.
fn carry_over(view: &mut View, pair: &Pair, src: NodeIx, weighed: Weighed, now: Time) -> Option<GroupPlan> {
    let (&group, &dst) = (view.group_ids.get(&pair.subject.group)?, view.fleet.by_name.get(&pair.dst)?);
    let mut ask = Ask::new(view, group, now, Counts::default());
    ask.take_back(src);
    let vacancy = crate::reconcile::slots::next_generation(slot_of(view, group, &pair.subject.slot)?);
    let placed = placement::place_at(view, &mut ask, vacancy, dst);
    view.roll_back();
    let mut placement = placed.ok()?;
    placement.moved = Some(Box::new(weighed));
    let terms = std::sync::Arc::clone(&ask.terms);
    Some(GroupPlan { group: ask.key, terms, items: vec![PlanItem::Place(placement)] })
}

/// The slot's next generation, where it would go by its own strategy. What it reserves is taken back.
pub(super) fn by_strategy(
    view: &mut View,
    ask: &mut Ask,
    vacancy: Vacancy,
) -> Option<(longshore_model::Placement, NodeIx)> {
    let (mut placed, _) = placement::place(view, ask, vec![vacancy]);
    view.roll_back();
    let placement = placed.pop()?;
    let node = *view.fleet.by_name.get(&placement.node)?;
    Some((placement, node))
}
