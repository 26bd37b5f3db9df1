//! WireGuard in user space: boringtun's protocol with a datapath of our own.
//!
//! ```text
//! device (tun, offloads) ─ outbound thread: split, encrypt ─▶ UDP socket (segmentation offload)
//! device                 ◀─ inbound thread: decrypt, merge ── UDP socket (receive offload)
//!                           timer thread: handshakes, keepalives, limits
//! ```
//!
//! Owns: the threads, the device and the socket of one mesh. Must not touch: addresses and routes of the device.
//! Invariant: one thread per direction, so packets between two machines are never reordered. The device outlives the
//! process, with its routes: a process that starts again continues where the last one ended.

mod inbound;
mod outbound;
mod peer_table;
mod udp;

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread::JoinHandle,
    time::Duration,
};

use boringtun::{
    noise::{TunnResult, rate_limiter::RateLimiter},
    x25519::{PublicKey, StaticSecret},
};
use tun_rs::{DeviceBuilder, SyncDevice};

pub use self::peer_table::PeerStatus;
use self::{
    peer_table::{PeerMaker, PeerTable},
    udp::MeshSocket,
};
use super::{
    key::{MeshKey, MeshPublicKey},
    peers::MeshPeers,
    stop::Stop,
};
use crate::network_state::MeshIdentity;

/// How often the timers of peers are looked at. The protocol's shortest is five seconds.
const TIMER_INTERVAL: Duration = Duration::from_millis(250);
/// Handshake messages per second before senders have to prove their address. Each one is counted twice: before and
/// after its sender is known.
const HANDSHAKES_PER_SECOND: u64 = 200;
/// Packets that wait for the outbound thread: 30 ms at full speed, so that a burst of a sender is not cut.
const DEVICE_QUEUE: u32 = 1000;
/// The longest handshake message.
const HANDSHAKE_ROOM: usize = 256;

/// What a mesh is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserspaceConfig {
    /// Name of the device; one that exists is taken over with its addresses and routes.
    pub device: String,
    /// The UDP port; the next free one is taken if it is in use.
    pub port: u16,
    /// MTU of the device.
    pub mtu: u16,
}

