//! The naive books: every sum is taken over all replicas of the state, every time.
//!
//! Owns: what each node carries, by the specification's words and not by the scheduler's indexes.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    ClusterConfig, DeploymentName, Event, GroupKey, Node, NodeName, ReplicaState, ServiceKind, ServiceSpec, SlotKey,
    Terms, Time, VolumeKey,
    device::TakenDevices,
    node::DeviceGroup,
    replica::{HeldVolume, HostPort, Replica, Wanted},
    service::{DeviceRequest, PortMode},
    volume::Sharing,
};
use longshore_store::State;

/// What one node carries.
#[derive(Clone, Debug, Default)]
pub(super) struct Carried {
    pub(super) memory_bytes: u64,
    pub(super) disk_bytes: u64,
    pub(super) cpu_millis: u64,
    /// Generations that shall run.
    pub(super) replicas: u64,
    pub(super) devices: BTreeMap<String, u64>,
    pub(super) ports: Vec<HostPort>,
    /// Addresses in use or resting.
    pub(super) addresses: u64,
}

impl Carried {
    /// What is left of the groups of a node that suit a request, by identity. No service is drawn that has two.
    pub(super) fn suitable<'a>(&'a self, node: &'a Node, request: &'a DeviceRequest) -> BTreeMap<String, u64> {
        let suits = |group: &&DeviceGroup| {
            let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
            let large = group.attributes["memory"] == "40" || request.constraints.is_empty();
            group.kind == request.kind && is(&request.vendor, &group.vendor) && is(&request.name, &group.name) && large
        };
        let left = |group: &DeviceGroup| {
            let id = format!("{}/{}/{}", group.vendor, group.kind, group.name);
            let used = self.devices.get(&id).copied().unwrap_or(0);
            (id, group.count.saturating_sub(used))
        };
        node.capacity.device_groups.iter().filter(suits).map(left).collect()
    }

    /// The group that serves a request: the first by identity with enough left.
    pub(super) fn serving(&self, node: &Node, request: &DeviceRequest) -> Option<String> {
        self.suitable(node, request).into_iter().find(|(_, left)| *left >= request.count).map(|(id, _)| id)
    }
}

/// A volume, where it lives and who holds it.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf {
    pub(super) home: Option<NodeName>,
    pub(super) owner: Option<DeploymentName>,
    pub(super) holders: Vec<(GroupKey, SlotKey, Sharing)>,
}

/// Everything that is carried.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) config: ClusterConfig,
    nodes: BTreeMap<NodeName, Carried>,
    pub(super) volumes: BTreeMap<VolumeKey, Shelf>,
    /// Slots of each group whose newest generation is on the node.
    counts: BTreeMap<(GroupKey, NodeName), u64>,
    /// Replicas, memory and CPU that count against the namespace.
    pub(super) usage: [u64; 3],
}

impl Ledger {
    pub(super) fn of(state: &State, now: Time) -> Self {
        let mut ledger = Self { config: state.config().clone(), ..Self::default() };
        for event in state.events() {
            match event {
                Event::VolumeMade(made) => {
                    let volume = ledger.volumes.entry(made.key).or_default();
                    (volume.home, volume.owner) = (Some(made.home), Some(made.owner));
                }
                Event::AddressResting { node, since, .. } if since.after(state.config().address_cooldown) > now => {
                    ledger.at(&node).addresses += 1;
                }
                _ => {}
            }
        }
        for (key, slot, replica) in state.replicas() {
            ledger.enter(key, &slot.key, replica);
            let current = slot.newest == replica.generation && replica.wanted == Wanted::Run;
            if slot.wanted == Wanted::Run && current {
                *ledger.counts.entry((key.clone(), replica.assignment.node.clone())).or_default() += 1;
            }
        }
        ledger
    }

    fn enter(&mut self, key: &GroupKey, slot: &SlotKey, replica: &Replica) {
        let node = replica.assignment.node.clone();
        self.at(&node).addresses += 1;
        let job = matches!(replica.assignment.terms.kind, ServiceKind::Batch | ServiceKind::Sysbatch);
        if job && replica.state == ReplicaState::Completed {
            return;
        }
        self.load(key, slot, &node, &replica.assignment.terms);
        self.take(&node, &replica.assignment.devices);
        if replica.wanted == Wanted::Run {
            self.count(&node, &replica.assignment.terms);
        }
    }

