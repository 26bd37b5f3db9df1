//! The name server of this machine: replicas ask it at the gateway of their bridge.
//!
//! ```text
//! UDP, TCP ──▶ message::read ──▶ answer(index, source, question) ──▶ reply
//!                                     └─ not ours ──▶ forward ──▶ the service's servers, or the machine's
//! ```
//!
//! Owns: the sockets, and the index that answers come from. Must not touch: which names exist.
//! Invariant: what a name means depends on who asks; names of ours are answered from memory, whatever becomes of the
//! servers that know the others.

mod answer;
mod forward;
mod message;
mod name_index;
mod upstreams;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use longshore_model::{NodeName, node::NodeCondition, reason::NodeConditionCode, service::Protocol};
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    task::{AbortHandle, JoinHandle},
    time::timeout,
};

use self::{
    answer::Answer,
    message::{Arrived, Question, Transport},
    name_index::NameIndex,
    upstreams::{ResolverFiles, Upstreams},
};
use crate::{
    NetworkState, TouchedServices,
    socket_handover::{InheritedSockets, NamedSocket},
};

/// The port of DNS.
const PORT: u16 = 53;
/// Time between two attempts to open a socket; the bridge that has the address may come later.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The largest question.
const MAX_QUESTION: usize = 4096;
/// Foreign questions that wait for an answer at a time; more are refused at once.
const MAX_FORWARDED: usize = 1024;
/// TCP connections at a time.
const MAX_CONNECTIONS: usize = 256;
/// A TCP connection without a question ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// The name server of this machine.
#[derive(Debug)]
pub(crate) struct NameServer {
    shared: Arc<Shared>,
    retries: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    port: u16,
    index: RwLock<NameIndex>,
    upstreams: Upstreams,
    upstream_port: u16,
    turn: AtomicUsize,
    forwarded: Semaphore,
    connections: Arc<Semaphore>,
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    /// Addresses to listen at: the gateways of this machine's nodes.
    desired: BTreeSet<IpAddr>,
    open: BTreeMap<(Protocol, IpAddr), Listener>,
    taken: BTreeMap<(Protocol, IpAddr), String>,
    inherited: InheritedSockets,
}

#[derive(Debug)]
struct Listener {
    socket: ListenSocket,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug)]
enum ListenSocket {
    Udp(Arc<UdpSocket>),
    Tcp(Arc<TcpListener>),
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NameServer {
    /// Starts without an address. Needs a tokio runtime.
    pub(crate) fn start(inherited: InheritedSockets) -> Self {
        Self::start_with(PORT, PORT, ResolverFiles::default(), inherited)
    }

    fn start_with(port: u16, upstream_port: u16, files: ResolverFiles, inherited: InheritedSockets) -> Self {
        let shared = Arc::new(Shared {
            port,
            index: RwLock::default(),
            upstreams: Upstreams::new(files),
            upstream_port,
            turn: AtomicUsize::new(0),
            forwarded: Semaphore::new(MAX_FORWARDED),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            listeners: Mutex::new(Listeners { inherited, ..Listeners::default() }),
        });
        let retries = tokio::spawn(retry(Arc::clone(&shared))).abort_handle();
        Self { shared, retries }
    }

    /// Follows the state where it was touched, and listens at the gateways of these nodes as far as the machine has them.
    pub(crate) fn update(&self, state: &NetworkState, touched: &TouchedServices, local_nodes: &BTreeSet<NodeName>) {
        self.shared.index.write().unwrap_or_else(PoisonError::into_inner).update(state, touched);
        self.shared.listeners().desired = gateways(state, local_nodes);
        self.shared.open_all();
    }

    /// Closes inherited sockets that no address has taken.
    pub(crate) fn close_unused(&self) {
        self.shared.listeners().inherited = InheritedSockets::default();
    }

    /// The addresses that this machine has and another program answers at.
    pub(crate) fn conditions(&self) -> Vec<NodeCondition> {
        let listeners = self.shared.listeners();
        let taken = listeners.taken.iter().map(|((protocol, _), message)| NodeCondition {
            code: NodeConditionCode::PortTakenOnNode,
            message: message.clone(),
            port: Some(self.shared.port),
            protocol: Some(*protocol),
        });
        taken.collect()
    }

    /// Stops listening and returns the sockets, for another process that goes on with them.
    pub(crate) fn hand_over(&self) -> Vec<NamedSocket> {
        self.retries.abort();
        let open = std::mem::take(&mut self.shared.listeners().open);
        let sockets = open.iter().filter_map(|((protocol, ip), listener)| {
            let name = socket_name(*protocol, *ip);
            match &listener.socket {
                ListenSocket::Udp(socket) => NamedSocket::of(name, socket.as_ref()),
                ListenSocket::Tcp(socket) => NamedSocket::of(name, socket.as_ref()),
            }
        });
        sockets.collect()
    }
}

/// The gateway addresses of these nodes.
pub(crate) fn gateways(state: &NetworkState, local_nodes: &BTreeSet<NodeName>) -> BTreeSet<IpAddr> {
    let Some(settings) = state.settings() else { return BTreeSet::new() };
    let blocks = local_nodes.iter().filter_map(|node| state.node(node)?.block);
    blocks.flat_map(|block| settings.addresses.gateways(block)).collect()
}

fn socket_name(protocol: Protocol, ip: IpAddr) -> String {
    format!("dns {} {ip}", protocol.as_str())
}

async fn retry(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(RETRY_INTERVAL).await;
        shared.open_all();
    }
}

