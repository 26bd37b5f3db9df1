//! Conflicts between services: ingress ports, replica ids, and a named volume shared by several replicas.
//!
//! Owns: the refusals that need the whole cluster state.
//! Must not touch: anything a placement filter can answer. A refusal here is final; a filter's refusal can change
//! later.
//! Invariant: all checks run before the first change, so a refused manifest changes nothing.

use std::collections::BTreeMap;

use longshore_model::{
    GroupKey, NodeName, ServiceName, ServiceSpec,
    replica::DesiredState,
    service::{PortMode, Protocol},
};

use crate::{CommandError, State};

/// Whether a service runs one replica per node instead of a fixed count.
pub(crate) fn runs_per_node(spec: &ServiceSpec) -> bool {
    spec.kind.is_per_node() || spec.placement.strategy.is_per_node()
}

/// Refuses several replicas of a service that mounts a named volume, unless each node has its own volume.
pub(crate) fn check_volume_replicas(
    service: &ServiceName,
    spec: &ServiceSpec,
    replicas: u32,
) -> Result<(), CommandError> {
    if replicas <= 1 || runs_per_node(spec) {
        return Ok(());
    }
    match spec.volumes().next() {
        Some((volume, _)) => {
            Err(CommandError::VolumeNeedsOneReplica { service: service.clone(), volume: volume.clone(), replicas })
        }
        None => Ok(()),
    }
}

/// Refuses ingress ports that another service publishes with the same protocol, also within the manifest.
pub(crate) fn check_ingress_ports_free(
    state: &State,
    groups: &BTreeMap<GroupKey, &ServiceSpec>,
) -> Result<(), CommandError> {
    let mut holders: BTreeMap<(u16, Protocol), GroupKey> = BTreeMap::new();
    for (key, group) in others(state, groups) {
        for port in ingress_ports(&group.spec) {
            holders.insert(port, key.clone());
        }
    }
    for (key, spec) in groups {
        for (port, protocol) in ingress_ports(spec) {
            match holders.get(&(port, protocol)) {
                Some(holder) if holder != key => {
                    let (service, holder) = (key.service.clone(), holder.clone());
                    return Err(CommandError::IngressPortTaken { service, port, protocol, holder });
                }
                Some(_) => {}
                None => {
                    holders.insert((port, protocol), key.clone());
                }
            }
        }
    }
    Ok(())
}

fn ingress_ports(spec: &ServiceSpec) -> impl Iterator<Item = (u16, Protocol)> {
    spec.ports
        .iter()
        .filter(|port| port.mode == PortMode::Ingress)
        .filter_map(|port| port.published.map(|published| (published, port.protocol)))
}

/// Running groups of other deployments.
fn others<'a>(
    state: &'a State,
    groups: &'a BTreeMap<GroupKey, &ServiceSpec>,
) -> impl Iterator<Item = (&'a GroupKey, &'a crate::Group)> {
    let deployment = groups.keys().next().map(|key| (&key.namespace, &key.deployment));
    state.groups.iter().filter(move |(key, group)| {
        group.desired == DesiredState::Run && deployment != Some((&key.namespace, &key.deployment))
    })
}

/// Refuses a manifest if one of its replicas could have the same id as a replica of another group, given the current
/// nodes.
pub(crate) fn check_replica_ids_unique(
    state: &State,
    groups: &BTreeMap<GroupKey, &ServiceSpec>,
) -> Result<(), CommandError> {
    // Removed groups count as well while they have slots, because their replicas keep their ids.
    let mut known: Vec<ReplicaIdPrefix> = state
        .groups
        .iter()
        .filter(|(key, _)| !groups.contains_key(key))
        .map(|(key, g)| ReplicaIdPrefix::of(key, &g.spec))
        .collect();
    let nodes: Vec<&NodeName> = state.nodes.keys().collect();
    for (key, spec) in groups {
        let printed = ReplicaIdPrefix::of(key, spec);
        for other in &known {
            printed.check_differs_from(other, &nodes)?;
        }
        known.push(printed);
    }
    Ok(())
}

/// Refuses a node whose name would give a global replica the id of another service's replica.
pub(crate) fn check_join_keeps_replica_ids_unique(state: &State, node: &NodeName) -> Result<(), CommandError> {
    if !state.groups.values().any(|group| runs_per_node(&group.spec)) {
        return Ok(());
    }
    let nodes: Vec<&NodeName> = state.nodes.keys().chain([node]).collect();
    let known: Vec<ReplicaIdPrefix> =
        state.groups.iter().map(|(key, group)| ReplicaIdPrefix::of(key, &group.spec)).collect();
    for global in known.iter().filter(|printed| printed.per_node) {
        for other in known.iter().filter(|other| other.key != global.key) {
            global.check_differs_from(other, &nodes)?;
        }
    }
    Ok(())
}

/// The prefix of all replica ids of a group.
struct ReplicaIdPrefix {
    key: GroupKey,
    prefix: String,
    per_node: bool,
}

impl ReplicaIdPrefix {
    fn of(key: &GroupKey, spec: &ServiceSpec) -> Self {
        Self { key: key.clone(), prefix: format!("{key}-"), per_node: runs_per_node(spec) }
    }

    fn check_differs_from(&self, other: &Self, nodes: &[&NodeName]) -> Result<(), CommandError> {
        let (short, long) = if self.prefix.len() <= other.prefix.len() { (self, other) } else { (other, self) };
        let Some(between) = long.prefix.strip_prefix(short.prefix.as_str()) else {
            return Ok(());
        };
        let printed = if between.is_empty() {
            Some(format!("{}0", short.prefix))
        } else if short.per_node {
            // `a-web-<node>` equals `a-web-x-<tail>` only if a node is named `x-<tail>`. An index contains no dash, so
            // replicated services with different prefixes never conflict.
            nodes
                .iter()
                .find(|node| node.as_str().strip_prefix(between).is_some_and(|tail| long.could_end_with(tail, nodes)))
                .map(|node| format!("{}{node}", short.prefix))
        } else {
            None
        };
        match printed {
            Some(printed) => {
                Err(CommandError::ReplicaIdConflict { group: self.key.clone(), other: other.key.clone(), printed })
            }
            None => Ok(()),
        }
    }

    fn could_end_with(&self, tail: &str, nodes: &[&NodeName]) -> bool {
        if self.per_node {
            nodes.iter().any(|node| node.as_str() == tail)
        } else {
            !tail.is_empty() && tail.bytes().all(|byte| byte.is_ascii_digit())
        }
    }
}
