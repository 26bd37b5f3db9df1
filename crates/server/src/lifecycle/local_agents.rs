//! The agents of this process, one per node.
//!
//! A daemon is one node. For trying things out it can be several: each has its own name, folder, agent and an equal
//! share of the machine.
//!
//! Owns: which nodes those are, their folders, and isolating one as a cut cable would.
//! Must not touch: what an agent does. Invariant: a node that has a folder has an agent, so that its replicas are
//! managed even if fewer nodes are configured later; those that are no longer configured are removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::{IpAddr, ToSocketAddrs as _, UdpSocket},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_agent::{Agent, AgentConfig, AgentHandle, DockerConfig, ExecConfig};
use longshore_model::{NodeName, node::NodeFingerprint};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    lifecycle::{
        daemon::{ServerConfig, StartError},
        data_folder::FolderError,
        node_context::NodeContext,
        surplus_nodes::{self, Retired},
    },
    node_rpc::control_link::{LinkState, NodeLink},
};

/// Folder of the extra nodes.
const EXTRA_NODES_DIR: &str = "agents";
/// Time between two fingerprints of the machine.
const RECHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Time between two attempts to report it.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// All agents of this process, by node.
#[derive(Default)]
pub(crate) struct LocalAgents(Mutex<BTreeMap<NodeName, LocalAgent>>);

struct LocalAgent {
    handle: Arc<AgentHandle>,
    state: watch::Sender<LinkState>,
    announcing: JoinHandle<()>,
}

impl LocalAgents {
    /// Starts an agent for each node.
    pub(crate) fn start(&self, ctx: &Arc<NodeContext>, config: &ServerConfig) -> Result<(), StartError> {
        let nodes = nodes_of(config).map_err(|cause| FolderError::Io { path: config.data_dir.clone(), cause })?;
        let surplus = surplus_of(config, &nodes);
        // Only the nodes that stay share the machine: replicas that move need room on them.
        let shares = watch::Sender::new((nodes.len() - surplus.len()) as u64);
        for node in &nodes {
            let (state, link_state) = watch::channel(LinkState::Connected);
            let link = Arc::new(NodeLink { node: node.clone(), ctx: Arc::clone(ctx), state: link_state });
            let record = ctx.record();
            let mut settings = agent_config(node, config, record.cluster);
            if let (Some(docker), Some(ip)) = (&mut settings.docker, reachable_ip(record.address.as_deref())) {
                docker.ingress_bind = ip;
            }
            settings.overlay = ctx.host_overlay.handle();
            let handle = Agent::start(&settings, Arc::clone(&link) as _)?;
            let handle = Arc::new(handle);
            let announcing = if surplus.contains(node) {
                let (folder, shares) = (folder_of(node, config), shares.clone());
                tokio::spawn(retire(link, Arc::clone(&handle), folder, shares))
            } else {
                tokio::spawn(announce(link, Arc::clone(&handle), shares.subscribe()))
            };
            self.all().insert(node.clone(), LocalAgent { handle, state, announcing });
        }
        Ok(())
    }

    /// Isolates a node or heals it; `None` if it is not a node of this process.
    pub(crate) fn set_link_state(&self, node: &NodeName, state: LinkState) -> Option<()> {
        self.all().get(node).map(|local| {
            local.state.send_replace(state);
        })
    }

    /// The agent of a node of this process, and the state of its link.
    pub(crate) fn of(&self, node: &NodeName) -> Option<(Arc<AgentHandle>, LinkState)> {
        self.all().get(node).map(|local| (Arc::clone(&local.handle), *local.state.borrow()))
    }

    /// Whether every node of this process is isolated. Without agents, none is.
    pub(crate) fn all_isolated(&self) -> bool {
        let all = self.all();
        !all.is_empty() && all.values().all(|local| *local.state.borrow() == LinkState::Isolated)
    }

    /// The agents whose nodes are not isolated, by node.
    pub(crate) fn connected(&self) -> Vec<(NodeName, Arc<AgentHandle>)> {
        let all = self.all();
        let connected = all.iter().filter(|(_, local)| *local.state.borrow() == LinkState::Connected);
        connected.map(|(node, local)| (node.clone(), Arc::clone(&local.handle))).collect()
    }

