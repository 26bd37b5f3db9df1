//! Listens on the published ports of this machine and relays to the endpoints behind them.
//!
//! ```text
//! NetworkState ──▶ update ──▶ one listener per (protocol, address, port) ──▶ EndpointSet ──▶ tcp / udp relays
//!                                   │ cannot be opened
//!                                   └──▶ a condition of this machine, tried again every RETRY_INTERVAL
//! ```
//!
//! Owns: which listeners are open. Must not touch: where the network state comes from.
//! Invariant: a listener stays open while its endpoints change, so that no client is refused by a change; closing a
//! listener closes no connection.

mod endpoint_set;
mod listen;
mod tcp;
mod udp;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::{NodeName, node::NodeCondition, reason::NodeConditionCode, service::Protocol};
use rustix::process::{Resource, getrlimit};
use tokio::{sync::Semaphore, task::AbortHandle};

use self::{
    endpoint_set::EndpointSet,
    listen::{ListenError, ListenSocket},
};
use crate::{Endpoint, NetworkState, PublishedPort};

/// Time between two attempts to open a listener.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Most connections and UDP sessions at a time, where the limit of open files allows as many.
const MAX_CONNECTIONS: u64 = 16_384;
/// Descriptors left to the rest of the daemon.
const OTHER_DESCRIPTORS: u64 = 256;

/// What a listener listens on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListenKey {
    protocol: Protocol,
    port: u16,
    host_ip: Option<IpAddr>,
}

/// The published ports of this machine.
#[derive(Debug)]
pub struct PortProxy {
    shared: Arc<Shared>,
    retries: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    local_nodes: BTreeSet<NodeName>,
    permits: Arc<Semaphore>,
    listeners: Mutex<BTreeMap<ListenKey, Listener>>,
}

#[derive(Debug)]
struct Listener {
    endpoints: Arc<EndpointSet>,
    status: Status,
}

#[derive(Debug)]
enum Status {
    Open(AbortHandle),
    /// Nothing is to be opened here: the service's own process listens on the port, or may be about to.
    LeftToProcess,
    Failed(ListenError),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Status::Open(task) = &self.status {
            task.abort();
        }
    }
}

impl PortProxy {
    /// Starts with no listener. Endpoints on `local_nodes` are on this machine. Needs a tokio runtime.
    pub fn start(local_nodes: BTreeSet<NodeName>) -> Self {
        let permits = Arc::new(Semaphore::new(connection_limit()));
        let shared = Arc::new(Shared { local_nodes, permits, listeners: Mutex::default() });
        let retries = tokio::spawn(retry(Arc::clone(&shared))).abort_handle();
        Self { shared, retries }
    }

    /// Opens, keeps and closes listeners so that they are those of the state.
    pub fn update(&self, state: &NetworkState) {
        self.shared.update(state);
    }

    /// The ports of the state that this machine cannot listen on.
    pub fn conditions(&self) -> Vec<NodeCondition> {
        let listeners = self.shared.listeners();
        let failed = listeners.iter().filter_map(|(key, listener)| match &listener.status {
            Status::Failed(ListenError::Taken(message)) => Some((key, message)),
            Status::Failed(ListenError::AddressElsewhere(_)) | Status::Open(_) | Status::LeftToProcess => None,
        });
        failed
            .map(|(key, message)| NodeCondition {
                code: NodeConditionCode::PortTakenOnNode,
                message: message.clone(),
                port: Some(key.port),
                protocol: Some(key.protocol),
            })
            .collect()
    }

    /// Closes every listener. Connections go on until the process ends.
    pub fn shut_down(&self) {
        self.retries.abort();
        self.shared.listeners().clear();
    }
}

impl Shared {
    fn update(&self, state: &NetworkState) {
        let ports = state.services().flat_map(|service| &service.ports).filter(|port| port.protocol != Protocol::Sctp);
        let desired: BTreeMap<ListenKey, &PublishedPort> = ports.map(|port| (key_of(port), port)).collect();
        let mut listeners = self.listeners();
        // Closed before others are opened: the same port may have moved to another address.
        listeners.retain(|key, _| desired.contains_key(key));
        for (key, port) in desired {
            let listener = listeners
                .entry(key.clone())
                .or_insert_with(|| Listener { endpoints: Arc::default(), status: Status::LeftToProcess });
            listener.endpoints.replace(&port.endpoints, &self.local_nodes);
            match (is_left_to_process(port), &listener.status) {
                // An open listener stays: only a process that ignores `PORT` would want the port, and it came too late.
                (_, Status::Open(_)) | (false, Status::Failed(_)) => {}
                (true, Status::LeftToProcess | Status::Failed(_)) => listener.status = Status::LeftToProcess,
                (false, Status::LeftToProcess) => self.open(&key, listener),
            }
        }
    }

    fn open(&self, key: &ListenKey, listener: &mut Listener) {
        let (endpoints, permits) = (Arc::clone(&listener.endpoints), Arc::clone(&self.permits));
        let status = match listen::open(key) {
            Ok(ListenSocket::Tcp(socket)) => {
                Status::Open(tokio::spawn(tcp::accept(socket, endpoints, permits)).abort_handle())
            }
            Ok(ListenSocket::Udp(socket)) => {
                Status::Open(tokio::spawn(udp::receive(socket, endpoints, permits)).abort_handle())
            }
            Err(error) => Status::Failed(error),
        };
        log_change(key, &listener.status, &status);
        listener.status = status;
    }

    fn retry_failed(&self) {
        let mut listeners = self.listeners();
        for (key, listener) in listeners.iter_mut() {
            if matches!(listener.status, Status::Failed(_)) {
                self.open(key, listener);
            }
        }
    }

    fn listeners(&self) -> MutexGuard<'_, BTreeMap<ListenKey, Listener>> {
        // A panic between two changes leaves listeners that the next update corrects.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key_of(port: &PublishedPort) -> ListenKey {
    let host_ip = port.host_ip.filter(|ip| !ip.is_unspecified() || ip.is_ipv4());
    ListenKey { protocol: port.protocol, port: port.port, host_ip }
}

/// Whether plain processes of the service bind the published port themselves, or may be about to. Then this machine leaves
/// it to them even without a replica of its own: the next one may be placed here.
fn is_left_to_process(port: &PublishedPort) -> bool {
    let binds_it = |endpoint: &Endpoint| endpoint.bound.iter().any(|address| address.port() == port.port);
    port.process_may_bind && (port.endpoints.is_empty() || port.endpoints.iter().any(binds_it))
}

fn log_change(key: &ListenKey, before: &Status, after: &Status) {
    let (port, protocol) = (key.port, key.protocol.as_str());
    match (before, after) {
        (Status::Failed(known), Status::Failed(error)) if known == error => {}
        (_, Status::Open(_)) => tracing::info!(port, protocol, "published port open"),
        (_, Status::Failed(ListenError::Taken(message))) => {
            tracing::warn!(
                port,
                protocol,
                code = NodeConditionCode::PortTakenOnNode.code(),
                message,
                "published port not open"
            );
        }
        (_, Status::Failed(ListenError::AddressElsewhere(address))) => {
            tracing::info!(port, protocol, %address, "the published address is not one of this machine; nodes that have it listen there");
        }
        (_, Status::LeftToProcess) => {}
    }
}

async fn retry(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(RETRY_INTERVAL).await;
        shared.retry_failed();
    }
}

/// Two descriptors per connection, as far as the limit of open files goes.
fn connection_limit() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = (files.saturating_sub(OTHER_DESCRIPTORS) / 2).clamp(64, MAX_CONNECTIONS);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
