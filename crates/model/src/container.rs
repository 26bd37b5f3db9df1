//! Everything fixed when a container or process is created: what the spec hash covers besides resources and mounts.
//!
//! Owns: the resolved Compose keys that reach the driver unchanged.
//! Must not touch: placement, counts, update policy: those are in [`crate::service`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::SecretName;

/// What to run and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Image reference.
    pub image: String,
    /// Arguments, replacing the image's.
    pub command: Option<Vec<String>>,
    /// Program, replacing the image's.
    pub entrypoint: Option<Vec<String>>,
    /// Environment; a missing value is taken from the host.
    pub environment: BTreeMap<String, Option<String>>,
    /// Labels on the container.
    pub labels: BTreeMap<String, String>,
    /// The health check, where there is one.
    pub healthcheck: Option<Healthcheck>,
    /// Signal that asks it to stop, where not the image's.
    pub stop_signal: Option<String>,
    /// Time between that signal and SIGKILL.
    pub stop_grace_period: Option<Duration>,
    /// Log driver, where one is named.
    pub log_driver: Option<String>,
    /// Options of the log driver.
    #[serde(default)]
    pub log_options: BTreeMap<String, String>,
    /// Metadata for the runtime.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// User, and after a colon group, the program runs as.
    #[serde(default)]
    pub user: Option<String>,
    /// Further groups.
    #[serde(default)]
    pub groups: BTreeSet<String>,
    /// Directory it starts in.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// Host name inside.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Domain name inside.
    #[serde(default)]
    pub domainname: Option<String>,
    /// Boolean settings that are on.
    #[serde(default)]
    pub switches: BTreeSet<Switch>,
    /// Capabilities and security profiles.
    #[serde(default)]
    pub security: Security,
    /// What it shares with the host or with other containers.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// DNS settings.
    #[serde(default)]
    pub resolver: Resolver,
    /// Kernel limits beyond memory and CPU.
    #[serde(default)]
    pub limits: Limits,
    /// Devices of the host, each `host:container:permissions`.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Accelerators requested from the engine.
    #[serde(default)]
    pub device_requests: Vec<EngineDeviceRequest>,
    /// Secrets and configs mounted as files.
    #[serde(default)]
    pub files: Vec<FileMount>,
    /// Runtime of the engine, where not its default.
    #[serde(default)]
    pub runtime: Option<String>,
    /// When the image is pulled; `None` is when it is missing.
    #[serde(default)]
    pub pull_policy: Option<PullPolicy>,
    /// Commands run inside after each start.
    #[serde(default)]
    pub post_start: Vec<Hook>,
    /// Commands run inside before each stop.
    #[serde(default)]
    pub pre_stop: Vec<Hook>,
}

/// A boolean setting of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Switch {
    /// An init process reaps orphaned children.
    Init,
    /// The root file system is read-only.
    ReadOnly,
    /// All of the host's devices and capabilities.
    Privileged,
    /// A terminal is allocated.
    Tty,
    /// Standard input stays open.
    StdinOpen,
    /// The kernel may not kill it for memory.
    OomKillDisable,
}

/// Capabilities and security profiles of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    /// Capabilities added.
    pub cap_add: BTreeSet<String>,
    /// Capabilities dropped.
    pub cap_drop: BTreeSet<String>,
    /// `security_opt`: labels and profiles.
    pub options: BTreeSet<String>,
    /// Cgroup rules for devices created after the start.
    pub device_cgroup_rules: Vec<String>,
}

/// What a container shares with the host or with other containers; `None` is its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Network: `none`, `host`, `service:x`.
    pub network: Option<String>,
    /// Shared memory and semaphores.
    pub ipc: Option<String>,
    /// Processes.
    pub pid: Option<String>,
    /// Host name.
    pub uts: Option<String>,
    /// Users.
    pub user: Option<String>,
    /// Control groups.
    pub cgroup: Option<String>,
    /// Control group it is put under.
    pub cgroup_parent: Option<String>,
}

/// DNS settings of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolver {
    /// Servers, in order.
    pub dns: Vec<String>,
    /// Search domains, in order.
    pub dns_search: Vec<String>,
    /// Options.
    pub dns_opt: Vec<String>,
    /// Names with fixed addresses.
    pub extra_hosts: BTreeMap<String, BTreeSet<String>>,
}

