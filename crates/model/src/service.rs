//! The resolved and validated spec of a deployment and its services.
//!
//! Owns: the spec of a service in the terms of the scheduler and the drivers.
//! Must not touch: manifest syntax; the `compose` crate parses it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

pub use crate::device::{DeviceAffinity, DeviceConstraint, DeviceRequest};
pub use crate::placement_spec::{
    Affinity, Batching, Companion, DistinctProperty, PlacementSpec, PoolSelector, SpreadTarget, Strategy, Strength,
};
pub use crate::policy::{
    AfterExhaustion, Canary, DelayFunction, Disconnect, FailureAction, Promotion, Rebalance, Reconcile, Replace,
    Reschedule, RestartCondition, RestartPolicy, UpdateOrder, UpdatePolicy,
};

use crate::{
    DeploymentName, Driver, GroupKey, NamespacePolicy, NodeName, Reservation, ResolvedImage, SecretName, ServiceName,
    VolumeKey, container::ContainerSpec, volume::Sharing,
};

/// One resolved manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentSpec {
    /// Its services.
    pub services: BTreeMap<ServiceName, Arc<ServiceSpec>>,
    /// Its networks, by their key in the manifest.
    #[serde(default)]
    pub networks: BTreeMap<String, NetworkSpec>,
    /// How its volumes are created, by the volume's name in the engine.
    #[serde(default)]
    pub volumes: BTreeMap<String, VolumeSpec>,
    /// Routes of external requests.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// What the namespace's policy allowed when the manifest was applied; nodes check it again. `None` for a manifest
    /// that was applied without a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Arc<NamespacePolicy>>,
}

impl DeploymentSpec {
    /// Whether both are the same manifest, whatever policy they were applied under.
    pub fn is_same_manifest(&self, other: &Self) -> bool {
        let Self { services, networks, volumes, routes, granted: _ } = self;
        (services, networks, volumes, routes) == (&other.services, &other.networks, &other.volumes, &other.routes)
    }
}

/// A network of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSpec {
    /// Its name in the engine.
    pub name: String,
    /// Network driver, where one is named.
    pub driver: Option<String>,
    /// Options of the driver.
    pub options: BTreeMap<String, String>,
    /// Labels on the network.
    pub labels: BTreeMap<String, String>,
    /// Who creates it and whether it has external access.
    pub reach: NetworkReach,
    /// Whether names on it resolve to IPv6 addresses, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable_ipv6: bool,
}

/// Who creates a network and whether it has external access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkReach {
    /// Created for the deployment, with external access.
    #[default]
    Open,
    /// Created for the deployment, without external access.
    Internal,
    /// Exists already; not managed by the deployment.
    External,
}

/// What the name of a service resolves to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointMode {
    /// Its VIP.
    #[default]
    Vip,
    /// Its replicas.
    Dnsrr,
}

impl EndpointMode {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands the field in by reference")]
    const fn is_default(&self) -> bool {
        matches!(self, Self::Vip)
    }
}

/// How a volume is created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpec {
    /// Volume driver, where one is named.
    pub driver: Option<String>,
    /// Options of the driver.
    pub options: BTreeMap<String, String>,
    /// Labels on the volume.
    pub labels: BTreeMap<String, String>,
    /// Whether it must exist already and is not managed by the deployment.
    pub external: bool,
    /// Its name in the engine, where the manifest names it or the volume was adopted; else the driver derives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_name: Option<String>,
    /// The node that has its data already: an adopted volume is at home there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_on: Option<NodeName>,
}

/// Requests for a domain and path that go to a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// Host name of the request.
    pub domain: String,
    /// Prefix of the path; empty matches every path.
    pub path: String,
    /// The target service.
    pub service: ServiceName,
    /// The target port.
    pub port: u16,
    /// Whether a certificate is obtained.
    pub tls: RouteTls,
    /// Whether the prefix is removed before forwarding.
    pub strip_path: bool,
}

