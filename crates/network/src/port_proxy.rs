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

mod budget;
mod endpoint_set;
mod listen;
mod tcp;
mod traffic;
mod udp;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::{GroupKey, NodeName, node::NodeCondition, reason::NodeConditionCode, service::Protocol};
use tokio::task::AbortHandle;

pub(crate) use self::traffic::Counter;
pub use self::traffic::{EndpointTraffic, ServiceTraffic};
use self::{
    budget::Budget,
    endpoint_set::EndpointSet,
    listen::{ListenError, ListenSocket},
    traffic::Traffic,
};
use crate::{
    Endpoint, NetworkService, NetworkState, PublishedPort, TouchedServices, Vantage,
    socket_handover::{InheritedSockets, NamedSocket},
    transparent_relay::Transparency,
};

/// Time between two attempts to open a listener.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// What a listener listens on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListenKey {
    protocol: Protocol,
    port: u16,
    host_ip: Option<IpAddr>,
}

/// The published ports of this machine.
#[derive(Debug)]
pub(crate) struct PortProxy {
    shared: Arc<Shared>,
    retries: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    local_nodes: BTreeSet<NodeName>,
    transparency: Arc<Transparency>,
    budget: Budget,
    ports: Mutex<Ports>,
}

#[derive(Debug, Default)]
struct Ports {
    vantage: Vantage,
    listeners: BTreeMap<ListenKey, Listener>,
    traffic: BTreeMap<GroupKey, Arc<Traffic>>,
    inherited: InheritedSockets,
}

#[derive(Debug)]
struct Listener {
    group: GroupKey,
    endpoints: Arc<EndpointSet>,
    status: Status,
}

#[derive(Debug)]
enum Status {
    Open(ListenSocket, AbortHandle),
    /// Nothing is to be opened here: the service's own process listens on the port, or may be about to.
    LeftToProcess,
    Failed(ListenError),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Status::Open(_, task) = &self.status {
            task.abort();
        }
    }
}

impl PortProxy {
    /// Starts with no listener. Endpoints on `local_nodes` are on this machine. Needs a tokio runtime.
    /// Where transparency is available, replicas of this machine see their clients' addresses.
    pub(crate) fn start(
        local_nodes: BTreeSet<NodeName>,
        transparency: Arc<Transparency>,
        inherited: InheritedSockets,
    ) -> Self {
        let ports = Mutex::new(Ports { inherited, ..Ports::default() });
        let shared = Arc::new(Shared { local_nodes, transparency, budget: Budget::of_process(), ports });
        let retries = tokio::spawn(retry(Arc::clone(&shared))).abort_handle();
        Self { shared, retries }
    }

    /// Opens, keeps and closes listeners so that they are those of the state, where it was touched.
    pub(crate) fn update(&self, state: &NetworkState, touched: &TouchedServices) {
        self.shared.update(state, touched);
    }

    /// Closes inherited sockets that no port has taken.
    pub(crate) fn close_unused(&self) {
        self.shared.ports().inherited = InheritedSockets::default();
    }

