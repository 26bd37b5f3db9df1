//! Questions about what an engine has, asked when a manifest is applied: images, and volumes that Compose made.
//!
//! Owns: the question and its answer. Must not touch: what follows from it; the server decides that.
//! Invariant: an answer leaves out what the engine or the registry could not say in time. Nothing is pulled or created.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::ResolvedImage;
use serde::{Deserialize, Serialize};

/// What is asked of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineQuery {
    /// Image references to look up on the engine.
    #[serde(default)]
    pub images: BTreeSet<String>,
    /// Image references whose registry is asked.
    #[serde(default)]
    pub registry: BTreeSet<String>,
    /// The Compose project whose volumes are listed.
    #[serde(default)]
    pub compose_project: Option<String>,
}

/// What became of a volume that should be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeRemoval {
    /// It is gone, or was never there.
    Removed,
    /// It was not created by this cluster, so it was left alone.
    NotOurs,
}

/// What the engine said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineAnswer {
    /// The images it has, by reference.
    #[serde(default)]
    pub images: BTreeMap<String, ResolvedImage>,
    /// What the registries have, by reference.
    #[serde(default)]
    pub registry: BTreeMap<String, ResolvedImage>,
    /// Why a registry did not say, by reference.
    #[serde(default)]
    pub registry_errors: BTreeMap<String, String>,
    /// Volumes of the Compose project: the key in its file, and the name in the engine.
    #[serde(default)]
    pub compose_volumes: BTreeMap<String, String>,
    /// The names of all volumes of the engine, where a project was asked for.
    #[serde(default)]
    pub volumes: BTreeSet<String>,
}