/// Whether a route is served with a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteTls {
    /// A certificate is obtained and renewed.
    #[default]
    Auto,
    /// Plain HTTP.
    Off,
}

/// Most replicas of a service. A typing error must not exhaust the control plane's memory; a real service with more is
/// better split into several.
pub const MAX_REPLICAS: u32 = 1_000_000;

/// One resolved service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpec {
    /// Replicated or per node, service or job.
    pub kind: ServiceKind,
    /// Desired replicas; 1 by default, ignored for `system` and `sysbatch`.
    pub replicas: u32,
    /// What to run.
    pub container: ContainerSpec,
    /// What starts it.
    pub driver: Driver,
    /// Resource limits and reservations.
    pub resources: Resources,
    /// Published ports.
    pub ports: Vec<Port>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Secrets that must exist before anything is placed.
    pub secrets_required: BTreeSet<SecretName>,
    /// Where it may and should run.
    pub placement: PlacementSpec,
    /// 0 to 100; higher is placed first.
    pub priority: u8,
    /// How rollouts proceed.
    pub update: UpdatePolicy,
    /// What happens when a replica ends.
    pub restart: RestartPolicy,
    /// How rollbacks proceed; `None` is as `update`.
    #[serde(default)]
    pub rollback: Option<UpdatePolicy>,
    /// Slots that are changed first in a rollout.
    #[serde(default)]
    pub canary: Canary,
    /// What happens when its node is unreachable.
    #[serde(default)]
    pub disconnect: Disconnect,
    /// What happens when restarts are exhausted; `None` gives up.
    #[serde(default)]
    pub reschedule: Option<Reschedule>,
    /// Whether a rebalance may move running replicas.
    #[serde(default)]
    pub rebalance: Rebalance,
    /// Replicas of a job that run at the same time; `None` is all.
    #[serde(default)]
    pub max_concurrent: Option<u32>,
    /// Services that must be ready first.
    #[serde(default)]
    pub depends_on: BTreeMap<ServiceName, Dependency>,
    /// Networks it is attached to, by their key in the manifest.
    #[serde(default)]
    pub networks: BTreeMap<String, Attachment>,
    /// What its name resolves to.
    #[serde(default, skip_serializing_if = "EndpointMode::is_default")]
    pub endpoint_mode: EndpointMode,
    /// Labels on the service itself, not on its containers.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Hash of everything that is fixed when a replica is created.
    pub spec_hash: SpecHash,
    /// What the image reference was resolved to when the manifest was applied; `None` if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_image: Option<ResolvedImage>,
    /// The service that this one-off job runs a command of; `None` for a service of a manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_off: Option<OneOff>,
}

/// The service that a one-off job (`longshore run`) was made from. The job is a deployment of its own in the same
/// namespace; it shares the volumes and networks of that deployment, is never run a second time, and is not reached
/// under the service's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneOff {
    /// The deployment.
    pub of: DeploymentName,
    /// The service in it.
    pub service: ServiceName,
}

/// What replicas are created from: equal programs need no replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    /// Hash of the spec's text.
    pub spec_hash: &'a SpecHash,
    /// The image it was resolved to.
    pub resolved_image: Option<&'a ResolvedImage>,
    /// Kind of the service.
    pub kind: ServiceKind,
}

impl Default for ServiceSpec {
    fn default() -> Self {
        Self {
            kind: ServiceKind::Service,
            replicas: 1,
            container: ContainerSpec::default(),
            driver: Driver::Docker,
            resources: Resources::default(),
            ports: Vec::new(),
            mounts: Vec::new(),
            secrets_required: BTreeSet::new(),
            placement: PlacementSpec::default(),
            priority: 50,
            update: UpdatePolicy::default(),
            restart: RestartPolicy::default(),
            rollback: None,
            canary: Canary::default(),
            disconnect: Disconnect::default(),
            reschedule: None,
            rebalance: Rebalance::default(),
            max_concurrent: None,
            depends_on: BTreeMap::new(),
            networks: BTreeMap::new(),
            endpoint_mode: EndpointMode::default(),
            labels: BTreeMap::new(),
            spec_hash: SpecHash::default(),
            resolved_image: None,
            one_off: None,
        }
    }
}

