//! The settings of an agent and of its drivers.
//!
//! Owns: their defaults.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use longshore_model::{NodeAttributes, NodeName};
use longshore_network::OverlayHandle;

/// Settings of one agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The node it runs on.
    pub node: NodeName,
    /// The cluster it belongs to. Containers, networks and volumes with another id are foreign.
    pub cluster_id: String,
    /// Where it keeps what must survive a restart of the agent.
    pub data_dir: PathBuf,
    /// Where secrets are written for replicas to read. A tmpfs is mounted there unless it is one already.
    pub secrets_dir: PathBuf,
    /// The same for plain processes of other users, which cannot look into the data folder; `None` where there are none.
    pub users_secrets_dir: Option<PathBuf>,
    /// Disk that replicas may use, counted by the scheduler; not counted unless given.
    pub disk_bytes: Option<u64>,
    /// What the operator declares about this node by flags.
    pub flags: NodeAttributes,
    /// Whether it looks for devices of this machine.
    pub finds_devices: bool,
    /// Where the kernel lists the devices of this machine.
    pub sysfs: PathBuf,
    /// Enables the Docker driver.
    pub docker: Option<DockerConfig>,
    /// Enables the Exec driver.
    pub exec: Option<ExecConfig>,
    /// Where replicas get their overlay addresses; without it, the engine's networks and the machine's ports are used.
    pub overlay: Option<OverlayHandle>,
    /// Time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// Time between two samples of pressure and usage, 5 s to 5 min.
    pub status_interval: Duration,
    /// Most starts at once, over all drivers. More would not be faster and would slow down what already runs.
    pub parallel_starts: usize,
    /// Most image pulls at once.
    pub parallel_pulls: usize,
    /// How long a replica with published ports keeps serving after its stop was decided, so that clients can stop
    /// sending it requests. Never longer than its grace period.
    pub deregistration_delay: Duration,
}

impl AgentConfig {
    /// The defaults, without any driver.
    pub fn new(node: NodeName, cluster_id: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
        let data_dir = data_dir.into();
        Self {
            node,
            cluster_id: cluster_id.into(),
            secrets_dir: data_dir.join("secrets"),
            users_secrets_dir: users_secrets_dir(&data_dir),
            data_dir,
            disk_bytes: None,
            flags: NodeAttributes::default(),
            finds_devices: true,
            sysfs: PathBuf::from("/sys"),
            docker: None,
            exec: None,
            overlay: None,
            heartbeat_interval: Duration::from_secs(1),
            status_interval: Duration::from_secs(30),
            parallel_starts: 8,
            parallel_pulls: 8,
            // The time in which the rest of the cluster routes around a failed replica.
            deregistration_delay: Duration::from_secs(1),
        }
    }
}

/// Only an agent of root can start processes as other users. The name of the data folder tells several agents of one
/// machine apart.
fn users_secrets_dir(data_dir: &Path) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let absolute = std::path::absolute(data_dir).ok()?;
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let name: String = absolute.to_string_lossy().chars().map(letter).collect();
    // Names of files have at most 255 bytes, and the end of a path tells more than its start.
    let end = name.len().saturating_sub(200);
    Some(Path::new("/run/longshore/secrets").join(name[end..].trim_start_matches('-')))
}

/// Settings of the Docker driver.
#[derive(Clone, Debug)]
pub struct DockerConfig {
    /// Where the engine's socket may be, in the order in which they are tried until one answers.
    pub sockets: Vec<PathBuf>,
    /// Appended to the engine's name of volumes that a service has one of per node, for a node that shares its engine
    /// with another.
    pub volume_suffix: Option<String>,
    /// Host address that ingress ports are bound to. The engine chooses the port number.
    pub ingress_bind: IpAddr,
}

impl DockerConfig {
    /// The engine at this socket, with ingress ports bound to the loopback address.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self::at_any(vec![socket.into()])
    }

    /// The engine at the first of these sockets that answers, now or later.
    pub fn at_any(sockets: Vec<PathBuf>) -> Self {
        Self { sockets, volume_suffix: None, ingress_bind: IpAddr::from([127, 0, 0, 1]) }
    }
}

/// Settings of the Exec driver.
#[derive(Clone, Debug)]
pub struct ExecConfig {
    /// The command that enters [`crate::shim::main`]; the shim's own arguments follow.
    pub shim: Vec<String>,
}
