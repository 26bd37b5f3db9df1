//! Asks every peer each second, through the mesh, whether it is there.
//!
//! The question is an echo request to the peer's own address: the kernel of the peer answers, whatever program or
//! version runs there, and firewalls let it pass. Owns: the thread and its socket. Must not touch: what follows from
//! silence. Invariant: only answers to questions of this process count; without a source address nothing is measured.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use longshore_model::node::Overlay;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, ipproto, recvfrom, sendto, socket_with,
};

use super::{
    key::MeshPublicKey,
    reach::{PeerReach, ReachTable, probed},
    stop::Stop,
};

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// Answers to so many earlier rounds count, too: a peer may be slow.
const LATE_ROUNDS: u16 = 3;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// Type, code, checksum, identifier and sequence number.
const HEADER: usize = 8;

/// Bytes exchanged with each peer so far.
pub(super) type Traffic = Box<dyn Fn() -> BTreeMap<MeshPublicKey, u64> + Send>;

/// What is probed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Targets {
    /// Own addresses in the mesh, of which the first one that the machine has is the source.
    pub(super) sources: Vec<Ipv6Addr>,
    /// The address of each peer.
    pub(super) peers: BTreeMap<MeshPublicKey, Ipv6Addr>,
}

#[derive(Default)]
struct Work {
    targets: Targets,
    table: ReachTable,
}

struct Shared {
    work: Mutex<Work>,
    stop: Stop,
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running prober. It stops when it is dropped.
pub(super) struct Prober {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Prober {
    pub(super) fn start(traffic: Traffic) -> io::Result<Self> {
        let shared = Arc::new(Shared { work: Mutex::default(), stop: Stop::new()? });
        let thread = std::thread::Builder::new().name("mesh-prober".to_owned());
        let thread = thread.spawn({
            let shared = Arc::clone(&shared);
            move || {
                if let Err(error) = run(&shared, &traffic) {
                    tracing::warn!(%error, "mesh peers are no longer probed");
                }
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn set_targets(&self, targets: Targets) {
        let mut work = self.shared.work();
        let peers: BTreeSet<MeshPublicKey> = targets.peers.keys().copied().collect();
        work.table.retain(&peers);
        work.targets = targets;
    }

    /// What is known of the peers.
    pub(super) fn reach(&self) -> BTreeMap<MeshPublicKey, PeerReach> {
        self.shared.work().table.peers().collect()
    }

    /// Whether this machine is cut off from the peers that servers believe to be up.
    pub(super) fn overlay(&self, up: &BTreeSet<MeshPublicKey>) -> Overlay {
        self.shared.work().table.overlay(up, Instant::now())
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.shared.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket with the secret that answers have to repeat.
struct Echo {
    socket: OwnedFd,
    source: Ipv6Addr,
    secret: [u8; 8],
    sequence: u16,
}

fn run(shared: &Shared, traffic: &Traffic) -> io::Result<()> {
    let mut secret = [0; 8];
    SystemRandom::new().fill(&mut secret).map_err(|_| io::Error::other("the system gave no random bytes"))?;
    let (mut echo, mut before) = (None, BTreeMap::new());
    for round in 0_usize.. {
        let targets = shared.work().targets.clone();
        echo = open(echo, &targets.sources, secret);
        let Some(echo) = &mut echo else {
            if shared.stop.sleep(ROUND)? {
                break;
            }
            continue;
        };
        ask(shared, echo, &targets, &busy(&targets, traffic, &mut before), round);
        if listen(shared, echo, &targets, Instant::now() + ROUND)? {
            break;
        }
    }
    Ok(())
}

/// Peers with more traffic than probes cause since the last round; only asked for where it matters.
fn busy(targets: &Targets, traffic: &Traffic, before: &mut BTreeMap<MeshPublicKey, u64>) -> BTreeSet<MeshPublicKey> {
    /// A probe and its answer.
    const OWN_BYTES: u64 = 256;
    let everybody = targets.peers.keys().copied().collect();
    if probed(&everybody, &BTreeSet::new(), 0).len() == everybody.len() {
        return BTreeSet::new();
    }
    let now = traffic();
    let grown = now.iter().filter(|(key, bytes)| **bytes > before.get(key).copied().unwrap_or(0) + OWN_BYTES);
    let busy = grown.map(|(key, _)| *key).collect();
    *before = now;
    busy
}

fn ask(shared: &Shared, echo: &mut Echo, targets: &Targets, busy: &BTreeSet<MeshPublicKey>, round: usize) {
    let peers = targets.peers.keys().copied().collect();
    let probed = probed(&peers, busy, round);
    for peer in shared.work().table.begin_round(&probed, Instant::now()) {
        tracing::warn!(%peer, "a mesh peer does not answer");
    }
    echo.sequence = echo.sequence.wrapping_add(1);
    for address in probed.iter().filter_map(|key| targets.peers.get(key)) {
        let to = SocketAddr::V6(SocketAddrV6::new(*address, 0, 0, 0));
        // What cannot be sent is not answered.
        let _ = sendto(&echo.socket, &echo.message(), SendFlags::DONTWAIT, &to);
    }
}

/// Takes answers until the round is over. Returns whether the prober shall stop.
fn listen(shared: &Shared, echo: &Echo, targets: &Targets, until: Instant) -> io::Result<bool> {
    let by_address: BTreeMap<Ipv6Addr, MeshPublicKey> = targets.peers.iter().map(|(key, ip)| (*ip, *key)).collect();
    let mut buffer = [0; 256];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        if shared.stop.wait(&echo.socket, Some(left))? {
            return Ok(true);
        }
        while let Ok((count, _, from)) = recvfrom(&echo.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            let from = from.and_then(|from| SocketAddrV6::try_from(from).ok());
            let peer = from.and_then(|from| by_address.get(from.ip()));
            let Some(peer) = peer.filter(|_| echo.is_answer(&buffer[..count])) else { continue };
            if shared.work().table.answered(*peer, Instant::now()) {
                tracing::info!(%peer, "a mesh peer answers");
            }
        }
    }
}

/// The socket of the round before, or a new one if the source address changed.
fn open(echo: Option<Echo>, sources: &[Ipv6Addr], secret: [u8; 8]) -> Option<Echo> {
    if let Some(echo) = echo
        && sources.contains(&echo.source)
    {
        return Some(echo);
    }
    sources.iter().find_map(|source| Echo::open(*source, secret).ok())
}

impl Echo {
    fn open(source: Ipv6Addr, secret: [u8; 8]) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET6, SocketType::RAW, flags, Some(ipproto::ICMPV6))?;
        bind(&socket, &SocketAddr::V6(SocketAddrV6::new(source, 0, 0, 0)))?;
        Ok(Self { socket, source, secret, sequence: 0 })
    }

    /// The question of this round. The kernel fills in the checksum.
    fn message(&self) -> [u8; HEADER + 8] {
        let mut message = [0; HEADER + 8];
        message[0] = ECHO_REQUEST;
        message[4..6].copy_from_slice(&self.secret[..2]);
        message[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        message[HEADER..].copy_from_slice(&self.secret);
        message
    }

    fn is_answer(&self, message: &[u8]) -> bool {
        let Some((&[kind, _, _, _, _, _, high, low], rest)) = message.split_first_chunk::<HEADER>() else {
            return false;
        };
        let age = self.sequence.wrapping_sub(u16::from_be_bytes([high, low]));
        kind == ECHO_REPLY && rest == self.secret && age <= LATE_ROUNDS
    }
}
