//! One refusal with its numbers, and its text.
//!
//! Owns: why one node, or the service before any node, was refused.
//! Must not touch: the check itself. The text is never parsed back; the variant carries the numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Health, Intent, NodeName, Reason, SecretName, VolumeKey, command::QuotaDimension, replica::HostPort, units,
};

/// Why one node, or the service before any node, was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// These secrets do not exist.
    SecretsMissing {
        /// Their names.
        names: Vec<SecretName>,
    },
    /// Its volumes are on different nodes, or there are several replicas.
    VolumeConstraints {
        /// The nodes the volumes are on.
        homes: Vec<NodeName>,
    },
    /// The namespace's quota would be exceeded.
    Quota {
        /// The limited resource.
        dimension: QuotaDimension,
        /// The quota.
        limit: u64,
        /// In use now.
        used: u64,
        /// Needed for one more replica.
        needed: u64,
    },
    /// A dependency is not ready.
    Dependency {
        /// The dependency.
        service: String,
    },
    /// The node takes no new replicas.
    NotReady {
        /// Its intent.
        intent: Intent,
        /// Its health.
        health: Health,
    },
    /// The node reports no capacity.
    NoCapacity,
    /// The node cannot reach its overlay peers.
    #[serde(rename = "overlay_cut")]
    OverlayUnreachable,
    /// The node is not among the pinned hosts.
    NotPinned,
    /// The node is in another pool.
    Pool {
        /// Its pool.
        pool: String,
    },
    /// The volume's home node is offline.
    VolumeHomeOffline {
        /// The volume.
        volume: VolumeKey,
        /// Its home.
        home: NodeName,
    },
    /// The volume is on another node.
    VolumeElsewhere {
        /// The volume.
        volume: VolumeKey,
        /// Its home.
        home: NodeName,
    },
    /// Another replica holds the volume.
    VolumeHeld {
        /// The volume.
        volume: VolumeKey,
        /// Id of that replica.
        holder: String,
    },
    /// The node does not satisfy a constraint.
    Constraint {
        /// The constraint, as in the manifest.
        constraint: String,
        /// The node's value, if it has one.
        found: Option<String>,
    },
    /// The node has another operating system or processor.
    Platform {
        /// The node's platform.
        found: String,
    },
    /// The node lacks the driver.
    Driver {
        /// The driver.
        driver: String,
    },
    /// The node lacks a plugin.
    Plugin {
        /// The plugin.
        plugin: String,
    },
    /// The host port is taken on the node.
    HostPort {
        /// The port.
        port: HostPort,
    },
    /// The node has as many replicas of the service as allowed.
    MaxReplicas {
        /// The limit.
        limit: u32,
    },
    /// The node has a replica of the service already.
    DistinctHosts,
    /// The value of the attribute is used as often as allowed, or missing.
    DistinctProperty {
        /// The attribute.
        attribute: String,
        /// The node's value, if it has one.
        value: Option<String>,
        /// The limit.
        limit: u32,
    },
    /// A colocation rule with another service is broken.
    Companion {
        /// The service.
        service: String,
        /// Whether it should be on the node.
        side: Side,
    },
    /// The spread would exceed `max_skew`.
    Skew {
        /// The limit.
        limit: u32,
        /// The skew with one more replica.
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
    /// The node has devices of the kind, but none that satisfies the constraints.
    DeviceUnlike {
        /// The requested kind.
        kind: String,
        /// Needed.
        needed: u64,
        /// The constraint they do not satisfy.
        constraint: String,
    },
    /// No address left.
    Addresses {
        /// Addresses of the node.
        limit: u64,
    },
    /// Only part of the batch fits.
    Batch {
        /// Replicas that fit.
        fits: u32,
        /// Replicas of the batch.
        wanted: u32,
    },
}

/// Whether another service shall share the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// It shall (`near`).
    Near,
    /// It shall not (`away_from`).
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
            Self::NotReady { .. } | Self::NoCapacity | Self::OverlayUnreachable => Reason::NoNodesActive,
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

    /// How much is lacking, to rank near misses; 0 where there is nothing to count.
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
            | Self::OverlayUnreachable
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

    /// The sentence about the nearest miss, for example `needs 832 MiB, best has 512 MiB free on n3`.
    pub fn sentence_about(&self, node: &NodeName) -> String {
        match self {
            Self::Memory { needed, free } => {
                let (needed, free) = units::needed_and_free(*needed, *free);
                format!("needs {needed}, best has {free} free on {node}")
            }
            Self::Disk { needed, free } => {
                let (needed, free) = units::needed_and_free(*needed, *free);
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
            Self::OverlayUnreachable => f.write_str("cannot reach its overlay peers"),
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
                let (needed, free) = units::needed_and_free(*needed, *free);
                write!(f, "has {free} free, needs {needed}")
            }
            Self::Disk { needed, free } => {
                let (needed, free) = units::needed_and_free(*needed, *free);
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
