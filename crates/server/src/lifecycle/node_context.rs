//! What every part of the daemon shares: this node's record, its store if it is a server, and where the leader is.
//!
//! Owns: starting and stopping the store, and locating the leader.
//! Must not touch: requests. Invariant: a node without a store knows nothing but its own work.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use longshore_model::{MemberId, NodeName, NodeNetwork, Time, access::Digest, node::NodeCondition};
use longshore_scheduler::rebalance::Rebalancer;
use longshore_store::replicated::{LeadershipRole, Member, OpenError, Replicated, ReplicatedConfig};
use tokio::sync::watch;

use crate::{
    control::network_feed::NetworkFeeds,
    lifecycle::{
        data_folder::{DataFolder, FolderError},
        host_overlay::HostOverlay,
        local_agents::LocalAgents,
        node_record::{NodeRecord, RaftMembership},
        node_removal::RemovalNotice,
        published_ports::PublishedPorts,
    },
    node_rpc::{MemberTransport, PeerClient, ServerAddress, control_link::HeartbeatBus},
    observability::{metrics::Counters, node_conditions::NodeConditions, node_load, telemetry::Telemetry},
    security::{keyring::Keyring, rate_limit::RateLimit},
};

/// The shared context of one daemon.
pub(crate) struct NodeContext {
    pub(crate) folder: DataFolder,
    pub(crate) peers: Arc<PeerClient>,
    /// The agents of this process.
    pub(crate) agents: LocalAgents,
    pub(crate) heartbeats: HeartbeatBus,
    pub(crate) node_loads: node_load::NodeLoads,
    pub(crate) node_conditions: NodeConditions,
    /// The published ports of this machine.
    pub(crate) published_ports: PublishedPorts,
    /// The bridges, routes and rules of this machine.
    pub(crate) host_overlay: HostOverlay,
    /// The network state, for the machines that ask this server for it.
    pub(crate) network_feeds: NetworkFeeds,
    /// This machine's part in the overlay, which its nodes report; set by whoever programs the overlay.
    pub(crate) overlay_report: watch::Sender<Option<NodeNetwork>>,
    pub(crate) counters: Counters,
    pub(crate) telemetry: Telemetry,
    /// Rate limit for join requests with an unknown token.
    pub(crate) join_attempts: RateLimit,
    record: Mutex<NodeRecord>,
    keyring: Mutex<Option<Keyring>>,
    store: watch::Sender<Option<Replicated>>,
    /// Whether the daemon is shutting down.
    ends: AtomicBool,
    /// The leader that a node without a store found last.
    leader: Mutex<Option<ServerAddress>>,
    /// Set once a server told this node that it is no longer part of the cluster.
    pub(crate) removal: RemovalNotice,
    /// The rebalancer's latest state, on a node that leads or led.
    pressures: Mutex<Option<Rebalancer>>,
    /// Held during a promotion or demotion.
    changing: tokio::sync::Mutex<()>,
    /// Servers that another one vouched for before their membership was known here.
    pub(crate) vouched: VouchedServers,
}

/// How long the word of another server counts. A server that is removed meanwhile is refused as soon as its removal is
/// known here.
const VOUCHED_FOR: Duration = Duration::from_secs(30);

/// Certificates of servers that another one vouched for, with the time of it.
#[derive(Debug, Default)]
pub(crate) struct VouchedServers(Mutex<BTreeMap<Digest, Instant>>);

impl VouchedServers {
    pub(crate) fn is_fresh(&self, fingerprint: &Digest) -> bool {
        lock(&self.0).get(fingerprint).is_some_and(|since| since.elapsed() < VOUCHED_FOR)
    }

    pub(crate) fn insert(&self, fingerprint: Digest) {
        let mut known = lock(&self.0);
        known.retain(|_, since| since.elapsed() < VOUCHED_FOR);
        known.insert(fingerprint, Instant::now());
    }
}

