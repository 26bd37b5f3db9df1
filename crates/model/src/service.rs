//! What a user asked for: a deployment and its services, resolved and validated.
//!
//! Owns: the specification of a service in the words the scheduler and the drivers use.
//! Must not touch: how it was written down; that is the `compose` room's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

pub use crate::device::{DeviceAffinity, DeviceConstraint, DeviceRequest};
pub use crate::policy::{
    Canary, DelayFunction, Disconnect, FailureAction, Promotion, Rebalance, Reconcile, Replace, Reschedule,
    RestartCondition, RestartPolicy, UpdateOrder, UpdatePolicy,
};
pub use crate::wish::{
    Affinity, Batching, Companion, DistinctHosts, DistinctProperty, PlacementSpec, PoolWanted, SpreadTarget, Strategy,
    Strength,
};

use crate::{Driver, SecretName, ServiceName, VolumeKey, container::ContainerSpec, volume::Sharing};

/// One resolved manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentSpec {
    /// Its services.
    pub services: BTreeMap<ServiceName, Arc<ServiceSpec>>,
    /// Its networks, by the key services name them with.
    #[serde(default)]
    pub networks: BTreeMap<String, NetworkSpec>,
    /// How its volumes are made, by the volume's name in the engine.
    #[serde(default)]
    pub volumes: BTreeMap<String, VolumeSpec>,
    /// Where requests from outside go.
    #[serde(default)]
    pub routes: Vec<Route>,
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
    /// Where it comes from and what it reaches.
    pub reach: NetworkReach,
}

/// Where a network comes from and what it reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkReach {
    /// Made for the deployment, with a way out.
    #[default]
    Open,
    /// Made for the deployment, without a way out.
    Internal,
    /// Made by somebody else.
    External,
}

/// How a volume is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpec {
    /// Volume driver, where one is named.
    pub driver: Option<String>,
    /// Options of the driver.
    pub options: BTreeMap<String, String>,
    /// Labels on the volume.
    pub labels: BTreeMap<String, String>,
    /// Whether it must exist already.
    pub external: bool,
}

/// Requests for a domain and path that go to a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// Host name asked for.
    pub domain: String,
    /// Prefix of the path; empty is all of them.
    pub path: String,
    /// The service that answers.
    pub service: ServiceName,
    /// On which of its ports.
    pub port: u16,
    /// Whether a certificate is obtained.
    pub tls: RouteTls,
    /// Whether the prefix is taken off before the service sees it.
    pub strip_path: bool,
}

/// Whether a route is served with a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteTls {
    /// Obtained and renewed.
    #[default]
    Auto,
    /// Plain.
    Off,
}

/// Replicas a service may have. A slip of the finger must not take a control plane's memory; a real service with more is
/// better run as several.
pub const MAX_REPLICAS: u32 = 1_000_000;

/// One resolved service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpec {
    /// How many there are and whether they end.
    pub kind: ServiceKind,
    /// Replicas wanted; 1 unless said otherwise, meaningless for `system` and `sysbatch`.
    pub replicas: u32,
    /// What to run.
    pub container: ContainerSpec,
    /// What starts it.
    pub driver: Driver,
    /// What it may use.
    pub resources: Resources,
    /// What it publishes.
    pub ports: Vec<Port>,
    /// What it mounts.
    pub mounts: Vec<Mount>,
    /// Secrets that must exist before anything is placed.
    pub secrets_required: BTreeSet<SecretName>,
    /// Where it may and should run.
    pub placement: PlacementSpec,
    /// 0 to 100; higher is placed first.
    pub priority: u8,
    /// How changes roll.
    pub update: UpdatePolicy,
    /// What happens when a replica ends.
    pub restart: RestartPolicy,
    /// How a rollback rolls; `None` is as a change does.
    #[serde(default)]
    pub rollback: Option<UpdatePolicy>,
    /// Slots tried first and held until promoted.
    #[serde(default)]
    pub canary: Canary,
    /// What happens when the node is lost from sight.
    #[serde(default)]
    pub disconnect: Disconnect,
    /// What happens when restarts are exhausted; `None` is to give up.
    #[serde(default)]
    pub reschedule: Option<Reschedule>,
    /// Whether running replicas may be moved to even the load.
    #[serde(default)]
    pub rebalance: Rebalance,
    /// Replicas of a job that run at once; `None` is all.
    #[serde(default)]
    pub max_concurrent: Option<u32>,
    /// Services that come first.
    #[serde(default)]
    pub depends_on: BTreeMap<ServiceName, Dependency>,
    /// Networks it is attached to, by the deployment's key.
    #[serde(default)]
    pub networks: BTreeMap<String, Attachment>,
    /// Labels on the service itself, not on its containers.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Fingerprint of everything fixed at creation.
    pub spec_hash: SpecHash,
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
            labels: BTreeMap::new(),
            spec_hash: SpecHash::default(),
        }
    }
}

