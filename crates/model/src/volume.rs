//! A named volume and its home node.
//!
//! Owns: the volume's properties. Which replicas hold it is recorded with the replicas.

use serde::{Deserialize, Serialize};

use crate::{DeploymentName, NodeName, VolumeKey, service::VolumeSpec};

/// A volume that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its identity.
    pub key: VolumeKey,
    /// The deployment that declared it; its services may share it.
    pub owner: DeploymentName,
    /// The node its data is on.
    pub home: NodeName,
    /// Its name in the engine, if the manifest named it or it was adopted when the volume was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_name: Option<String>,
}

impl VolumeKey {
    /// Its name in the engine: the generated one, unless the manifest names it, it is external or was adopted.
    pub fn engine_name(&self, deployment: &DeploymentName, spec: &VolumeSpec) -> String {
        if let Some(name) = &spec.engine_name {
            return name.clone();
        }
        let name = self.name.as_str();
        let is_generated = name.strip_prefix(deployment.as_str()).is_some_and(|rest| rest.starts_with('_'));
        if spec.external || !is_generated { name.to_owned() } else { self.generated_engine_name() }
    }
}

/// How many replicas may hold a volume at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Services of the owning deployment may share it on its home.
    #[default]
    Deployment,
    /// One holder at a time.
    Exclusive,
    /// A one-off job of the owning deployment: it mounts the volume on its home beside whoever holds it, and blocks
    /// nobody.
    OneOff,
}
