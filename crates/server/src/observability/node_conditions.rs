//! What is wrong with each node, as of its last heartbeat.
//!
//! Owns: the conditions of every node, in the leader's memory only, and fetching them from the leader.
//! Invariant: a condition is never committed; a server that cannot reach the leader answers without conditions.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_model::{NodeName, node::NodeCondition};

use crate::{
    lifecycle::node_context::{LeaderLocation, NodeContext},
    node_rpc::unpack,
};

/// Time the leader has to answer; a request for the list of nodes waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Conditions by node; a node without any is not listed.
pub(crate) type ConditionsByNode = BTreeMap<NodeName, Vec<NodeCondition>>;

/// The conditions that arrived while this node led.
#[derive(Debug, Default)]
pub(crate) struct NodeConditions(Mutex<ConditionsByNode>);

impl NodeConditions {
    /// Drops the conditions of an earlier term.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    pub(crate) fn record(&self, node: &NodeName, conditions: Vec<NodeCondition>) {
        if conditions.is_empty() {
            self.lock().remove(node);
        } else {
            self.lock().insert(node.clone(), conditions);
        }
    }

    pub(crate) fn all(&self) -> ConditionsByNode {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ConditionsByNode> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The leader's conditions, none if it does not answer; those of this machine as they are now.
pub(crate) async fn fetch_from_leader(ctx: &NodeContext) -> ConditionsByNode {
    let mut known = ask_leader(ctx).await;
    let own = ctx.conditions();
    if own.is_empty() {
        known.remove(&ctx.node());
    } else {
        known.insert(ctx.node(), own);
    }
    known
}

async fn ask_leader(ctx: &NodeContext) -> ConditionsByNode {
    match ctx.leader() {
        LeaderLocation::Local(_) => ctx.node_conditions.all(),
        LeaderLocation::Remote(server) => {
            let asked = tokio::time::timeout(TIMEOUT, ctx.peers.post(&server, "/peer/conditions", Vec::new())).await;
            asked.ok().and_then(Result::ok).and_then(|answer| unpack(&answer).ok()).unwrap_or_default()
        }
        LeaderLocation::Unknown => ConditionsByNode::new(),
    }
}
