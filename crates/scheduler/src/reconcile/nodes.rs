//! Decisions about nodes themselves: drain progress, whether evacuation is paused, and when records of removed nodes
//! are deleted.
//!
//! Owns: when a drain is done, blocked or overdue, when evacuation pauses, and when a removed node is forgotten.
//! Must not touch: which replica moves where; drains are judged after the groups had their turns.

use longshore_model::{
    AfterDrain, Drain, DrainOutcome, Evacuation, Health, Node, NodePlan, RuntimeCode, ServiceKind, SlotKey, Time,
    drain::{DrainBlocker, UndrainedReplica},
    replica::DesiredState,
};

use super::{jobs, node_loss};
use crate::{
    explain,
    view::{
        GroupIx, NodeIx, View,
        groups::{Group, Replica, Slot},
        occupancy::occupies,
    },
};

/// Decides about every draining node, evacuation and removed nodes.
pub(super) fn decide(view: &mut View, now: Time) -> Vec<NodePlan> {
    let drained: Vec<NodeIx> = view.nodes.draining.iter().copied().collect();
    let mut plans: Vec<NodePlan> = drained.into_iter().filter_map(|node| drain_plan(view, node, now)).collect();
    plans.sort_by(|a, b| name(a).cmp(&name(b)));
    plans.extend(evacuation(view, now).map(NodePlan::Evacuation));
    let outdated = view.removed.iter().filter(|(_, at)| kept_until(view, **at) <= now);
    plans.extend(outdated.map(|(node, at)| NodePlan::Forget { node: node.clone(), removed_at: *at }));
    plans
}

/// Until when the record of a removed node is kept.
fn kept_until(view: &View, removed_at: Time) -> Time {
    removed_at.after(view.config.gc_nodes)
}

/// The next time at which a decision about nodes changes without an event.
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

/// The next time at which a drain becomes overdue.
fn next_overdue(view: &View, now: Time) -> Option<Time> {
    let drains = view.nodes.draining.iter().filter_map(|node| view.nodes.node(*node).drain.as_ref());
    let pending = drains.filter(|drain| drain.outcome == DrainOutcome::UnderWay);
    pending.map(|drain| overdue_at(view, drain)).filter(|at| *at > now).min()
}

/// `drain_timeout` after the start, or the drain's deadline for jobs where that is later.
fn overdue_at(view: &View, drain: &Drain) -> Time {
    let by_timeout = drain.since.after(view.config.drain_timeout);
    drain.deadline.map_or(by_timeout, |deadline| deadline.max(by_timeout))
}

fn drain_plan(view: &mut View, ix: NodeIx, now: Time) -> Option<NodePlan> {
    let node = view.nodes.node(ix).clone();
    let drain = node.drain.as_ref()?;
    let left = undrained(view, ix);
    let (outcome, left) = if left.is_empty() {
        (DrainOutcome::Done, left)
    } else if drain.outcome == DrainOutcome::TimedOut {
        return None;
    } else if overdue_at(view, drain) <= now {
        (DrainOutcome::TimedOut, explained(view, left, now))
    } else {
        let blocks = |left: &UndrainedReplica| matches!(left.why, DrainBlocker::Stateful { .. });
        (DrainOutcome::UnderWay, left.into_iter().filter(blocks).collect())
    };
    let news = outcome != drain.outcome || left != drain.left;
    news.then(|| NodePlan::Drain { node: node.name.clone(), since: drain.since, outcome, left })
}

/// The replicas still on a node, sorted by group and slot.
fn undrained(view: &View, ix: NodeIx) -> Vec<UndrainedReplica> {
    let node = view.nodes.node(ix);
    let groups: Vec<GroupIx> = view.nodes.groups_on[ix.at()].keys().copied().collect();
    let mut left = Vec::new();
    for group in groups.into_iter().map(|group| view.group(group)) {
        for slot in &group.slots {
            let here = slot.replicas.iter().filter(|replica| replica.node == ix);
            let why = here.filter_map(|replica| drain_blocker(node, group, slot, replica)).next_back();
            left.extend(why.map(|why| UndrainedReplica { group: group.key.clone(), slot: slot.key.clone(), why }));
        }
    }
    left.sort_by(|a, b| (&a.group, &a.slot).cmp(&(&b.group, &b.slot)));
    left
}

/// What keeps a generation on the node; `None` where it does not block the drain.
fn drain_blocker(node: &Node, group: &Group, slot: &Slot, replica: &Replica) -> Option<DrainBlocker> {
    let stays = node.drain.as_ref().is_some_and(|drain| drain.then == AfterDrain::Keep);
    let given_up = replica.code == Some(RuntimeCode::RestartExhausted) && stays;
    // What has ended for good does not block, whatever happens to the node.
    let done = jobs::has_ended(group, replica);
    if given_up || done || !occupies(replica.reservation.kind, replica.state) {
        return None;
    }
    let current = slot.current().is_some_and(|current| current.generation == replica.generation);
    if node.health == Health::Down && !(current && slot.desired == DesiredState::Run) {
        // Its stop cannot be observed while the node is down, and nothing depends on it any more.
        return None;
    }
    Some(match replica.desired {
        DesiredState::Stop => DrainBlocker::Stopping,
        DesiredState::Run if group.spec.is_stateful() => DrainBlocker::Stateful {
            volumes: replica.reservation.volumes.iter().map(|held| held.key.clone()).collect(),
        },
        DesiredState::Run if group.spec.kind == ServiceKind::Batch => DrainBlocker::Finishing,
        DesiredState::Run => DrainBlocker::Moving,
    })
}

/// Replaces `Moving` by the reason of those that found no node.
fn explained(view: &mut View, left: Vec<UndrainedReplica>, now: Time) -> Vec<UndrainedReplica> {
    let mut groups: Vec<_> =
        left.iter().filter(|left| left.why == DrainBlocker::Moving).map(|it| it.group.clone()).collect();
    groups.dedup();
    let mut reasons = std::collections::BTreeMap::new();
    for group in groups {
        for (slots, why) in explain::explain(view, &group, now) {
            let named = |slot: SlotKey| ((group.clone(), slot), why.reason);
            reasons.extend(slots.into_iter().map(named));
        }
    }
    let with_reason = |left: UndrainedReplica| match reasons.get(&(left.group.clone(), left.slot.clone())) {
        Some(reason) if left.why == DrainBlocker::Moving => {
            UndrainedReplica { why: DrainBlocker::NoNode(*reason), ..left }
        }
        Some(_) | None => left,
    };
    left.into_iter().map(with_reason).collect()
}

/// Pauses evacuation once it matters: more than half of the nodes are unreachable, and one of them is down.
fn evacuation(view: &View, now: Time) -> Option<Evacuation> {
    let kept = |node: &NodeIx| {
        let node = view.nodes.node(*node);
        node.health == Health::Down && node.confirmed_lost.is_none()
    };
    let pausing = node_loss::is_mass_failure(view) && view.nodes.unreachable.iter().any(kept);
    match (&view.evacuation, pausing) {
        (Evacuation::Free, true) => {
            let mut gone: Vec<_> =
                view.nodes.unreachable.iter().map(|node| view.nodes.node(*node).name.clone()).collect();
            gone.sort();
            let nodes = u32::try_from(view.nodes.by_name.len()).unwrap_or(u32::MAX);
            Some(Evacuation::Paused { since: now, gone, nodes })
        }
        (Evacuation::Paused { .. }, false) => Some(Evacuation::Free),
        (Evacuation::Free, false) | (Evacuation::Paused { .. }, true) => None,
    }
}
