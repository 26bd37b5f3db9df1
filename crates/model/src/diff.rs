//! The differences between two revisions of a deployment, in the manifest's field names.
//!
//! Owns: the types of a comparison. Must not touch: comparing, which the `scheduler` crate does.
//! Invariant: only names of secrets appear here; their contents are not part of a spec.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::ServiceName;

/// Differences between two revisions of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionDiff {
    /// Every service of either revision.
    pub services: BTreeMap<ServiceName, ServiceDiff>,
    /// Differences outside of services: networks, volumes, routes. No running replica is affected.
    pub shared: Vec<FieldChange>,
}

impl RevisionDiff {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.services.values().all(|service| *service == ServiceDiff::Unchanged)
    }
}

/// What happens to one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceDiff {
    /// It is only in the new revision.
    Added,
    /// It is only in the old revision.
    Removed,
    /// It is the same in both.
    Unchanged,
    /// Running replicas stay; only their desired count or policy changes.
    InPlace(Vec<FieldChange>),
    /// Running replicas are replaced, step by step; a job runs again.
    Destructive(Vec<FieldChange>),
}

impl ServiceDiff {
    /// The name in JSON and tables.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Unchanged => "unchanged",
            Self::InPlace(_) => "in_place",
            Self::Destructive(_) => "destructive",
        }
    }

    /// The fields that differ; empty for a service of one revision only.
    pub fn fields(&self) -> &[FieldChange] {
        match self {
            Self::Added | Self::Removed | Self::Unchanged => &[],
            Self::InPlace(fields) | Self::Destructive(fields) => fields,
        }
    }
}

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FieldChange {
    /// Path in the manifest, for example `environment.LOG_LEVEL` or `deploy.replicas`.
    pub field: String,
    /// Old value; `None` where it was absent.
    pub old: Option<String>,
    /// New value; `None` where it is removed.
    pub new: Option<String>,
    /// Whether replicas are recreated for it.
    pub effect: Effect,
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [old, new] = [&self.old, &self.new].map(|value| value.as_deref().unwrap_or("(none)"));
        write!(f, "{}: {old} → {new}", self.field)
    }
}

/// Whether a change recreates replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Replicas stay.
    InPlace,
    /// The field is fixed when a replica is created, so each replica is recreated.
    Recreates,
}
