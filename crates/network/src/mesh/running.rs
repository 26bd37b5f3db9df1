//! The mesh of this machine: the right kind for its kernel and settings, with the peers of the network state, probed.
//!
//! ```text
//! network state ─▶ Plan ─▶ worker thread: starts, restarts, changes peers and MTU of the device ─▶ prober
//! ```
//!
//! Owns: which kind of mesh runs, starting it again when it fails, and what is said of it.
//! Must not touch: addresses and routes of the device. Invariant: traffic between machines is unencrypted only if the
//! setting says `vxlan`; a mesh that cannot be had is a condition, never an error of the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv6Addr, UdpSocket},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use longshore_model::{MeshKind, MeshMode, NodeName, node::Overlay};
use serde::{Deserialize, Serialize};

use super::{
    backend::Backend,
    key::{MeshKey, MeshPublicKey},
    mtu::mesh_mtu,
    netlink,
    peers::{MeshPeers, peers},
    prober::{Prober, Targets},
    reach::Reach,
    userspace::PeerStatus,
};
use crate::{
    network_state::{MeshIdentity, NetworkState},
    render::device_names,
};

/// How often the worker looks after the device: a failed one is started again, and a changed underlay changes the MTU.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Checks between two looks at the underlay.
const UNDERLAY_CHECKS: u32 = 30;

/// What a mesh is started with.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// Folder of the key file.
    pub data_dir: PathBuf,
    /// The nodes of this machine. The first one gives the device its name.
    pub local_nodes: BTreeSet<NodeName>,
}

/// What is said of the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshReport {
    /// How other machines reach this one; `None` while there is no mesh.
    #[serde(default)]
    pub identity: Option<MeshIdentity>,
    /// What carries the traffic.
    #[serde(default)]
    pub kind: Option<MeshKind>,
    /// Name of the device.
    #[serde(default)]
    pub device: Option<String>,
    /// The largest packet.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Why there is no mesh although there should be one.
    #[serde(default)]
    pub problem: Option<String>,
    /// Whether this machine reaches its peers.
    #[serde(default)]
    pub overlay: Overlay,
    /// Nodes of other machines.
    #[serde(default)]
    pub peers: BTreeMap<NodeName, PeerReport>,
}

impl MeshReport {
    /// Nodes that do not answer: nothing is sent there that can be sent elsewhere.
    pub fn unreachable(&self) -> BTreeSet<NodeName> {
        let silent = self.peers.iter().filter(|(_, peer)| peer.reach == Reach::Unreachable);
        silent.map(|(node, _)| node.clone()).collect()
    }
}

/// What is said of a node of another machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReport {
    /// Whether it answers.
    #[serde(default)]
    pub reach: Reach,
    /// For how long it does or does not, in seconds.
    #[serde(default)]
    pub for_secs: u64,
    /// Seconds since the last handshake.
    #[serde(default)]
    pub handshake_secs: Option<u64>,
    /// Bytes sent to its machine.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Bytes received from its machine.
    #[serde(default)]
    pub received_bytes: u64,
}

/// What follows from the network state for the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    mode: MeshMode,
    device: String,
    port: u16,
    peers: MeshPeers,
    /// Peers with a node that servers believe to be up.
    up: BTreeSet<MeshPublicKey>,
    /// Own addresses in the mesh.
    sources: Vec<Ipv6Addr>,
    /// Own addresses outside of it.
    underlay: Vec<IpAddr>,
}

impl Plan {
    fn of(state: &NetworkState, local_nodes: &BTreeSet<NodeName>, own: MeshPublicKey) -> Option<Self> {
        let settings = state.settings()?;
        let peers = peers(state, local_nodes, own);
        let is_up = |node: &NodeName| state.node(node).is_some_and(|node| node.is_up);
        let up = peers.iter().filter(|(_, peer)| peer.nodes.keys().any(is_up)).map(|(key, _)| *key).collect();
        let local: Vec<_> = local_nodes.iter().filter_map(|name| state.node(name)).collect();
        let sources = local.iter().filter_map(|node| Some(settings.addresses.node_ipv6(node.block?))).collect();
        let underlay = local.iter().filter_map(|node| node.ip).collect();
        let device = device_names(&settings.cluster, local_nodes.first()?).mesh;
        Some(Self { mode: settings.mesh, device, port: settings.mesh_port, peers, up, sources, underlay })
    }
}

