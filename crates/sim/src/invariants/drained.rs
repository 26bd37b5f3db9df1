//! A drain never takes a service below its count: a replica on a draining node is stopped only when another generation of its
//! slot runs.
//!
//! Rollout steps of the same plan, spec changes, removals and preemptions have rules of their own, and jobs have a deadline.

use longshore_model::{
    GroupKey, Health, Intent, Plan, PlanItem, ReplicaKey, ReplicaState, ServiceKind, SlotKey,
    replica::{DesiredState, Replica},
    rollout::StepOutcome,
};
use longshore_store::State;

pub(super) const NAME: &str = "drained";

pub(super) fn check(state: &State, plan: &Plan) -> Vec<String> {
    let items = plan.groups.iter().flat_map(|part| part.items.iter().map(|item| (&part.group, item)));
    let stops = items.filter_map(|(group, item)| match item {
        PlanItem::Stop(key) => Some(key.clone().in_group(group)),
        _ => None,
    });
    let is_stepped = |group: &GroupKey, slot: &SlotKey| {
        let parts = plan.groups.iter().filter(|part| part.group == *group);
        parts.flat_map(|part| &part.items).any(|item| is_step(item, slot))
    };
    let stops = stops.filter(|key| !is_stepped(&key.group, &key.slot) && !super::may_be_preempted(state, &key.group));
    // An operator who stops a deployment asks for that.
    let stops = stops.filter(|key| !state.is_stopped(&key.group));
    let short = stops.filter(|key| leaves_a_gap(state, key));
    short.map(|key| format!("{key} is drained although nothing else of it runs")).collect()
}

/// Whether an item begins the slot's step of a rollout. The `rollout_availability` rule covers those.
fn is_step(item: &PlanItem, slot: &SlotKey) -> bool {
    matches!(item, PlanItem::Step { slot: other, outcome: StepOutcome::UnderWay, .. } if other == slot)
}

fn leaves_a_gap(state: &State, key: &ReplicaKey) -> bool {
    let Some(group) = state.group(&key.group).filter(|group| group.desired == DesiredState::Run) else { return false };
    let Some(known) = group.slots.get(&key.slot).filter(|slot| slot.desired == DesiredState::Run) else { return false };
    let Some(stopped) = state.replica(key) else { return false };
    let is_drained = state.node(&stopped.assignment.node).is_some_and(|node| node.intent == Intent::Draining);
    let reservation = &stopped.assignment.reservation;
    // A service that becomes a job is a change of its spec too, though its container is created alike.
    let same = group.spec.made(reservation) && reservation.kind == ServiceKind::Service;
    let others = known.replicas.iter().filter(|replica| replica.generation != key.generation);
    is_drained && same && runs(state, stopped) && !others.into_iter().any(|replica| runs(state, replica))
}

fn runs(state: &State, replica: &Replica) -> bool {
    let up = state.node(&replica.assignment.node).is_some_and(|node| node.health != Health::Down);
    replica.desired == DesiredState::Run && replica.state == ReplicaState::Running && up
}