/// Why a node could not open its store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the store could not be opened")]
    Store(#[from] OpenError),
    #[error("this node has the member id {0}, which cannot change")]
    OtherMember(MemberId),
    #[error(
        "the log in `{}` is gone, and this member must not vote without it; put the folder back, or remove the node \
         with `longshore node rm {node} --force` on another server, move its data folder away and join again",
        .path.display()
    )]
    StoreLost { path: PathBuf, node: NodeName },
}

impl NodeContext {
    /// What is wrong with this machine, while its replicas are not affected.
    pub(crate) fn conditions(&self) -> Vec<NodeCondition> {
        self.published_ports.conditions().into_iter().chain(self.host_overlay.conditions()).collect()
    }

    pub(crate) fn new(
        folder: DataFolder,
        record: NodeRecord,
        keyring: Option<Keyring>,
        peers: PeerClient,
        telemetry: Telemetry,
    ) -> Self {
        Self {
            folder,
            peers: Arc::new(peers),
            agents: LocalAgents::default(),
            heartbeats: HeartbeatBus::default(),
            node_loads: node_load::NodeLoads::default(),
            node_conditions: NodeConditions::default(),
            published_ports: PublishedPorts::default(),
            host_overlay: HostOverlay::default(),
            network_feeds: NetworkFeeds::default(),
            overlay_report: watch::channel(None).0,
            counters: Counters::default(),
            telemetry,
            join_attempts: RateLimit::new(20, 5),
            record: Mutex::new(record),
            keyring: Mutex::new(keyring),
            store: watch::channel(None).0,
            ends: AtomicBool::new(false),
            leader: Mutex::default(),
            removal: RemovalNotice::default(),
            pressures: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            vouched: VouchedServers::default(),
        }
    }

    /// Keeps the rebalancer's state for previews.
    pub(crate) fn note_pressures(&self, rebalancer: &Rebalancer) {
        *lock(&self.pressures) = Some(rebalancer.clone());
    }

    /// The rebalancer as this node last knew it; an empty one if it never led.
    pub(crate) fn pressures(&self, now: Time) -> Rebalancer {
        lock(&self.pressures).clone().unwrap_or_else(|| Rebalancer::new(now))
    }

    pub(crate) fn record(&self) -> NodeRecord {
        lock(&self.record).clone()
    }

    pub(crate) fn node(&self) -> NodeName {
        lock(&self.record).node.clone()
    }

    pub(crate) fn keyring(&self) -> Option<Keyring> {
        lock(&self.keyring).clone()
    }

    /// Adds or removes keys: on disk first, so that nothing is sealed with a key that a restart would lose.
    pub(crate) fn update_keyring<E: From<FolderError>>(
        &self,
        change: impl FnOnce(&Keyring) -> Result<Keyring, E>,
    ) -> Result<Keyring, E> {
        let mut keyring = lock(&self.keyring);
        let before = keyring.clone().unwrap_or_else(Keyring::empty);
        let changed = change(&before)?;
        if changed != before {
            self.folder.save_keyring(&changed)?;
            *keyring = Some(changed.clone());
        }
        Ok(changed)
    }

    /// The store, on a server.
    pub(crate) fn store(&self) -> Option<Replicated> {
        self.store.borrow().clone()
    }

    /// The store, and every change when this node starts or stops being a member.
    pub(crate) fn stores(&self) -> watch::Receiver<Option<Replicated>> {
        self.store.subscribe()
    }

    /// Whether this node is a member whose store is not open: it is opening, or was closed for good.
    pub(crate) fn lacks_store(&self) -> bool {
        self.store().is_none() && self.record().raft == RaftMembership::Member
    }

    /// Waits for a store that is opening, up to a limit.
    pub(crate) async fn wait_for_store(&self, max_wait: Duration) {
        if self.lacks_store() && !self.ends.load(Ordering::Relaxed) {
            // The caller checks the result.
            let _ = tokio::time::timeout(max_wait, self.stores().wait_for(Option::is_some)).await;
        }
    }

