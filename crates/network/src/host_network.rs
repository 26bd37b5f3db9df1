//! The host side of the overlay: bridges, routes, rules and isolated ports of this machine.
//!
//! ```text
//! NetworkState ──update──▶ worker: render, apply ──▶ kernel, nft     every 30 s: what differs is repaired and told
//! netlink: a new port ───▶ worker: isolate it
//! agents ◀──overlay(node)── bridge, engine network, gateways, MTU    None: the overlay is not offered here
//! ```
//!
//! Owns: everything with a name of `render::device_names`, and the accept rules in `DOCKER-USER`.
//! Must not touch: other links, routes, tables and chains. Invariant: what was applied stays when the daemon ends, and
//! whatever is missing on this machine is a condition in words, never an error of the daemon.

mod apply;
mod bridge_filtering;
mod conntrack;
mod docker_user;
mod kernel;
mod namespace_port;
mod nft;
mod overlay_handle;
mod prerequisites;
mod routes;
mod self_test;
mod worker;

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use longshore_model::{NodeName, node::NodeCondition};
use tokio::{sync::watch, task::JoinHandle};

use self::overlay_handle::Offer;
pub use self::{
    namespace_port::{AttachError, attach_namespace, detach_namespace},
    overlay_handle::{LocalOverlay, OverlayHandle},
};
use crate::NetworkState;

/// Settings of the host side.
#[derive(Clone, Debug)]
pub struct HostNetworkConfig {
    /// The machine's first node, which names its table.
    pub machine: NodeName,
    /// Its nodes.
    pub local_nodes: BTreeSet<NodeName>,
    /// The address that other machines reach it at; the MTU of its interface is the mesh's.
    pub address: Option<IpAddr>,
    /// Whether the overlay is offered at all.
    pub mode: OverlayMode,
}

/// Whether a machine takes part in the overlay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlayMode {
    /// If it can.
    #[default]
    Auto,
    /// No: what an earlier run left is removed.
    Off,
}

/// Why the network could not be applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// The kernel refused.
    #[error("{doing} failed: {cause}")]
    Netlink {
        /// The operation.
        doing: String,
        /// Its answer.
        cause: rtnetlink::Error,
    },
    /// A route cannot be expressed.
    #[error("{0}")]
    Route(String),
    /// `nft` failed.
    #[error("nft: {0}")]
    Nft(String),
    /// A kernel parameter cannot be set.
    #[error("the kernel parameter {path} cannot be set: {cause}")]
    Parameter {
        /// Its path below `/proc/sys/net`.
        path: String,
        /// The error.
        cause: io::Error,
    },
    /// The connection to the kernel failed.
    #[error("no connection to the kernel: {0}")]
    Connect(#[from] io::Error),
}

/// The host side of one machine. Dropping it ends the worker; what was applied stays.
pub struct HostNetwork {
    states: watch::Sender<Arc<NetworkState>>,
    offer: watch::Receiver<Offer>,
    conditions: Arc<Mutex<Vec<NodeCondition>>>,
    worker: JoinHandle<()>,
}

impl HostNetwork {
    /// Starts the worker, which does nothing before the first update.
    pub fn start(config: HostNetworkConfig) -> Self {
        let (states, updates) = watch::channel(Arc::new(NetworkState::default()));
        let initial = match config.mode {
            OverlayMode::Auto => Offer::Pending,
            OverlayMode::Off => Offer::Declined,
        };
        let (offers, offer) = watch::channel(initial);
        let conditions = Arc::new(Mutex::new(Vec::new()));
        let worker = worker::Worker::new(config, updates, offers, Arc::clone(&conditions));
        Self { states, offer, conditions, worker: tokio::spawn(worker.run()) }
    }

    /// Renders and applies a state soon.
    pub fn update(&self, state: &NetworkState) {
        self.states.send_replace(Arc::new(state.clone()));
    }

    /// What is missing on this machine, and what had to be repaired lately.
    pub fn conditions(&self) -> Vec<NodeCondition> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What agents ask.
    pub fn handle(&self) -> OverlayHandle {
        OverlayHandle::new(self.offer.clone())
    }

    /// Ends the worker. What was applied stays.
    pub fn shut_down(&self) {
        self.worker.abort();
    }
}

impl Drop for HostNetwork {
    fn drop(&mut self) {
        self.worker.abort();
    }
}