/// What the worker and the handle share.
#[derive(Default)]
struct Shared {
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    plan: Option<Plan>,
    backend: Option<Backend>,
    mtu: u32,
    problem: Option<String>,
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn traffic(&self) -> BTreeMap<MeshPublicKey, u64> {
        let running = self.running();
        let status = running.backend.as_ref().map(Backend::status).unwrap_or_default();
        status.into_iter().map(|(key, peer)| (key, peer.sent_bytes + peer.received_bytes)).collect()
    }
}

/// The mesh of this machine. It stops when it is dropped; devices and what the kernel carries stay.
pub struct Mesh {
    local_nodes: BTreeSet<NodeName>,
    public: Result<MeshPublicKey, String>,
    shared: Arc<Shared>,
    prober: Option<Arc<Prober>>,
    plans: Option<mpsc::Sender<Plan>>,
    worker: Option<JoinHandle<()>>,
}

impl Mesh {
    /// Starts the worker. There is no device until the first state with settings arrives, and the machine has the overlay
    /// address of one of its nodes.
    pub fn start(config: MeshConfig) -> Self {
        let shared = Arc::new(Shared::default());
        let traffic = Arc::clone(&shared);
        let prober = Prober::start(Box::new(move || traffic.traffic())).map(Arc::new);
        let key = MeshKey::load_or_create(&config.data_dir);
        let public = key.as_ref().map(MeshKey::public).map_err(|error| chain(error));
        let (plans, receiver) = mpsc::channel();
        let worker = match (key, &prober) {
            (Ok(key), Ok(prober)) => {
                let worker = Worker { key, shared: Arc::clone(&shared), prober: Arc::clone(prober) };
                let thread = std::thread::Builder::new().name("mesh".to_owned());
                thread.spawn(move || worker.run(&receiver)).ok()
            }
            (Err(error), _) => {
                shared.running().problem = Some(chain(&error));
                None
            }
            (_, Err(error)) => {
                shared.running().problem = Some(error.to_string());
                None
            }
        };
        Self { local_nodes: config.local_nodes, public, shared, prober: prober.ok(), plans: Some(plans), worker }
    }

    /// Follows the network state. Returns at once; a change of peers is in effect milliseconds later.
    pub fn update(&self, state: &NetworkState) {
        let Ok(public) = self.public else { return };
        if let (Some(plan), Some(plans)) = (Plan::of(state, &self.local_nodes, public), &self.plans) {
            let _ = plans.send(plan);
        }
    }

