//! Reference filters: a naive second implementation of the specification's filters.
//!
//! Owns: the expected refusals of a node, in order. Must not touch: the scheduler's own filters.

use longshore_model::{
    Attribute, Constraint, GroupKey, Health, Intent, Node, NodeName, Operator, Reason, Reservation, ServiceSpec,
    Strategy,
    node::{Overlay, UseDegraded},
    service::{DeviceRequest, PoolSelector},
    volume::Sharing,
};
use longshore_store::State;

use super::reference_usage::{ReferenceUsage, reservation};

/// A service to be placed, and the usage it is checked against.
pub(super) struct ReferenceFilters<'a> {
    pub(super) state: &'a State,
    pub(super) usage: &'a ReferenceUsage,
    pub(super) key: &'a GroupKey,
    pub(super) spec: &'a ServiceSpec,
}

impl ReferenceFilters<'_> {
    /// Every refusal of a node, in order, each with its shortfall.
    pub(super) fn refusals(&self, node: &Node) -> Vec<(Reason, u64)> {
        let reservation = reservation(self.spec, &self.usage.config);
        let placement = &self.spec.placement;
        let is = |reason: Reason, refused: bool| refused.then_some((reason, 0));
        let platform = |wanted: &longshore_model::Platform| {
            (wanted.os.is_empty() || wanted.os == node.platform.os)
                && (wanted.arch.is_empty() || wanted.arch == node.platform.arch)
        };
        let installed =
            |plugin: &String| node.plugins.contains(plugin) || node.plugins.contains(&format!("{plugin}:latest"));
        let pinned = placement.strategy == Strategy::Hosts;
        [
            is(Reason::NoNodesActive, !takes_new_work(node)),
            is(Reason::CannotSatisfyHostPlacement, pinned && !placement.hosts.contains(&node.name)),
            is(Reason::PoolUnavailable, !pool_suits(&placement.pool, node)),
            is(Reason::VolumeHomeNodeOffline, self.a_home_is_offline(&reservation)),
            is(Reason::VolumeLocalityNoNode, self.homes(&reservation).any(|home| *home != node.name)),
            is(Reason::VolumeInUse, self.a_volume_is_held(&reservation)),
            is(Reason::ConstraintUnsatisfied, !placement.constraints.iter().all(|constraint| holds(constraint, node))),
            is(
                Reason::PlatformUnsupported,
                !placement.platforms.is_empty() && !placement.platforms.iter().any(platform),
            ),
            is(Reason::DriverMissing, !node.drivers.contains(&self.spec.driver)),
            is(Reason::PluginMissing, !placement.plugins.iter().all(installed)),
        ]
        .into_iter()
        .flatten()
        .chain(self.lacks(node, &reservation))
        .collect()
    }

    /// The refusals by the capacity filters.
    fn lacks(&self, node: &Node, reservation: &Reservation) -> Vec<(Reason, u64)> {
        let used_here = self.usage.on(&node.name);
        let placement = &self.spec.placement;
        let mut lacks = Vec::new();
        if reservation.host_ports.iter().any(|port| used_here.ports.contains(port)) {
            lacks.push((Reason::HostPortInUse, 0));
        }
        let most = match placement.strategy {
            Strategy::Hosts => Some(1),
            _ => placement.max_replicas_per_node.filter(|most| *most > 0),
        };
        if most.is_some_and(|most| self.usage.slots(self.key, &node.name) >= u64::from(most)) {
            lacks.push((Reason::MaxReplicasPerNode, 0));
        }
        let needed = reservation.memory_bytes + reservation.overhead_bytes;
        let there = node.capacity.memory_bytes.saturating_sub(node.reserved.memory_bytes);
        if used_here.memory_bytes + needed > there {
            lacks.push((Reason::NoCapacityMemory, needed.saturating_sub(there.saturating_sub(used_here.memory_bytes))));
        }
        if let Some(there) = node.capacity.disk_bytes
            && used_here.disk_bytes + reservation.disk_bytes > there
        {
            lacks.push((Reason::NoCapacityDisk, reservation.disk_bytes - there.saturating_sub(used_here.disk_bytes)));
        }
        for (kind, needed) in &reservation.devices {
            let there = node.capacity.devices.get(kind).copied().unwrap_or(0);
            let free = there.saturating_sub(used_here.devices.get(kind).copied().unwrap_or(0));
            if free < *needed {
                lacks.push((Reason::NoCapacityDevice, needed - free));
            }
        }
        let unserved = |request: &&DeviceRequest| used_here.serving(node, request).is_none();
        if let Some(request) = reservation.device_requests.iter().find(unserved)
            && lacks.last().is_none_or(|(reason, _)| *reason != Reason::NoCapacityDevice)
        {
            let most = used_here.suitable(node, request).into_values().max().unwrap_or(0);
            lacks.push((Reason::NoCapacityDevice, request.count - most));
        }
        if node.capacity.addresses.is_some_and(|limit| used_here.addresses >= limit) {
            lacks.push((Reason::IpamExhausted, 0));
        }
        lacks
    }

    /// Whether the node can take one more replica.
    pub(super) fn fits(&self, node: &Node) -> bool {
        self.refusals(node).is_empty()
    }

    fn homes<'a>(&'a self, reservation: &'a Reservation) -> impl Iterator<Item = &'a NodeName> {
        reservation.volumes.iter().filter_map(|held| self.usage.volumes.get(&held.key)?.home.as_ref())
    }

    fn a_home_is_offline(&self, reservation: &Reservation) -> bool {
        self.homes(reservation).any(|home| match self.state.node(home) {
            Some(home) => matches!(home.health, Health::Down | Health::Suspect),
            None => true,
        })
    }

    fn a_volume_is_held(&self, reservation: &Reservation) -> bool {
        reservation.volumes.iter().any(|wanted| {
            let Some(volume) = self.usage.volumes.get(&wanted.key) else { return false };
            let foreign = volume.owner.as_ref().is_some_and(|owner| *owner != self.key.deployment);
            volume.holders.iter().any(|(holder, _, sharing)| {
                foreign
                    || wanted.sharing == Sharing::Exclusive
                    || *sharing == Sharing::Exclusive
                    || holder.deployment != self.key.deployment
                    || holder == self.key
            })
        })
    }

    /// The reason of the first closed gate, given the quota limits.
    pub(super) fn gate(&self, one_more: [Option<u64>; 3]) -> Option<Reason> {
        let reservation = reservation(self.spec, &self.usage.config);
        let secret = |name: &longshore_model::SecretName| {
            self.state
                .events()
                .iter()
                .any(|event| matches!(event, longshore_model::Event::SecretSet { name: there, .. } if there == name))
        };
        if !self.spec.secrets_required.iter().all(secret) {
            return Some(Reason::SecretsMissing);
        }
        let mut homes: Vec<_> = self.homes(&reservation).collect();
        homes.sort();
        homes.dedup();
        if homes.len() > 1 {
            return Some(Reason::VolumeConstraintsInvalid);
        }
        let needed = [1, reservation.memory_bytes + reservation.overhead_bytes, reservation.cpu_millis];
        let over =
            |at: usize| one_more[at].is_some_and(|limit| needed[at] > 0 && self.usage.usage[at] + needed[at] > limit);
        (0..3).any(over).then_some(Reason::QuotaExceeded)
    }
}

