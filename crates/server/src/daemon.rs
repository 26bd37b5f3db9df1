//! Starting and ending everything, in the right order.
//!
//! Owns: the order. Folder, identity, store, doors, loops and agents; out the other way round.
//! Invariant: ending the daemon ends nothing that runs on the node.

use std::{env, fs, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use longshore_agent::StartAgentError;
use longshore_model::NodeName;
use longshore_store::replicated::{MembershipError, Replicated};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    doors, expulsion,
    folder::{Folder, FolderError},
    founding::{self, Standing},
    http::{self, Desk},
    hub::{Hub, ServeError},
    identity::IdentityError,
    keys, leader,
    peer::Calls,
    place::Serving,
    telemetry::{self, Settings, Span, Telemetry},
    tls,
    vault::VaultError,
};

/// How a daemon runs.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its folder.
    pub data_dir: PathBuf,
    /// The node it is.
    pub node: NodeName,
    /// Further nodes it shall be, to try things out; each has an equal share of the machine.
    pub beside: Vec<NodeName>,
    /// The socket for callers on this machine.
    pub socket: PathBuf,
    /// Where nodes and operators elsewhere are heard, encrypted.
    pub listen: Option<SocketAddr>,
    /// Where others reach it; where it listens unless given.
    pub advertise: Option<String>,
    /// Where browsers of this machine are heard; loopback only, as nothing is encrypted there.
    pub http: Option<SocketAddr>,
    /// The container engine's socket, where there is one.
    pub docker: Option<PathBuf>,
    /// The command that enters the agent's shim; without it no plain processes are run.
    pub shim: Option<Vec<String>>,
}

/// Why a daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The folder is another node's.
    #[error("the folder belongs to node `{folder}`, not to `{asked}`")]
    OtherNode {
        /// Whose it is.
        folder: NodeName,
        /// Who wanted it.
        asked: NodeName,
    },
    /// The folder is part of a cluster already.
    #[error("the folder belongs to node `{node}` of cluster {cluster} already")]
    Taken {
        /// The node.
        node: NodeName,
        /// The cluster.
        cluster: String,
    },
    /// Key and certificate are gone.
    #[error("key, certificate or vault of node `{0}` are missing from its folder")]
    NoIdentity(NodeName),
    /// No key or certificate could be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No key of the cluster could be made.
    #[error("the cluster's key could not be made: {0}")]
    Vault(String),
    /// The certificate cannot be used.
    #[error("the node's certificate cannot be used")]
    Tls(#[from] rustls::Error),
    /// Its store cannot be opened.
    #[error("the node cannot serve: {0}")]
    Store(String),
    /// The cluster could not be made.
    #[error("the cluster could not be made")]
    Cluster(#[from] MembershipError),
    /// No leader was found.
    #[error("no leader was elected within {0:?}")]
    NoLeader(Duration),
    /// The cluster was made and could not be put on record.
    #[error("the cluster could not be put on record: {0}")]
    NotRecorded(String),
    /// The agent did not start.
    #[error(transparent)]
    Agent(#[from] StartAgentError),
    /// Somebody else is at the address, or it cannot be had.
    #[error("could not listen at `{address}`")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Not a loopback address.
    #[error("`{0}` is not a loopback address, and nothing is encrypted there")]
    NotLoopback(SocketAddr),
    /// Nobody could reach it.
    #[error("`{0}` is no address that others could reach; say with `--advertise` where they can")]
    NowhereToReach(SocketAddr),
}

impl From<VaultError> for StartError {
    fn from(error: VaultError) -> Self {
        Self::Vault(error.to_string())
    }
}

impl From<ServeError> for StartError {
    fn from(error: ServeError) -> Self {
        Self::Store(chain(&error))
    }
}

/// An error with everything behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(behind) = cause {
        text = format!("{text}: {behind}");
        cause = behind.source();
    }
    text
}

/// Time requests under way have to end when the daemon does.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A running daemon. Dropping it without [`shut_down`](Self::shut_down) leaves its tasks to the runtime.
pub struct Daemon {
    hub: Arc<Hub>,
    loops: Vec<JoinHandle<()>>,
    doors: Vec<JoinHandle<()>>,
    closing: watch::Sender<bool>,
    socket: PathBuf,
}