impl ServiceSpec {
    /// Whether a replica with exhausted restarts moves to another node: it has a `reschedule`, and neither its data nor its
    /// kind binds it to its node.
    pub fn is_rescheduled(&self) -> bool {
        self.reschedule.is_some() && !self.kind.is_per_node() && !self.is_stateful()
    }

    /// Whether an exit of a replica can be its end: it is a job's, or its restart policy accepts it.
    pub const fn may_end(&self) -> bool {
        self.kind.is_job() || self.restart.may_complete()
    }

    /// Whether a replica with exhausted restarts starts again by itself after a pause. A job does not.
    pub fn returns_after_exhaustion(&self) -> bool {
        let returns = match self.restart.after_exhaustion {
            AfterExhaustion::GiveUp => false,
            AfterExhaustion::Return => true,
        };
        returns && !self.is_rescheduled() && !self.kind.is_job()
    }

    /// The group of a service in its `depends_on`: of its own deployment, or for a one-off job of the one it was made
    /// from.
    pub fn dependency_key(&self, group: &GroupKey, service: &ServiceName) -> GroupKey {
        let sibling = group.sibling(service);
        match &self.one_off {
            Some(job) => GroupKey { deployment: job.of.clone(), ..sibling },
            None => sibling,
        }
    }

    /// The deployment whose secrets it may use: its own, or for a one-off job the one it was made from.
    pub fn secrets_deployment<'a>(&'a self, own: &'a DeploymentName) -> &'a DeploymentName {
        self.one_off.as_ref().map_or(own, |job| &job.of)
    }

    /// Whether its replicas have networks of their own in the overlay, and the service a VIP.
    pub const fn has_overlay_networks(&self) -> bool {
        self.container.namespaces.network.is_none()
    }

    /// What its replicas are created from.
    pub const fn program(&self) -> Program<'_> {
        Program { spec_hash: &self.spec_hash, resolved_image: self.resolved_image.as_ref(), kind: self.kind }
    }

    /// Whether replicas of one spec can stay as replicas of the other: everything fixed at creation is equal.
    pub fn is_same_program(&self, other: &Self) -> bool {
        self.program() == other.program()
    }

    /// Whether both run the same image with the same settings, whatever their kind.
    pub fn has_same_code(&self, other: &Self) -> bool {
        (&self.spec_hash, &self.resolved_image) == (&other.spec_hash, &other.resolved_image)
    }

    /// Whether a replica with this reservation was created from this spec.
    pub fn made(&self, reservation: &Reservation) -> bool {
        self.program() == reservation.program()
    }

    /// Whether it mounts a named volume or a host path, so that its data is bound to a node.
    pub fn is_stateful(&self) -> bool {
        self.mounts.iter().any(|mount| matches!(mount.source, MountSource::Volume { .. } | MountSource::Bind(_)))
    }

    /// Whether two generations of a slot must not be alive on one node: both would bind a fixed port, or write to a volume
    /// or a bind mount.
    pub fn excludes_second_generation(&self) -> bool {
        let fixed_port = self.ports.iter().any(|port| port.mode == PortMode::Host && port.published.is_some());
        let writable_bind = self
            .mounts
            .iter()
            .any(|mount| matches!(mount.source, MountSource::Bind(_)) && mount.access == Access::ReadWrite);
        fixed_port || writable_bind || self.volumes().next().is_some()
    }

    /// The named volumes it mounts, each once, in order.
    pub fn volumes(&self) -> impl Iterator<Item = (&VolumeKey, Sharing)> {
        self.mounts.iter().filter_map(|mount| match &mount.source {
            MountSource::Volume { key, sharing, .. } => Some((key, *sharing)),
            MountSource::Bind(_) | MountSource::Tmpfs | MountSource::Anonymous => None,
        })
    }
}

