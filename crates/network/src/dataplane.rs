//! The part of this machine's network that runs in user space: published ports, names, the last step to
//! replicas, and the mesh.
//!
//! ```text
//! daemon ── client ──unix socket──▶ process ──▶ Dataplane ──▶ port_proxy, dns, transparent_relay, mesh
//!                                      ▲
//!                                      └── network.json, while there is no daemon
//! ```
//!
//! Owns: what belongs together, and the process that outlives the daemon.
//! Must not touch: where the network state comes from. Invariant: whatever happens to the daemon, open ports stay open
//! and connections go on; a process that takes over gets the sockets of the one before it.

mod client;
mod process;
mod protocol;

use std::{
    collections::BTreeSet,
    net::UdpSocket,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_model::{NodeName, node::NodeCondition};

pub use self::{
    client::{DataplaneClient, DataplaneCommand},
    process::main,
    protocol::DataplaneReport,
};
use crate::{
    NetworkFeed, NetworkState, TouchedServices,
    dns::{self, NameServer},
    mesh::{Mesh, MeshConfig},
    port_proxy::PortProxy,
    socket_handover::{InheritedSockets, NamedSocket},
    transparent_relay::TransparentRelay,
};

/// File of the last network state in the data folder; the daemon writes it.
pub const STATE_FILE: &str = "network.json";

/// Published ports, names and mesh of this machine.
pub struct Dataplane {
    data_dir: PathBuf,
    local_nodes: BTreeSet<NodeName>,
    state: Mutex<NetworkState>,
    port_proxy: PortProxy,
    names: NameServer,
    relay: TransparentRelay,
    /// Started once this machine has the overlay.
    mesh: Mutex<Option<Mesh>>,
}

impl Dataplane {
    /// Starts as a part of this process. A dataplane process of the same folder hands its sockets over and ends once its
    /// connections have ended. Needs a tokio runtime.
    pub fn start(data_dir: &Path, local_nodes: BTreeSet<NodeName>) -> Self {
        let inherited = process::take_over(data_dir).unwrap_or_default();
        Self::start_with(data_dir, local_nodes, inherited)
    }

    fn start_with(data_dir: &Path, local_nodes: BTreeSet<NodeName>, mut inherited: InheritedSockets) -> Self {
        let (of_names, of_relay) = (inherited.split_off("dns "), inherited.split_off("relay "));
        let relay = TransparentRelay::start(of_relay);
        Self {
            data_dir: data_dir.to_owned(),
            port_proxy: PortProxy::start(local_nodes.clone(), Arc::clone(relay.transparency()), inherited),
            names: NameServer::start(of_names),
            relay,
            local_nodes,
            state: Mutex::default(),
            mesh: Mutex::default(),
        }
    }

    /// Replaces the state. An older one changes nothing.
    pub fn replace(&self, state: NetworkState) {
        let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if known.cursor().is_none() || known.cursor() <= state.cursor() {
            *known = state;
            self.apply(&known, &TouchedServices::All);
        }
    }

    /// Closes inherited sockets that the state has no use for.
    fn close_unused(&self) {
        self.port_proxy.close_unused();
        self.names.close_unused();
        self.relay.close_unused();
    }

    /// Applies a message.
    pub fn update(&self, message: NetworkFeed) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let touched = TouchedServices::of(&message);
        if state.apply(message) {
            self.apply(&state, &touched);
        }
    }

    fn apply(&self, state: &NetworkState, touched: &TouchedServices) {
        self.port_proxy.update(state, touched);
        self.names.update(state, touched, &self.local_nodes);
        self.relay.update(state, &self.local_nodes);
        self.update_mesh(state);
    }

    /// The mesh waits for the overlay by itself; a machine that has none needs no thread for it.
    fn update_mesh(&self, state: &NetworkState) {
        let mut mesh = self.mesh();
        if mesh.is_none() && has_overlay(state, &self.local_nodes) {
            let config = MeshConfig { data_dir: self.data_dir.clone(), local_nodes: self.local_nodes.clone() };
            *mesh = Some(Mesh::start(config));
        }
        if let Some(mesh) = mesh.as_ref() {
            mesh.update(state);
        }
    }

    fn mesh(&self) -> MutexGuard<'_, Option<Mesh>> {
        self.mesh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks again for what may have come since: the overlay is made while this runs.
    fn recheck(&self) {
        if self.mesh().is_none() {
            self.update_mesh(&self.state.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Addresses and ports that another program has.
    pub fn conditions(&self) -> Vec<NodeCondition> {
        let mut conditions = self.port_proxy.conditions();
        conditions.extend(self.names.conditions());
        conditions
    }

    /// Everything a daemon wants to know.
    pub fn report(&self) -> DataplaneReport {
        let mesh = self.mesh().as_ref().map(Mesh::report);
        DataplaneReport { conditions: self.conditions(), traffic: self.port_proxy.traffic(), mesh }
    }

    /// Whether connections or UDP sessions are open.
    fn has_connections(&self) -> bool {
        self.port_proxy.has_connections() || self.relay.has_connections()
    }

    /// Stops accepting and returns the open sockets. Connections go on.
    fn hand_over(&self) -> Vec<NamedSocket> {
        // Its device stays; the next process goes on with it.
        drop(self.mesh().take());
        let mut sockets = self.port_proxy.hand_over();
        sockets.extend(self.names.hand_over());
        sockets.extend(self.relay.hand_over());
        sockets
    }

    /// Stops accepting. Connections go on until the process ends.
    pub fn shut_down(&self) {
        drop(self.hand_over());
    }
}

/// Whether a state gives the dataplane something to do on this machine: a published port, or replicas that ask for names.
pub fn has_work(state: &NetworkState, local_nodes: &BTreeSet<NodeName>) -> bool {
    let publishes = state.services().any(|service| !service.ports.is_empty());
    publishes || has_overlay(state, local_nodes)
}

/// Whether this machine has the gateway of a bridge of its nodes, at which replicas ask for names.
fn has_overlay(state: &NetworkState, local_nodes: &BTreeSet<NodeName>) -> bool {
    dns::gateways(state, local_nodes).into_iter().any(|ip| UdpSocket::bind((ip, 0)).is_ok())
}
