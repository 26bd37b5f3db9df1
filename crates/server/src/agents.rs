//! The agents of this process, one for each node it stands for.
//!
//! A daemon is one node. To try things out it can be several: each has its name, its folder, its agent and an equal share
//! of the machine, and nothing but the machine in common.
//!
//! Owns: which nodes those are, their folders, and cutting one off as a torn cable would.
//! Must not touch: what an agent does. Invariant: a node that has a folder has an agent, so that what runs is never left
//! without one because fewer nodes were asked for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_agent::{Agent, AgentConfig, AgentHandle, DockerConfig, ExecConfig};
use longshore_model::{NodeName, node::Survey};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    daemon::{ServerConfig, StartError},
    folder::FolderError,
    hub::Hub,
    link::{Link, Reach},
};

/// Folders of the nodes beside the daemon's own.
const BESIDE: &str = "agents";
/// Time between two looks at what this machine has, when the last was told.
const SURVEY: Duration = Duration::from_mins(1);
/// Time between two tries to tell it.
const RETRY: Duration = Duration::from_millis(500);

/// All agents of this process, by node.
#[derive(Default)]
pub(crate) struct Agents(Mutex<BTreeMap<NodeName, Local>>);

struct Local {
    handle: Arc<AgentHandle>,
    reach: watch::Sender<Reach>,
    introducing: JoinHandle<()>,
}

impl Agents {
    /// Starts an agent for each node.
    pub(crate) fn start(&self, hub: &Arc<Hub>, config: &ServerConfig) -> Result<(), StartError> {
        let nodes = nodes_of(config).map_err(|cause| FolderError::Io { path: config.data_dir.clone(), cause })?;
        for node in &nodes {
            let (reach, reached) = watch::channel(Reach::Whole);
            let link = Arc::new(Link { node: node.clone(), hub: Arc::clone(hub), reach: reached });
            let handle = Agent::start(&agent_config(node, config, hub.place().cluster), Arc::clone(&link) as _)?;
            let handle = Arc::new(handle);
            let introducing = tokio::spawn(introduce(link, Arc::clone(&handle), nodes.len() as u64));
            self.all().insert(node.clone(), Local { handle, reach, introducing });
        }
        Ok(())
    }

    /// Cuts a node off, or mends it; nothing where it is not one of ours.
    pub(crate) fn set_reach(&self, node: &NodeName, reach: Reach) -> Option<()> {
        self.all().get(node).map(|local| {
            local.reach.send_replace(reach);
        })
    }

    /// The agent of a node, if it is one of ours, and whether it is to be reached.
    pub(crate) fn of(&self, node: &NodeName) -> Option<(Arc<AgentHandle>, Reach)> {
        self.all().get(node).map(|local| (Arc::clone(&local.handle), *local.reach.borrow()))
    }

    /// Ends all agents, and nothing they run.
    pub(crate) fn shut_down(&self) {
        // Taken out: an agent holds the hub, and the hub must not hold it for ever.
        for local in std::mem::take(&mut *self.all()).into_values() {
            local.introducing.abort();
            local.handle.shut_down();
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<NodeName, Local>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what this machine has, and again whenever that changes: an engine may come up long after the daemon.
async fn introduce(link: Arc<Link>, agent: Arc<AgentHandle>, shared_by: u64) {
    let mut told = None;
    let mut turns = agent.driver_turns();
    loop {
        turns.mark_unchanged();
        let survey = share_of(agent.survey().await, shared_by);
        if told.as_ref() == Some(&survey) {
            // An engine that is back is offered at once.
            let _ = tokio::time::timeout(SURVEY, turns.changed()).await;
            continue;
        }
        match link.hello(survey.clone()).await {
            Ok(()) => told = Some(survey),
            Err(error) => {
                tracing::debug!(%error, "not introduced yet");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// What one of several nodes has of a machine they have in common.
fn share_of(mut survey: Survey, shared_by: u64) -> Survey {
    let capacity = &mut survey.capacity;
    capacity.cpu_millis /= shared_by;
    if shared_by > 1 {
        capacity.memory_bytes = share(capacity.memory_bytes, shared_by);
        capacity.disk_bytes = capacity.disk_bytes.map(|bytes| share(bytes, shared_by));
    }
    survey
}

/// In whole mebibytes, which people can read.
const fn share(bytes: u64, shared_by: u64) -> u64 {
    (bytes / shared_by) >> 20 << 20
}

/// Every node this process stands for: those asked for, and those that have a folder already.
pub(crate) fn nodes_of(config: &ServerConfig) -> io::Result<BTreeSet<NodeName>> {
    let mut nodes: BTreeSet<NodeName> = config.beside.iter().cloned().collect();
    nodes.insert(config.node.clone());
    match fs::read_dir(config.data_dir.join(BESIDE)) {
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
    agent.docker = config.docker.as_ref().map(DockerConfig::at);
    agent.exec = config.shim.clone().map(|shim| ExecConfig { shim });
    agent
}

fn folder_of(node: &NodeName, config: &ServerConfig) -> PathBuf {
    if *node == config.node {
        return config.data_dir.join("agent");
    }
    config.data_dir.join(BESIDE).join(node.as_str())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_model::{Capacity, Platform};

    use super::*;

    fn config(folder: &Path, beside: &[&str]) -> ServerConfig {
        ServerConfig {
            data_dir: folder.to_owned(),
            node: "n1".into(),
            beside: beside.iter().map(|name| (*name).into()).collect(),
            socket: folder.join("socket"),
            listen: None,
            advertise: None,
            http: None,
            docker: None,
            shim: None,
        }
    }

    #[test]
    fn a_node_that_was_once_there_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(nodes_of(&config(folder.path(), &[])).unwrap(), BTreeSet::from(["n1".into()]));
        fs::create_dir_all(folder.path().join("agents/n3")).unwrap();
        let nodes = nodes_of(&config(folder.path(), &["n2"])).unwrap();
        assert_eq!(nodes, ["n1", "n2", "n3"].map(NodeName::from).into());
    }

    #[test]
    fn no_two_nodes_share_a_folder() {
        let config = config(Path::new("/data"), &["n2"]);
        assert_eq!(folder_of(&"n1".into(), &config), Path::new("/data/agent"));
        assert_eq!(folder_of(&"n2".into(), &config), Path::new("/data/agents/n2"));
    }

    #[test]
    fn nodes_of_one_machine_do_not_promise_it_twice() {
        let capacity =
            Capacity { cpu_millis: 6000, memory_bytes: 10 << 20, disk_bytes: Some(30 << 20), ..Capacity::default() };
        let survey = Survey {
            platform: Platform::new("linux", "amd64"),
            capacity,
            drivers: BTreeSet::new(),
            engine_labels: BTreeMap::new(),
            plugins: BTreeSet::new(),
        };
        let third = share_of(survey, 3).capacity;
        assert_eq!((third.cpu_millis, third.memory_bytes, third.disk_bytes), (2000, 3 << 20, Some(10 << 20)));
    }
}