impl Shared {
    /// Opens what is missing and closes what is not desired any more.
    fn open_all(self: &Arc<Self>) {
        let mut listeners = self.listeners();
        let Listeners { desired, open, taken, inherited } = &mut *listeners;
        open.retain(|(_, ip), _| desired.contains(ip));
        taken.clear();
        for key in desired.iter().flat_map(|ip| [(Protocol::Udp, *ip), (Protocol::Tcp, *ip)]) {
            if open.contains_key(&key) {
                continue;
            }
            match self.open(key, inherited) {
                Ok(listener) => {
                    tracing::info!(address = %key.1, protocol = key.0.as_str(), "name server listens");
                    open.insert(key, listener);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    let (protocol, ip) = (key.0.as_str(), key.1);
                    let text = format!(
                        "the name server cannot listen at {ip} port {}/{protocol}, which another program has; let that one \
                         listen at its own addresses only (`ss -lnp 'sport = :{}'` names it)",
                        self.port, self.port
                    );
                    taken.insert(key, text);
                }
                // The bridge is not there, or this process may not: then no replica asks.
                Err(_) => {}
            }
        }
    }

    fn open(self: &Arc<Self>, key: (Protocol, IpAddr), inherited: &mut InheritedSockets) -> io::Result<Listener> {
        let (protocol, ip) = key;
        let address = SocketAddr::new(ip, self.port);
        let handed_over = inherited.take(&socket_name(protocol, ip));
        let (shared, socket) = (
            Arc::clone(self),
            match (protocol, handed_over) {
                (Protocol::Udp, Some(socket)) => ListenSocket::Udp(Arc::new(UdpSocket::from_std(socket.into())?)),
                (Protocol::Udp, None) => {
                    let socket = std::net::UdpSocket::bind(address)?;
                    socket.set_nonblocking(true)?;
                    ListenSocket::Udp(Arc::new(UdpSocket::from_std(socket)?))
                }
                (Protocol::Tcp | Protocol::Sctp, Some(socket)) => {
                    ListenSocket::Tcp(Arc::new(TcpListener::from_std(socket.into())?))
                }
                (Protocol::Tcp | Protocol::Sctp, None) => {
                    let socket = std::net::TcpListener::bind(address)?;
                    socket.set_nonblocking(true)?;
                    ListenSocket::Tcp(Arc::new(TcpListener::from_std(socket)?))
                }
            },
        );
        let task = match socket.clone() {
            ListenSocket::Udp(socket) => tokio::spawn(shared.serve_udp(socket)),
            ListenSocket::Tcp(socket) => tokio::spawn(shared.serve_tcp(socket)),
        };
        Ok(Listener { socket, task })
    }