    /// The ports of the state that this machine cannot listen on.
    pub(crate) fn conditions(&self) -> Vec<NodeCondition> {
        let ports = self.shared.ports();
        let failed = ports.listeners.iter().filter_map(|(key, listener)| match &listener.status {
            Status::Failed(ListenError::Taken(message)) => Some((key, message)),
            Status::Failed(ListenError::AddressElsewhere(_)) | Status::Open(..) | Status::LeftToProcess => None,
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

    /// Counters of the services that have published ports.
    pub(crate) fn traffic(&self) -> Vec<ServiceTraffic> {
        let ports = self.shared.ports();
        let of_group = |(group, traffic): (&GroupKey, &Arc<Traffic>)| {
            let listeners = ports.listeners.values().filter(|listener| listener.group == *group);
            let mut endpoints: Vec<EndpointTraffic> = listeners.flat_map(|it| it.endpoints.endpoints()).collect();
            endpoints.sort_unstable();
            // One entry for each replica, whichever of its ports is used.
            endpoints.dedup_by(|next, kept| {
                let is_same = next.replica == kept.replica;
                if is_same {
                    kept.open += next.open;
                    kept.is_ejected |= next.is_ejected;
                }
                is_same
            });
            traffic.of(group.clone(), endpoints)
        };
        ports.traffic.iter().map(of_group).collect()
    }

    /// Whether connections or UDP sessions are open.
    pub(crate) fn has_connections(&self) -> bool {
        self.shared.budget.is_in_use()
    }

    /// Stops accepting and returns the sockets, for another process that goes on with them. Connections go on.
    pub(crate) fn hand_over(&self) -> Vec<NamedSocket> {
        self.retries.abort();
        let listeners = std::mem::take(&mut self.shared.ports().listeners);
        let open = listeners.iter().filter_map(|(key, listener)| match &listener.status {
            Status::Open(socket, _) => socket.named(key.socket_name()),
            Status::LeftToProcess | Status::Failed(_) => None,
        });
        open.collect()
    }
}

impl ListenKey {
    fn socket_name(&self) -> String {
        let host = self.host_ip.map_or_else(|| "*".to_owned(), |ip| ip.to_string());
        format!("port {} {} {host}", self.protocol.as_str(), self.port)
    }
}

impl Shared {
    fn update(&self, state: &NetworkState, touched: &TouchedServices) {
        let vantage = Vantage::of(state, &self.local_nodes);
        let mut ports = self.ports();
        let is_same_vantage = vantage == ports.vantage;
        ports.vantage = vantage;
        match touched {
            TouchedServices::These(groups) if is_same_vantage => {
                let services = groups.iter().filter_map(|group| state.service(group));
                self.replace(&mut ports, services, |group| groups.contains(group));
            }
            TouchedServices::These(_) | TouchedServices::All => self.replace(&mut ports, state.services(), |_| true),
        }
    }

    /// Replaces the listeners of the touched groups by those of `services`.
    fn replace<'a>(
        &self,
        ports: &mut Ports,
        services: impl Iterator<Item = &'a NetworkService>,
        is_touched: impl Fn(&GroupKey) -> bool,
    ) {
        let published = services.flat_map(|service| service.ports.iter().map(|port| (&service.group, port)));
        let desired: BTreeMap<ListenKey, (&GroupKey, &PublishedPort)> = published
            .filter(|(_, port)| port.protocol != Protocol::Sctp)
            .map(|(group, port)| (key_of(port), (group, port)))
            .collect();
        // Closed before others are opened: the same port may have moved to another address.
        ports.listeners.retain(|key, listener| !is_touched(&listener.group) || desired.contains_key(key));
        let groups: BTreeSet<&GroupKey> = desired.values().map(|(group, _)| *group).collect();
        ports.traffic.retain(|group, _| !is_touched(group) || groups.contains(group));
        for (key, (group, port)) in desired {
            let traffic = Arc::clone(ports.traffic.entry(group.clone()).or_default());
            let transparency = Arc::clone(&self.transparency);
            let listener = ports.listeners.entry(key.clone()).or_insert_with(|| Listener {
                group: group.clone(),
                endpoints: Arc::new(EndpointSet::new(traffic, transparency)),
                status: Status::LeftToProcess,
            });
            listener.group.clone_from(group);
            listener.endpoints.replace(&port.endpoints, &ports.vantage);
            match (is_left_to_process(port), &listener.status) {
                // An open listener stays: only a process that ignores `PORT` would want the port, and it came too late.
                (_, Status::Open(..)) | (false, Status::Failed(_)) => {}
                (true, Status::LeftToProcess | Status::Failed(_)) => listener.status = Status::LeftToProcess,
                (false, Status::LeftToProcess) => self.open(&key, listener, &mut ports.inherited),
            }
        }
    }

    fn open(&self, key: &ListenKey, listener: &mut Listener, inherited: &mut InheritedSockets) {
        let handed_over = inherited.take(&key.socket_name());
        let handed_over = handed_over.and_then(|socket| ListenSocket::inherited(key.protocol, socket).ok());
        let endpoints = Arc::clone(&listener.endpoints);
        let status = match handed_over.map_or_else(|| listen::open(key), Ok) {
            Ok(socket) => {
                let task = match socket.clone() {
                    ListenSocket::Tcp(socket) => tokio::spawn(tcp::accept(socket, endpoints, self.budget.tcp_port())),
                    ListenSocket::Udp(socket) => tokio::spawn(udp::receive(socket, endpoints, self.budget.udp_port())),
                };
                Status::Open(socket, task.abort_handle())
            }
            Err(error) => Status::Failed(error),
        };
        log_change(key, &listener.status, &status);
        listener.status = status;
    }

    fn retry_failed(&self) {
        let Ports { listeners, inherited, .. } = &mut *self.ports();
        for (key, listener) in listeners.iter_mut() {
            if matches!(listener.status, Status::Failed(_)) {
                self.open(key, listener, inherited);
            }
        }
    }

    fn ports(&self) -> MutexGuard<'_, Ports> {
        // A panic between two changes leaves listeners that the next update corrects.
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
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
        (_, Status::Open(..)) => tracing::info!(port, protocol, "published port open"),
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

#[cfg(test)]
mod tests;
