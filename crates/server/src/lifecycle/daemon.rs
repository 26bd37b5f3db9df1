//! Starts and stops the parts of the daemon in the right order.
//!
//! Owns: the order: data folder, identity, listeners, store, agents, loops; and the reverse on shutdown.
//! Invariant: stopping the daemon stops nothing that runs on the node.

use std::{env, fs, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use longshore_agent::StartAgentError;
use longshore_model::{NodeAttributes, NodeName, error_chain};
use longshore_network::OverlayMode;
use longshore_store::replicated::{MembershipError, Replicated};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    api::{self, ApiState, listeners},
    control::leader,
    lifecycle::{
        address_choice::{ChoiceError, PoolClash},
        bootstrap::{self, LocalNode},
        data_folder::{DataFolder, FolderError},
        node_context::{NodeContext, ServeError},
        node_record::RaftMembership,
        node_removal,
    },
    node_rpc::PeerClient,
    observability::telemetry::{self, Settings, Span, Telemetry},
    security::{identity::IdentityError, key_rotation, keyring::KeyringError, tls},
};

/// Configuration of a daemon.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The data folder.
    pub data_dir: PathBuf,
    /// The node's name.
    pub node: NodeName,
    /// Further nodes in the same process, for trying things out; each gets an equal share of the machine.
    pub extra_nodes: Vec<NodeName>,
    /// Path of the Unix socket for local clients.
    pub socket: PathBuf,
    /// TLS address for nodes and remote operators.
    pub listen: Option<SocketAddr>,
    /// Address that others use to reach this node; `listen` unless given.
    pub advertise: Option<String>,
    /// Plain HTTP address for browsers of this machine; loopback only.
    pub http: Option<SocketAddr>,
    /// Disk that replicas on this machine may use, counted by the scheduler; not counted unless given.
    pub disk_bytes: Option<u64>,
    /// What the operator declares about the node of this daemon.
    pub attributes: NodeAttributes,
    /// Where the socket of a container engine may be, now or later; the first that answers is used. Empty turns the
    /// `docker` driver off.
    pub docker: Vec<PathBuf>,
    /// Whether this machine takes part in the overlay.
    pub overlay: OverlayMode,
    /// Command that runs the agent's shim; without it the `exec` driver is off.
    pub shim: Option<Vec<String>>,
    /// Command that runs the dataplane process, which outlives the daemon; without it published ports are open while
    /// the daemon runs.
    pub dataplane: Option<Vec<String>>,
}

