//! Stops and removes replicas of this node that are no longer its work.
//!
//! Owns: when that is allowed. Only a snapshot that the control plane sent to this agent process proves that a replica
//! is not wanted; the work file proves nothing, least of all an empty one.
//! Invariant: only replicas that a driver lists as this node's own are stopped.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::{Driver, ReplicaKey};

use crate::{
    backoff::Backoff,
    replica::{AgentContext, stop_and_remove},
    runtime::{ExistingReplica, Runtime},
};

/// Removes every replica of this node whose key is not listed, with all drivers at once. Returns when all are gone, and
/// the drivers that are away, which the node does not offer meanwhile.
pub(crate) async fn remove_orphans(ctx: &Arc<AgentContext>, desired: &BTreeSet<ReplicaKey>) -> Vec<Driver> {
    let drivers = ctx.runtimes.values().map(|runtime| async move {
        let removing = remove_orphans_of(ctx, &**runtime, desired);
        let is_done = ctx.drivers.while_available(runtime.driver(), removing).await.is_some();
        (!is_done).then(|| runtime.driver())
    });
    futures_util::future::join_all(drivers).await.into_iter().flatten().collect()
}

/// Does the same for drivers that were away, once each of them answers.
pub(crate) async fn remove_orphans_later(ctx: &Arc<AgentContext>, desired: &BTreeSet<ReplicaKey>, away: Vec<Driver>) {
    let drivers = away.iter().filter_map(|driver| ctx.runtimes.get(driver)).map(|runtime| async move {
        ctx.drivers.wait_until_available(runtime.driver()).await;
        remove_orphans_of(ctx, &**runtime, desired).await;
    });
    futures_util::future::join_all(drivers).await;
}

async fn remove_orphans_of(ctx: &Arc<AgentContext>, runtime: &dyn Runtime, desired: &BTreeSet<ReplicaKey>) {
    let mut backoff = Backoff::for_requests();
    loop {
        if let Ok(list) = runtime.list().await {
            let orphans: Vec<ExistingReplica> =
                list.into_iter().filter(|existing| !desired.contains(&existing.key)).collect();
            if orphans.is_empty() {
                return;
            }
            let removals = orphans.iter().map(|orphan| {
                tracing::info!(replica = %orphan.key, attempt = orphan.attempt.0, "stopping an orphaned replica");
                stop_and_remove(ctx, runtime, orphan)
            });
            futures_util::future::join_all(removals).await;
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}
