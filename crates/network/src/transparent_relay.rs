//! The last step to a replica that is reached through another machine's published port.
//!
//! ```text
//! client ─▶ port_proxy (any machine) ─mesh─▶ transparent_relay (the replica's) ─from the client's address─▶ replica
//! ```
//!
//! A machine cannot send from a client's address through the mesh: the answer would leave on another way, and the mesh
//! drops foreign sources. So the replica's own machine connects, and the PROXY header tells it from where.
//!
//! Owns: the listener at the mesh addresses of this machine's nodes, and the answer that says how connecting went.
//! Must not touch: which replica is chosen. Invariant: only nodes of the cluster are served, and only replicas of this
//! machine are connected to.

mod transparent_connect;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::NodeName;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::AbortHandle,
    time::timeout,
};

pub(crate) use self::transparent_connect::{Transparency, connect_as, suits};
use crate::{
    NetworkState,
    network_state::RELAY_PORT,
    port_proxy::Counter,
    proxy_protocol::{self, ProxiedConnection},
    socket_handover::{InheritedSockets, NamedSocket},
    tcp_relay,
};

/// Time between two attempts to open a listener; the address may come later.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the header to arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time the replica has to accept; less than whoever asks waits.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(900);
/// Connections at a time.
const MAX_CONNECTIONS: usize = 8192;

/// How connecting went, as one byte.
const CONNECTED: u8 = 0;
const REFUSED: u8 = 1;
const UNREACHABLE: u8 = 2;

/// Relays of this machine.
#[derive(Debug)]
pub(crate) struct TransparentRelay {
    shared: Arc<Shared>,
    retries: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    transparency: Arc<Transparency>,
    connections: Arc<Semaphore>,
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    /// Mesh addresses of this machine's nodes.
    desired: BTreeSet<IpAddr>,
    /// Mesh addresses of all nodes, which may ask.
    peers: BTreeSet<IpAddr>,
    /// Addresses of this machine's replicas.
    replicas: BTreeSet<IpAddr>,
    open: BTreeMap<IpAddr, (Arc<TcpListener>, AbortHandle)>,
    inherited: InheritedSockets,
}

impl TransparentRelay {
    /// Starts without an address. Needs a tokio runtime.
    pub(crate) fn start(inherited: InheritedSockets) -> Self {
        let shared = Arc::new(Shared {
            transparency: Arc::default(),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            listeners: Mutex::new(Listeners { inherited, ..Listeners::default() }),
        });
        let retries = tokio::spawn(retry(Arc::clone(&shared))).abort_handle();
        Self { shared, retries }
    }

    /// Whether replicas of this machine can be reached from a client's address.
    pub(crate) fn transparency(&self) -> &Arc<Transparency> {
        &self.shared.transparency
    }

    /// Follows the state.
    pub(crate) fn update(&self, state: &NetworkState, local_nodes: &BTreeSet<NodeName>) {
        let Some(settings) = state.settings() else { return };
        let (plan, mut listeners) = (settings.addresses, self.shared.listeners());
        let blocks = state.nodes().filter_map(|node| Some((&node.name, node.block?)));
        let addresses: BTreeMap<&NodeName, IpAddr> =
            blocks.map(|(node, block)| (node, plan.node_ipv6(block).into())).collect();
        listeners.desired = local_nodes.iter().filter_map(|node| addresses.get(node).copied()).collect();
        listeners.peers = addresses.into_values().collect();
        let replicas = state.services().flat_map(|service| &service.replicas);
        let here = replicas.filter(|replica| local_nodes.contains(&replica.node)).map(|replica| replica.address);
        listeners.replicas =
            here.flat_map(|ip| plan.ipv4_of(ip).map(IpAddr::V4).into_iter().chain([IpAddr::V6(ip)])).collect();
        drop(listeners);
        self.shared.open_all();
    }

    /// Closes inherited sockets that no address has taken.
    pub(crate) fn close_unused(&self) {
        self.shared.listeners().inherited = InheritedSockets::default();
    }

    /// Whether connections are open.
    pub(crate) fn has_connections(&self) -> bool {
        self.shared.connections.available_permits() < MAX_CONNECTIONS
    }

