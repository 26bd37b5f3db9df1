//! One refusal with its numbers, and the sentence it makes.
//!
//! Owns: what is said about a node, or about a service, that was turned down.
//! Must not touch: the check itself. A sentence is never parsed back; the variant carries the numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Health, Intent, NodeName, Reason, SecretName, VolumeKey, command::QuotaDimension, replica::HostPort, units,
};

/// Why one node, or the service before any node, was turned down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// These secrets do not exist.
    SecretsMissing {
        /// Their names.
        names: Vec<SecretName>,
    },
    /// These volumes live apart, or there are several replicas.
    VolumeConstraints {
        /// The nodes they live on.
        homes: Vec<NodeName>,
    },
    /// A ceiling of the namespace.
    Quota {
        /// What there is too little of.
        dimension: QuotaDimension,
        /// The ceiling.
        limit: u64,
        /// In use now.
        used: u64,
        /// Needed for one more replica.
        needed: u64,
    },
    /// A dependency is not ready.
    Dependency {
        /// The service waited for.
        service: String,
    },
    /// It takes no new work.
    NotReady {
        /// What operators want of it.
        intent: Intent,
        /// How it does.
        health: Health,
    },
    /// It has no capacity at all.
    NoCapacity,
    /// It cannot reach its overlay peers.
    OverlayCut,
    /// It is not among the pinned hosts.
    NotPinned,
    /// It is in another pool.
    Pool {
        /// The pool it is in.
        pool: String,
    },
    /// The volume's home is away.
    VolumeHomeOffline {
        /// The volume.
        volume: VolumeKey,
        /// Its home.
        home: NodeName,
    },
    /// The volume lives elsewhere.
    VolumeElsewhere {
        /// The volume.
        volume: VolumeKey,
        /// Its home.
        home: NodeName,
    },
    /// The volume is held.
    VolumeHeld {
        /// The volume.
        volume: VolumeKey,
        /// The replica that holds it.
        holder: String,
    },
    /// A constraint does not hold.
    Constraint {
        /// The constraint as written.
        constraint: String,
        /// The node's value, if it has one.
        found: Option<String>,
    },
    /// Another operating system or processor.
    Platform {
        /// The node's.
        found: String,
    },
    /// It lacks the driver.
    Driver {
        /// The driver.
        driver: String,
    },
    /// It lacks a plugin.
    Plugin {
        /// The plugin.
        plugin: String,
    },
    /// The port is taken there.
    HostPort {
        /// The port.
        port: HostPort,
    },
    /// It has as many as allowed.
    MaxReplicas {
        /// The limit.
        limit: u32,
    },
    /// It has one already.
    DistinctHosts,
    /// The property's value is used up, or missing.
    DistinctProperty {
        /// The attribute.
        attribute: String,
        /// The node's value, if it has one.
        value: Option<String>,
        /// The limit.
        limit: u32,
    },
    /// A companion is not there, or is.
    Companion {
        /// The service.
        service: String,
        /// Whether it was wanted there.
        side: Side,
    },
    /// The spread would get too uneven.
    Skew {
        /// The limit.
        limit: u32,
        /// What it would become.
        would_be: u32,
    },
    /// Too little memory.
    Memory {
        /// Needed, overhead included.
        needed: u64,
        /// Free.
        free: u64,
    },
    /// Too little disk.
    Disk {
        /// Needed.
        needed: u64,
        /// Free.
        free: u64,
    },
    /// Too few devices.
    Device {
        /// The kind.
        kind: String,
        /// Needed.
        needed: u64,
        /// Free.
        free: u64,
    },
    /// Devices are there, but not such ones.
    DeviceUnlike {
        /// The kind asked for.
        kind: String,
        /// Needed.
        needed: u64,
        /// What does not hold of them.
        constraint: String,
    },
    /// No address left.
    Addresses {
        /// How many the node can hold.
        limit: u64,
    },
    /// Only part of the batch fits.
    Batch {
        /// How many fit.
        fits: u32,
        /// How many were wanted.
        wanted: u32,
    },
}

