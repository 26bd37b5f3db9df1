//! What an agent must be told before it starts.
//!
//! Owns: settings of one node, with their defaults.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use longshore_model::NodeName;

/// Settings of one agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The node it stands for.
    pub node: NodeName,
    /// The cluster it belongs to. What carries another id is not ours.
    pub cluster_id: String,
    /// Where it keeps what must survive a restart.
    pub data_dir: PathBuf,
    /// Where secrets are put for replicas to read. Memory, never disk; where it is not, a tmpfs is mounted there.
    pub secrets_dir: PathBuf,
    /// Containers, where there is an engine.
    pub docker: Option<DockerConfig>,
    /// Plain processes, where they are allowed.
    pub exec: Option<ExecConfig>,
    /// Time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// Time between two samples of pressure and usage, 5 s to 5 min.
    pub status_interval: Duration,
    /// Starts under way at once, per driver. More would not be faster and would starve what already runs.
    pub parallel_starts: usize,
    /// Images fetched at once.
    pub parallel_pulls: usize,
    /// How long a replica that can be reached from outside goes on serving after it was told to stop: whoever sends it
    /// requests needs this time to hear of it. Never longer than its grace.
    pub farewell: Duration,
}

impl AgentConfig {
    /// Settings of a node without any driver.
    pub fn new(node: NodeName, cluster_id: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
        let data_dir = data_dir.into();
        Self {
            node,
            cluster_id: cluster_id.into(),
            secrets_dir: data_dir.join("secrets"),
            data_dir,
            docker: None,
            exec: None,
            heartbeat_interval: Duration::from_secs(1),
            status_interval: Duration::from_secs(30),
            parallel_starts: 8,
            parallel_pulls: 8,
            // What the rest of the cluster may take to route around a replica that fails.
            farewell: Duration::from_secs(1),
        }
    }
}

/// Settings of the Docker driver.
#[derive(Clone, Debug)]
pub struct DockerConfig {
    /// The engine's socket.
    pub socket: PathBuf,
    /// Address of the host on which ports of the cluster's ingress are reachable on this node. The engine picks the number.
    pub ingress_bind: IpAddr,
}

impl DockerConfig {
    /// An engine at this socket, with ingress ports for the node alone.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), ingress_bind: IpAddr::from([127, 0, 0, 1]) }
    }
}

/// Settings of the Exec driver.
#[derive(Clone, Debug)]
pub struct ExecConfig {
    /// The command that enters [`crate::shim::main`]; the shim's own arguments follow.
    pub shim: Vec<String>,
}
