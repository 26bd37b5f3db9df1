//! The answer of a dry run: compares the simulated state with the present one, in the types of the API.
//!
//! Owns: what counts as a difference. Must not touch: how the simulated state came about.
//! Invariant: a replica is listed only if its node or its generation differs, so an empty list means nothing to do.

use std::collections::{BTreeMap, BTreeSet};

use longshore_api::{Changed, Headroom, ManifestPlan, Move, Pending, ServiceChange, ServicePlan, WhatIf};
use longshore_model::{
    DeploymentSpec, Effect, Evacuation, FieldChange, Generation, GroupKey, Health, Intent, NodeName, RevisionDiff,
    ServiceDiff, SlotKey, replica::DesiredState,
};
use longshore_scheduler::diff;
use longshore_store::{State, is_live};

use crate::{
    api::views::{self, DeploymentRef},
    dry_run::SimulatedState,
};

/// A dry run of applying a manifest.
pub(crate) fn plan(
    present: &State,
    future: &SimulatedState,
    about: &DeploymentRef<'_>,
    warnings: Vec<String>,
) -> ManifestPlan {
    let (moves, pending) = (moves(present, &future.state), views::pending(&future.state, future.at));
    let ours = |group: &GroupKey| group.namespace == *about.namespace && group.deployment == *about.deployment;
    let groups: BTreeSet<&GroupKey> =
        present.groups().chain(future.state.groups()).map(|(key, _)| key).filter(|key| ours(key)).collect();
    let differences = diff(&manifest(present, about), &manifest(&future.state, about));
    let services = groups.into_iter().map(|key| service(&differences, key, &moves, &pending));
    let services: Vec<ServicePlan> = services.collect();
    let elsewhere = moves.iter().filter(|(group, _)| !ours(group)).flat_map(|(_, moves)| moves.clone()).collect();
    let in_force = |state: &State| Some(state.deployment(about.namespace, about.deployment)?.in_force);
    let (before, after) = (in_force(present), in_force(&future.state));
    ManifestPlan {
        namespace: about.namespace.to_string(),
        deployment: about.deployment.to_string(),
        index: present.index().0,
        changed: if before == after { Changed::No } else { Changed::Yes },
        revision: after.map_or(0, |revision| revision.0),
        services,
        shared: names(&differences.shared),
        elsewhere,
        convergence: future.convergence,
        warnings,
    }
}

fn service(
    differences: &RevisionDiff,
    key: &GroupKey,
    moves: &BTreeMap<GroupKey, Vec<Move>>,
    pending: &[Pending],
) -> ServicePlan {
    let difference = differences.services.get(&key.service).unwrap_or(&ServiceDiff::Unchanged);
    let ours = |it: &&Pending| {
        (it.namespace.as_str(), it.deployment.as_str(), it.service.as_str())
            == (key.namespace.as_str(), key.deployment.as_str(), key.service.as_str())
    };
    ServicePlan {
        name: key.service.to_string(),
        change: change(difference),
        fields: names(difference.fields()),
        recreated_by: names(difference.fields().iter().filter(|change| change.effect == Effect::Recreates)),
        replicas: moves.get(key).cloned().unwrap_or_default(),
        pending: pending.iter().filter(ours).cloned().collect(),
    }
}

/// The current manifest of a deployment; empty once it was removed.
fn manifest(state: &State, about: &DeploymentRef<'_>) -> DeploymentSpec {
    let deployment = state.deployment(about.namespace, about.deployment);
    let wanted = deployment.filter(|deployment| deployment.desired == DesiredState::Run);
    wanted.map(|deployment| deployment.current().spec.clone()).unwrap_or_default()
}

const fn change(difference: &ServiceDiff) -> ServiceChange {
    match difference {
        ServiceDiff::Added => ServiceChange::Added,
        ServiceDiff::Removed => ServiceChange::Removed,
        ServiceDiff::Unchanged => ServiceChange::Unchanged,
        ServiceDiff::InPlace(_) => ServiceChange::InPlace,
        ServiceDiff::Destructive(_) => ServiceChange::Destructive,
    }
}

fn names<'a>(changes: impl IntoIterator<Item = &'a FieldChange>) -> Vec<String> {
    changes.into_iter().map(|change| change.field.clone()).collect()
}

/// The result of a what-if request.
pub(crate) fn what_if(present: &State, future: &SimulatedState, took: std::time::Duration) -> WhatIf {
    WhatIf {
        index: present.index().0,
        took_micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        moves: moves(present, &future.state).into_values().flatten().collect(),
        pending: views::pending(&future.state, future.at),
        nodes: headroom(present, &future.state),
        evacuation_paused: matches!(future.state.evacuation(), Evacuation::Paused { .. }),
        convergence: future.convergence,
    }
}

