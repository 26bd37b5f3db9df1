//! `depends_on`: whether the services that a service waits for satisfy their conditions.
//!
//! Only observations of a dependency's current spec count. States of an older generation do not, so dependents wait
//! again after their dependency is applied again or restarted.
//!
//! Owns: when a dependency is met. Must not touch: restarts and replacements of lost replicas, which never wait.

use std::collections::BTreeSet;

use longshore_model::{
    GroupKey, Refusal, ReplicaState, RuntimeCode, ServiceKind, ServiceName, ServiceSpec,
    replica::DesiredState,
    service::{Dependency, DependencyCondition},
};

use crate::{
    placement::PendingSlot,
    reconcile::{mode_change, scale},
    request::{PlacementRequest, replica_fingerprint},
    view::{
        View,
        groups::{Group, Replica, Slot},
    },
};

/// The refusal for the first dependency, by name, that is not met.
pub(crate) fn unmet(view: &View, key: &GroupKey, spec: &ServiceSpec) -> Option<Refusal> {
    let is_unmet =
        |service: &ServiceName, dependency: Dependency| !is_met(view, &spec.dependency_key(key, service), dependency);
    let unmet = spec.depends_on.iter().find(|(service, dependency)| is_unmet(service, **dependency));
    unmet.map(|(service, _)| Refusal::Dependency { service: service.to_string() })
}

/// Whether every unmet dependency may be met without another command: it has steps left in the rollout, or replicas on
/// their way or at work.
pub(crate) fn may_still_be_met(view: &View, key: &GroupKey, spec: &ServiceSpec) -> bool {
    let unmet = spec.depends_on.iter().filter(|(service, on)| !is_met(view, &key.sibling(service), **on));
    let rollout = view.rollouts.get(&(key.namespace.clone(), key.deployment.clone()));
    let mut groups = unmet.map(|(service, _)| view.group_ids.get(&key.sibling(service)).copied());
    groups.all(|group| {
        group.is_some_and(|group| {
            let is_rolling = rollout.is_some_and(|rollout| rollout.unfinished.contains_key(&group));
            is_rolling || view.group(group).desired_slots().any(may_come_up)
        })
    })
}

/// Whether a slot's generation may still start, or is at work.
fn may_come_up(slot: &Slot) -> bool {
    slot.current().is_none_or(|replica| match replica.state {
        ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting | ReplicaState::Running => true,
        ReplicaState::Failed | ReplicaState::Degraded => replica.code != Some(RuntimeCode::RestartExhausted),
        ReplicaState::Draining | ReplicaState::Stopped | ReplicaState::Completed | ReplicaState::Lost => false,
    })
}

/// Every service that a service depends on, directly or transitively.
pub(crate) fn transitive(view: &View, key: &GroupKey, spec: &ServiceSpec) -> BTreeSet<GroupKey> {
    let mut found = BTreeSet::new();
    let mut left: Vec<GroupKey> = spec.depends_on.keys().map(|service| spec.dependency_key(key, service)).collect();
    while let Some(next) = left.pop() {
        let known = view.group_ids.get(&next).map(|ix| view.group(*ix));
        if found.insert(next.clone()) {
            left.extend(known.into_iter().flat_map(|known| known.spec.depends_on.keys().map(|it| next.sibling(it))));
        }
    }
    found
}

/// The unmet dependency that blocks a pending slot, if the slot is a first start.
pub(crate) fn blocking(view: &View, request: &PlacementRequest, pending: &PendingSlot) -> Option<Refusal> {
    if is_first_start(view, request, pending) { unmet(view, &request.key, &request.spec) } else { None }
}

/// Whether a pending slot waits for dependencies: it is the first start of its slot, the first after a stop of
/// the deployment, or that of a job whose spec changed.
pub(crate) fn is_first_start(view: &View, request: &PlacementRequest, pending: &PendingSlot) -> bool {
    if request.spec.depends_on.is_empty() {
        return false;
    }
    let known = view.group(request.group);
    let slot = known.slot_at(&pending.slot).ok().map(|at| &known.slots[at]);
    let same = |replica: &Replica| replica.reservation.has_same_code(&request.reservation);
    let ran = slot.is_some_and(|slot| slot.replicas.iter().any(same));
    let starts = pending.generation.0 == 1 || slot.is_some_and(|slot| slot.starts_again == Some(pending.generation));
    starts || (request.spec.kind.is_job() && !ran)
}

fn is_met(view: &View, key: &GroupKey, dependency: Dependency) -> bool {
    let group = view.group_ids.get(key).map(|ix| view.group(*ix)).filter(|group| group.desired == DesiredState::Run);
    let Some(group) = group else { return !dependency.required };
    let placed = view.slots_placed_by_pass(key);
    let surplus = scale::beyond_count(view, group);
    let named = group.desired_slots().filter(|slot| !mode_change::is_of_other_mode(&group.spec, &slot.key));
    let mut slots = named.filter(|slot| !surplus.contains(&slot.key)).peekable();
    let none = slots.peek().is_none();
    let mut there = 0;
    for slot in slots {
        // A slot placed in this pass is not started yet, even if an older generation still runs.
        if placed.contains(&slot.key) || !slot_meets(view, dependency.condition, group, slot) {
            return false;
        }
        there += 1;
    }
    // Garbage-collected replicas ended, so they count as started or completed but never as healthy.
    let done = match dependency.condition {
        DependencyCondition::ServiceHealthy => 0,
        DependencyCondition::ServiceStarted | DependencyCondition::ServiceCompletedSuccessfully => {
            group.collected.total()
        }
    };
    let well = group.collected.failed == 0 || dependency.condition == DependencyCondition::ServiceStarted;
    let expected = match (group.spec.kind, dependency.condition) {
        // A per-node service has slots only after its first placement.
        (ServiceKind::System | ServiceKind::Sysbatch, _) => return well && (!none || done > 0),
        // With `max_concurrent`, later replicas of a job start only as earlier ones end.
        (ServiceKind::Batch, DependencyCondition::ServiceStarted | DependencyCondition::ServiceHealthy) => {
            group.spec.replicas.min(1)
        }
        (ServiceKind::Batch | ServiceKind::Service, _) => group.spec.replicas,
    };
    well && done.saturating_add(there) >= expected
}

fn slot_meets(view: &View, condition: DependencyCondition, group: &Group, slot: &Slot) -> bool {
    let Some(replica) = slot.current() else { return false };
    // An older generation counts again only once the newer one's stop is committed; until then the newer one may start.
    let newer = slot.replicas.iter().rev().take_while(|other| other.generation > replica.generation);
    if newer.into_iter().any(|other| view.is_stopped_by_pass(&group.key, &slot.key.generation(other.generation))) {
        return false;
    }
    replica_fingerprint::matches_current_spec(view, group, &replica.reservation) && state_meets(condition, replica)
}

fn state_meets(condition: DependencyCondition, replica: &Replica) -> bool {
    match condition {
        DependencyCondition::ServiceStarted => match replica.state {
            ReplicaState::Starting | ReplicaState::Running | ReplicaState::Degraded | ReplicaState::Completed => true,
            // The replica started before it failed.
            ReplicaState::Failed => replica.code != Some(RuntimeCode::StartFailed),
            ReplicaState::Pending
            | ReplicaState::Pulling
            | ReplicaState::Draining
            | ReplicaState::Stopped
            | ReplicaState::Lost => false,
        },
        DependencyCondition::ServiceHealthy => replica.state == ReplicaState::Running,
        DependencyCondition::ServiceCompletedSuccessfully => replica.state == ReplicaState::Completed,
    }
}