/// Whether another service shall be on the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// It shall.
    Near,
    /// It shall not.
    Away,
}

impl Refusal {
    /// The code operators alert on.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::SecretsMissing { .. } => Reason::SecretsMissing,
            Self::VolumeConstraints { .. } => Reason::VolumeConstraintsInvalid,
            Self::Quota { .. } => Reason::QuotaExceeded,
            Self::Dependency { .. } => Reason::DependencyNotReady,
            Self::NotReady { .. } | Self::NoCapacity | Self::OverlayCut => Reason::NoNodesActive,
            Self::NotPinned => Reason::CannotSatisfyHostPlacement,
            Self::Pool { .. } => Reason::PoolUnavailable,
            Self::VolumeHomeOffline { .. } => Reason::VolumeHomeNodeOffline,
            Self::VolumeElsewhere { .. } => Reason::VolumeLocalityNoNode,
            Self::VolumeHeld { .. } => Reason::VolumeInUse,
            Self::Constraint { .. } => Reason::ConstraintUnsatisfied,
            Self::Platform { .. } => Reason::PlatformUnsupported,
            Self::Driver { .. } => Reason::DriverMissing,
            Self::Plugin { .. } => Reason::PluginMissing,
            Self::HostPort { .. } => Reason::HostPortInUse,
            Self::MaxReplicas { .. } => Reason::MaxReplicasPerNode,
            Self::DistinctHosts => Reason::DistinctHosts,
            Self::DistinctProperty { .. } => Reason::DistinctProperty,
            Self::Companion { .. } => Reason::AffinityUnsatisfied,
            Self::Skew { .. } => Reason::MaxSkew,
            Self::Memory { .. } => Reason::NoCapacityMemory,
            Self::Disk { .. } => Reason::NoCapacityDisk,
            Self::Device { .. } | Self::DeviceUnlike { .. } => Reason::NoCapacityDevice,
            Self::Addresses { .. } => Reason::IpamExhausted,
            Self::Batch { .. } => Reason::BatchIncomplete,
        }
    }

    /// How much is lacking, for telling near from far; 0 where there is nothing to count.
    pub const fn shortfall(&self) -> u64 {
        match self {
            Self::Memory { needed, free } | Self::Disk { needed, free } | Self::Device { needed, free, .. } => {
                needed.saturating_sub(*free)
            }
            Self::DeviceUnlike { needed, .. } => *needed,
            Self::Quota { limit, used, needed, .. } => used.saturating_add(*needed).saturating_sub(*limit),
            Self::Skew { limit, would_be } => would_be.saturating_sub(*limit) as u64,
            Self::Batch { fits, wanted } => wanted.saturating_sub(*fits) as u64,
            Self::SecretsMissing { .. }
            | Self::VolumeConstraints { .. }
            | Self::Dependency { .. }
            | Self::NotReady { .. }
            | Self::NoCapacity
            | Self::OverlayCut
            | Self::NotPinned
            | Self::Pool { .. }
            | Self::VolumeHomeOffline { .. }
            | Self::VolumeElsewhere { .. }
            | Self::VolumeHeld { .. }
            | Self::Constraint { .. }
            | Self::Platform { .. }
            | Self::Driver { .. }
            | Self::Plugin { .. }
            | Self::HostPort { .. }
            | Self::MaxReplicas { .. }
            | Self::DistinctHosts
            | Self::DistinctProperty { .. }
            | Self::Companion { .. }
            | Self::Addresses { .. } => 0,
        }
    }

    /// The sentence about the node that came closest, e.g. `needs 832 MiB, best has 512 MiB free on n3`.
    pub fn about(&self, node: &NodeName) -> String {
        match self {
            Self::Memory { needed, free } => {
                let (needed, free) = units::compared(*needed, *free);
                format!("needs {needed}, best has {free} free on {node}")
            }
            Self::Disk { needed, free } => {
                let (needed, free) = units::compared(*needed, *free);
                format!("needs {needed} of disk, best has {free} free on {node}")
            }
            Self::Device { kind, needed, free } => format!("needs {needed} {kind}, best has {free} free on {node}"),
            other => format!("{node} {other}"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecretsMissing { names } => write!(f, "waits for secrets {}", list(names)),
            Self::VolumeConstraints { homes } if homes.len() > 1 => {
                write!(f, "mounts volumes that live on different nodes: {}", list(homes))
            }
            Self::VolumeConstraints { .. } => f.write_str("mounts a volume and so may have one replica only"),
            Self::Quota { dimension, limit, used, needed } => {
                let [limit, used, needed] = [limit, used, needed].map(|amount| dimension.amount(*amount));
                write!(f, "{} quota is {limit}, {used} in use, needs {needed} more", dimension.as_str())
            }
            Self::Dependency { service } => write!(f, "waits for service {service}"),
            Self::NotReady { intent: Intent::Active, health } => write!(f, "is {}", health_word(*health)),
            Self::NotReady { intent, .. } => write!(f, "is {}", intent_word(*intent)),
            Self::NoCapacity => f.write_str("reports no capacity"),
            Self::OverlayCut => f.write_str("cannot reach its overlay peers"),
            Self::NotPinned => f.write_str("is not among the pinned hosts"),
            Self::Pool { pool } => write!(f, "is in pool {pool}"),
            Self::VolumeHomeOffline { volume, home } => write!(f, "waits for {home}, home of volume {volume}"),
            Self::VolumeElsewhere { volume, home } => write!(f, "does not hold volume {volume}, which lives on {home}"),
            Self::VolumeHeld { volume, holder } => write!(f, "has volume {volume} held by {holder}"),
            Self::Constraint { constraint, found: Some(found) } => write!(f, "has {found}, wanted {constraint}"),
            Self::Constraint { constraint, found: None } => write!(f, "lacks the attribute, wanted {constraint}"),
            Self::Platform { found } => write!(f, "is {found}"),
            Self::Driver { driver } => write!(f, "lacks driver {driver}"),
            Self::Plugin { plugin } => write!(f, "lacks plugin {plugin}"),
            Self::HostPort { port } => write!(f, "has port {}/{} taken", port.port, port.protocol.as_str()),
            Self::MaxReplicas { limit } => write!(f, "has {limit} already, the most allowed on a node"),
            Self::DistinctHosts => f.write_str("has one already"),
            Self::DistinctProperty { attribute, value: Some(value), limit } => {
                write!(f, "has {attribute} {value}, already used {limit} times")
            }
            Self::DistinctProperty { attribute, value: None, .. } => write!(f, "lacks {attribute}"),
            Self::Companion { service, side: Side::Near } => write!(f, "has no replica of service {service}"),
            Self::Companion { service, side: Side::Away } => write!(f, "has a replica of service {service}"),
            Self::Skew { limit, would_be } => write!(f, "would make the skew {would_be}, at most {limit} is allowed"),
            Self::Memory { needed, free } => {
                let (needed, free) = units::compared(*needed, *free);
                write!(f, "has {free} free, needs {needed}")
            }
            Self::Disk { needed, free } => {
                let (needed, free) = units::compared(*needed, *free);
                write!(f, "has {free} of disk free, needs {needed}")
            }
            Self::Device { kind, needed, free } => write!(f, "has {free} {kind} free, needs {needed}"),
            Self::DeviceUnlike { kind, needed, constraint } => {
                write!(f, "has no {kind} with {constraint}, needs {needed}")
            }
            Self::Addresses { limit } => write!(f, "has none of its {limit} addresses left"),
            Self::Batch { fits, wanted } => write!(f, "only {fits} of {wanted} fit, and it wants all or nothing"),
        }
    }
}

const fn health_word(health: Health) -> &'static str {
    match health {
        Health::Ready => "ready",
        Health::Suspect => "suspect",
        Health::Down => "down",
        Health::Degraded => "degraded",
    }
}

const fn intent_word(intent: Intent) -> &'static str {
    match intent {
        Intent::Active => "active",
        Intent::Paused => "paused",
        Intent::Draining => "draining",
        Intent::Removed => "removed",
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
