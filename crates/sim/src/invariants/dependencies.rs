//! A slot is placed for the first time only once the services it depends on meet their conditions, by the state alone.

use longshore_model::{
    GroupKey, Plan, PlanItem, ReplicaState, SlotKey,
    replica::{DesiredState, Replica},
    service::{Dependency, DependencyCondition},
};
use longshore_store::State;

pub(super) const NAME: &str = "dependencies";

pub(super) fn check(state: &State, plan: &Plan) -> Vec<String> {
    let mut messages = Vec::new();
    for part in &plan.groups {
        let Some(group) = state.group(&part.group) else { continue };
        let first_placements = part.items.iter().filter_map(|item| match item {
            PlanItem::Place(placement) if placement.key.generation.0 == 1 => Some(&placement.key.slot),
            _ => None,
        });
        for slot in first_placements {
            let unmet = group.spec.depends_on.iter().find(|(service, dependency)| {
                let other = part.group.sibling(service);
                let no_stops = Plan::default();
                [&no_stops, plan].into_iter().all(|stops| is_unmet(state, stops, &other, **dependency))
            });
            if let Some((service, _)) = unmet {
                messages.push(format!("{} is placed before {service} is ready", slot.replica_id(&part.group)));
            }
        }
    }
    messages
}

/// Whether a dependency has too few replicas that meet its condition. Replicas that the plan stops are left out, so that an
/// older generation counts again. Weaker than the scheduler's own check, on purpose.
fn is_unmet(state: &State, plan: &Plan, key: &GroupKey, dependency: Dependency) -> bool {
    let Some(group) = state.group(key).filter(|group| group.desired == DesiredState::Run) else {
        return dependency.required;
    };
    let meets = |replica: &Replica| match dependency.condition {
        DependencyCondition::ServiceStarted => !matches!(
            replica.state,
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Stopped | ReplicaState::Lost
        ),
        DependencyCondition::ServiceHealthy => replica.state == ReplicaState::Running,
        DependencyCondition::ServiceCompletedSuccessfully => replica.state == ReplicaState::Completed,
    };
    let ready = group.slots.values().filter(|slot| {
        let stays = |replica: &&Replica| replica.desired == DesiredState::Run && !stops(plan, key, &slot.key, replica);
        let current = slot.replicas.iter().rev().find(stays);
        let current = current.filter(|replica| replica.assignment.reservation.spec_hash == group.spec.spec_hash);
        slot.desired == DesiredState::Run && current.is_some_and(meets)
    });
    let wanted = if group.spec.kind.is_per_node() { 1 } else { group.spec.replicas as usize };
    // A job that must only be started needs one replica: the others may wait for `max_concurrent`.
    let all = !group.spec.kind.is_job() || dependency.condition == DependencyCondition::ServiceCompletedSuccessfully;
    let wanted = if all { wanted } else { wanted.min(1) };
    let done = match dependency.condition {
        DependencyCondition::ServiceHealthy => 0,
        DependencyCondition::ServiceStarted | DependencyCondition::ServiceCompletedSuccessfully => {
            group.collected.total() as usize
        }
    };
    ready.count() + done < wanted
}

fn stops(plan: &Plan, key: &GroupKey, slot: &SlotKey, replica: &Replica) -> bool {
    let stop = PlanItem::Stop(slot.generation(replica.generation));
    plan.groups.iter().any(|part| part.group == *key && part.items.contains(&stop))
}
