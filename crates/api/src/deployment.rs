//! Deployments: manifests, status and rollouts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Code, DeploymentStatus, Driver, PortMode, Protocol, Replica, ReplicaState, RolloutState, StatusReason,
    replica::particulars,
};

/// A manifest to apply. Files are sent as texts, because the daemon does not read the caller's disk.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApplyRequest {
    /// Compose files in order, by name; each is among `texts`.
    pub files: Vec<String>,
    /// Every file that is read, by its absolute path.
    pub texts: BTreeMap<String, String>,
    /// Binary files by absolute path, in base64 with padding: contents of secrets and configs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bytes_base64: BTreeMap<String, String>,
    /// The overlay, by name.
    pub overlay: Option<String>,
    /// The folder that file names are relative to.
    pub working_directory: String,
    /// The folder that paths in the manifest are relative to, if it is another one.
    pub project_directory: Option<String>,
    /// Variables the manifest may use.
    pub environment: BTreeMap<String, String>,
    /// Files of variables instead of `.env`, by name.
    pub env_files: Vec<String>,
    /// Active profiles.
    pub profiles: BTreeSet<String>,
    /// Name of the deployment; overrides the manifest.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Whether run-once services that completed run again although nothing of them changed, as `up` asks for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rerun_ended: bool,
    /// What to do with volumes that Compose made for this deployment; unless given, they are asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compose_volumes: Option<ComposeVolumes>,
    /// Where images come from whose service has no `pull_policy`; unless given, the registry decides where it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullChoice>,
}

/// What to do with volumes that Compose made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComposeVolumes {
    /// Use their data.
    Adopt,
    /// Leave them alone and start empty.
    Fresh,
}

/// Where images come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullChoice {
    /// The registry is asked.
    Always,
    /// The registry is asked only for images that no engine has.
    Missing,
    /// The registry is not asked.
    Never,
}

/// Prints no contents: files and variables may be secrets.
impl std::fmt::Debug for ApplyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApplyRequest({}, {} files)", self.files.join(", "), self.texts.len() + self.bytes_base64.len())
    }
}

/// A command to run once, as a job of its own, with the image, environment, volumes and networks of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunRequest {
    /// Arguments instead of the service's; empty keeps them.
    pub command: Vec<String>,
    /// Program instead of the service's.
    pub entrypoint: Option<Vec<String>>,
    /// Additional environment, each as `NAME=value`.
    pub environment: Vec<String>,
    /// User; the service's unless given.
    pub user: Option<String>,
    /// Working directory; the service's unless given.
    pub working_dir: Option<String>,
    /// Whether it gets a terminal.
    pub terminal: bool,
    /// Whether the caller attaches to it; its input ends with that session.
    pub attached: bool,
    /// Whether it starts although services that the service depends on do not run.
    pub no_dependencies: bool,
}

/// A one-off job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneOffJob {
    /// Its namespace.
    pub namespace: String,
    /// The deployment it is.
    pub deployment: String,
    /// Printed id of its only replica.
    pub replica: String,
}

/// Deployments and their replicas, from one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The deployments.
    pub deployments: Vec<Deployment>,
    /// Their replicas.
    pub replicas: Vec<Replica>,
    /// Published ports of theirs that a node cannot listen on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PortCondition>,
}

/// A published port that a node cannot listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCondition {
    /// The node.
    pub node: String,
    /// `port_taken_on_node`.
    pub code: String,
    /// Why, and what can be done.
    pub message: String,
    /// The published port.
    pub port: u16,
    /// Its transport.
    pub protocol: Protocol,
}

/// A manifest that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedManifest {
    /// Its namespace.
    pub namespace: String,
    /// The deployment.
    pub deployment: String,
    /// The current revision.
    pub revision: u64,
    /// Whether anything changed.
    pub changed: Changed,
    /// Index of the state after the change.
    pub index: u64,
    /// Warnings, as `file:line:column: warning: …`.
    pub warnings: Vec<String>,
}

/// Whether a request changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    /// Something changed.
    Yes,
    /// Nothing changed.
    No,
}

/// Scales a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleRequest {
    /// The new number of replicas.
    pub replicas: u32,
}

