//! Services that come first: whether what a service waits for is there.
//!
//! Only what was seen of a dependency as it is wanted now counts. What an older generation did says nothing about the one
//! that is wanted now, so a service that is applied anew, or restarted, is waited for anew.
//!
//! Owns: when a dependency is met. Must not touch: who is held back; a restart or a replacement of what was lost never is.

use std::collections::BTreeSet;

use longshore_model::{
    GroupKey, Refusal, ReplicaState, RuntimeCode, ServiceKind, ServiceSpec,
    replica::Wanted,
    service::{Dependency, DependencyCondition},
};

use crate::{
    ask::{Ask, making},
    placement::Vacancy,
    reconcile::{changeover, jobs::is_job, scale},
    view::{
        View,
        groups::{Group, Replica, Slot},
    },
};

/// The first service, by name, that is waited for in vain.
pub(crate) fn unmet(view: &View, key: &GroupKey, spec: &ServiceSpec) -> Option<Refusal> {
    let unmet = spec.depends_on.iter().find(|(service, dependency)| !is_met(view, &key.beside(service), **dependency));
    unmet.map(|(service, _)| Refusal::Dependency { service: service.to_string() })
}

/// Every service that a service depends on, and those that they depend on.
pub(crate) fn all_of(view: &View, key: &GroupKey, spec: &ServiceSpec) -> BTreeSet<GroupKey> {
    let mut found = BTreeSet::new();
    let mut left: Vec<GroupKey> = spec.depends_on.keys().map(|service| key.beside(service)).collect();
    while let Some(next) = left.pop() {
        let known = view.group_ids.get(&next).map(|ix| view.group(*ix));
        if found.insert(next.clone()) {
            left.extend(known.into_iter().flat_map(|known| known.spec.depends_on.keys().map(|it| next.beside(it))));
        }
    }
    found
}

/// What holds a vacancy back, if it is a first start.
pub(crate) fn holding_back(view: &View, ask: &Ask, vacancy: &Vacancy) -> Option<Refusal> {
    if starts(view, ask, vacancy) { unmet(view, &ask.key, &ask.spec) } else { None }
}

/// Whether a vacancy has to wait for other services: it is a first start of its slot, or of a job that has another spec than
/// before.
pub(crate) fn starts(view: &View, ask: &Ask, vacancy: &Vacancy) -> bool {
    if ask.spec.depends_on.is_empty() {
        return false;
    }
    let known = view.group(ask.group);
    let slot = known.slot_at(&vacancy.slot).ok().map(|at| &known.slots[at]);
    let same = |replica: &Replica| replica.terms.spec_hash == ask.terms.spec_hash;
    let ran = slot.is_some_and(|slot| slot.replicas.iter().any(same));
    vacancy.generation.0 == 1 || (is_job(ask.spec.kind) && !ran)
}

fn is_met(view: &View, key: &GroupKey, dependency: Dependency) -> bool {
    let group = view.group_ids.get(key).map(|ix| view.group(*ix)).filter(|group| group.wanted == Wanted::Run);
    let Some(group) = group else { return !dependency.required };
    let placed = view.placed_now(key);
    let surplus = scale::beyond_count(view, group);
    let named = group.wanted_slots().filter(|slot| !changeover::is_misnamed(&group.spec, &slot.key));
    let mut slots = named.filter(|slot| !surplus.contains(&slot.key)).peekable();
    let none = slots.peek().is_none();
    let mut there = 0;
    for slot in slots {
        // What this pass places is on its way, whatever older one of the slot is still there.
        if placed.contains(&slot.key) || !holds(view, dependency.condition, group, slot) {
            return false;
        }
        there += 1;
    }
    // What has ended and is no longer shown is not healthy, as it was not while it was shown.
    let done = match dependency.condition {
        DependencyCondition::ServiceHealthy => 0,
        DependencyCondition::ServiceStarted | DependencyCondition::ServiceCompletedSuccessfully => {
            group.collected.total()
        }
    };
    let well = group.collected.failed == 0 || dependency.condition == DependencyCondition::ServiceStarted;
    let expected = match (group.spec.kind, dependency.condition) {
        // Its nodes are known once it has been decided.
        (ServiceKind::System | ServiceKind::Sysbatch, _) => return well && (!none || done > 0),
        // The rest of a job starts as the first of it end.
        (ServiceKind::Batch, DependencyCondition::ServiceStarted | DependencyCondition::ServiceHealthy) => {
            group.spec.replicas.min(1)
        }
        (ServiceKind::Batch | ServiceKind::Service, _) => group.spec.replicas,
    };
    well && done.saturating_add(there) >= expected
}

fn holds(view: &View, condition: DependencyCondition, group: &Group, slot: &Slot) -> bool {
    let Some(replica) = slot.current() else { return false };
    // An older one counts again once the plan that says so is in force: until then a newer one may be on its way.
    let newer = slot.replicas.iter().rev().take_while(|other| other.generation > replica.generation);
    if newer.into_iter().any(|other| view.is_supposed_to_stop(&group.key, &slot.key, other.generation)) {
        return false;
    }
    making::is_made_as_wanted(view, group, &replica.terms) && is_in(condition, replica)
}

fn is_in(condition: DependencyCondition, replica: &Replica) -> bool {
    match condition {
        DependencyCondition::ServiceStarted => match replica.state {
            ReplicaState::Starting | ReplicaState::Running | ReplicaState::Degraded | ReplicaState::Completed => true,
            // It did start; that it ended is another matter.
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