/// The kind of a service: Compose's `deploy.mode`, Nomad's job type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceKind {
    /// `replicated`: a number of replicas that run for ever.
    #[default]
    Service,
    /// `global`: one replica on every fitting node, for ever.
    System,
    /// `replicated-job`: a number of replicas that run to completion.
    Batch,
    /// `global-job`: one replica on every fitting node, to completion.
    Sysbatch,
}

impl ServiceKind {
    /// Whether its replicas run to completion.
    pub const fn is_job(self) -> bool {
        matches!(self, Self::Batch | Self::Sysbatch)
    }

    /// Whether it runs one replica per node rather than a count.
    pub const fn is_per_node(self) -> bool {
        matches!(self, Self::System | Self::Sysbatch)
    }
}

/// SHA-256 of the canonical form, in hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpecHash(pub Arc<str>);

impl fmt::Display for SpecHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Declared resources of a replica. Absent is not zero: the cluster's defaults apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// `limits.cpus`, in thousandths of a core.
    pub cpu_limit_millis: Option<u64>,
    /// `reservations.cpus`.
    pub cpu_reservation_millis: Option<u64>,
    /// `limits.memory`.
    pub memory_limit_bytes: Option<u64>,
    /// `reservations.memory`.
    pub memory_reservation_bytes: Option<u64>,
    /// Devices and generic resources, by kind.
    pub devices: BTreeMap<String, u64>,
    /// Devices requested by kind, vendor, model or attributes.
    #[serde(default)]
    pub device_requests: Vec<DeviceRequest>,
}

impl Resources {
    /// CPU request of a replica: its reservation, else its limit, else 0.
    pub fn cpu_request_millis(&self) -> u64 {
        self.cpu_reservation_millis.or(self.cpu_limit_millis).unwrap_or(0)
    }
}

/// A published port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    /// Port in the container.
    pub target: u16,
    /// Port on the host; `None` lets the engine choose.
    pub published: Option<u16>,
    /// Transport.
    pub protocol: Protocol,
    /// Cluster-wide or on the replica's node.
    pub mode: PortMode,
    /// The host address to bind, where one is named.
    pub host_ip: Option<IpAddr>,
}

/// Transport of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// The spelling in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// Where a published port listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortMode {
    /// On every node, unique in the cluster.
    #[default]
    Ingress,
    /// On the replica's node only, unique there.
    Host,
}

/// A mount of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// What is mounted.
    pub source: MountSource,
    /// Path in the container.
    pub target: String,
    /// Whether the replica may write.
    pub access: Access,
    /// Options of the mount's kind, such as `propagation` or `size`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountSource {
    /// A named volume.
    Volume {
        /// Its identity.
        key: VolumeKey,
        /// How many replicas may hold it.
        sharing: Sharing,
        /// Volume driver, where not the local one.
        driver: Option<String>,
    },
    /// A host path.
    Bind(String),
    /// A file system in memory.
    Tmpfs,
    /// An unnamed volume that is removed with the replica.
    Anonymous,
}

/// Whether a mount can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read and write.
    #[default]
    ReadWrite,
    /// Read only.
    ReadOnly,
}

/// A dependency on another service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// When it is met.
    pub condition: DependencyCondition,
    /// Whether a recreation of the dependency restarts this service.
    pub restart: bool,
    /// Whether the dependency must exist.
    pub required: bool,
}

/// When a dependency is met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyCondition {
    /// Every replica has started.
    #[default]
    ServiceStarted,
    /// Every replica runs and is healthy.
    ServiceHealthy,
    /// Every replica exited successfully.
    ServiceCompletedSuccessfully,
}

/// How a service is attached to a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Additional DNS names on the network.
    pub aliases: BTreeSet<String>,
    /// Higher is attached first.
    pub priority: i64,
    /// Options of the network driver.
    pub options: BTreeMap<String, String>,
}