fn headroom(present: &State, future: &State) -> Vec<Headroom> {
    let before: BTreeMap<String, longshore_api::Node> =
        views::nodes(present).into_iter().map(|node| (node.name.clone(), node)).collect();
    let usable = |name: &str| {
        let node = future.node(&NodeName::from(name));
        node.is_some_and(|node| node.intent == Intent::Active && node.health == Health::Ready)
    };
    let row = |node: longshore_api::Node| {
        let was = before.get(&node.name);
        Headroom {
            usable: usable(&node.name),
            memory_bytes: node.memory_bytes,
            memory_used_before_bytes: was.map_or(0, |was| was.memory_used_bytes),
            memory_used_bytes: node.memory_used_bytes,
            replicas_before: was.map_or(0, |was| was.replicas),
            replicas: node.replicas,
            node: node.name,
        }
    };
    views::nodes(future).into_iter().map(row).collect()
}

/// Every replica whose node or generation differs, by service.
fn moves(present: &State, future: &State) -> BTreeMap<GroupKey, Vec<Move>> {
    let (before, after) = (placements(present), placements(future));
    let all: BTreeSet<&(GroupKey, SlotKey)> = before.keys().chain(after.keys()).collect();
    let mut moves: BTreeMap<GroupKey, Vec<Move>> = BTreeMap::new();
    for at in all {
        let (was, will_be) = (before.get(at), after.get(at));
        if was == will_be {
            continue;
        }
        let (group, slot) = at;
        moves.entry(group.clone()).or_default().push(Move {
            replica: slot.replica_id(group),
            from: was.map(|(node, _)| node.to_string()),
            to: will_be.map(|(node, _)| node.to_string()),
            generation: will_be.map(|(_, generation)| generation.0),
        });
    }
    moves
}

/// Node and generation of the newest live replica of every slot.
fn placements(state: &State) -> BTreeMap<(GroupKey, SlotKey), (NodeName, Generation)> {
    let live = state.replicas().filter(|(_, _, replica)| is_live(replica));
    let mut placements = BTreeMap::new();
    for (group, slot, replica) in live {
        let placement = (replica.assignment.node.clone(), replica.generation);
        let known = placements.entry((group.clone(), slot.key.clone())).or_insert_with(|| placement.clone());
        if known.1 < placement.1 {
            *known = placement;
        }
    }
    placements
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_model::{NamespaceName, ServiceSpec, service::SpecHash};

    use super::*;

    /// The plan of `web` for a change from one spec to the other.
    fn plan_for(before: Option<ServiceSpec>, after: Option<ServiceSpec>) -> ServicePlan {
        let manifest = |spec: Option<ServiceSpec>| DeploymentSpec {
            services: spec.map(|spec| ("web".into(), Arc::new(spec))).into_iter().collect(),
            ..DeploymentSpec::default()
        };
        let differences = diff(&manifest(before), &manifest(after));
        let namespace = NamespaceName::default_namespace();
        let key = GroupKey { namespace, deployment: "shop".into(), service: "web".into() };
        service(&differences, &key, &BTreeMap::new(), &[])
    }

    #[test]
    fn changed_fields_are_named_as_in_a_manifest_and_values_are_not_shown() {
        let before = ServiceSpec::default();
        let mut after = ServiceSpec { replicas: 3, spec_hash: SpecHash("other".into()), ..ServiceSpec::default() };
        after.container.environment.insert("KEY".to_owned(), Some("secret".to_owned()));
        let plan = plan_for(Some(before), Some(after));
        assert_eq!(plan.change, ServiceChange::Destructive);
        assert_eq!(plan.fields, ["deploy.replicas", "environment.KEY"]);
        assert_eq!(plan.recreated_by, ["environment.KEY"]);
    }

    #[test]
    fn a_change_of_the_replica_count_is_in_place() {
        let before = ServiceSpec::default();
        let plan = plan_for(Some(before.clone()), Some(ServiceSpec { replicas: 3, ..before.clone() }));
        assert_eq!((plan.change, plan.fields), (ServiceChange::InPlace, vec!["deploy.replicas".to_owned()]));
        assert_eq!(plan.recreated_by, [""; 0]);
        assert_eq!(plan_for(Some(before.clone()), Some(before.clone())).change, ServiceChange::Unchanged);
        assert_eq!(plan_for(None, Some(before)).change, ServiceChange::Added);
    }
}
