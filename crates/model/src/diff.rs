//! What one manifest changes of another, in the words of the manifest.
//!
//! Owns: the shape of a comparison. Must not touch: comparing, which the `scheduler` room does.
//! Invariant: only names of secrets can stand here; their contents are not part of a spec.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::ServiceName;

/// Two manifests of a deployment compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionDiff {
    /// Every service of either.
    pub services: BTreeMap<ServiceName, ServiceDiff>,
    /// What differs outside of services: networks, volumes, routes. Nothing that runs is touched by it.
    pub shared: Vec<FieldChange>,
}

impl RevisionDiff {
    /// Whether both say the same.
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.services.values().all(|service| *service == ServiceDiff::Unchanged)
    }
}

/// What becomes of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceDiff {
    /// It is new.
    Added,
    /// It goes.
    Removed,
    /// It stays as it is.
    Unchanged,
    /// What runs stays; only what is wanted of it changes.
    InPlace(Vec<FieldChange>),
    /// What runs is replaced, step by step; a job is run again.
    Destructive(Vec<FieldChange>),
}

impl ServiceDiff {
    /// The word in JSON and tables.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Unchanged => "unchanged",
            Self::InPlace(_) => "in_place",
            Self::Destructive(_) => "destructive",
        }
    }

    /// What differs, by name; empty where there is nothing to compare.
    pub fn fields(&self) -> &[FieldChange] {
        match self {
            Self::Added | Self::Removed | Self::Unchanged => &[],
            Self::InPlace(fields) | Self::Destructive(fields) => fields,
        }
    }
}

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FieldChange {
    /// Where it stands in a manifest, as `environment.LOG_LEVEL` or `deploy.replicas`.
    pub field: String,
    /// What it was; `None` where it was not there.
    pub old: Option<String>,
    /// What it is; `None` where it is gone.
    pub new: Option<String>,
    /// What it costs.
    pub effect: Effect,
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [old, new] = [&self.old, &self.new].map(|value| value.as_deref().unwrap_or("(none)"));
        write!(f, "{}: {old} → {new}", self.field)
    }
}

/// What a change costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing is made anew.
    InPlace,
    /// It is fixed when a replica is made, so each is made anew.
    Recreates,
}