    /// How it is now.
    pub fn report(&self) -> MeshReport {
        let reach = self.prober.as_ref().map(|prober| prober.reach()).unwrap_or_default();
        let running = self.shared.running();
        let Some(plan) = &running.plan else {
            return MeshReport { problem: running.problem.clone(), ..MeshReport::default() };
        };
        let backend = running.backend.as_ref();
        let status: BTreeMap<MeshPublicKey, PeerStatus> =
            backend.map(Backend::status).unwrap_or_default().into_iter().collect();
        let now = Instant::now();
        let mut peers = BTreeMap::new();
        for (key, peer) in &plan.peers {
            let reach = reach.get(key).filter(|_| backend.is_some());
            let status = status.get(key);
            let report = PeerReport {
                reach: reach.map(|reach| reach.reach).unwrap_or_default(),
                for_secs: reach.map_or(0, |reach| now.saturating_duration_since(reach.since).as_secs()),
                handshake_secs: status.and_then(|status| status.last_handshake).map(|time| time.as_secs()),
                sent_bytes: status.map_or(0, |status| status.sent_bytes),
                received_bytes: status.map_or(0, |status| status.received_bytes),
            };
            peers.extend(peer.nodes.keys().map(|node| (node.clone(), report.clone())));
        }
        MeshReport {
            identity: backend.map(Backend::identity),
            kind: backend.map(Backend::kind),
            device: backend.map(|_| plan.device.clone()),
            mtu: backend.map(|_| running.mtu),
            problem: running.problem.clone(),
            overlay: self.prober.as_ref().map(|prober| prober.overlay(&plan.up)).unwrap_or_default(),
            peers,
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.plans = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// Whether this machine has an address of one of its nodes. The host network sets it where the overlay is on and possible;
/// a mesh without it would carry nothing, and on a machine with `--overlay-network off` no device may appear.
fn has_overlay(sources: &[Ipv6Addr]) -> bool {
    sources.iter().any(|source| UdpSocket::bind((*source, 0)).is_ok())
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Brings the device in line with the plan.
struct Worker {
    key: MeshKey,
    shared: Arc<Shared>,
    prober: Arc<Prober>,
}

impl Worker {
    fn run(&self, plans: &mpsc::Receiver<Plan>) {
        let mut checks = 0_u32;
        loop {
            let plan = match plans.recv_timeout(CHECK_INTERVAL) {
                // Only the newest plan matters.
                Ok(plan) => Some(plans.try_iter().last().unwrap_or(plan)),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            checks = checks.wrapping_add(1);
            let mut running = self.shared.running();
            let is_news = plan.as_ref().is_some_and(|plan| running.plan.as_ref() != Some(plan));
            let is_broken = running.backend.as_ref().is_some_and(|backend| backend.failure().is_some());
            let is_missing =
                running.backend.is_none() && running.plan.as_ref().is_some_and(|plan| plan.mode != MeshMode::Off);
            if is_news || is_broken || is_missing || checks.is_multiple_of(UNDERLAY_CHECKS) {
                self.apply(&mut running, plan);
            }
        }
    }

    fn apply(&self, running: &mut Running, plan: Option<Plan>) {
        let Some(plan) = plan.or_else(|| running.plan.clone()) else { return };
        let is_other = running
            .plan
            .as_ref()
            .is_none_or(|before| before.mode != plan.mode || before.device != plan.device || before.port != plan.port);
        if let Some(failure) = running.backend.as_ref().and_then(Backend::failure) {
            tracing::warn!(failure, "the mesh is started again");
            running.backend = None;
        }
        if is_other {
            running.backend = None;
        }
        let outcome = self.bring_up(running, &plan);
        let problem = outcome.err().map(|error| error.to_string());
        if let Some(problem) = problem.as_ref().filter(|problem| running.problem.as_ref() != Some(problem)) {
            tracing::warn!(device = plan.device, problem, "there is no mesh to other machines");
        }
        let targets = plan.peers.iter().filter_map(|(key, peer)| Some((*key, peer.probe_address()?)));
        let peers = targets.filter(|_| running.backend.is_some()).collect();
        self.prober.set_targets(Targets { sources: plan.sources.clone(), peers });
        (running.problem, running.plan) = (problem, Some(plan));
    }

    fn bring_up(&self, running: &mut Running, plan: &Plan) -> io::Result<()> {
        if plan.mode == MeshMode::Off {
            running.backend = None;
            return netlink::delete_link(&plan.device);
        }
        if running.backend.is_none() && !has_overlay(&plan.sources) {
            return Ok(());
        }
        let mtu = mesh_mtu(netlink::interface_mtus(&plan.underlay).unwrap_or_default());
        let mut backend = if let Some(backend) = running.backend.take() {
            backend
        } else {
            let backend = Backend::start(plan.mode, &plan.device, plan.port, mtu, &plan.underlay, &self.key)?;
            tracing::info!(device = plan.device, kind = %backend.kind(), mtu, "the mesh is up");
            running.mtu = mtu;
            backend
        };
        if running.mtu != mtu {
            backend.set_mtu(mtu)?;
            running.mtu = mtu;
        }
        backend.set_peers(plan.peers.clone())?;
        running.backend = Some(backend);
        Ok(())
    }
}