/// Kernel limits beyond memory and CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes.
    pub pids: Option<i64>,
    /// Size of shared memory.
    pub shm_size_bytes: Option<u64>,
    /// Memory and swap together; -1 is unlimited.
    pub memory_swap_bytes: Option<i64>,
    /// 0 to 100.
    pub memory_swappiness: Option<u64>,
    /// Weight among containers.
    pub cpu_shares: Option<u64>,
    /// Cores it is bound to.
    pub cpuset: Option<String>,
    /// Adjustment of the OOM score, -1000 to 1000.
    pub oom_score_adj: Option<i64>,
    /// Kernel parameters.
    pub sysctls: BTreeMap<String, String>,
    /// Limits per process, by name.
    pub ulimits: BTreeMap<String, Ulimit>,
    /// Options of the storage driver.
    pub storage_options: BTreeMap<String, String>,
}

/// A limit per process; -1 is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ulimit {
    /// The enforced limit.
    pub soft: i64,
    /// The value up to which the process may raise the soft limit.
    pub hard: i64,
}

/// Accelerators requested from the engine. How many count against the node is in the service's resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EngineDeviceRequest {
    /// Driver of the device, where one is named.
    pub driver: Option<String>,
    /// How many; `None` is all of them, or those in `ids`.
    pub count: Option<u64>,
    /// The requested devices, where named.
    pub ids: Vec<String>,
    /// Capabilities they must have.
    pub capabilities: BTreeSet<String>,
    /// Options of the driver.
    pub options: BTreeMap<String, String>,
}

/// The registry host of an image reference, by the engines' rule: a first path segment that has a dot or a colon, or is
/// `localhost`, is a host; without one it is `docker.io`.
pub fn registry_of(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        Some(_) | None => "docker.io",
    }
}

/// Name of the secret that stores the login of a registry; no manifest can refer to a name with a colon.
pub fn registry_login_secret(registry: &str) -> SecretName {
    format!("registry:{registry}").as_str().into()
}

/// A secret or config mounted as a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileMount {
    /// Path in the container.
    pub target: String,
    /// Its name in the cluster.
    pub name: SecretName,
    /// Secret or config.
    pub kind: FileKind,
    /// Owner, where named.
    pub uid: Option<String>,
    /// Group, where named.
    pub gid: Option<String>,
    /// Permission bits, where named.
    pub mode: Option<u32>,
}

/// Kind of a mounted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// Stored encrypted, never printed.
    Secret,
    /// Stored as plain text.
    Config,
}

/// When the image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullPolicy {
    /// The registry is asked at every apply.
    Always,
    /// When the node does not have it.
    Missing,
    /// Never.
    Never,
    /// It is built; the registry is asked only if no node has it.
    Build,
}

/// A command run in a container after its start or before its stop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Program and arguments.
    pub command: Vec<String>,
    /// User it runs as, where not the container's.
    pub user: Option<String>,
    /// Directory it runs in, where not the container's.
    pub working_dir: Option<String>,
    /// Variables added to the container's environment.
    pub environment: BTreeMap<String, Option<String>>,
    /// Whether it runs privileged.
    pub privileged: bool,
}

/// The health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healthcheck {
    /// The probe in Compose's form, with `CMD`, `CMD-SHELL` or `NONE` first.
    pub test: Vec<String>,
    /// Time between probes.
    pub interval: Duration,
    /// Time one probe may take.
    pub timeout: Duration,
    /// Failures in a row that make it unhealthy.
    pub retries: u32,
    /// Time after the start in which failures do not count.
    pub start_period: Duration,
    /// Time between probes in the start period.
    pub start_interval: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_host_is_derived_from_the_image_reference() {
        assert_eq!(registry_of("nginx"), "docker.io");
        assert_eq!(registry_of("library/nginx:1"), "docker.io");
        assert_eq!(registry_of("127.0.0.1:5000/web"), "127.0.0.1:5000");
        assert_eq!(registry_of("localhost/web"), "localhost");
    }
}
