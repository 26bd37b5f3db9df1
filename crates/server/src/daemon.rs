//! Starting and ending everything, in the right order.
//!
//! Owns: the order. Folder, store, membership, node, agent, loops, and the way in last; out the other way round.
//! Invariant: ending the daemon ends nothing that runs on the node.

use std::{
    collections::BTreeSet,
    fs, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use longshore_agent::{Agent, AgentConfig, AgentHandle, DockerConfig, ExecConfig, StartAgentError};
use longshore_model::{Actor, Command, Driver, MemberId, NodeName};
use longshore_store::replicated::{
    Alone, Member, MembershipError, OpenError, Outcome, Part, Proposal, ProposeError, Replicated, ReplicatedConfig,
};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
    task::JoinHandle,
};

use crate::{
    clock,
    figures::Figures,
    folder::{Folder, FolderError},
    http::{self, Desk, Peer},
    leader,
    link::{LocalLink, Pulse},
    machine,
};

/// How a daemon runs.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its folder.
    pub data_dir: PathBuf,
    /// The node it is.
    pub node: NodeName,
    /// The socket for callers on this machine.
    pub socket: PathBuf,
    /// Where callers with a token are heard; loopback only, as nothing is encrypted yet.
    pub listen: Option<SocketAddr>,
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
    /// Its store cannot be opened.
    #[error("the store could not be opened")]
    Store(#[from] OpenError),
    /// The cluster could not be made.
    #[error("the cluster could not be made")]
    Cluster(#[from] MembershipError),
    /// No leader was found.
    #[error("no leader was elected within {0:?}")]
    NoLeader(Duration),
    /// The node could not join.
    #[error("the node `{node}` could not join: {cause}")]
    Join {
        /// The node.
        node: NodeName,
        /// Why.
        cause: String,
    },
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
    #[error("`{0}` is not a loopback address, and nothing is encrypted yet")]
    NotLoopback(SocketAddr),
}

/// The first member of a cluster; others will be counted on from it.
const FIRST_MEMBER: MemberId = MemberId(1);
/// Time a cluster of one has to elect itself.
const ELECTION: Duration = Duration::from_secs(15);
/// Time requests under way have to end when the daemon does.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A running daemon. Dropping it without [`shut_down`](Self::shut_down) leaves its tasks to the runtime.
pub struct Daemon {
    _folder: Folder,
    store: Replicated,
    agent: AgentHandle,
    loops: JoinHandle<()>,
    doors: Vec<JoinHandle<()>>,
    closing: watch::Sender<bool>,
    socket: PathBuf,
}

impl Daemon {
    /// Starts a daemon. On a new folder it makes a cluster of one; on any other it goes on with what is there.
    ///
    /// Needs a runtime with several threads: deciding holds one of them.
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        if let Some(address) = config.listen.filter(|address| !address.ip().is_loopback()) {
            return Err(StartError::NotLoopback(address));
        }
        let folder = Folder::take(&config.data_dir)?;
        let (cluster_id, token) = (folder.cluster_id()?, folder.token()?);
        let store = open_store(&folder, &config.node).await?;
        join(&store, &config).await?;
        let (pulse, figures) = (Arc::<Pulse>::default(), Arc::<Figures>::default());
        let loops = tokio::spawn(leader::follow_leadership(store.clone(), Arc::clone(&pulse), Arc::clone(&figures)));
        let link = LocalLink { node: config.node.clone(), store: store.clone(), pulse };
        let agent = Agent::start(&agent_config(&folder, &config, cluster_id), Arc::new(link))?;
        let own_uid = rustix::process::geteuid().as_raw();
        let desk = Arc::new(Desk { store: store.clone(), figures, token, own_uid });
        let (closing, closed) = watch::channel(false);
        let doors = open_doors(&config, &desk, &closed).await?;
        Ok(Self { _folder: folder, store, agent, loops, doors, closing, socket: config.socket })
    }

    /// Ends the daemon, and nothing that runs on the node. What was acknowledged is on disk already.
    pub async fn shut_down(self) {
        let _ = fs::remove_file(&self.socket);
        self.closing.send_replace(true);
        for mut door in self.doors {
            // Somebody who follows the events would never end; the rest has had its time.
            if tokio::time::timeout(LAST_ANSWERS, &mut door).await.is_err() {
                door.abort();
            }
        }
        self.loops.abort();
        let _ = self.loops.await;
        self.agent.shut_down();
        self.store.close().await;
    }
}