    async fn serve_udp(self: Arc<Self>, socket: Arc<UdpSocket>) {
        let mut buffer = vec![0; MAX_QUESTION];
        loop {
            // An error is about a reply that was refused, and says nothing about the next question.
            let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
            match self.reply(from.ip(), &buffer[..length], Transport::Udp) {
                Reply::Now(bytes) => {
                    let _ = socket.send_to(&bytes, from).await;
                }
                Reply::Foreign(foreign) => {
                    let (shared, socket) = (Arc::clone(&self), Arc::clone(&socket));
                    tokio::spawn(async move {
                        let bytes = shared.forward(foreign, Transport::Udp).await;
                        let _ = socket.send_to(&bytes, from).await;
                    });
                }
                Reply::None => {}
            }
        }
    }

    async fn serve_tcp(self: Arc<Self>, listener: Arc<TcpListener>) {
        loop {
            let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else { return };
            let Ok((stream, from)) = listener.accept().await else {
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            };
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                // How a connection ended is the concern of whoever asks.
                let _ = shared.serve_connection(stream, from.ip()).await;
                drop(permit);
            });
        }
    }

    async fn serve_connection(&self, mut stream: TcpStream, source: IpAddr) -> io::Result<()> {
        loop {
            let question = timeout(IDLE, forward::read_framed(&mut stream)).await??;
            let bytes = match self.reply(source, &question, Transport::Tcp) {
                Reply::Now(bytes) => bytes,
                Reply::Foreign(foreign) => self.forward(foreign, Transport::Tcp).await,
                Reply::None => return Ok(()),
            };
            timeout(IDLE, forward::write_framed(&mut stream, &bytes)).await??;
        }
    }

    fn reply(&self, source: IpAddr, bytes: &[u8], transport: Transport) -> Reply {
        let question = match message::read(bytes) {
            Arrived::Question(question) => question,
            Arrived::Refused(bytes) => return Reply::Now(bytes),
            Arrived::Ignored => return Reply::None,
        };
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let answer = answer::answer(&index, source, &question.query.name, question.query.query_type, turn);
        drop(index);
        match answer {
            Answer::Forward(servers) => Reply::Foreign(Foreign { question, servers, bytes: bytes.to_vec() }),
            // A class without names of ours has none at all.
            _ if !question.is_internet() => Reply::Now(question.reply(&Answer::NoData, transport)),
            answer => Reply::Now(question.reply(&answer, transport)),
        }
    }

    async fn forward(&self, foreign: Foreign, transport: Transport) -> Vec<u8> {
        let Foreign { question, servers, bytes } = foreign;
        let own = self.listeners().desired.clone();
        let servers = self.upstreams.servers(&servers, &own);
        let servers: Vec<SocketAddr> = servers.iter().map(|ip| SocketAddr::new(*ip, self.upstream_port)).collect();
        let Ok(_permit) = self.forwarded.try_acquire() else { return question.reply(&Answer::Failed, transport) };
        let answer = forward::forward(&bytes, &servers, transport).await;
        answer.unwrap_or_else(|| question.reply(&Answer::Failed, transport))
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        // Every change is a whole one, so a panic elsewhere leaves nothing half done.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a question.
enum Reply {
    Now(Vec<u8>),
    Foreign(Foreign),
    None,
}

/// A question about a name that is not ours.
struct Foreign {
    question: Question,
    /// The servers of the service that asks.
    servers: Vec<IpAddr>,
    /// The question as it arrived.
    bytes: Vec<u8>,
}

#[cfg(test)]
mod tests;