/// Rolls a deployment back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RollbackRequest {
    /// A kept revision; the previous one unless given.
    pub to: Option<u64>,
}

/// One deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: DeploymentStatus,
    /// Reasons for the status.
    pub reasons: Vec<StatusReason>,
    /// The current revision.
    pub revision: u64,
    /// Revisions that are kept.
    pub revisions: Vec<u64>,
    /// The rollout in progress, or the last one that ended.
    pub rollout: Option<Rollout>,
    /// Its services.
    pub services: Vec<Service>,
    /// The deployment whose command this one-off job runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_off_of: Option<String>,
}

/// One service of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Placement strategy.
    pub strategy: String,
    /// Driver that starts its replicas.
    pub driver: Driver,
    /// Number of replicas that should run.
    pub desired: u32,
    /// The older name of `desired`: the same number.
    pub wanted: u32,
    /// Slots with a running replica.
    pub running: u32,
    /// Slots whose replica has completed: they are done, and do not run.
    #[serde(default)]
    pub completed: u32,
    /// Its published ports.
    #[serde(default)]
    pub ports: Vec<Port>,
}

/// A published port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Port inside the replica.
    pub target: u16,
    /// Published port; the engine chooses one if absent.
    pub published: Option<u16>,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: Protocol,
    /// `ingress`: everywhere in the cluster; `host`: on the replica's node.
    pub mode: PortMode,
    /// The only address it listens on; absent for every address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<String>,
}

impl From<&longshore_model::service::Port> for Port {
    fn from(port: &longshore_model::service::Port) -> Self {
        Self {
            target: port.target,
            published: port.published,
            protocol: port.protocol.into(),
            mode: port.mode.into(),
            host_ip: port.host_ip.map(|ip| ip.to_string()),
        }
    }
}

/// A rollout of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Counted per deployment.
    pub number: u64,
    /// The revision that is replaced.
    pub from: u64,
    /// The revision that is rolled out.
    pub to: u64,
    /// Its state.
    pub state: RolloutState,
    /// The replica it waits for; absent if it waits for an operator, or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Awaited>,
    /// Steps: slots added, changed and removed.
    #[serde(default)]
    pub total_steps: u32,
    /// Steps that are done.
    #[serde(default)]
    pub current_step: u32,
    /// Steps that failed.
    #[serde(default)]
    pub failed_steps: u32,
    /// How it failed, if it was paused, aborted or rolled back because of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<Code>,
    /// The replica that failed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_replica: Option<String>,
    /// What was last known of that replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailedReplica>,
}

/// The last observation of the replica that failed a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedReplica {
    /// Its generation.
    pub generation: u32,
    /// Its node, if it had one.
    pub node: Option<String>,
    /// Its last state.
    pub state: ReplicaState,
    /// The code of that state.
    pub code: Option<Code>,
    /// Details of the code, such as `exit_code`, `reason` and `last_lines`.
    pub details: BTreeMap<String, Value>,
}

impl From<&longshore_model::rollout::FailedReplica> for FailedReplica {
    fn from(failed: &longshore_model::rollout::FailedReplica) -> Self {
        Self {
            generation: failed.generation.0,
            node: failed.node.as_ref().map(ToString::to_string),
            state: failed.state.into(),
            code: failed.code.map(Code::from),
            details: particulars(&failed.details),
        }
    }
}

/// A replica that a rollout waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// Its printed id.
    pub replica: String,
    /// Why it is not ready: a code, or a state where there is none.
    pub code: StatusReason,
}

impl From<&longshore_model::Rollout> for Rollout {
    fn from(rollout: &longshore_model::Rollout) -> Self {
        Self {
            number: rollout.number.0,
            from: rollout.from.0,
            to: rollout.to.0,
            state: rollout.state.into(),
            waits_for: None,
            total_steps: 0,
            current_step: 0,
            failed_steps: 0,
            failure_reason: rollout.failure.as_ref().map(|failure| Code::from(failure.code.code())),
            failed_replica: None,
            failure: rollout.failure.as_ref().and_then(|failure| failure.observed.as_ref()).map(FailedReplica::from),
        }
    }
}
