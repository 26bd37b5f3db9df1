//! What is decided about nodes themselves: how a drain stands, whether work is taken off nodes that are down, and for how
//! long the books keep what was removed.
//!
//! Owns: when a drain is done, blocked or overdue, saying that evacuation is paused, and forgetting.
//! Must not touch: who moves where; by the time a drain is judged the groups have had their turns.

use longshore_model::{
    AfterDrain, Drain, DrainOutcome, Evacuation, Health, Node, NodePlan, RuntimeCode, ServiceKind, SlotKey, Time,
    drain::{Hindrance, Remainder},
    replica::Wanted,
};

use super::{absence, jobs};
use crate::{
    explain,
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Replica, Slot},
        occupancy::occupies,
    },
};

/// Decides about every node that is drained, and about evacuation.
pub(super) fn decide(view: &mut View, now: Time) -> Vec<NodePlan> {
    let drained: Vec<NodeIx> = view.fleet.drained.iter().copied().collect();
    let mut plans: Vec<NodePlan> = drained.into_iter().filter_map(|node| judge(view, node, now)).collect();
    plans.sort_by(|a, b| name(a).cmp(&name(b)));
    plans.extend(evacuation(view, now).map(NodePlan::Evacuation));
    let outdated = view.removed.iter().filter(|(_, at)| kept_until(view, **at) <= now);
    plans.extend(outdated.map(|(node, at)| NodePlan::Forget { node: node.clone(), removed_at: *at }));
    plans
}

/// Until when a node that went at an instant is still in the books.
fn kept_until(view: &View, removed_at: Time) -> Time {
    removed_at.after(view.config.gc_nodes)
}

/// The next instant at which something about nodes changes by itself.
pub(super) fn next_change(view: &View, now: Time) -> Option<Time> {
    let forgotten = view.removed.values().map(|at| kept_until(view, *at)).filter(|at| *at > now).min();
    next_overdue(view, now).into_iter().chain(forgotten).min()
}

fn name(plan: &NodePlan) -> Option<&longshore_model::NodeName> {
    match plan {
        NodePlan::Drain { node, .. } | NodePlan::Forget { node, .. } => Some(node),
        NodePlan::Evacuation(_) => None,
    }
}

/// The next instant at which a drain is overdue.
fn next_overdue(view: &View, now: Time) -> Option<Time> {
    let drains = view.fleet.drained.iter().filter_map(|node| view.fleet.node(*node).drain.as_ref());
    let pending = drains.filter(|drain| drain.outcome == DrainOutcome::UnderWay);
    pending.map(|drain| overdue_at(view, drain)).filter(|at| *at > now).min()
}

/// A replica has so long to leave; a job until its deadline, where that is later.
fn overdue_at(view: &View, drain: &Drain) -> Time {
    let by_timeout = drain.since.after(view.config.drain_timeout);
    drain.deadline.map_or(by_timeout, |deadline| deadline.max(by_timeout))
}

fn judge(view: &mut View, ix: NodeIx, now: Time) -> Option<NodePlan> {
    let node = view.fleet.node(ix).clone();
    let drain = node.drain.as_ref()?;
    let left = remainders(view, ix);
    let (outcome, left) = if left.is_empty() {
        (DrainOutcome::Done, left)
    } else if drain.outcome == DrainOutcome::TimedOut {
        return None;
    } else if overdue_at(view, drain) <= now {
        (DrainOutcome::TimedOut, explained(view, left, now))
    } else {
        let blocks = |left: &Remainder| matches!(left.why, Hindrance::Stateful { .. });
        (DrainOutcome::UnderWay, left.into_iter().filter(blocks).collect())
    };
    let news = outcome != drain.outcome || left != drain.left;
    news.then(|| NodePlan::Drain { node: node.name.clone(), since: drain.since, outcome, left })
}