fn takes_new_work(node: &Node) -> bool {
    let well =
        node.health == Health::Ready || (node.health == Health::Degraded && node.use_degraded == UseDegraded::Allowed);
    let memory = node.capacity.memory_bytes > node.reserved.memory_bytes;
    node.intent == Intent::Active && well && node.overlay == Overlay::Reachable && memory
}

fn pool_suits(wanted: &PoolSelector, node: &Node) -> bool {
    match wanted {
        PoolSelector::All => true,
        PoolSelector::Default => node.pool.as_str() == "default",
        PoolSelector::Named(pool) => node.pool == *pool,
    }
}

/// Whether a constraint holds, for the attributes and operators the tests use.
pub(super) fn holds(constraint: &Constraint, node: &Node) -> bool {
    let value = attribute(&constraint.attribute, node).map(|value| value.to_lowercase());
    let wanted = constraint.value.to_lowercase();
    match constraint.operator {
        Operator::Equal => value == Some(wanted),
        Operator::NotEqual => value != Some(wanted),
        Operator::IsSet => value.is_some(),
        Operator::IsNotSet => value.is_none(),
        Operator::In => value.is_some_and(|value| wanted.split(',').any(|one| one.trim() == value)),
        other => unreachable!("{other:?} is not drawn"),
    }
}

/// The node's value of an attribute.
pub(super) fn attribute(attribute: &Attribute, node: &Node) -> Option<String> {
    match attribute {
        Attribute::Id | Attribute::Hostname => Some(node.name.to_string()),
        Attribute::Role => Some(node.role.as_str().to_owned()),
        Attribute::Arch => Some(node.platform.arch.clone()),
        Attribute::Label(name) => node.labels.get(name).cloned(),
        Attribute::EngineLabel(name) => node.engine_labels.get(name).cloned(),
        other => unreachable!("{other} is not drawn"),
    }
}