    fn load(&mut self, key: &GroupKey, slot: &SlotKey, node: &NodeName, terms: &Terms) {
        let carried = self.at(node);
        carried.memory_bytes += terms.memory_bytes + terms.overhead_bytes;
        carried.disk_bytes += terms.disk_bytes;
        carried.cpu_millis += terms.cpu_millis;
        carried.ports.extend(&terms.host_ports);
        for (kind, amount) in &terms.devices {
            *carried.devices.entry(kind.clone()).or_default() += amount;
        }
        for held in &terms.volumes {
            let volume = self.volumes.entry(held.key.clone()).or_default();
            volume.holders.push((key.clone(), slot.clone(), held.sharing));
        }
    }

    fn take(&mut self, node: &NodeName, devices: &TakenDevices) {
        for (id, amount) in devices {
            *self.at(node).devices.entry(id.clone()).or_default() += amount;
        }
    }

    fn count(&mut self, node: &NodeName, terms: &Terms) {
        self.at(node).replicas += 1;
        self.usage[0] += 1;
        self.usage[1] += terms.memory_bytes + terms.overhead_bytes;
        self.usage[2] += terms.cpu_millis;
    }

    /// Books one more replica, as a decision would; gives back the groups of devices taken.
    pub(super) fn book(&mut self, key: &GroupKey, slot: &SlotKey, node: &Node, terms: &Terms) -> TakenDevices {
        let serve = |request: &DeviceRequest| Some((self.on(&node.name).serving(node, request)?, request.count));
        let devices: TakenDevices = terms.device_requests.iter().filter_map(serve).collect();
        let node = &node.name;
        self.take(node, &devices);
        self.at(node).addresses += 1;
        *self.counts.entry((key.clone(), node.clone())).or_default() += 1;
        self.load(key, slot, node, terms);
        self.count(node, terms);
        for held in &terms.volumes {
            let volume = self.volumes.entry(held.key.clone()).or_default();
            if volume.home.is_none() {
                (volume.home, volume.owner) = (Some(node.clone()), Some(key.deployment.clone()));
            }
        }
        devices
    }

    fn at(&mut self, node: &NodeName) -> &mut Carried {
        self.nodes.entry(node.clone()).or_default()
    }

    pub(super) fn on(&self, node: &NodeName) -> Carried {
        self.nodes.get(node).cloned().unwrap_or_default()
    }

    /// Slots of a group on a node.
    pub(super) fn slots(&self, key: &GroupKey, node: &NodeName) -> u64 {
        self.counts.get(&(key.clone(), node.clone())).copied().unwrap_or(0)
    }
}

/// What a replica of a service is to be promised.
pub(super) fn terms(spec: &ServiceSpec, config: &ClusterConfig) -> Terms {
    let resources = &spec.resources;
    let volumes: BTreeSet<HeldVolume> = match spec.kind {
        ServiceKind::System | ServiceKind::Sysbatch => BTreeSet::new(),
        ServiceKind::Service | ServiceKind::Batch => {
            spec.volumes().map(|(key, sharing)| HeldVolume { key: key.clone(), sharing }).collect()
        }
    };
    let ports = spec.ports.iter().filter(|port| port.mode == PortMode::Host);
    let default = config.default_memory_bytes;
    Terms {
        cpu_millis: resources.cpu_reservation_millis.or(resources.cpu_limit_millis).unwrap_or(0),
        memory_bytes: resources.memory_limit_bytes.or(resources.memory_reservation_bytes).unwrap_or(default),
        overhead_bytes: config.overhead_bytes(spec.driver),
        disk_bytes: config.default_ephemeral_disk_bytes,
        devices: resources.devices.clone(),
        device_requests: resources.device_requests.clone(),
        host_ports: ports
            .filter_map(|port| Some(HostPort { protocol: port.protocol, port: port.published? }))
            .collect(),
        volumes: volumes.into_iter().collect(),
        spec_hash: spec.spec_hash.clone(),
        kind: spec.kind,
        ..Terms::default()
    }
}
