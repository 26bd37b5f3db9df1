//! What two things of the cluster may not share: ports, printed ids, a volume among several replicas.
//!
//! Owns: the refusals that need the whole cluster to be seen.
//! Must not touch: anything a placement filter can answer; a refusal here is final, a filter's is "not now".
//! Invariant: checks come before the first change, so a refused manifest leaves no trace.

use std::collections::BTreeMap;

use longshore_model::{
    GroupKey, NodeName, ServiceName, ServiceSpec, Strategy,
    replica::Wanted,
    service::{PortMode, Protocol},
};

use crate::{CommandError, State};

/// Whether a service runs by node rather than by count.
pub(crate) fn runs_per_node(spec: &ServiceSpec) -> bool {
    spec.kind.is_per_node() || spec.placement.strategy == Strategy::Global
}

/// A service that mounts a named volume has at most one replica, unless it has one volume per node.
pub(crate) fn volumes_allow(service: &ServiceName, spec: &ServiceSpec, replicas: u32) -> Result<(), CommandError> {
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

/// Cluster-wide ports are unique per transport, also within one manifest.
pub(crate) fn ingress_ports_are_free(
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

/// Wanted groups that the manifest neither changes nor drops.
fn others<'a>(
    state: &'a State,
    groups: &'a BTreeMap<GroupKey, &ServiceSpec>,
) -> impl Iterator<Item = (&'a GroupKey, &'a crate::Group)> {
    let deployment = groups.keys().next().map(|key| (&key.namespace, &key.deployment));
    state.groups.iter().filter(move |(key, group)| {
        group.wanted == Wanted::Run && deployment != Some((&key.namespace, &key.deployment))
    })
}

/// No replica of the manifest could print like one of another group, given the nodes there are.
pub(crate) fn printed_ids_stay_apart(
    state: &State,
    groups: &BTreeMap<GroupKey, &ServiceSpec>,
) -> Result<(), CommandError> {
    // Groups that linger still print ids, so they count here, unlike with ports.
    let mut known: Vec<Printed> = state
        .groups
        .iter()
        .filter(|(key, _)| !groups.contains_key(key))
        .map(|(key, g)| Printed::of(key, &g.spec))
        .collect();
    let nodes: Vec<&NodeName> = state.nodes.keys().collect();
    for (key, spec) in groups {
        let printed = Printed::of(key, spec);
        for other in &known {
            printed.apart_from(other, &nodes)?;
        }
        known.push(printed);
    }
    Ok(())
}

/// A node that joins could give a global replica the printed id of another service's replica.
pub(crate) fn node_keeps_printed_ids_apart(state: &State, node: &NodeName) -> Result<(), CommandError> {
    if !state.groups.values().any(|group| runs_per_node(&group.spec)) {
        return Ok(());
    }
    let nodes: Vec<&NodeName> = state.nodes.keys().chain([node]).collect();
    let known: Vec<Printed> = state.groups.iter().map(|(key, group)| Printed::of(key, &group.spec)).collect();
    for global in known.iter().filter(|printed| printed.per_node) {
        for other in known.iter().filter(|other| other.key != global.key) {
            global.apart_from(other, &nodes)?;
        }
    }
    Ok(())
}

/// A group and the beginning of every id its replicas print.
struct Printed {
    key: GroupKey,
    prefix: String,
    per_node: bool,
}

impl Printed {
    fn of(key: &GroupKey, spec: &ServiceSpec) -> Self {
        Self { key: key.clone(), prefix: format!("{key}-"), per_node: runs_per_node(spec) }
    }

    fn apart_from(&self, other: &Self, nodes: &[&NodeName]) -> Result<(), CommandError> {
        let (short, long) = if self.prefix.len() <= other.prefix.len() { (self, other) } else { (other, self) };
        let Some(between) = long.prefix.strip_prefix(short.prefix.as_str()) else {
            return Ok(());
        };
        let printed = if between.is_empty() {
            Some(format!("{}0", short.prefix))
        } else if short.per_node {
            // `a-web-<node>` meets `a-web-x-<tail>` only where a node is called `x-<tail>`. An index has no dash, so
            // counted services with unlike prefixes never meet.
            nodes
                .iter()
                .find(|node| node.as_str().strip_prefix(between).is_some_and(|tail| long.could_end_with(tail, nodes)))
                .map(|node| format!("{}{node}", short.prefix))
        } else {
            None
        };
        match printed {
            Some(printed) => {
                Err(CommandError::PrintedIdTaken { group: self.key.clone(), other: other.key.clone(), printed })
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