    /// Stops accepting and returns the sockets.
    pub(crate) fn hand_over(&self) -> Vec<NamedSocket> {
        self.retries.abort();
        let open = std::mem::take(&mut self.shared.listeners().open);
        let sockets = open.iter().filter_map(|(ip, (socket, task))| {
            task.abort();
            NamedSocket::of(socket_name(*ip), socket.as_ref())
        });
        sockets.collect()
    }
}

fn socket_name(ip: IpAddr) -> String {
    format!("relay {ip}")
}

async fn retry(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(RETRY_INTERVAL).await;
        shared.open_all();
        // This machine has the overlay where it has the address of one of its nodes.
        if !shared.listeners().open.is_empty() {
            shared.transparency.check().await;
        }
    }
}

impl Shared {
    fn open_all(self: &Arc<Self>) {
        let mut listeners = self.listeners();
        let Listeners { desired, open, inherited, .. } = &mut *listeners;
        open.retain(|ip, (_, task)| {
            let stays = desired.contains(ip);
            if !stays {
                task.abort();
            }
            stays
        });
        let missing: Vec<IpAddr> = desired.iter().filter(|ip| !open.contains_key(ip)).copied().collect();
        for ip in missing {
            // The address is not there before the mesh is: then nobody asks.
            let Ok(listener) = listen(ip, inherited) else { continue };
            let task = tokio::spawn(Arc::clone(self).accept(Arc::clone(&listener))).abort_handle();
            open.insert(ip, (listener, task));
        }
    }

    async fn accept(self: Arc<Self>, listener: Arc<TcpListener>) {
        loop {
            let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else { return };
            let Ok((stream, from)) = listener.accept().await else {
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            };
            if !self.listeners().peers.contains(&from.ip()) {
                continue;
            }
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                // How a connection ended is the concern of its two ends.
                let _ = shared.serve(stream).await;
                drop(permit);
            });
        }
    }

    async fn serve(&self, mut asking: TcpStream) -> io::Result<()> {
        asking.set_nodelay(true)?;
        let header = timeout(HEADER_TIMEOUT, proxy_protocol::read_header(&mut asking)).await??;
        let Some(ProxiedConnection { source, destination }) = header else { return Ok(()) };
        if !self.listeners().replicas.contains(&destination.ip()) {
            return asking.write_all(&[UNREACHABLE]).await;
        }
        match timeout(CONNECT_TIMEOUT, self.connect(source, destination)).await {
            Ok(Ok(replica)) => {
                asking.write_all(&[CONNECTED]).await?;
                replica.set_nodelay(true)?;
                let unused = (Counter::default(), Counter::default());
                tcp_relay::relay(&asking, &replica, &unused.0, &unused.1).await
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => asking.write_all(&[REFUSED]).await,
            Ok(Err(_)) | Err(_) => asking.write_all(&[UNREACHABLE]).await,
        }
    }

    async fn connect(&self, client: SocketAddr, replica: SocketAddr) -> io::Result<TcpStream> {
        if self.transparency.is_available() && suits(client.ip(), replica) {
            return connect_as(client, replica).await;
        }
        TcpStream::connect(replica).await
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        // Every change is a whole one, so a panic elsewhere leaves nothing half done.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listen(ip: IpAddr, inherited: &mut InheritedSockets) -> io::Result<Arc<TcpListener>> {
    let listener = match inherited.take(&socket_name(ip)) {
        Some(socket) => std::net::TcpListener::from(socket),
        None => std::net::TcpListener::bind((ip, RELAY_PORT))?,
    };
    listener.set_nonblocking(true)?;
    Ok(Arc::new(TcpListener::from_std(listener)?))
}

/// Asks the relay at `via` to connect to a replica of its machine from the client's address.
pub(crate) async fn connect_through(via: SocketAddr, client: SocketAddr, replica: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(via).await.map_err(|error| {
        // Nobody listens there: an older machine, or one without this relay. The replica itself refused nothing.
        io::Error::new(io::ErrorKind::HostUnreachable, error)
    })?;
    stream.set_nodelay(true)?;
    let header = ProxiedConnection { source: client, destination: replica }.header();
    stream.write_all(&header).await?;
    match stream.read_u8().await? {
        CONNECTED => Ok(stream),
        REFUSED => Err(io::ErrorKind::ConnectionRefused.into()),
        _ => Err(io::ErrorKind::HostUnreachable.into()),
    }
}
