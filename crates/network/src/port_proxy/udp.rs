//! Relays the datagrams of one published UDP port.
//!
//! Owns: a session per client address. Replies leave from the published port, as clients expect.
//! Invariant: a session uses an endpoint of the set; once that left the set, the next datagram goes to another one.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{net::UdpSocket, sync::mpsc, time::timeout};

use super::{
    budget::{PortBudget, Room},
    endpoint_set::{EndpointSet, Lease, Target},
};

/// A session without a datagram in either direction ends after this time.
const IDLE: Duration = Duration::from_mins(1);
/// The same, once its listener was closed.
const LAST_REPLIES: Duration = Duration::from_secs(5);
/// The largest datagram.
const MAX_DATAGRAM: usize = 65_535;
/// Datagrams that may wait for a session; more are dropped, as any network does.
const QUEUE: usize = 64;
/// Sessions that begin between two searches for ended ones.
const SWEEP: u64 = 256;
/// Endpoints tried for a datagram that was not answered.
const TRIES: usize = 3;

/// Receives datagrams for ever. While there is no room, datagrams of new clients are dropped.
pub(super) async fn receive(socket: Arc<UdpSocket>, endpoints: Arc<EndpointSet>, budget: PortBudget) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    let mut sessions: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut began = 0_u64;
    loop {
        // An error is about a reply that was refused, and says nothing about the next datagram.
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
        let datagram = buffer[..length].to_vec();
        let datagram = match sessions.get(&client).map(|session| session.try_send(datagram.clone())) {
            Some(Ok(()) | Err(mpsc::error::TrySendError::Full(_))) => continue,
            Some(Err(mpsc::error::TrySendError::Closed(datagram))) => datagram,
            None => datagram,
        };
        let Some(room) = budget.room_now() else { continue };
        began += 1;
        if began.is_multiple_of(SWEEP) {
            sessions.retain(|_, session| !session.is_closed());
        }
        let (sender, datagrams) = mpsc::channel(QUEUE);
        let _ = sender.try_send(datagram);
        sessions.insert(client, sender);
        let session = Session { client, socket: Arc::clone(&socket), endpoints: Arc::clone(&endpoints), datagrams };
        tokio::spawn(session.run(room));
    }
}

/// The datagrams of one client.
struct Session {
    client: SocketAddr,
    /// The socket of the published port.
    socket: Arc<UdpSocket>,
    endpoints: Arc<EndpointSet>,
    datagrams: mpsc::Receiver<Vec<u8>>,
}

/// The endpoint of a session.
struct Upstream {
    socket: UdpSocket,
    lease: Lease,
    /// The last datagram, until the endpoint has answered one: it goes to another endpoint if this one refuses it.
    unanswered: Option<Vec<u8>>,
}

impl Session {
    async fn run(mut self, _room: Room) {
        let traffic = Arc::clone(self.endpoints.traffic());
        let _open = traffic.begin();
        let mut upstream: Option<Upstream> = None;
        let (mut buffer, mut is_open) = (vec![0; MAX_DATAGRAM], true);
        loop {
            let received = async {
                match &upstream {
                    Some(upstream) => upstream.socket.recv(&mut buffer).await,
                    None => std::future::pending().await,
                }
            };
            let step = async {
                tokio::select! {
                    datagram = self.datagrams.recv(), if is_open => Step::FromClient(datagram),
                    reply = received => Step::FromEndpoint(reply),
                }
            };
            match timeout(if is_open { IDLE } else { LAST_REPLIES }, step).await {
                Ok(Step::FromClient(Some(datagram))) => {
                    traffic.bytes_in.add(datagram.len() as u64);
                    let current = upstream.take().filter(|upstream| self.endpoints.serves(upstream.lease.target()));
                    upstream = send(&self.endpoints, current, datagram, Vec::new()).await;
                }
                Ok(Step::FromEndpoint(Ok(length))) => {
                    if let Some(upstream) = &mut upstream {
                        upstream.unanswered = None;
                        upstream.lease.target().succeeded();
                    }
                    traffic.bytes_out.add(length as u64);
                    let _ = self.socket.send_to(&buffer[..length], self.client).await;
                }
                Ok(Step::FromEndpoint(Err(_))) => upstream = self.try_another(upstream.take()).await,
                // The listener was closed or handed over; what was asked already is still answered.
                Ok(Step::FromClient(None)) => is_open = false,
                Err(_) => return,
            }
        }
    }

    /// The endpoint refused: what it did not answer goes to another one.
    async fn try_another(&self, refused: Option<Upstream>) -> Option<Upstream> {
        let Upstream { lease, unanswered, .. } = refused?;
        self.endpoints.eject(lease.target());
        let tried = vec![Arc::clone(lease.target())];
        drop(lease);
        send(&self.endpoints, None, unanswered?, tried).await
    }
}

enum Step {
    FromClient(Option<Vec<u8>>),
    FromEndpoint(io::Result<usize>),
}

/// Sends a datagram to the session's endpoint, or to another one where there is none or it fails. `None` if it reached
/// nobody: the client repeats it, as it must with any lost datagram.
async fn send(
    endpoints: &EndpointSet,
    mut current: Option<Upstream>,
    datagram: Vec<u8>,
    mut tried: Vec<Arc<Target>>,
) -> Option<Upstream> {
    while tried.len() < TRIES {
        let mut upstream = match current.take() {
            Some(upstream) => upstream,
            None => open(endpoints.choose(&tried)?).await?,
        };
        if upstream.socket.send(&datagram).await.is_ok() {
            upstream.unanswered = Some(datagram);
            return Some(upstream);
        }
        endpoints.eject(upstream.lease.target());
        tried.push(Arc::clone(upstream.lease.target()));
    }
    None
}

async fn open(target: Arc<Target>) -> Option<Upstream> {
    let lease = target.lease();
    let address = target.address();
    let any = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await.ok()?;
    socket.connect(address).await.ok()?;
    Some(Upstream { socket, lease, unanswered: None })
}
