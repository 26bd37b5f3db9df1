//! The dataplane of this machine, one for all nodes of this process, fed by the control plane.
//!
//! Owns: the feed of the network state, and `network.json`, from which a daemon that finds no server goes on.
//! Must not touch: how a port is served, and how a name is answered. Invariant: nothing but a message of the control plane closes a port, or takes
//! an endpoint away; a link that is cut changes nothing.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_durable_file::{self as durable_file, Durability};
use longshore_model::{NodeName, node::NodeCondition};
use longshore_network::{
    NetworkFeed, NetworkState,
    dataplane::{Dataplane, DataplaneClient, DataplaneCommand, DataplaneReport, STATE_FILE},
};
use tokio::{sync::mpsc, task::AbortHandle};

use crate::{
    lifecycle::{
        daemon::{ServerConfig, StartError},
        data_folder::FolderError,
        local_agents::nodes_of,
        node_context::NodeContext,
    },
    node_rpc::control_link::NodeLink,
};

/// Shortest and longest pause between two attempts to open the feed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Time between two looks at the mesh.
const MESH_REPORT: Duration = Duration::from_millis(500);
/// Time between two looks whether every node of this process was isolated.
const ISOLATION_CHECK: Duration = Duration::from_millis(500);

/// The dataplane of this machine, once it was started.
#[derive(Default)]
pub(crate) struct PublishedPorts(Mutex<Option<Running>>);

struct Running {
    host: Arc<Host>,
    feed: AbortHandle,
    reporting: AbortHandle,
}

/// Where the dataplane runs.
enum Host {
    /// In a process that outlives this one.
    Process(DataplaneClient),
    /// In this process.
    Task(Box<Dataplane>),
}

impl Host {
    fn start(config: &ServerConfig, nodes: BTreeSet<NodeName>, state: NetworkState) -> Self {
        if let Some(command) = config.dataplane.clone() {
            let data_dir = std::path::absolute(&config.data_dir).unwrap_or_else(|_| config.data_dir.clone());
            return Self::Process(DataplaneClient::start(DataplaneCommand { command, data_dir, nodes }, state));
        }
        let dataplane = Dataplane::start(&config.data_dir, nodes);
        dataplane.replace(state);
        Self::Task(Box::new(dataplane))
    }

    fn update(&self, message: NetworkFeed) {
        match self {
            Self::Process(client) => client.update(message),
            Self::Task(dataplane) => dataplane.update(message),
        }
    }

    fn report(&self) -> DataplaneReport {
        match self {
            Self::Process(client) => client.report(),
            Self::Task(dataplane) => dataplane.report(),
        }
    }
}

impl PublishedPorts {
    /// Listens as the file says, and follows the control plane.
    pub(crate) fn start(&self, ctx: &Arc<NodeContext>, config: &ServerConfig) -> Result<(), StartError> {
        let nodes = nodes_of(config).map_err(|cause| FolderError::Io { path: config.data_dir.clone(), cause })?;
        let path = ctx.folder.path_of(STATE_FILE);
        let state = read(&path);
        if state.is_known() {
            ctx.host_overlay.update(&state);
        }
        let host = Arc::new(Host::start(config, nodes.clone(), state.clone()));
        let follower = Follower { ctx: Arc::clone(ctx), nodes, host: Arc::clone(&host), path, state };
        let feed = tokio::spawn(follower.run()).abort_handle();
        let reporting = tokio::spawn(report_mesh(Arc::clone(ctx), Arc::clone(&host))).abort_handle();
        *self.lock() = Some(Running { host, feed, reporting });
        Ok(())
    }

    /// The published ports that this machine cannot listen on.
    pub(crate) fn conditions(&self) -> Vec<NodeCondition> {
        self.report().conditions
    }

    /// Conditions and counters.
    pub(crate) fn report(&self) -> DataplaneReport {
        self.lock().as_ref().map(|running| running.host.report()).unwrap_or_default()
    }

    /// Closes every port that is open in this process; a process of its own goes on.
    pub(crate) fn shut_down(&self) {
        // Taken out, because the follower holds the context, which holds this.
        if let Some(Running { host, feed, reporting }) = self.lock().take() {
            feed.abort();
            reporting.abort();
            match host.as_ref() {
                Host::Task(dataplane) => dataplane.shut_down(),
                Host::Process(_) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the control plane how other machines reach this one in the mesh.
async fn report_mesh(ctx: Arc<NodeContext>, host: Arc<Host>) {
    loop {
        if let Some(mesh) = host.report().mesh {
            ctx.overlay_report.send_if_modified(|report| {
                let before = report.clone();
                let network = report.get_or_insert_default();
                (network.mesh, network.mesh_kind, network.reach) = (mesh.identity, mesh.kind, mesh.overlay);
                *report != before
            });
        }
        tokio::time::sleep(MESH_REPORT).await;
    }
}

/// Follows the network state.
struct Follower {
    ctx: Arc<NodeContext>,
    /// The nodes of this process.
    nodes: BTreeSet<NodeName>,
    host: Arc<Host>,
    path: PathBuf,
    state: NetworkState,
}

impl Follower {
    async fn run(mut self) {
        let (shortest, longest) = PAUSES;
        let mut pause = shortest;
        loop {
            match NodeLink::of(&self.ctx).network_feed(self.nodes.clone()).await {
                Ok(feed) if !self.ctx.agents.all_isolated() => {
                    pause = shortest;
                    self.follow(feed).await;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "the network state stays as it is");
                    pause = (pause * 2).min(longest);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Applies messages until the feed ends, or every node of this process is isolated, as if a cable were cut.
    async fn follow(&mut self, mut feed: mpsc::Receiver<NetworkFeed>) {
        loop {
            match tokio::time::timeout(ISOLATION_CHECK, feed.recv()).await {
                Ok(Some(message)) => {
                    let mut changed = self.apply(message);
                    // A burst of changes is one write.
                    while let Ok(message) = feed.try_recv() {
                        changed |= self.apply(message);
                    }
                    if changed {
                        self.ctx.host_overlay.update(&self.state);
                        self.save().await;
                    }
                }
                Ok(None) => return,
                Err(_) if self.ctx.agents.all_isolated() => return,
                Err(_) => {}
            }
        }
    }

    fn apply(&mut self, message: NetworkFeed) -> bool {
        let changed = self.state.apply(message.clone());
        if changed {
            self.host.update(message);
        }
        changed
    }

    async fn save(&self) {
        let (path, state) = (self.path.clone(), self.state.clone());
        let written = tokio::task::spawn_blocking(move || {
            // Not synced: a reboot ends every endpoint in it.
            durable_file::replace(&path, &serde_json::to_vec(&state)?, Durability::Unsynced)
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!(%error, "the network state could not be written to disk");
        }
    }
}

/// The state of the last run; an empty one if there is none, or it is damaged: the next snapshot replaces it.
fn read(path: &Path) -> NetworkState {
    let bytes = fs::read(path).unwrap_or_default();
    if bytes.is_empty() {
        return NetworkState::default();
    }
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "the network state is damaged");
        NetworkState::default()
    })
}
