//! Where a service may and should run, as its manifest says.
//!
//! Owns: placement rules and preferences, with their defaults.
//! Must not touch: which node is chosen; the `scheduler` crate decides.
//! Invariant: the default excludes only nodes that are in a named pool.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Attribute, Constraint, NodeName, Platform, PoolName, ServiceName};

/// Where a service may and should run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementSpec {
    /// How a node is chosen among those that fit.
    pub strategy: Strategy,
    /// Pinned hosts, for [`Strategy::Hosts`].
    pub hosts: BTreeSet<NodeName>,
    /// The pool it runs in.
    pub pool: PoolSelector,
    /// Constraints the node must satisfy.
    pub constraints: Vec<Constraint>,
    /// Attributes to spread over, outermost first.
    pub preferences: Vec<Attribute>,
    /// Most replicas of the service on one node.
    pub max_replicas_per_node: Option<u32>,
    /// Accepted platforms; empty is any.
    pub platforms: Vec<Platform>,
    /// Plugins needed, each `volume/x`, `network/x` or `log/x`.
    pub plugins: BTreeSet<String>,
    /// Preferences for or against nodes.
    pub affinities: Vec<Affinity>,
    /// Target shares per attribute value, for [`Strategy::Binpack`].
    pub spread_targets: Vec<SpreadTarget>,
    /// Whether a node runs at most one replica of the service.
    #[serde(with = "crate::yes_no")]
    pub distinct_hosts: bool,
    /// Most replicas of the service per value of an attribute.
    pub distinct_property: Vec<DistinctProperty>,
    /// Services of the deployment to share a node with.
    pub near: Vec<Companion>,
    /// Services of the deployment to share no node with.
    pub away_from: Vec<Companion>,
    /// Largest allowed difference in replicas between branches of each spread level.
    pub max_skew: Option<u32>,
    /// Whether a batch may be placed in part.
    pub batching: Batching,
}

/// How a node is chosen among those that fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Evenly over the preference tree, level by level.
    #[default]
    Spread,
    /// On the node with the fewest replicas of any service. JACO calls it `pack`, which stays the stored name and an
    /// accepted input; it is no bin packing.
    #[serde(rename = "pack", alias = "least_loaded")]
    LeastLoaded,
    /// One on each pinned host.
    Hosts,
    /// One on every node.
    Global,
    /// On the fullest node that fits, by score.
    Binpack,
    /// By FNV hash of the replica's id, over the fitting nodes in name order.
    Hash,
}

impl Strategy {
    /// Every strategy, in the order of the documentation.
    pub const ALL: &[Self] = &[Self::Spread, Self::LeastLoaded, Self::Hosts, Self::Global, Self::Binpack, Self::Hash];

    /// The strategy of a name in a manifest, on a command line or in a scenario; `pack` is JACO's name of
    /// [`Strategy::LeastLoaded`].
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "pack" => Some(Self::LeastLoaded),
            name => Self::ALL.iter().copied().find(|strategy| strategy.as_str() == name),
        }
    }

    /// Whether replicas are distributed evenly over the preference tree, which `max_skew` and rebalancing of the spread
    /// build on.
    pub const fn is_spread(self) -> bool {
        matches!(self, Self::Spread)
    }

    /// Whether nodes are ranked by their number of replicas before anything else.
    pub const fn ranks_by_replica_count(self) -> bool {
        matches!(self, Self::LeastLoaded)
    }

    /// Whether each replica runs on one of the hosts that the manifest names, all placed or none.
    pub const fn is_pinned(self) -> bool {
        matches!(self, Self::Hosts)
    }

    /// Whether every fitting node runs one replica.
    pub const fn is_per_node(self) -> bool {
        matches!(self, Self::Global)
    }

    /// Whether nodes are ranked by a score of affinities, spread targets and fill.
    pub const fn is_scored(self) -> bool {
        matches!(self, Self::Binpack)
    }

    /// Whether the strategy chooses among nodes, rather than taking all of them or those that are named.
    pub const fn chooses_nodes(self) -> bool {
        match self {
            Self::Spread | Self::LeastLoaded | Self::Binpack | Self::Hash => true,
            Self::Hosts | Self::Global => false,
        }
    }

    /// The spelling in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::LeastLoaded => "least_loaded",
            Self::Hosts => "hosts",
            Self::Global => "global",
            Self::Binpack => "binpack",
            Self::Hash => "hash",
        }
    }
}

/// The pool a service runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolSelector {
    /// Nodes in no named pool.
    #[default]
    Default,
    /// Any node.
    All,
    /// Nodes of that pool.
    Named(PoolName),
}

/// A preference for (positive) or against (negative) nodes that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affinity {
    /// The nodes it applies to.
    pub matches: Constraint,
    /// -100 to 100.
    pub weight: i32,
}

/// Target shares of a service per value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadTarget {
    /// The attribute.
    pub over: Attribute,
    /// Weight among several targets, 1 to 100.
    pub weight: u32,
    /// Percent by value; empty is an even share.
    pub percent: BTreeMap<String, u32>,
}

/// At most `limit` replicas of the service per value of the attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistinctProperty {
    /// The attribute; a node without it is refused.
    pub attribute: Attribute,
    /// Most replicas that share a value.
    pub limit: u32,
}

/// A colocation rule: another service of the deployment to share a node with, or to share none with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    /// The service.
    pub service: ServiceName,
    /// Required, or preferred with a weight.
    pub strength: Strength,
}

/// Whether a rule is required or preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// A node that breaks the rule is refused.
    Hard,
    /// A node that follows the rule is preferred with this weight, 1 to 100.
    Preferred(i32),
}

/// Whether a batch may be placed in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Batching {
    /// Place what fits.
    #[default]
    AsManyAsFit,
    /// Place all replicas or none.
    AllOrNothing,
}