    /// Stops all agents, and nothing they run.
    pub(crate) fn shut_down(&self) {
        // Taken out, because an agent holds the context and the context must not hold the agent for ever.
        for local in std::mem::take(&mut *self.all()).into_values() {
            local.announcing.abort();
            local.handle.shut_down();
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<NodeName, LocalAgent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports the machine's fingerprint, and again whenever it changes: an engine may start long after the daemon.
async fn announce(link: Arc<NodeLink>, agent: Arc<AgentHandle>, mut shares: watch::Receiver<u64>) {
    let mut told = None;
    let mut turns = agent.driver_changes();
    let mut overlay = link.ctx.overlay_report.subscribe();
    loop {
        turns.mark_unchanged();
        let survey = agent.fingerprint().await;
        let network = overlay.borrow_and_update().clone();
        let survey = NodeFingerprint { network, ..share_of(survey, *shares.borrow_and_update()) };
        if told.as_ref() == Some(&survey) {
            // A driver that came back is reported at once, and so is a change of the overlay.
            tokio::select! {
                _ = tokio::time::timeout(RECHECK_INTERVAL, turns.changed()) => {}
                Ok(()) = shares.changed() => {}
                Ok(()) = overlay.changed() => {}
            }
            continue;
        }
        match link.hello(survey.clone()).await {
            Ok(()) => told = Some(survey),
            Err(error) => {
                tracing::debug!(%error, "the fingerprint was not reported yet");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Removes a node that is no longer configured, with its agent and folder. One that has to stay takes its share of the
/// machine again.
async fn retire(link: Arc<NodeLink>, agent: Arc<AgentHandle>, folder: PathBuf, shares: watch::Sender<u64>) {
    match surplus_nodes::retire(&link.ctx, &link.node).await {
        Retired::Stays => {
            shares.send_modify(|count| *count += 1);
            announce(link, agent, shares.subscribe()).await;
        }
        Retired::Removed => {
            agent.shut_down();
            link.ctx.agents.all().remove(&link.node);
            surplus_nodes::delete_folder(&folder, &link.ctx);
            tracing::info!(node = %link.node, "the node is removed");
        }
    }
}

/// The nodes of earlier starts that are no longer configured.
fn surplus_of(config: &ServerConfig, nodes: &BTreeSet<NodeName>) -> BTreeSet<NodeName> {
    nodes.iter().filter(|node| **node != config.node && !config.extra_nodes.contains(node)).cloned().collect()
}

/// The nodes that a daemon with this configuration removes when it starts, because it is to have fewer than before.
pub fn surplus_nodes(config: &ServerConfig) -> Vec<NodeName> {
    nodes_of(config).map(|nodes| surplus_of(config, &nodes).into_iter().collect()).unwrap_or_default()
}

/// One node's share of the machine.
fn share_of(mut survey: NodeFingerprint, shared_by: u64) -> NodeFingerprint {
    let capacity = &mut survey.capacity;
    capacity.cpu_millis /= shared_by;
    if shared_by > 1 {
        capacity.memory_bytes = share(capacity.memory_bytes, shared_by);
        capacity.disk_bytes = capacity.disk_bytes.map(|bytes| share(bytes, shared_by));
        let flags = &mut survey.flags;
        flags.reserved_cpu_millis = flags.reserved_cpu_millis.map(|millis| millis / shared_by);
        for reserved in [&mut flags.reserved_memory_bytes, &mut flags.reserved_disk_bytes] {
            *reserved = reserved.map(|bytes| share(bytes, shared_by));
        }
    }
    survey
}

/// In whole mebibytes, which are easier to read.
const fn share(bytes: u64, shared_by: u64) -> u64 {
    (bytes / shared_by) >> 20 << 20
}

/// Every node of this process: the configured ones, and those that have a folder already.
pub(crate) fn nodes_of(config: &ServerConfig) -> io::Result<BTreeSet<NodeName>> {
    let mut nodes: BTreeSet<NodeName> = config.extra_nodes.iter().cloned().collect();
    nodes.insert(config.node.clone());
    match fs::read_dir(config.data_dir.join(EXTRA_NODES_DIR)) {
        Ok(found) => {
            for entry in found {
                nodes.extend(entry?.file_name().to_str().map(NodeName::from));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(nodes)
}

fn agent_config(node: &NodeName, config: &ServerConfig, cluster_id: impl Into<String>) -> AgentConfig {
    let mut agent = AgentConfig::new(node.clone(), cluster_id, folder_of(node, config));
    agent.docker = (!config.docker.is_empty()).then(|| DockerConfig::at_any(config.docker.clone()));
    if let Some(docker) = agent.docker.as_mut().filter(|_| *node != config.node) {
        docker.volume_suffix = Some(node.to_string());
    }
    agent.disk_bytes = config.disk_bytes;
    agent.flags = config.attributes.clone();
    // A device cannot be shared between the nodes of one machine: the first has them all.
    if *node != config.node {
        agent.flags.devices.clear();
        agent.finds_devices = false;
    }
    agent.exec = config.shim.clone().map(|shim| ExecConfig { shim });
    agent
}

/// The address at which other nodes reach published containers of this one: the advertised one, if this machine has it.
pub(crate) fn reachable_ip(advertised: Option<&str>) -> Option<IpAddr> {
    let ips = advertised?.to_socket_addrs().ok()?.map(|address| address.ip());
    let is_own = |ip: &IpAddr| UdpSocket::bind((*ip, 0)).is_ok();
    ips.filter(|ip| !ip.is_loopback() && !ip.is_unspecified()).find(is_own)
}

fn folder_of(node: &NodeName, config: &ServerConfig) -> PathBuf {
    if *node == config.node {
        return config.data_dir.join("agent");
    }
    config.data_dir.join(EXTRA_NODES_DIR).join(node.as_str())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_model::{Capacity, NodeAttributes, Platform};
    use longshore_network::OverlayMode;

    use super::*;

    fn config(folder: &Path, extra_nodes: &[&str]) -> ServerConfig {
        ServerConfig {
            data_dir: folder.to_owned(),
            node: "n1".into(),
            extra_nodes: extra_nodes.iter().map(|name| (*name).into()).collect(),
            socket: folder.join("socket"),
            listen: None,
            advertise: None,
            http: None,
            disk_bytes: None,
            attributes: NodeAttributes::default(),
            docker: Vec::new(),
            overlay: OverlayMode::Off,
            shim: None,
            dataplane: None,
        }
    }

    #[test]
    fn a_node_that_has_a_folder_keeps_its_agent() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(nodes_of(&config(folder.path(), &[])).unwrap(), BTreeSet::from(["n1".into()]));
        fs::create_dir_all(folder.path().join("agents/n3")).unwrap();
        let nodes = nodes_of(&config(folder.path(), &["n2"])).unwrap();
        assert_eq!(nodes, ["n1", "n2", "n3"].map(NodeName::from).into());
        assert_eq!(surplus_nodes(&config(folder.path(), &["n2"])), [NodeName::from("n3")]);
    }

    #[test]
    fn no_two_nodes_share_a_folder() {
        let config = config(Path::new("/data"), &["n2"]);
        assert_eq!(folder_of(&"n1".into(), &config), Path::new("/data/agent"));
        assert_eq!(folder_of(&"n2".into(), &config), Path::new("/data/agents/n2"));
    }

    #[test]
    fn nodes_of_one_machine_share_its_capacity() {
        let capacity =
            Capacity { cpu_millis: 6000, memory_bytes: 10 << 20, disk_bytes: Some(30 << 20), ..Capacity::default() };
        let survey = NodeFingerprint {
            platform: Platform::new("linux", "amd64"),
            capacity,
            drivers: BTreeSet::new(),
            engine_labels: BTreeMap::new(),
            plugins: BTreeSet::new(),
            network: None,
            flags: NodeAttributes::default(),
        };
        let third = share_of(survey, 3).capacity;
        assert_eq!((third.cpu_millis, third.memory_bytes, third.disk_bytes), (2000, 3 << 20, Some(10 << 20)));
    }
}