/// What is still on a node, in order of names.
fn remainders(view: &View, ix: NodeIx) -> Vec<Remainder> {
    let node = view.fleet.node(ix);
    let groups: Vec<GroupIx> = view.fleet.tenants[ix.at()].keys().copied().collect();
    let mut left = Vec::new();
    for group in groups.into_iter().map(|group| view.group(group)) {
        for slot in &group.slots {
            let here = slot.replicas.iter().filter(|replica| replica.node == ix);
            let why = here.filter_map(|replica| hindrance(node, group, slot, replica)).next_back();
            left.extend(why.map(|why| Remainder { group: group.key.clone(), slot: slot.key.clone(), why }));
        }
    }
    left.sort_by(|a, b| (&a.group, &a.slot).cmp(&(&b.group, &b.slot)));
    left
}

/// What keeps a generation on the node, or nothing where it is as good as gone.
fn hindrance(node: &Node, group: &Group, slot: &Slot, replica: &Replica) -> Option<Hindrance> {
    let stays = node.drain.as_ref().is_some_and(|drain| drain.then == AfterDrain::Keep);
    let given_up = replica.code == Some(RuntimeCode::RestartExhausted) && stays;
    // What has ended for good is done, whatever becomes of the node.
    let done = jobs::is_job(group.spec.kind) && jobs::has_ended(group, replica);
    if given_up || done || !occupies(replica.terms.kind, replica.state) {
        return None;
    }
    let current = slot.current().is_some_and(|current| current.generation == replica.generation);
    if node.health == Health::Down && !(current && slot.wanted == Wanted::Run) {
        // Nobody will hear it stop while its node is down, and nothing depends on it any more.
        return None;
    }
    Some(match replica.wanted {
        Wanted::Stop => Hindrance::Stopping,
        Wanted::Run if group.spec.is_stateful() => {
            Hindrance::Stateful { volumes: replica.terms.volumes.iter().map(|held| held.key.clone()).collect() }
        }
        Wanted::Run if group.spec.kind == ServiceKind::Batch => Hindrance::Finishing,
        Wanted::Run => Hindrance::Moving,
    })
}

/// What found no node says why.
fn explained(view: &mut View, left: Vec<Remainder>, now: Time) -> Vec<Remainder> {
    let mut groups: Vec<_> =
        left.iter().filter(|left| left.why == Hindrance::Moving).map(|it| it.group.clone()).collect();
    groups.dedup();
    let mut reasons = std::collections::BTreeMap::new();
    for group in groups {
        for (slots, why) in explain::explain(view, &group, now) {
            let named = |slot: SlotKey| ((group.clone(), slot), why.reason);
            reasons.extend(slots.into_iter().map(named));
        }
    }
    let known = |left: Remainder| match reasons.get(&(left.group.clone(), left.slot.clone())) {
        Some(reason) if left.why == Hindrance::Moving => Remainder { why: Hindrance::NoNode(*reason), ..left },
        Some(_) | None => left,
    };
    left.into_iter().map(known).collect()
}

/// Says that evacuation is paused once it matters: more than half are gone, and one of them is down.
fn evacuation(view: &View, now: Time) -> Option<Evacuation> {
    let kept = |node: &NodeIx| {
        let node = view.fleet.node(*node);
        node.health == Health::Down && node.confirmed_lost.is_none()
    };
    let pausing = absence::is_braked(view) && view.fleet.gone.iter().any(kept);
    match (&view.evacuation, pausing) {
        (Evacuation::Free, true) => {
            let mut gone: Vec<_> = view.fleet.gone.iter().map(|node| view.fleet.node(*node).name.clone()).collect();
            gone.sort();
            let nodes = u32::try_from(view.fleet.by_name.len()).unwrap_or(u32::MAX);
            Some(Evacuation::Paused { since: now, gone, nodes })
        }
        (Evacuation::Paused { .. }, false) => Some(Evacuation::Free),
        (Evacuation::Free, false) | (Evacuation::Paused { .. }, true) => None,
    }
}
