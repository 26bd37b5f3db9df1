//! Deployments: what is asked for, and how it stands.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::Replica;

/// A manifest to apply: the files as texts, because the daemon does not read the caller's disk.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApplyRequest {
    /// Compose files in order, by name; each is among `texts`.
    pub files: Vec<String>,
    /// Every file that is read, by its absolute path.
    pub texts: BTreeMap<String, String>,
    /// Files that are no texts, by their absolute paths, in base64 with padding: what secrets and configs hold.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bytes_base64: BTreeMap<String, String>,
    /// The overlay, by name.
    pub overlay: Option<String>,
    /// What names of files are relative to.
    pub working_directory: String,
    /// What paths in the manifest are relative to, where that is another place.
    pub project_directory: Option<String>,
    /// Variables the manifest may use.
    pub environment: BTreeMap<String, String>,
    /// Files of variables instead of `.env`, by name.
    pub env_files: Vec<String>,
    /// Profiles asked for.
    pub profiles: BTreeSet<String>,
    /// Name of the deployment, over everything that is written.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
}

/// Its files may be secrets, and so may its variables.
impl std::fmt::Debug for ApplyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApplyRequest({}, {} files)", self.files.join(", "), self.texts.len() + self.bytes_base64.len())
    }
}

/// Deployments and their replicas, as they were at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// How each deployment stands.
    pub deployments: Vec<Deployment>,
    /// What makes it stand so.
    pub replicas: Vec<Replica>,
}

/// A manifest that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedManifest {
    /// Scope.
    pub namespace: String,
    /// The deployment.
    pub deployment: String,
    /// Its manifest in force.
    pub revision: u64,
    /// Whether anything changed.
    pub changed: Changed,
    /// The state in which this holds.
    pub index: u64,
    /// What is worth knowing, as `file:line:column: warning: …`.
    pub warnings: Vec<String>,
}

/// Whether a request changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    /// It did.
    Yes,
    /// It was so already.
    No,
}

/// A count for a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleRequest {
    /// The count.
    pub replicas: u32,
}

/// Where to go back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RollbackRequest {
    /// A kept revision; the one before, unless given.
    pub to: Option<u64>,
}

/// One deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Scope.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How it does.
    pub status: String,
    /// What makes it so.
    pub reasons: Vec<String>,
    /// The manifest in force.
    pub revision: u64,
    /// Manifests kept.
    pub revisions: Vec<u64>,
    /// The change under way, or the last one that ended.
    pub rollout: Option<Rollout>,
    /// Its services.
    pub services: Vec<Service>,
}

/// One service of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// What it runs.
    pub image: String,
    /// How its nodes are chosen.
    pub strategy: String,
    /// What starts it.
    pub driver: String,
    /// Slots that are wanted now.
    pub wanted: u32,
    /// Slots that run well.
    pub running: u32,
    /// What it publishes.
    #[serde(default)]
    pub ports: Vec<Port>,
}

/// A published port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Inside the replica.
    pub target: u16,
    /// Outside; the engine chooses where it is absent.
    pub published: Option<u16>,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// `ingress`: everywhere in the cluster; `host`: on the replica's node.
    pub mode: String,
}

impl From<&longshore_model::service::Port> for Port {
    fn from(port: &longshore_model::service::Port) -> Self {
        let mode = match port.mode {
            longshore_model::service::PortMode::Ingress => "ingress",
            longshore_model::service::PortMode::Host => "host",
        };
        Self {
            target: port.target,
            published: port.published,
            protocol: port.protocol.as_str().to_owned(),
            mode: mode.to_owned(),
        }
    }
}

/// A change of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Counted per deployment.
    pub number: u64,
    /// The manifest that is left.
    pub from: u64,
    /// The manifest that is rolled to.
    pub to: u64,
    /// How far it is.
    pub state: String,
    /// What it waits for; nothing where it waits for a word, or is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Awaited>,
}

/// A replica that a rollout waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// Which.
    pub replica: String,
    /// What it does, or why it cannot: a code, or a state where there is none.
    pub code: String,
}

impl From<&longshore_model::Rollout> for Rollout {
    fn from(rollout: &longshore_model::Rollout) -> Self {
        Self {
            number: rollout.number.0,
            from: rollout.from.0,
            to: rollout.to.0,
            state: rollout.state.as_str().to_owned(),
            waits_for: None,
        }
    }
}
