//! Reason codes: why a replica is not placed, not running, or not moved; conditions of nodes. Operators alert on them.
//!
//! Owns: the closed lists and their order.
//! Invariant: a code is added, never renamed; each has a page `docs/errors/<code>.md`.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $code)] $variant,)*
        }

        impl $name {
            /// Every code, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Stable: operators alert on these strings. Add codes, never rename one.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.code())
            }
        }
    };
}

codes! {
    /// Why a replica is not placed, in filter order: the primary reason is the first that applies.
    Reason {
        /// A secret it needs does not exist.
        SecretsMissing = "secrets_missing",
        /// Its volumes live on different nodes, or it has several replicas.
        VolumeConstraintsInvalid = "volume_constraints_invalid",
        /// The namespace's quota is exhausted.
        QuotaExceeded = "quota_exceeded",
        /// A service it depends on is not ready.
        DependencyNotReady = "dependency_not_ready",
        /// No node takes new work.
        NoNodesActive = "no_nodes_active",
        /// Fewer pinned hosts are usable than replicas are needed.
        CannotSatisfyHostPlacement = "cannot_satisfy_host_placement",
        /// No node of its pool.
        PoolUnavailable = "pool_unavailable",
        /// The node that holds its volume is offline.
        VolumeHomeNodeOffline = "volume_home_node_offline",
        /// The node that holds its volume takes no new work.
        VolumeLocalityNoNode = "volume_locality_no_node",
        /// Another replica holds its volume.
        VolumeInUse = "volume_in_use",
        /// No node satisfies its constraints.
        ConstraintUnsatisfied = "constraint_unsatisfied",
        /// No node of its operating system and processor.
        PlatformUnsupported = "platform_unsupported",
        /// No node has its driver.
        DriverMissing = "driver_missing",
        /// No node has the plugins it needs.
        PluginMissing = "plugin_missing",
        /// Its host port is taken.
        HostPortInUse = "host_port_in_use",
        /// Every node has as many of it as allowed.
        MaxReplicasPerNode = "max_replicas_per_node",
        /// Every node already has one of it.
        DistinctHosts = "distinct_hosts",
        /// Every value of the property is used up.
        DistinctProperty = "distinct_property",
        /// No node satisfies its colocation rules.
        AffinityUnsatisfied = "affinity_unsatisfied",
        /// Any node would make the spread too uneven.
        MaxSkew = "max_skew",
        /// No node has enough memory left.
        NoCapacityMemory = "no_capacity_memory",
        /// No node has enough disk left.
        NoCapacityDisk = "no_capacity_disk",
        /// No node has enough devices left.
        NoCapacityDevice = "no_capacity_device",
        /// No node has an address left.
        IpamExhausted = "ipam_exhausted",
        /// Only a part of an all-or-nothing batch would fit.
        BatchIncomplete = "batch_incomplete",
    }
}

codes! {
    /// Why a placed replica is not running.
    RuntimeCode {
        /// Its image is being pulled.
        Pulling = "pulling",
        /// Its image could not be pulled; the pull is retried.
        ImagePullFailed = "image_pull_failed",
        /// It could not be started.
        StartFailed = "start_failed",
        /// Its health check fails.
        HealthcheckFailed = "healthcheck_failed",
        /// Its process exited.
        Exited = "exited",
        /// It was killed because it exceeded its memory limit.
        OomKilled = "oom_killed",
        /// It failed too often in a row; the next apply tries again.
        RestartExhausted = "restart_exhausted",
        /// Its node is lost.
        NodeLost = "node_lost",
        /// The engine of its node does not answer; its state is the last one observed.
        EngineUnreachable = "engine_unreachable",
        /// A replica whose namespace it shares is not running yet.
        DependencyNotReady = "dependency_not_ready",
        /// No subnet was left for it.
        SubnetPoolExhausted = "subnet_pool_exhausted",
        /// Its node is draining and it could not be moved before the deadline.
        DrainTimeout = "drain_timeout",
        /// Its node is draining and holds its data.
        DrainBlockedStateful = "drain_blocked_stateful",
    }
}

impl RuntimeCode {
    /// Whether an end with this code is the replica's own doing and counts against its restarts. What the node, its engine
    /// or a registry lacks does not.
    pub const fn is_own_fault(self) -> bool {
        match self {
            Self::StartFailed | Self::HealthcheckFailed | Self::Exited | Self::OomKilled | Self::RestartExhausted => {
                true
            }
            Self::Pulling
            | Self::ImagePullFailed
            | Self::NodeLost
            | Self::EngineUnreachable
            | Self::DependencyNotReady
            | Self::SubnetPoolExhausted
            | Self::DrainTimeout
            | Self::DrainBlockedStateful => false,
        }
    }
}

codes! {
    /// What is wrong with a node, while its replicas and other nodes are not affected.
    NodeConditionCode {
        /// It cannot listen on a published port.
        PortTakenOnNode = "port_taken_on_node",
        /// Its replicas have no overlay addresses.
        OverlayUnavailable = "overlay_unavailable",
        /// Its kernel does not separate the networks of the overlay.
        IsolationUnavailable = "isolation_unavailable",
        /// Its overlay was changed by somebody else and repaired.
        OverlayRepaired = "overlay_repaired",
    }
}

codes! {
    /// Why a rebalance did not move a replica off a node under pressure.
    SkipReason {
        /// It was placed or moved recently.
        CooldownReplica = "cooldown_replica",
        /// Every destination received a move recently.
        CooldownNode = "cooldown_node",
        /// Every destination would itself come under pressure.
        DstCap = "dst_cap",
        /// It is too small to relieve its node.
        ReliefFloor = "relief_floor",
        /// No destination has enough free resources.
        ResourceLimits = "resource_limits",
        /// No destination may run it.
        AntiAffinity = "anti_affinity",
        /// There is no destination, or they refuse for different reasons.
        NoEligibleDst = "no_eligible_dst",
        /// Nothing on the node may be moved.
        NoCandidate = "no_candidate",
    }
}