/// Why our own WireGuard could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartUserspaceError {
    /// The device cannot be had.
    #[error("could not open the mesh device `{device}`")]
    Device {
        /// Its name.
        device: String,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// No port is free.
    #[error("could not listen on UDP port {port} or one of the next")]
    Port {
        /// The preferred port.
        port: u16,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// A thread or a descriptor cannot be had.
    #[error("could not start the threads of the mesh")]
    Threads(#[source] io::Error),
}

/// What the threads share.
struct Shared {
    device: SyncDevice,
    socket: MeshSocket,
    secret: StaticSecret,
    public: PublicKey,
    limiter: Arc<RateLimiter>,
    table: RwLock<Arc<PeerTable>>,
    stop: Stop,
    failure: Mutex<Option<String>>,
}

impl Shared {
    fn table(&self) -> Arc<PeerTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// One part that fails ends the others: half a mesh would be mistaken for a whole one.
    fn run(&self, part: &'static str, run: impl FnOnce(&Self) -> io::Result<()>) {
        if let Err(error) = run(self) {
            tracing::warn!(part, %error, "the mesh ended");
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| format!("{part}: {error}"));
        }
        self.stop.signal();
    }
}

/// A running mesh. It stops when it is dropped; the device stays.
pub struct UserspaceMesh {
    shared: Arc<Shared>,
    maker: PeerMaker,
    configured: MeshPeers,
    public: MeshPublicKey,
    threads: Vec<JoinHandle<()>>,
}

impl UserspaceMesh {
    /// Opens the device and the socket, and starts the threads. It has no peers yet.
    pub fn start(config: &UserspaceConfig, key: &MeshKey) -> Result<Self, StartUserspaceError> {
        let device = open_device(config)
            .map_err(|cause| StartUserspaceError::Device { device: config.device.clone(), cause })?;
        let socket =
            MeshSocket::bind(config.port).map_err(|cause| StartUserspaceError::Port { port: config.port, cause })?;
        let public = PublicKey::from(key.public().0);
        let limiter = Arc::new(RateLimiter::new(&public, HANDSHAKES_PER_SECOND));
        let shared = Arc::new(Shared {
            device,
            socket,
            secret: key.secret(),
            public,
            limiter: Arc::clone(&limiter),
            table: RwLock::default(),
            stop: Stop::new().map_err(StartUserspaceError::Threads)?,
            failure: Mutex::default(),
        });
        let maker = PeerMaker::new(key.clone(), limiter);
        let mut mesh = Self { shared, maker, configured: MeshPeers::new(), public: key.public(), threads: Vec::new() };
        // A start that fails half-way drops the mesh, which ends the threads there are.
        mesh.spawn("mesh-outbound", outbound::run)?;
        mesh.spawn("mesh-inbound", inbound::run)?;
        mesh.spawn("mesh-timers", run_timers)?;
        Ok(mesh)
    }

    fn spawn(&mut self, name: &'static str, run: fn(&Shared) -> io::Result<()>) -> Result<(), StartUserspaceError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || shared.run(name, run)).map_err(StartUserspaceError::Threads)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Replaces the peers. Peers that stay keep their sessions; a removed one is ignored from the next packet on. New
    /// ones are greeted at once: after a restart they would otherwise send to a session that is gone until they notice.
    pub fn set_peers(&mut self, peers: MeshPeers) {
        let before = self.shared.table();
        let next = Arc::new(before.next(&self.configured, &peers, &self.maker));
        *self.shared.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        self.configured = peers;
        let mut buffer = [0; HANDSHAKE_ROOM];
        for peer in next.peers().filter(|peer| before.by_key(&peer.key).is_none()) {
            if let Some((endpoint, message)) = peer.endpoint().zip(peer.initiate(&mut buffer)) {
                self.shared.socket.send(message, endpoint);
            }
        }
    }

    /// Changes the MTU of the device.
    pub fn set_mtu(&self, mtu: u16) -> io::Result<()> {
        self.shared.device.set_mtu(mtu)
    }

    /// How other machines reach this one.
    pub fn identity(&self) -> MeshIdentity {
        MeshIdentity { public_key: self.public.to_string(), port: self.shared.socket.port() }
    }

    /// The peers and what is known of them.
    pub fn status(&self) -> Vec<(MeshPublicKey, PeerStatus)> {
        self.shared.table().peers().map(|peer| (peer.key, peer.status())).collect()
    }

    /// Why it does not run any more; `None` while it runs.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for UserspaceMesh {
    fn drop(&mut self) {
        self.shared.stop.signal();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn open_device(config: &UserspaceConfig) -> io::Result<SyncDevice> {
    let builder = DeviceBuilder::new().name(&config.device).mtu(config.mtu);
    let device = builder.offload(true).tx_queue_len(DEVICE_QUEUE).enable(true).build_sync()?;
    device.persist()?;
    device.set_nonblocking(true)?;
    Ok(device)
}

/// Handshakes that are due, keepalives, and the allowance of handshakes for the next second.
fn run_timers(shared: &Shared) -> io::Result<()> {
    let mut buffer = [0; HANDSHAKE_ROOM];
    for tick in 0_u32.. {
        if shared.stop.sleep(TIMER_INTERVAL)? {
            break;
        }
        if tick % 4 == 0 {
            shared.limiter.reset_count();
        }
        for peer in shared.table().peers() {
            let outcome = peer.tunnel().update_timers(&mut buffer);
            if let (TunnResult::WriteToNetwork(message), Some(endpoint)) = (outcome, peer.endpoint()) {
                shared.socket.send(message, endpoint);
            }
        }
    }
    Ok(())
}
