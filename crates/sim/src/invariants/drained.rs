//! A drain never takes a service below its count: what runs on a node to be emptied is told to stop only when another
//! generation of its slot runs.
//!
//! A step of a rollout that the same plan takes, a change of spec, a removal and a displacement have rules of their own, and
//! jobs have a deadline.

use longshore_model::{
    GroupKey, Health, Intent, Plan, PlanItem, ReplicaState, ServiceKind, SlotKey,
    replica::{Replica, Wanted},
    rollout::StepOutcome,
};
use longshore_store::State;

pub(super) const NAME: &str = "drained";

pub(super) fn check(state: &State, plan: &Plan) -> Vec<String> {
    let items = plan.groups.iter().flat_map(|part| part.items.iter().map(|item| (&part.group, item)));
    let stops = items.filter_map(|(group, item)| match item {
        PlanItem::Stop { slot, generation } => Some((group, slot, *generation)),
        _ => None,
    });
    let changes = |group: &GroupKey, slot: &SlotKey| {
        let parts = plan.groups.iter().filter(|part| part.group == *group);
        parts.flat_map(|part| &part.items).any(|item| is_step(item, slot))
    };
    let stops = stops.filter(|(group, slot, _)| !changes(group, slot) && !super::may_be_displaced(state, group));
    let short = stops.filter(|(group, slot, generation)| leaves_a_gap(state, group, slot, *generation));
    short
        .map(|(group, slot, generation)| {
            format!("{} g{generation} is drained although nothing else of it runs", slot.printed(group))
        })
        .collect()
}

/// Whether a slot changes with the rollout of its deployment: whether it may be short for that is asked elsewhere.
fn is_step(item: &PlanItem, slot: &SlotKey) -> bool {
    matches!(item, PlanItem::Step { slot: other, outcome: StepOutcome::UnderWay, .. } if other == slot)
}

fn leaves_a_gap(state: &State, key: &GroupKey, slot: &SlotKey, generation: longshore_model::Generation) -> bool {
    let Some(group) = state.group(key).filter(|group| group.wanted == Wanted::Run) else { return false };
    let Some(known) = group.slots.get(slot).filter(|slot| slot.wanted == Wanted::Run) else { return false };
    let Some(going) = known.replicas.iter().find(|replica| replica.generation == generation) else { return false };
    let drained = state.node(&going.assignment.node).is_some_and(|node| node.intent == Intent::Draining);
    let terms = &going.assignment.terms;
    let same = terms.spec_hash == group.spec.spec_hash && terms.kind == ServiceKind::Service;
    let others = known.replicas.iter().filter(|replica| replica.generation != generation);
    drained && same && runs(state, going) && !others.into_iter().any(|replica| runs(state, replica))
}

fn runs(state: &State, replica: &Replica) -> bool {
    let up = state.node(&replica.assignment.node).is_some_and(|node| node.health != Health::Down);
    replica.wanted == Wanted::Run && replica.state == ReplicaState::Running && up
}