async fn open_store(folder: &Folder, node: &NodeName) -> Result<Replicated, StartError> {
    let store = Replicated::open(ReplicatedConfig::new(folder.part("store"), FIRST_MEMBER), Arc::new(Alone)).await?;
    let me = Member { id: FIRST_MEMBER, name: node.clone(), address: String::new() };
    // Whoever has a vote, an entry or a snapshot is part of a cluster, and is left as it is.
    match store.initialise(me).await {
        Ok(()) | Err(MembershipError::AlreadyInitialised) => {}
        Err(error) => return Err(error.into()),
    }
    let mut leadership = store.leadership();
    let elected = leadership.wait_for(|leadership| leadership.part == Part::Leading);
    let elected = tokio::time::timeout(ELECTION, elected).await.is_ok_and(|led| led.is_ok());
    if elected { Ok(store) } else { Err(StartError::NoLeader(ELECTION)) }
}

/// Joins this machine, unless the cluster knows it: what operators said of it stays.
async fn join(store: &Replicated, config: &ServerConfig) -> Result<(), StartError> {
    if store.read_local().state.node(&config.node).is_some() {
        return Ok(());
    }
    let at = clock::now();
    let node = machine::node(config.node.clone(), drivers(config), &config.data_dir, at);
    let actor = Actor::Node(config.node.clone());
    let proposal = Proposal { command: Command::Join(Box::new(node)), key: None, actor, at };
    let failed = |cause: String| StartError::Join { node: config.node.clone(), cause };
    let applied = store.propose(proposal).await.map_err(|error: ProposeError| failed(error.to_string()))?;
    match applied.outcome {
        Outcome::Changed | Outcome::Unchanged => Ok(()),
        Outcome::Refused(error) => Err(failed(error.to_string())),
        Outcome::KeyReused => Err(failed("its request was taken for another".to_owned())),
    }
}

fn drivers(config: &ServerConfig) -> BTreeSet<Driver> {
    let docker = config.docker.as_ref().map(|_| Driver::Docker);
    docker.into_iter().chain(config.shim.as_ref().map(|_| Driver::Exec)).collect()
}

fn agent_config(folder: &Folder, config: &ServerConfig, cluster_id: String) -> AgentConfig {
    let mut agent = AgentConfig::new(config.node.clone(), cluster_id, folder.part("agent"));
    agent.docker = config.docker.as_ref().map(DockerConfig::at);
    agent.exec = config.shim.clone().map(|shim| ExecConfig { shim });
    agent
}

async fn open_doors(
    config: &ServerConfig,
    desk: &Arc<Desk>,
    closed: &watch::Receiver<bool>,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let failed = |address: String, cause| StartError::Listen { address, cause };
    let socket = listen_on(&config.socket).map_err(|cause| failed(config.socket.display().to_string(), cause))?;
    let service = http::router(Arc::clone(desk)).into_make_service_with_connect_info::<Peer>();
    let local = axum::serve(socket, service.clone()).with_graceful_shutdown(told(closed.clone()));
    let mut doors = vec![tokio::spawn(async move { serve(local.await) })];
    if let Some(address) = config.listen {
        let listener = TcpListener::bind(address).await.map_err(|cause| failed(address.to_string(), cause))?;
        let remote = axum::serve(listener, service).with_graceful_shutdown(told(closed.clone()));
        doors.push(tokio::spawn(async move { serve(remote.await) }));
    }
    Ok(doors)
}

fn serve(ended: io::Result<()>) {
    if let Err(error) = ended {
        tracing::warn!(%error, "no longer listening");
    }
}

/// A socket left by a daemon that was killed is nobody's: the folder's lock says that we are alone.
fn listen_on(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // Everybody may knock; who is let in is judged by the user the kernel names, and told why not.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

async fn told(mut closing: watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}
