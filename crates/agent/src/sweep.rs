//! Ending what runs here and is nobody's work any more.
//!
//! Owns: when that may be done. Only a snapshot from the control plane, heard in this life of the agent, proves that
//! something is not wanted; a list on disk, an empty one above all, proves nothing.
//! Invariant: only what a driver lists as this node's own is ever ended.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::WorkKey;

use crate::{
    backoff::Backoff,
    replica::{Shared, end_found},
    runtime::{Found, Runtime},
};

/// Ends everything of this node's that is not among the wanted, at all drivers at once. Returns when it is gone.
pub(crate) async fn sweep(shared: &Arc<Shared>, wanted: &BTreeSet<WorkKey>) {
    let drivers = shared.runtimes.values().map(|runtime| sweep_driver(shared, runtime, wanted));
    futures_util::future::join_all(drivers).await;
}

async fn sweep_driver(shared: &Arc<Shared>, runtime: &Arc<Runtime>, wanted: &BTreeSet<WorkKey>) {
    let mut backoff = Backoff::for_neighbours();
    loop {
        if let Ok(list) = runtime.list().await {
            let orphans: Vec<Found> = list.into_iter().filter(|found| !wanted.contains(&found.key)).collect();
            if orphans.is_empty() {
                return;
            }
            let ends = orphans.iter().map(|orphan| {
                tracing::info!(replica = %orphan.key, attempt = orphan.attempt.0, "ending what is no longer this node's");
                end_found(shared, runtime, orphan)
            });
            futures_util::future::join_all(ends).await;
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}
