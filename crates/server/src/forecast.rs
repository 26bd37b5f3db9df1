//! A future, compared with the present, in the words of the API.
//!
//! Owns: what counts as a difference. Must not touch: how the future came about; that is `foresee`'s.
//! Invariant: a replica is named only if its node or its generation differs, so that no difference means nothing to do.

use std::collections::{BTreeMap, BTreeSet};

use longshore_api::{Changed, Headroom, ManifestPlan, Move, Pending, ServiceChange, ServicePlan, WhatIf};
use longshore_model::{
    DeploymentName, DeploymentSpec, Effect, Evacuation, FieldChange, Generation, GroupKey, Health, Intent,
    NamespaceName, NodeName, RevisionDiff, ServiceDiff, SlotKey, replica::Wanted,
};
use longshore_scheduler::diff;
use longshore_store::{State, is_live};

use crate::{foresee::Future, rows};

/// Which deployment a plan is about.
pub(crate) struct About<'a> {
    pub(crate) namespace: &'a NamespaceName,
    pub(crate) deployment: &'a DeploymentName,
}

/// What applying a manifest would do.
pub(crate) fn plan(present: &State, future: &Future, about: &About<'_>, warnings: Vec<String>) -> ManifestPlan {
    let (moves, pending) = (moves(present, &future.state), rows::pending(&future.state, future.at));
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
        rest: future.rest,
        warnings,
    }
}

fn service(
    differences: &RevisionDiff,
    key: &GroupKey,
    moves: &BTreeMap<GroupKey, Vec<Move>>,
    pending: &[Pending],
) -> ServicePlan {
    let fate = differences.services.get(&key.service).unwrap_or(&ServiceDiff::Unchanged);
    let ours = |it: &&Pending| {
        (it.namespace.as_str(), it.deployment.as_str(), it.service.as_str())
            == (key.namespace.as_str(), key.deployment.as_str(), key.service.as_str())
    };
    ServicePlan {
        name: key.service.to_string(),
        change: change(fate),
        fields: names(fate.fields()),
        recreated_by: names(fate.fields().iter().filter(|change| change.effect == Effect::Recreates)),
        replicas: moves.get(key).cloned().unwrap_or_default(),
        pending: pending.iter().filter(ours).cloned().collect(),
    }
}

/// The manifest in force of a deployment, unless it was removed.
fn manifest(state: &State, about: &About<'_>) -> DeploymentSpec {
    let deployment = state.deployment(about.namespace, about.deployment);
    let wanted = deployment.filter(|deployment| deployment.wanted == Wanted::Run);
    wanted.map(|deployment| deployment.current().spec.clone()).unwrap_or_default()
}

const fn change(fate: &ServiceDiff) -> ServiceChange {
    match fate {
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

/// What would come of what is supposed.
pub(crate) fn what_if(present: &State, future: &Future, took: std::time::Duration) -> WhatIf {
    WhatIf {
        index: present.index().0,
        took_micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        moves: moves(present, &future.state).into_values().flatten().collect(),
        pending: rows::pending(&future.state, future.at),
        nodes: headroom(present, &future.state),
        evacuation_paused: matches!(future.state.evacuation(), Evacuation::Paused { .. }),
        rest: future.rest,
    }
}

fn headroom(present: &State, future: &State) -> Vec<Headroom> {
    let before: BTreeMap<String, longshore_api::Node> =
        rows::nodes(present).into_iter().map(|node| (node.name.clone(), node)).collect();
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
    rows::nodes(future).into_iter().map(row).collect()
}

/// Every replica whose node or generation differs, by service.
fn moves(present: &State, future: &State) -> BTreeMap<GroupKey, Vec<Move>> {
    let (before, after) = (seats(present), seats(future));
    let all: BTreeSet<&(GroupKey, SlotKey)> = before.keys().chain(after.keys()).collect();
    let mut moves: BTreeMap<GroupKey, Vec<Move>> = BTreeMap::new();
    for at in all {
        let (was, will_be) = (before.get(at), after.get(at));
        if was == will_be {
            continue;
        }
        let (group, slot) = at;
        moves.entry(group.clone()).or_default().push(Move {
            replica: slot.printed(group),
            from: was.map(|(node, _)| node.to_string()),
            to: will_be.map(|(node, _)| node.to_string()),
            generation: will_be.map(|(_, generation)| generation.0),
        });
    }
    moves
}

/// The newest generation of every slot that has one to count on.
fn seats(state: &State) -> BTreeMap<(GroupKey, SlotKey), (NodeName, Generation)> {
    let live = state.replicas().filter(|(_, _, replica)| is_live(replica));
    let mut seats = BTreeMap::new();
    for (group, slot, replica) in live {
        let seat = (replica.assignment.node.clone(), replica.generation);
        let known = seats.entry((group.clone(), slot.key.clone())).or_insert_with(|| seat.clone());
        if known.1 < seat.1 {
            *known = seat;
        }
    }
    seats
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_model::{ServiceSpec, service::SpecHash};

    use super::*;

    /// What is said of `web`, which is so before and so after.
    fn said(before: Option<ServiceSpec>, after: Option<ServiceSpec>) -> ServicePlan {
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
    fn fields_are_named_as_in_a_manifest_with_what_they_cost_and_values_are_not_shown() {
        let before = ServiceSpec::default();
        let mut after = ServiceSpec { replicas: 3, spec_hash: SpecHash("other".into()), ..ServiceSpec::default() };
        after.container.environment.insert("KEY".to_owned(), Some("secret".to_owned()));
        let plan = said(Some(before), Some(after));
        assert_eq!(plan.change, ServiceChange::Destructive);
        assert_eq!(plan.fields, ["deploy.replicas", "environment.KEY"]);
        assert_eq!(plan.recreated_by, ["environment.KEY"]);
    }

    #[test]
    fn a_spec_that_only_counts_anew_is_in_place() {
        let before = ServiceSpec::default();
        let plan = said(Some(before.clone()), Some(ServiceSpec { replicas: 3, ..before.clone() }));
        assert_eq!((plan.change, plan.fields), (ServiceChange::InPlace, vec!["deploy.replicas".to_owned()]));
        assert_eq!(plan.recreated_by, [""; 0]);
        assert_eq!(said(Some(before.clone()), Some(before.clone())).change, ServiceChange::Unchanged);
        assert_eq!(said(None, Some(before)).change, ServiceChange::Added);
    }
}
