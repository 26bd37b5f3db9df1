//! Where a service may and should run, as its user wishes.
//!
//! Owns: the wishes, with their defaults.
//! Must not touch: which node is chosen; that is the `scheduler` room's.
//! Invariant: a wish that is not made refuses no node but those in a pool of their own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Attribute, Constraint, NodeName, Platform, PoolName, ServiceName};

/// Where a service may and should run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementSpec {
    /// Order among the nodes that fit.
    pub strategy: Strategy,
    /// Pinned hosts, for [`Strategy::Hosts`].
    pub hosts: BTreeSet<NodeName>,
    /// The pool asked for.
    pub pool: PoolWanted,
    /// All must hold.
    pub constraints: Vec<Constraint>,
    /// Attributes to spread over, outermost first.
    pub preferences: Vec<Attribute>,
    /// At most so many of the service on one node.
    pub max_replicas_per_node: Option<u32>,
    /// Any of these; empty is any at all.
    pub platforms: Vec<Platform>,
    /// Plugins needed, each `volume/x`, `network/x` or `log/x`.
    pub plugins: BTreeSet<String>,
    /// Attributes liked or disliked.
    pub affinities: Vec<Affinity>,
    /// Attribute shares aimed at, for [`Strategy::Binpack`].
    pub spread_targets: Vec<SpreadTarget>,
    /// At most one of the service on a node.
    pub distinct_hosts: DistinctHosts,
    /// At most so many of the service per value of an attribute.
    pub distinct_property: Vec<DistinctProperty>,
    /// Services of the deployment to be with.
    pub near: Vec<Companion>,
    /// Services of the deployment to be apart from.
    pub away_from: Vec<Companion>,
    /// Largest difference allowed between branches of each spread level.
    pub max_skew: Option<u32>,
    /// Whether a batch may be placed in part.
    pub batching: Batching,
}

/// Order among the nodes that fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Evenly, level by level of the preference tree.
    #[default]
    Spread,
    /// On the node with the fewest replicas.
    Pack,
    /// One on each pinned host.
    Hosts,
    /// One on every node.
    Global,
    /// Where the fullest node still fits best.
    Binpack,
    /// By hash of the replica's name.
    Hash,
}

impl Strategy {
    /// The word used in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Pack => "pack",
            Self::Hosts => "hosts",
            Self::Global => "global",
            Self::Binpack => "binpack",
            Self::Hash => "hash",
        }
    }
}

/// The pool a service asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolWanted {
    /// Nodes that were put in no pool of their own.
    #[default]
    Default,
    /// Any node.
    All,
    /// Nodes of that pool.
    Named(PoolName),
}

/// A liking (positive) or dislike (negative) for nodes that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affinity {
    /// What matches.
    pub matches: Constraint,
    /// -100 to 100.
    pub weight: i32,
}

/// Shares of a service to aim at per value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadTarget {
    /// The attribute.
    pub over: Attribute,
    /// Weight among several targets, 1 to 100.
    pub weight: u32,
    /// Value to percent; empty means evenly.
    pub percent: BTreeMap<String, u32>,
}

/// Whether two replicas of the service may share a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DistinctHosts {
    /// They may.
    #[default]
    No,
    /// They may not.
    Yes,
}

/// At most `limit` replicas of the service per value of the attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistinctProperty {
    /// The attribute; a node without it is refused.
    pub attribute: Attribute,
    /// How many share a value.
    pub limit: u32,
}

/// Another service of the deployment to be near or away from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    /// The service.
    pub service: ServiceName,
    /// Hard, or preferred with a weight.
    pub strength: Strength,
}

/// Whether a wish is a must.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// A node that does not comply is refused.
    Hard,
    /// A node that complies is liked that much, 1 to 100.
    Preferred(i32),
}

/// Whether part of a batch is better than none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Batching {
    /// Place what fits.
    #[default]
    AsManyAsFit,
    /// Place all or none.
    AllOrNothing,
}