impl Daemon {
    /// Starts a daemon. On a new folder it makes a cluster of one; on any other it goes on with what is there.
    ///
    /// Needs a runtime with several threads: deciding holds one of them.
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        if let Some(address) = config.http.filter(|address| !address.ip().is_loopback()) {
            return Err(StartError::NotLoopback(address));
        }
        let address = reachable(&config)?;
        let folder = Folder::take(&config.data_dir)?;
        let Standing { place, identity, vault } = founding::found_or_go_on(&folder, &config.node, address)?;
        let accepting = tls::accepting(&identity)?;
        let calls = Calls::new(place.node.clone(), tls::calling(&identity)?);
        let (telemetry, told) = telemetry();
        let hub = Arc::new(Hub::new(folder, place.clone(), vault.clone(), calls, telemetry));
        // Before the store: members must be able to reach this one for any of them to be elected.
        let (closing, closed) = watch::channel(false);
        let doors = open_doors(&config, &hub, accepting, &closed).await?;
        if place.serving == Serving::Yes {
            let vault = vault.ok_or(StartError::NoIdentity(place.node))?;
            let store = hub.serve(place.member, vault).await?;
            founding::put_on_record(&hub, &store).await?;
        }
        hub.agents.start(&hub, &config)?;
        let mut loops = vec![
            tokio::spawn(follow_stores(Arc::clone(&hub))),
            tokio::spawn(keys::keep(Arc::clone(&hub))),
            tokio::spawn(expulsion::watch(Arc::clone(&hub))),
        ];
        loops.extend(told.map(|(settings, spans)| telemetry::start(Arc::clone(&hub), settings, spans)));
        Ok(Self { hub, loops, doors, closing, socket: config.socket })
    }

    /// Ends the daemon, and nothing that runs on the node. What was acknowledged is on disk already.
    pub async fn shut_down(self) {
        let _ = fs::remove_file(&self.socket);
        self.closing.send_replace(true);
        for task in self.loops {
            task.abort();
            let _ = task.await;
        }
        self.hub.agents.shut_down();
        self.hub.close().await;
        for mut door in self.doors {
            // Somebody who follows the events would never end; the rest has had its time.
            if tokio::time::timeout(LAST_ANSWERS, &mut door).await.is_err() {
                door.abort();
            }
        }
    }
}

/// What is told to a collector, and how, where the environment names one that can be used.
fn telemetry() -> (Telemetry, Option<(Settings, mpsc::Receiver<Span>)>) {
    match Settings::read(|name| env::var(name).ok()) {
        Ok(Some(settings)) => {
            let (telemetry, spans) = Telemetry::with_queue();
            tracing::info!(collector = settings.address, "traces and figures are sent");
            (telemetry, Some((settings, spans)))
        }
        Ok(None) => (Telemetry::default(), None),
        Err(error) => {
            tracing::warn!(%error, "traces and figures are not sent");
            (Telemetry::default(), None)
        }
    }
}

/// Where others reach this node: where it says, or where it listens.
fn reachable(config: &ServerConfig) -> Result<Option<String>, StartError> {
    match (&config.advertise, config.listen) {
        (Some(address), _) => Ok(Some(address.clone())),
        (None, None) => Ok(None),
        (None, Some(listen)) if listen.ip().is_unspecified() || listen.port() == 0 => {
            Err(StartError::NowhereToReach(listen))
        }
        (None, Some(listen)) => Ok(Some(listen.to_string())),
    }
}

/// Runs what members do while there is a store, and ends it with the store.
async fn follow_stores(hub: Arc<Hub>) {
    let mut stores = hub.stores();
    loop {
        let store: Option<Replicated> = stores.borrow_and_update().clone();
        match store {
            Some(store) => {
                tokio::select! {
                    () = leader::follow_leadership(store, Arc::clone(&hub)) => {
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

async fn open_doors(
    config: &ServerConfig,
    hub: &Arc<Hub>,
    accepting: rustls::ServerConfig,
    closed: &watch::Receiver<bool>,
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
    // Bound before anybody is told of it: the port may be the kernel's choice.
    let browsing = match config.http {
        Some(address) => Some(bound(address).await?),
        None => None,
    };
    let browsers = browsing.as_ref().and_then(|listener| listener.local_addr().ok());
    let router = http::router(Arc::new(Desk::new(Arc::clone(hub), own_uid, browsers)));
    let local = doors::local(&config.socket, router.clone(), closed.clone());
    let mut doors = vec![local.map_err(|cause| failed(config.socket.display().to_string(), cause))?];
    doors.extend(listening.map(|listener| doors::remote(listener, Some(accepting), router.clone(), closed.clone())));
    doors.extend(browsing.map(|listener| doors::remote(listener, None, router, closed.clone())));
    Ok(doors)
}
