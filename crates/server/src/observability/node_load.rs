//! The latest load of every node.
//!
//! Owns: the last sample of each node, in the leader's memory only, and fetching them from the leader.
//! Invariant: a sample is never committed; a server that cannot reach the leader answers without loads.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use longshore_api::{Disk, Load};
use longshore_model::{
    NodeName, Time,
    agent_protocol::DiskSpace,
    rebalance::{Pressure, Share},
};

use crate::{
    lifecycle::node_context::{LeaderLocation, NodeContext},
    node_rpc::unpack,
};

/// Time the leader has to answer; a request for the list of nodes waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Load samples by node.
pub(crate) type LoadByNode = BTreeMap<NodeName, Load>;

/// The samples that arrived while this node led.
#[derive(Debug, Default)]
pub(crate) struct NodeLoads(Mutex<LoadByNode>);

impl NodeLoads {
    /// Drops the samples of an earlier term.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn record(&self, node: &NodeName, pressure: Pressure, disk: Option<DiskSpace>, at: Time) {
        let millionths = |share: Share| u32::try_from(share.0.max(0)).unwrap_or(u32::MAX);
        let (cpu_millionths, memory_millionths) = (millionths(pressure.cpu), millionths(pressure.memory));
        let disk = disk.map(|disk| Disk {
            total_bytes: disk.total_bytes,
            free_bytes: disk.free_bytes,
            short: disk.is_short(),
        });
        let load = Load { cpu_millionths, memory_millionths, disk, at_ms: at.0 };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone(), load);
    }

    pub(crate) fn all(&self) -> LoadByNode {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The leader's samples; empty if it does not answer.
pub(crate) async fn fetch_from_leader(ctx: &NodeContext) -> LoadByNode {
    match ctx.leader() {
        LeaderLocation::Local(_) => ctx.node_loads.all(),
        LeaderLocation::Remote(server) => {
            let asked = tokio::time::timeout(TIMEOUT, ctx.peers.post(&server, "/peer/loads", Vec::new())).await;
            asked.ok().and_then(Result::ok).and_then(|answer| unpack(&answer).ok()).unwrap_or_default()
        }
        LeaderLocation::Unknown => LoadByNode::new(),
    }
}