impl ServiceSpec {
    /// Whether replicas of the one can stay as replicas of the other: everything fixed at creation is the same.
    pub fn is_same_program(&self, other: &Self) -> bool {
        (&self.spec_hash, self.kind) == (&other.spec_hash, other.kind)
    }

    /// Whether it mounts a named volume or a path of the host, so that its data stays where it is.
    pub fn is_stateful(&self) -> bool {
        self.mounts.iter().any(|mount| matches!(mount.source, MountSource::Volume { .. } | MountSource::Bind(_)))
    }

    /// The named volumes it mounts, each once, in order.
    pub fn volumes(&self) -> impl Iterator<Item = (&VolumeKey, Sharing)> {
        self.mounts.iter().filter_map(|mount| match &mount.source {
            MountSource::Volume { key, sharing, .. } => Some((key, *sharing)),
            MountSource::Bind(_) | MountSource::Tmpfs | MountSource::Anonymous => None,
        })
    }
}

/// The four kinds: Compose's `deploy.mode` values and Nomad's job types are the same thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceKind {
    /// `replicated`: so many, for ever.
    #[default]
    Service,
    /// `global`: one on every fitting node, for ever.
    System,
    /// `replicated-job`: so many, to completion.
    Batch,
    /// `global-job`: one on every fitting node, to completion.
    Sysbatch,
}

impl ServiceKind {
    /// Whether its replicas are there to end.
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

/// What a replica may use, as declared. Absent is not zero: the cluster's defaults fill in.
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
    /// Devices of a certain kind, maker or model, or with certain attributes.
    #[serde(default)]
    pub device_requests: Vec<DeviceRequest>,
}

impl Resources {
    /// CPU a replica counts with: its reservation, else its limit, else nothing.
    pub fn cpu_request_millis(&self) -> u64 {
        self.cpu_reservation_millis.or(self.cpu_limit_millis).unwrap_or(0)
    }
}

/// A published port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    /// Inside the container.
    pub target: u16,
    /// Outside; `None` lets the engine choose.
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
    /// The word used in manifests.
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

/// Something mounted into a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// What is mounted.
    pub source: MountSource,
    /// Where it appears.
    pub target: String,
    /// Whether the replica may write.
    pub access: Access,
    /// Settings of the mount's kind, such as `propagation` or `size`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// What a mount shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountSource {
    /// A named volume.
    Volume {
        /// Its identity.
        key: VolumeKey,
        /// How many may hold it.
        sharing: Sharing,
        /// Volume driver, where not the local one.
        driver: Option<String>,
    },
    /// A path of the host.
    Bind(String),
    /// Memory.
    Tmpfs,
    /// A volume without a name, gone with the replica.
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

/// What must hold of another service first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// When it counts as met.
    pub condition: DependencyCondition,
    /// Whether a change of the other restarts this one.
    pub restart: bool,
    /// Whether it must exist at all.
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
    /// Every replica ended well.
    ServiceCompletedSuccessfully,
}

/// How a service is attached to a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Further names it answers to there.
    pub aliases: BTreeSet<String>,
    /// Higher is attached first.
    pub priority: i64,
    /// Options of the network driver.
    pub options: BTreeMap<String, String>,
}
