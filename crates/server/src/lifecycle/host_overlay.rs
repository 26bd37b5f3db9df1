//! The host side of the overlay in this process: one for all of its nodes.
//!
//! Owns: starting it before the agents, and telling the control plane whether replicas get overlay addresses here.
//! Must not touch: how bridges, routes and rules are made. Invariant: what is in effect stays when the daemon ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::node::NodeCondition;
use longshore_network::{HostNetwork, HostNetworkConfig, NetworkState, OverlayHandle};
use tokio::task::AbortHandle;

use crate::lifecycle::{
    daemon::{ServerConfig, StartError},
    data_folder::FolderError,
    local_agents::{nodes_of, reachable_ip},
    node_context::NodeContext,
};

/// The host side, once it was started.
#[derive(Default)]
pub(crate) struct HostOverlay(Mutex<Option<Running>>);

struct Running {
    network: HostNetwork,
    reporting: AbortHandle,
}

impl HostOverlay {
    /// Starts the host side. It does nothing before the first state.
    pub(crate) fn start(&self, ctx: &Arc<NodeContext>, config: &ServerConfig) -> Result<(), StartError> {
        let nodes = nodes_of(config).map_err(|cause| FolderError::Io { path: config.data_dir.clone(), cause })?;
        let network = HostNetwork::start(HostNetworkConfig {
            machine: config.node.clone(),
            local_nodes: nodes,
            address: reachable_ip(ctx.record().address.as_deref()),
            mode: config.overlay,
        });
        let reporting = tokio::spawn(report(Arc::clone(ctx), network.handle())).abort_handle();
        *self.lock() = Some(Running { network, reporting });
        Ok(())
    }

    /// Puts a state into effect.
    pub(crate) fn update(&self, state: &NetworkState) {
        if let Some(running) = &*self.lock() {
            running.network.update(state);
        }
    }

    /// What agents ask for the overlay of their node.
    pub(crate) fn handle(&self) -> Option<OverlayHandle> {
        self.lock().as_ref().map(|running| running.network.handle())
    }

    /// What this machine lacks for the overlay.
    pub(crate) fn conditions(&self) -> Vec<NodeCondition> {
        self.lock().as_ref().map(|running| running.network.conditions()).unwrap_or_default()
    }

    /// Ends it. What is in effect stays.
    pub(crate) fn shut_down(&self) {
        // Taken out, because the task holds the context, which holds this.
        if let Some(Running { network, reporting }) = self.lock().take() {
            reporting.abort();
            network.shut_down();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the control plane whether replicas of this machine get overlay addresses, and how large their packets are.
async fn report(ctx: Arc<NodeContext>, mut handle: OverlayHandle) {
    loop {
        let offered = handle.offered();
        ctx.overlay_report.send_if_modified(|report| {
            let before = report.clone();
            if offered.is_some() || report.is_some() {
                let network = report.get_or_insert_default();
                network.gives_addresses = offered.is_some();
                network.mtu = offered.as_ref().map(|overlay| overlay.mtu).or(network.mtu);
            }
            *report != before
        });
        if !handle.changed().await {
            return;
        }
    }
}
