//! A slot is placed for the first time only once the services it depends on are there, by the state and not by the view.

use longshore_model::{
    GroupKey, Plan, PlanItem, ReplicaState, SlotKey,
    replica::{Replica, Wanted},
    service::{Dependency, DependencyCondition},
};
use longshore_store::State;

pub(super) const NAME: &str = "dependencies";

pub(super) fn check(state: &State, plan: &Plan) -> Vec<String> {
    let mut messages = Vec::new();
    for part in &plan.groups {
        let Some(group) = state.group(&part.group) else { continue };
        let firsts = part.items.iter().filter_map(|item| match item {
            PlanItem::Place(placement) if placement.generation.0 == 1 => Some(&placement.slot),
            _ => None,
        });
        for slot in firsts {
            let early = group.spec.depends_on.iter().find(|(service, dependency)| {
                let other = part.group.beside(service);
                let nothing = Plan::default();
                [&nothing, plan].into_iter().all(|gone| is_missing(state, gone, &other, **dependency))
            });
            if let Some((service, _)) = early {
                messages.push(format!("{} is placed before {service} is ready", slot.printed(&part.group)));
            }
        }
    }
    messages
}

/// Whether some replica of a dependency is known not to be as asked, with what a plan stops gone: an older generation counts
/// again then. A weaker question than the scheduler's, on purpose.
fn is_missing(state: &State, plan: &Plan, key: &GroupKey, dependency: Dependency) -> bool {
    let Some(group) = state.group(key).filter(|group| group.wanted == Wanted::Run) else { return dependency.required };
    let as_asked = |replica: &Replica| match dependency.condition {
        DependencyCondition::ServiceStarted => !matches!(
            replica.state,
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Stopped | ReplicaState::Lost
        ),
        DependencyCondition::ServiceHealthy => replica.state == ReplicaState::Running,
        DependencyCondition::ServiceCompletedSuccessfully => replica.state == ReplicaState::Completed,
    };
    let there = group.slots.values().filter(|slot| {
        let stays = |replica: &&Replica| replica.wanted == Wanted::Run && !stops(plan, key, &slot.key, replica);
        let current = slot.replicas.iter().rev().find(stays);
        let current = current.filter(|replica| replica.assignment.terms.spec_hash == group.spec.spec_hash);
        slot.wanted == Wanted::Run && current.is_some_and(as_asked)
    });
    let wanted = if group.spec.kind.is_per_node() { 1 } else { group.spec.replicas as usize };
    // The rest of a job may start as the first of it end.
    let all = !group.spec.kind.is_job() || dependency.condition == DependencyCondition::ServiceCompletedSuccessfully;
    let wanted = if all { wanted } else { wanted.min(1) };
    let done = match dependency.condition {
        DependencyCondition::ServiceHealthy => 0,
        DependencyCondition::ServiceStarted | DependencyCondition::ServiceCompletedSuccessfully => {
            group.collected.total() as usize
        }
    };
    there.count() + done < wanted
}

fn stops(plan: &Plan, key: &GroupKey, slot: &SlotKey, replica: &Replica) -> bool {
    let stop = PlanItem::Stop { slot: slot.clone(), generation: replica.generation };
    plan.groups.iter().any(|part| part.group == *key && part.items.contains(&stop))
}
