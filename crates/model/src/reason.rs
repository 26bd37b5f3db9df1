//! Why a replica is not placed, or not running. Codes are stable: operators alert on them.
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
    /// Why a replica has no node. The order is the order in which the primary reason is looked for.
    Reason {
        /// A secret it needs does not exist.
        SecretsMissing = "secrets_missing",
        /// Its volumes live on different nodes, or it has several replicas.
        VolumeConstraintsInvalid = "volume_constraints_invalid",
        /// The namespace's ceiling is reached.
        QuotaExceeded = "quota_exceeded",
        /// A service it depends on is not ready.
        DependencyNotReady = "dependency_not_ready",
        /// No node takes new work.
        NoNodesActive = "no_nodes_active",
        /// Fewer pinned hosts are usable than replicas are wanted.
        CannotSatisfyHostPlacement = "cannot_satisfy_host_placement",
        /// No node of its pool.
        PoolUnavailable = "pool_unavailable",
        /// The node that holds its volume is away.
        VolumeHomeNodeOffline = "volume_home_node_offline",
        /// The node that holds its volume takes no new work.
        VolumeLocalityNoNode = "volume_locality_no_node",
        /// Another replica holds its volume.
        VolumeInUse = "volume_in_use",
        /// No node has the attributes it demands.
        ConstraintUnsatisfied = "constraint_unsatisfied",
        /// No node of its operating system and processor.
        PlatformUnsupported = "platform_unsupported",
        /// No node can start its kind of work.
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
        /// No node is near, or far enough from, the named services.
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
        /// Only a part of the batch would fit, and it wants all or nothing.
        BatchIncomplete = "batch_incomplete",
    }
}

codes! {
    /// Why a placed replica is not simply running.
    RuntimeCode {
        /// Its image is on the way.
        Pulling = "pulling",
        /// Its image could not be had; it is tried again.
        ImagePullFailed = "image_pull_failed",
        /// It could not be started.
        StartFailed = "start_failed",
        /// Its health check fails.
        HealthcheckFailed = "healthcheck_failed",
        /// Its process ended.
        Exited = "exited",
        /// It was killed for using too much memory.
        OomKilled = "oom_killed",
        /// It failed too often in a row; the next apply tries again.
        RestartExhausted = "restart_exhausted",
        /// Its node is gone.
        NodeLost = "node_lost",
        /// The engine of its node does not answer; its state is what was last seen.
        EngineUnreachable = "engine_unreachable",
        /// A replica it shares a namespace with is not there yet.
        DependencyNotReady = "dependency_not_ready",
        /// No subnet was left for it.
        SubnetPoolExhausted = "subnet_pool_exhausted",
        /// Its node was to be drained and it found no other in time.
        DrainTimeout = "drain_timeout",
        /// Its node was to be drained and its data lives there.
        DrainBlockedStateful = "drain_blocked_stateful",
    }
}

codes! {
    /// Why a replica of a hot node was left there.
    SkipReason {
        /// It was placed or moved not long ago.
        CooldownReplica = "cooldown_replica",
        /// Every destination received a move not long ago.
        CooldownNode = "cooldown_node",
        /// Every destination would itself become hot.
        DstCap = "dst_cap",
        /// It is too small to relieve its node.
        ReliefFloor = "relief_floor",
        /// No destination has what it takes.
        ResourceLimits = "resource_limits",
        /// No destination may run it.
        AntiAffinity = "anti_affinity",
        /// There is no destination, or they refuse for unlike reasons.
        NoEligibleDst = "no_eligible_dst",
        /// Nothing on the node may be moved.
        NoCandidate = "no_candidate",
    }
}
