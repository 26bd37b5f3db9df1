//! A future, compared with the present, in the words of the API.
//!
//! Owns: what counts as a difference. Must not touch: how the future came about; that is `foresee`'s.
//! Invariant: a replica is named only if its node or its generation differs, so that no difference means nothing to do.

use std::collections::{BTreeMap, BTreeSet};

use longshore_api::{Changed, Headroom, ManifestPlan, Move, Pending, ServiceChange, ServicePlan, WhatIf};
use longshore_model::{
    DeploymentName, Evacuation, Generation, GroupKey, Health, Intent, NamespaceName, NodeName, ServiceSpec,
    replica::Wanted,
};
use longshore_store::{State, is_live};
use serde_json::Value;

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
    let names: BTreeSet<&GroupKey> =
        present.groups().chain(future.state.groups()).map(|(key, _)| key).filter(|key| ours(key)).collect();
    let services = names.into_iter().map(|key| service(present, &future.state, key, &moves, &pending));
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
        elsewhere,
        rest: future.rest,
        warnings,
    }
}

fn service(
    present: &State,
    future: &State,
    key: &GroupKey,
    moves: &BTreeMap<GroupKey, Vec<Move>>,
    pending: &[Pending],
) -> ServicePlan {
    let wanted = |state: &State| Some(wanted_spec(state, key)?.clone());
    let (before, after) = (wanted(present), wanted(future));
    let (change, fields) = compare(before.as_ref(), after.as_ref());
    let ours = |it: &&Pending| {
        (it.namespace.as_str(), it.deployment.as_str(), it.service.as_str())
            == (key.namespace.as_str(), key.deployment.as_str(), key.service.as_str())
    };
    ServicePlan {
        name: key.service.to_string(),
        change,
        fields,
        replicas: moves.get(key).cloned().unwrap_or_default(),
        pending: pending.iter().filter(ours).cloned().collect(),
    }
}

fn wanted_spec<'a>(state: &'a State, key: &GroupKey) -> Option<&'a ServiceSpec> {
    let group = state.group(key).filter(|group| group.wanted == Wanted::Run)?;
    Some(&group.spec)
}

fn compare(before: Option<&ServiceSpec>, after: Option<&ServiceSpec>) -> (ServiceChange, Vec<String>) {
    match (before, after) {
        (None, None) => (ServiceChange::Unchanged, Vec::new()),
        (None, Some(_)) => (ServiceChange::Added, Vec::new()),
        (Some(_), None) => (ServiceChange::Removed, Vec::new()),
        (Some(before), Some(after)) if before == after => (ServiceChange::Unchanged, Vec::new()),
        (Some(before), Some(after)) => {
            let change =
                if before.is_same_program(after) { ServiceChange::InPlace } else { ServiceChange::Destructive };
            let as_json = |spec: &ServiceSpec| serde_json::to_value(spec).unwrap_or_default();
            let mut fields = Vec::new();
            differences("", &as_json(before), &as_json(after), &mut fields);
            // The fingerprint differs because something else does.
            fields.retain(|field| field != "spec_hash");
            (change, fields)
        }
    }
}

/// Paths at which two values differ, as deep as both are objects.
fn differences(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let deeper = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let of = |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                differences(&deeper, &of(one), &of(other), found);
            }
        }
        (before, after) if before == after => {}
        _ => found.push(path.to_owned()),
    }
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
    let all: BTreeSet<&(GroupKey, String)> = before.keys().chain(after.keys()).collect();
    let mut moves: BTreeMap<GroupKey, Vec<Move>> = BTreeMap::new();
    for at in all {
        let (was, will_be) = (before.get(at), after.get(at));
        if was == will_be {
            continue;
        }
        let (group, replica) = at;
        moves.entry(group.clone()).or_default().push(Move {
            replica: replica.clone(),
            from: was.map(|(node, _)| node.to_string()),
            to: will_be.map(|(node, _)| node.to_string()),
            generation: will_be.map(|(_, generation)| generation.0),
        });
    }
    moves
}

/// The newest generation of every slot that has one to count on.
fn seats(state: &State) -> BTreeMap<(GroupKey, String), (NodeName, Generation)> {
    let live = state.replicas().filter(|(_, _, replica)| is_live(replica));
    let mut seats = BTreeMap::new();
    for (group, slot, replica) in live {
        let seat = (replica.assignment.node.clone(), replica.generation);
        let known = seats.entry((group.clone(), slot.key.printed(group))).or_insert_with(|| seat.clone());
        if known.1 < seat.1 {
            *known = seat;
        }
    }
    seats
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_named_as_deep_as_they_differ_and_values_are_not_shown() {
        let mut found = Vec::new();
        let before = json!({ "replicas": 1, "container": { "image": "a", "environment": { "KEY": "old" } } });
        let after = json!({ "replicas": 2, "container": { "image": "a", "environment": { "KEY": "new", "B": "" } } });
        differences("", &before, &after, &mut found);
        assert_eq!(found, ["container.environment.B", "container.environment.KEY", "replicas"]);
    }

    #[test]
    fn a_spec_that_only_counts_anew_is_in_place() {
        let before = ServiceSpec::default();
        let after = ServiceSpec { replicas: 3, ..ServiceSpec::default() };
        assert_eq!(compare(Some(&before), Some(&after)), (ServiceChange::InPlace, vec!["replicas".to_owned()]));
        assert_eq!(compare(Some(&before), Some(&before)).0, ServiceChange::Unchanged);
        assert_eq!(compare(None, Some(&after)).0, ServiceChange::Added);
    }
}
