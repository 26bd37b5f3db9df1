//! Reference usage: every sum is computed over all replicas of the state, every time.
//!
//! Owns: the resources used on each node, computed from the specification and not from the scheduler's indexes.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    ClusterConfig, DeploymentName, Event, GroupKey, Node, NodeName, ReplicaState, Reservation, ServiceKind,
    ServiceSpec, SlotKey, Time, VolumeKey,
    device::TakenDevices,
    node::DeviceGroup,
    replica::{DesiredState, HeldVolume, HostPort, Replica},
    service::{DeviceRequest, PortMode},
    volume::Sharing,
};
use longshore_store::State;

/// The resources used on one node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeUsage {
    pub(super) memory_bytes: u64,
    pub(super) disk_bytes: u64,
    pub(super) cpu_millis: u64,
    /// Generations that shall run.
    pub(super) replicas: u64,
    pub(super) devices: BTreeMap<String, u64>,
    pub(super) ports: Vec<HostPort>,
    /// Addresses in use or in cooldown.
    pub(super) addresses: u64,
}

impl NodeUsage {
    /// Free devices in the groups of a node that match a request, by id. No random service has two requests.
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

    /// The group that serves a request: the first by id with enough free.
    pub(super) fn serving(&self, node: &Node, request: &DeviceRequest) -> Option<String> {
        self.suitable(node, request).into_iter().find(|(_, left)| *left >= request.count).map(|(id, _)| id)
    }
}

/// A volume with its home node and holders.
#[derive(Clone, Debug, Default)]
pub(super) struct VolumeUse {
    pub(super) home: Option<NodeName>,
    pub(super) owner: Option<DeploymentName>,
    pub(super) holders: Vec<(GroupKey, SlotKey, Sharing)>,
}

/// The usage of the whole cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct ReferenceUsage {
    pub(super) config: ClusterConfig,
    nodes: BTreeMap<NodeName, NodeUsage>,
    pub(super) volumes: BTreeMap<VolumeKey, VolumeUse>,
    /// Slots of each group whose newest generation is on the node.
    counts: BTreeMap<(GroupKey, NodeName), u64>,
    /// Replicas, memory and CPU that count against the quota.
    pub(super) usage: [u64; 3],
}

impl ReferenceUsage {
    pub(super) fn of(state: &State, now: Time) -> Self {
        let mut usage = Self { config: state.config().clone(), ..Self::default() };
        for event in state.events() {
            match event {
                Event::VolumeCreated(made) => {
                    let volume = usage.volumes.entry(made.key).or_default();
                    (volume.home, volume.owner) = (Some(made.home), Some(made.owner));
                }
                Event::AddressCoolingDown { node, since, .. } if since.after(state.config().address_cooldown) > now => {
                    usage.at(&node).addresses += 1;
                }
                _ => {}
            }
        }
        for (key, slot, replica) in state.replicas() {
            usage.enter(key, &slot.key, replica);
            let current = slot.newest == replica.generation && replica.desired == DesiredState::Run;
            if slot.desired == DesiredState::Run && current {
                *usage.counts.entry((key.clone(), replica.assignment.node.clone())).or_default() += 1;
            }
        }
        usage
    }

    fn enter(&mut self, key: &GroupKey, slot: &SlotKey, replica: &Replica) {
        let node = replica.assignment.node.clone();
        self.at(&node).addresses += 1;
        let job = matches!(replica.assignment.reservation.kind, ServiceKind::Batch | ServiceKind::Sysbatch);
        if job && replica.state == ReplicaState::Completed {
            return;
        }
        self.load(key, slot, &node, &replica.assignment.reservation);
        self.take(&node, &replica.assignment.devices);
        if replica.desired == DesiredState::Run {
            self.count(&node, &replica.assignment.reservation);
        }
    }

    fn load(&mut self, key: &GroupKey, slot: &SlotKey, node: &NodeName, reservation: &Reservation) {
        let used_here = self.at(node);
        used_here.memory_bytes += reservation.memory_bytes + reservation.overhead_bytes;
        used_here.disk_bytes += reservation.disk_bytes;
        used_here.cpu_millis += reservation.cpu_millis;
        used_here.ports.extend(&reservation.host_ports);
        for (kind, amount) in &reservation.devices {
            *used_here.devices.entry(kind.clone()).or_default() += amount;
        }
        for held in &reservation.volumes {
            let volume = self.volumes.entry(held.key.clone()).or_default();
            volume.holders.push((key.clone(), slot.clone(), held.sharing));
        }
    }

    fn take(&mut self, node: &NodeName, devices: &TakenDevices) {
        for (id, amount) in devices {
            *self.at(node).devices.entry(id.clone()).or_default() += amount;
        }
    }

    fn count(&mut self, node: &NodeName, reservation: &Reservation) {
        self.at(node).replicas += 1;
        self.usage[0] += 1;
        self.usage[1] += reservation.memory_bytes + reservation.overhead_bytes;
        self.usage[2] += reservation.cpu_millis;
    }

    /// Adds one replica, as a placement would; returns the device groups it takes.
    pub(super) fn book(
        &mut self,
        key: &GroupKey,
        slot: &SlotKey,
        node: &Node,
        reservation: &Reservation,
    ) -> TakenDevices {
        let serve = |request: &DeviceRequest| Some((self.on(&node.name).serving(node, request)?, request.count));
        let devices: TakenDevices = reservation.device_requests.iter().filter_map(serve).collect();
        let node = &node.name;
        self.take(node, &devices);
        self.at(node).addresses += 1;
        *self.counts.entry((key.clone(), node.clone())).or_default() += 1;
        self.load(key, slot, node, reservation);
        self.count(node, reservation);
        for held in &reservation.volumes {
            let volume = self.volumes.entry(held.key.clone()).or_default();
            if volume.home.is_none() {
                (volume.home, volume.owner) = (Some(node.clone()), Some(key.deployment.clone()));
            }
        }
        devices
    }

    fn at(&mut self, node: &NodeName) -> &mut NodeUsage {
        self.nodes.entry(node.clone()).or_default()
    }

    pub(super) fn on(&self, node: &NodeName) -> NodeUsage {
        self.nodes.get(node).cloned().unwrap_or_default()
    }

    /// Slots of a group on a node.
    pub(super) fn slots(&self, key: &GroupKey, node: &NodeName) -> u64 {
        self.counts.get(&(key.clone(), node.clone())).copied().unwrap_or(0)
    }
}

/// The reservation of a replica of a service.
pub(super) fn reservation(spec: &ServiceSpec, config: &ClusterConfig) -> Reservation {
    let resources = &spec.resources;
    let volumes: BTreeSet<HeldVolume> = match spec.kind {
        ServiceKind::System | ServiceKind::Sysbatch => BTreeSet::new(),
        ServiceKind::Service | ServiceKind::Batch => {
            spec.volumes().map(|(key, sharing)| HeldVolume { key: key.clone(), sharing }).collect()
        }
    };
    let ports = spec.ports.iter().filter(|port| port.mode == PortMode::Host);
    let default = config.default_memory_bytes;
    Reservation {
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
        ..Reservation::default()
    }
}
