//! The engine's events, as hints to inspect a container.
//!
//! Owns: the subscription, and reconnecting it.
//! Invariant: a missed event only delays an inspection: every reconnection wakes all monitors, and so does a quiet
//! minute.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bollard::{Docker as Client, query_parameters::EventsOptionsBuilder};
use futures_util::StreamExt;

use super::{connection::Connection, labels};
use crate::{backoff::Backoff, wakeups::Wakeups};

/// A stream without events for so long may have died unnoticed. Waking all costs one call per replica.
const QUIET: Duration = Duration::from_mins(1);

/// Wakes the monitor of a replica for each of its container's events, for ever.
pub(super) async fn follow(
    connection: Arc<Connection>,
    mut filters: HashMap<String, Vec<String>>,
    wakeups: Arc<Wakeups>,
) {
    filters.insert("type".to_owned(), vec!["container".to_owned()]);
    let mut backoff = Backoff::for_requests();
    loop {
        if let Ok(client) = connection.client().await {
            if listen(&client, &filters, &wakeups).await {
                backoff = Backoff::for_requests();
            }
            // Only an engine that ends closes the stream, and it may be back before a probe misses it.
            connection.reset();
        }
        wakeups.wake_all();
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

/// Listens until the stream ends. Returns whether any event arrived.
async fn listen(client: &Client, filters: &HashMap<String, Vec<String>>, wakeups: &Wakeups) -> bool {
    let mut received = false;
    let mut events = std::pin::pin!(client.events(Some(EventsOptionsBuilder::new().filters(filters).build())));
    loop {
        match tokio::time::timeout(QUIET, events.next()).await {
            Ok(Some(Ok(event))) => {
                received = true;
                // A health check's probe causes three of these; a change of health has its own event.
                if event.action.as_deref().is_some_and(|action| action.starts_with("exec_")) {
                    continue;
                }
                let attributes = event.actor.and_then(|actor| actor.attributes).unwrap_or_default();
                if let Some(key) = labels::key(&attributes) {
                    wakeups.wake(&key);
                }
            }
            Ok(Some(Err(_)) | None) => return received,
            Err(_) => wakeups.wake_all(),
        }
    }
}