/// Why a daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The folder belongs to another node.
    #[error("the folder belongs to node `{folder}`, not to `{asked}`")]
    OtherNode {
        /// The node it belongs to.
        folder: NodeName,
        /// The configured node.
        asked: NodeName,
    },
    /// The folder already belongs to a cluster.
    #[error("the folder belongs to node `{node}` of cluster {cluster} already")]
    Taken {
        /// The node.
        node: NodeName,
        /// The cluster.
        cluster: String,
    },
    /// The cluster's addresses are in use on this machine.
    #[error(transparent)]
    PoolClash(#[from] PoolClash),
    /// Key, certificate or keyring are missing.
    #[error("key, certificate or keyring of node `{0}` are missing from its folder")]
    NoIdentity(NodeName),
    /// A key or certificate could not be created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The cluster's key could not be created.
    #[error("the cluster's key could not be created: {0}")]
    Keyring(String),
    /// The certificate cannot be used.
    #[error("the node's certificate cannot be used")]
    Tls(#[from] rustls::Error),
    /// The store cannot be opened.
    #[error("the store cannot be opened: {0}")]
    Store(String),
    /// The Raft group could not be initialised.
    #[error("the cluster could not be created")]
    Cluster(#[from] MembershipError),
    /// No leader was elected in time.
    #[error("no leader was elected within {0:?}")]
    NoLeader(Duration),
    /// The new cluster could not be committed.
    #[error("the new cluster could not be committed: {0}")]
    NotRecorded(String),
    /// The agent did not start.
    #[error(transparent)]
    Agent(#[from] StartAgentError),
    /// The address is in use or not available.
    #[error("could not listen at `{address}`")]
    Listen {
        /// The address.
        address: String,
        /// The operating system's error.
        #[source]
        cause: io::Error,
    },
    /// Not a loopback address.
    #[error("`{0}` is not a loopback address, and plain HTTP is for loopback only")]
    NotLoopback(SocketAddr),
    /// The listen address cannot be reached by others.
    #[error("others cannot reach this node at `{0}`; give an address with `--advertise`")]
    NowhereToReach(SocketAddr),
}

impl From<KeyringError> for StartError {
    fn from(error: KeyringError) -> Self {
        Self::Keyring(error.to_string())
    }
}

impl From<ChoiceError> for StartError {
    fn from(error: ChoiceError) -> Self {
        match error {
            ChoiceError::Clash(clash) => clash.into(),
            ChoiceError::Random(error) => error.into(),
        }
    }
}

impl From<ServeError> for StartError {
    fn from(error: ServeError) -> Self {
        Self::Store(error_chain(&error))
    }
}

/// Time that open requests get on shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// A running daemon. Dropping it without [`shut_down`](Self::shut_down) leaves its tasks to the runtime.
pub struct Daemon {
    ctx: Arc<NodeContext>,
    loops: Vec<JoinHandle<()>>,
    listeners: Vec<JoinHandle<()>>,
    shutdown: watch::Sender<bool>,
    failure: watch::Receiver<Option<String>>,
    socket: PathBuf,
}

impl Daemon {
    /// Starts a daemon. An empty folder becomes a cluster of one; any other continues where it was.
    ///
    /// Needs a runtime with several threads: a scheduling pass blocks one of them.
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        if let Some(address) = config.http.filter(|address| !address.ip().is_loopback()) {
            return Err(StartError::NotLoopback(address));
        }
        // Every connection that is relayed takes two files.
        longshore_agent::file_limit::raise();
        let address = advertised_address(&config)?;
        let folder = DataFolder::take(&config.data_dir)?;
        let LocalNode { record, identity, keyring } = bootstrap::open_or_bootstrap(&folder, &config.node, address)?;
        let accepting = tls::accepting(&identity)?;
        let calls = PeerClient::new(record.node.clone(), tls::calling(&identity)?);
        let (telemetry, exporter) = telemetry();
        let ctx = Arc::new(NodeContext::new(folder, record.clone(), keyring.clone(), calls, telemetry));
        // Opened before the store: members must be able to reach this one before any of them can be elected.
        let (shutdown, shutdown_signal) = watch::channel(false);
        let listeners = open_listeners(&config, &ctx, accepting, &shutdown_signal).await?;
        if record.raft == RaftMembership::Member {
            let keyring = keyring.ok_or(StartError::NoIdentity(record.node))?;
            let store = ctx.serve(record.member, keyring).await?;
            bootstrap::commit_bootstrap(&ctx, &store).await?;
        }
        // Before the agents, which ask it where their replicas belong.
        ctx.host_overlay.start(&ctx, &config)?;
        // Before the agents: what listened before the last stop of the daemon listens again at once.
        ctx.published_ports.start(&ctx, &config)?;
        ctx.agents.start(&ctx, &config)?;
        let (failed, failure) = watch::channel(None);
        let mut loops = vec![
            tokio::spawn(run_while_serving(Arc::clone(&ctx), failed)),
            tokio::spawn(key_rotation::maintain(Arc::clone(&ctx))),
            tokio::spawn(node_removal::watch(Arc::clone(&ctx))),
        ];
        loops.extend(exporter.map(|(settings, spans)| telemetry::start(Arc::clone(&ctx), settings, spans)));
        Ok(Self { ctx, loops, listeners, shutdown, failure, socket: config.socket })
    }

    /// Returns why the member can go on no longer, once it cannot: a write or a sync of its log failed. The process
    /// should end then, so that its supervisor starts it again: a restart reads the disk anew, and the others elect a
    /// leader meanwhile. Never returns otherwise.
    pub async fn failed(&self) -> String {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            // The loop ended with the daemon.
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops the daemon, and nothing that runs on the node. Everything acknowledged is on disk already.
    pub async fn shut_down(self) {
        let _ = fs::remove_file(&self.socket);
        self.shutdown.send_replace(true);
        for task in self.loops {
            task.abort();
            let _ = task.await;
        }
        self.ctx.agents.shut_down();
        self.ctx.published_ports.shut_down();
        self.ctx.host_overlay.shut_down();
        self.ctx.close().await;
        for mut listener in self.listeners {
            // An event stream would never end; other requests had their time.
            if tokio::time::timeout(SHUTDOWN_GRACE, &mut listener).await.is_err() {
                listener.abort();
            }
        }
    }
}

/// Telemetry and its exporter's settings, if the environment names a usable collector.
fn telemetry() -> (Telemetry, Option<(Settings, mpsc::Receiver<Span>)>) {
    match Settings::read(|name| env::var(name).ok()) {
        Ok(Some(settings)) => {
            let (telemetry, spans) = Telemetry::with_queue();
            tracing::info!(collector = settings.address, "traces and metrics are sent");
            (telemetry, Some((settings, spans)))
        }
        Ok(None) => (Telemetry::default(), None),
        Err(error) => {
            tracing::warn!(%error, "traces and metrics are not sent");
            (Telemetry::default(), None)
        }
    }
}

/// The address that others use: `advertise`, else `listen`.
fn advertised_address(config: &ServerConfig) -> Result<Option<String>, StartError> {
    match (&config.advertise, config.listen) {
        (Some(address), _) => Ok(Some(address.clone())),
        (None, None) => Ok(None),
        (None, Some(listen)) if listen.ip().is_unspecified() || listen.port() == 0 => {
            Err(StartError::NowhereToReach(listen))
        }
        (None, Some(listen)) => Ok(Some(listen.to_string())),
    }
}

/// Runs the leader's loop while this node has a store, and stops it with the store.
async fn run_while_serving(ctx: Arc<NodeContext>, failed: watch::Sender<Option<String>>) {
    let mut stores = ctx.stores();
    loop {
        let store: Option<Replicated> = stores.borrow_and_update().clone();
        match store {
            Some(store) => {
                tokio::select! {
                    () = leader::follow_leadership(store.clone(), Arc::clone(&ctx)) => {
                        if let Some(why) = store.status().failure.filter(|_| !ctx.is_closing()) {
                            tracing::error!(why, "this member cannot write its log and ends");
                            failed.send_replace(Some(why));
                        }
                        if stores.changed().await.is_err() { return; }
                    }
                    changed = stores.changed() => if changed.is_err() { return; },
                }
            }
            None => {
                if stores.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn open_listeners(
    config: &ServerConfig,
    ctx: &Arc<NodeContext>,
    accepting: rustls::ServerConfig,
    shutdown_signal: &watch::Receiver<bool>,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let failed = |address: String, cause| StartError::Listen { address, cause };
    let own_uid = rustix::process::geteuid().as_raw();
    let bound = async |address: SocketAddr| {
        TcpListener::bind(address).await.map_err(|cause| failed(address.to_string(), cause))
    };
    let listening = match config.listen {
        Some(address) => Some(bound(address).await?),
        None => None,
    };
    // Bound before the address is published: the kernel may choose the port.
    let browsing = match config.http {
        Some(address) => Some(bound(address).await?),
        None => None,
    };
    let browsers = browsing.as_ref().and_then(|listener| listener.local_addr().ok());
    let router = api::router(Arc::new(ApiState::new(Arc::clone(ctx), own_uid, browsers)));
    let local = listeners::serve_unix(&config.socket, router.clone(), shutdown_signal.clone());
    let mut tasks = vec![local.map_err(|cause| failed(config.socket.display().to_string(), cause))?];
    tasks.extend(
        listening
            .map(|listener| listeners::serve_tcp(listener, Some(accepting), router.clone(), shutdown_signal.clone())),
    );
    tasks.extend(browsing.map(|listener| listeners::serve_tcp(listener, None, router, shutdown_signal.clone())));
    Ok(tasks)
}