    /// Opens the store as a member, with the cluster's keys; returns the open one if there is one.
    pub(crate) async fn serve(&self, member: MemberId, keyring: Keyring) -> Result<Replicated, ServeError> {
        let _one = self.changing.lock().await;
        let record = self.record();
        if record.member != member {
            return Err(ServeError::OtherMember(record.member));
        }
        if let Some(store) = self.store() {
            return Ok(store);
        }
        let path = self.folder.path_of("store");
        // A member that forgot its votes and entries could make a quorum that lost acknowledged writes.
        if record.has_store && !Replicated::exists(&path) {
            return Err(ServeError::StoreLost { path, node: record.node });
        }
        self.folder.save_keyring(&keyring)?;
        self.save_record(|record| record.raft = RaftMembership::Member)?;
        *lock(&self.keyring) = Some(keyring);
        let config = ReplicatedConfig::new(path, member);
        let transport = Arc::new(MemberTransport(Arc::clone(&self.peers)));
        let store = Replicated::open(config, transport).await.map_err(|error| match error {
            OpenError::LogMissing { dir } => ServeError::StoreLost { path: dir, node: record.node },
            error => ServeError::Store(error),
        })?;
        self.save_record(|record| record.has_store = true)?;
        self.store.send_replace(Some(store.clone()));
        Ok(store)
    }

    /// Stops being a member. The files stay: a vote that was cast must never be forgotten.
    pub(crate) async fn stop_serving(&self) -> Result<(), FolderError> {
        let _one = self.changing.lock().await;
        let servers = self.servers();
        self.save_record(|record| (record.raft, record.servers) = (RaftMembership::NonMember, servers))?;
        if let Some(store) = self.store.send_replace(None) {
            store.close().await;
        }
        Ok(())
    }

    /// Whether the daemon shuts down.
    pub(crate) fn is_closing(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Closes the store for shutdown.
    pub(crate) async fn close(&self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(store) = self.store.send_replace(None) {
            store.close().await;
        }
    }

    /// The members, as far as this node knows.
    pub(crate) fn servers(&self) -> Vec<ServerAddress> {
        match self.store() {
            Some(store) => store.members().members.values().map(server).collect(),
            None => lock(&self.record).servers.clone(),
        }
    }

    /// Saves the servers to ask.
    pub(crate) fn save_servers(&self, servers: Vec<ServerAddress>) {
        let known = lock(&self.record).servers == servers;
        if servers.is_empty() || known {
            return;
        }
        if let Err(error) = self.save_record(|record| record.servers = servers) {
            tracing::warn!(%error, "the list of servers could not be saved");
        }
    }

    /// Where the leader is, as far as this node knows.
    pub(crate) fn leader(&self) -> LeaderLocation {
        match self.store() {
            Some(store) => {
                let leadership = store.leadership().borrow().clone();
                match (leadership.role, leadership.leader) {
                    (LeadershipRole::Leading, _) => LeaderLocation::Local(store),
                    (LeadershipRole::Following | LeadershipRole::Stopped, Some(leader)) => {
                        LeaderLocation::Remote(server(&leader))
                    }
                    (LeadershipRole::Following | LeadershipRole::Stopped, None) => LeaderLocation::Unknown,
                }
            }
            None => lock(&self.leader).clone().map_or(LeaderLocation::Unknown, LeaderLocation::Remote),
        }
    }

    pub(crate) fn set_leader(&self, leader: Option<ServerAddress>) {
        *lock(&self.leader) = leader;
    }

    /// Forgets the leader if it is this server, which did not answer.
    pub(crate) fn forget_leader(&self, silent: &ServerAddress) {
        lock(&self.leader).take_if(|leader| leader == silent);
    }

    fn save_record(&self, change: impl FnOnce(&mut NodeRecord)) -> Result<(), FolderError> {
        let mut record = lock(&self.record);
        let mut changed = record.clone();
        change(&mut changed);
        if *record != changed {
            self.folder.save_record(&changed)?;
            *record = changed;
        }
        Ok(())
    }
}

/// Where the leader is.
pub(crate) enum LeaderLocation {
    Local(Replicated),
    Remote(ServerAddress),
    Unknown,
}

/// Name and address of a member.
pub(crate) fn server(member: &Member) -> ServerAddress {
    ServerAddress { name: member.name.clone(), address: member.address.clone() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
