//! Who may run it, written a second time: the filters of the specification, one line of thought each.
//!
//! Owns: the reasons for which a node is refused, in order. Must not touch: the scheduler's own filters.

use longshore_model::{
    Attribute, Constraint, GroupKey, Health, Intent, Node, NodeName, Operator, Reason, ServiceSpec, Strategy, Terms,
    node::{Overlay, UseDegraded},
    service::{DeviceRequest, PoolWanted},
    volume::Sharing,
};
use longshore_store::State;

use super::ledger::{Ledger, terms};

/// A service that asks, and the books it asks against.
pub(super) struct Question<'a> {
    pub(super) state: &'a State,
    pub(super) ledger: &'a Ledger,
    pub(super) key: &'a GroupKey,
    pub(super) spec: &'a ServiceSpec,
}

impl Question<'_> {
    /// Every reason against a node, in order, each with how much is lacking.
    pub(super) fn refusals(&self, node: &Node) -> Vec<(Reason, u64)> {
        let terms = terms(self.spec, &self.ledger.config);
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
            is(Reason::VolumeHomeNodeOffline, self.a_home_is_away(&terms)),
            is(Reason::VolumeLocalityNoNode, self.homes(&terms).any(|home| *home != node.name)),
            is(Reason::VolumeInUse, self.a_volume_is_held(&terms)),
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
        .chain(self.lacks(node, &terms))
        .collect()
    }

    /// The reasons that are a matter of room.
    fn lacks(&self, node: &Node, terms: &Terms) -> Vec<(Reason, u64)> {
        let carried = self.ledger.on(&node.name);
        let placement = &self.spec.placement;
        let mut lacks = Vec::new();
        if terms.host_ports.iter().any(|port| carried.ports.contains(port)) {
            lacks.push((Reason::HostPortInUse, 0));
        }
        let most = match placement.strategy {
            Strategy::Hosts => Some(1),
            _ => placement.max_replicas_per_node.filter(|most| *most > 0),
        };
        if most.is_some_and(|most| self.ledger.slots(self.key, &node.name) >= u64::from(most)) {
            lacks.push((Reason::MaxReplicasPerNode, 0));
        }
        let needed = terms.memory_bytes + terms.overhead_bytes;
        let there = node.capacity.memory_bytes.saturating_sub(node.reserved.memory_bytes);
        if carried.memory_bytes + needed > there {
            lacks.push((Reason::NoCapacityMemory, needed.saturating_sub(there.saturating_sub(carried.memory_bytes))));
        }
        if let Some(there) = node.capacity.disk_bytes
            && carried.disk_bytes + terms.disk_bytes > there
        {
            lacks.push((Reason::NoCapacityDisk, terms.disk_bytes - there.saturating_sub(carried.disk_bytes)));
        }
        for (kind, needed) in &terms.devices {
            let there = node.capacity.devices.get(kind).copied().unwrap_or(0);
            let free = there.saturating_sub(carried.devices.get(kind).copied().unwrap_or(0));
            if free < *needed {
                lacks.push((Reason::NoCapacityDevice, needed - free));
            }
        }
        let unserved = |request: &&DeviceRequest| carried.serving(node, request).is_none();
        if let Some(request) = terms.device_requests.iter().find(unserved)
            && lacks.last().is_none_or(|(reason, _)| *reason != Reason::NoCapacityDevice)
        {
            let most = carried.suitable(node, request).into_values().max().unwrap_or(0);
            lacks.push((Reason::NoCapacityDevice, request.count - most));
        }
        if node.capacity.addresses.is_some_and(|limit| carried.addresses >= limit) {
            lacks.push((Reason::IpamExhausted, 0));
        }
        lacks
    }

    /// Whether the node can take one more.
    pub(super) fn fits(&self, node: &Node) -> bool {
        self.refusals(node).is_empty()
    }

    fn homes<'a>(&'a self, terms: &'a Terms) -> impl Iterator<Item = &'a NodeName> {
        terms.volumes.iter().filter_map(|held| self.ledger.volumes.get(&held.key)?.home.as_ref())
    }

    fn a_home_is_away(&self, terms: &Terms) -> bool {
        self.homes(terms).any(|home| match self.state.node(home) {
            Some(home) => matches!(home.health, Health::Down | Health::Suspect),
            None => true,
        })
    }

    fn a_volume_is_held(&self, terms: &Terms) -> bool {
        terms.volumes.iter().any(|wanted| {
            let Some(volume) = self.ledger.volumes.get(&wanted.key) else { return false };
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

    /// The first reason for which no node is considered at all.
    pub(super) fn gate(&self, one_more: [Option<u64>; 3]) -> Option<Reason> {
        let terms = terms(self.spec, &self.ledger.config);
        let secret = |name: &longshore_model::SecretName| {
            self.state
                .events()
                .iter()
                .any(|event| matches!(event, longshore_model::Event::SecretSet { name: there, .. } if there == name))
        };
        if !self.spec.secrets_required.iter().all(secret) {
            return Some(Reason::SecretsMissing);
        }
        let mut homes: Vec<_> = self.homes(&terms).collect();
        homes.sort();
        homes.dedup();
        if homes.len() > 1 {
            return Some(Reason::VolumeConstraintsInvalid);
        }
        let needed = [1, terms.memory_bytes + terms.overhead_bytes, terms.cpu_millis];
        let over =
            |at: usize| one_more[at].is_some_and(|limit| needed[at] > 0 && self.ledger.usage[at] + needed[at] > limit);
        (0..3).any(over).then_some(Reason::QuotaExceeded)
    }
}

fn takes_new_work(node: &Node) -> bool {
    let well =
        node.health == Health::Ready || (node.health == Health::Degraded && node.use_degraded == UseDegraded::Yes);
    let memory = node.capacity.memory_bytes > node.reserved.memory_bytes;
    let cpu = node.capacity.cpu_millis > node.reserved.cpu_millis;
    node.intent == Intent::Active && well && node.overlay == Overlay::Reachable && (memory || cpu)
}

fn pool_suits(wanted: &PoolWanted, node: &Node) -> bool {
    match wanted {
        PoolWanted::All => true,
        PoolWanted::Default => node.pool.as_str() == "default",
        PoolWanted::Named(pool) => node.pool == *pool,
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

/// What a node has for an attribute.
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
