//! The engine's events, as hints to look.
//!
//! Owns: staying connected to them.
//! Invariant: whoever missed an event looks again: every reconnection pokes all, and so does every minute.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bollard::{Docker as Client, query_parameters::EventsOptionsBuilder};
use futures_util::StreamExt;

use super::{connect, labels};
use crate::{backoff::Backoff, config::DockerConfig, runtime::Pokes};

/// A stream this quiet may be dead without knowing; looking costs one call per replica.
const QUIET: Duration = Duration::from_mins(1);

pub(super) async fn follow(
    config: DockerConfig,
    client: Arc<OnceLock<Client>>,
    mut filters: HashMap<String, Vec<String>>,
    pokes: Arc<Pokes>,
) {
    filters.insert("type".to_owned(), vec!["container".to_owned()]);
    let mut backoff = Backoff::for_neighbours();
    loop {
        if let Ok(client) = connect(&config, &client).await
            && listen(&client, &filters, &pokes).await == Heard::Something
        {
            backoff = Backoff::for_neighbours();
        }
        pokes.poke_all();
        tokio::time::sleep(backoff.pause()).await;
    }
}

#[derive(PartialEq, Eq)]
enum Heard {
    Nothing,
    Something,
}

async fn listen(client: &Client, filters: &HashMap<String, Vec<String>>, pokes: &Pokes) -> Heard {
    let mut heard = Heard::Nothing;
    let mut events = std::pin::pin!(client.events(Some(EventsOptionsBuilder::new().filters(filters).build())));
    loop {
        match tokio::time::timeout(QUIET, events.next()).await {
            Ok(Some(Ok(event))) => {
                heard = Heard::Something;
                // Every probe of a health check is three events of its own, and says nothing that is not said after it.
                if event.action.as_deref().is_some_and(|action| action.starts_with("exec_")) {
                    continue;
                }
                let attributes = event.actor.and_then(|actor| actor.attributes).unwrap_or_default();
                if let Some(key) = labels::key(&attributes) {
                    pokes.poke(&key);
                }
            }
            Ok(Some(Err(_)) | None) => return heard,
            Err(_) => pokes.poke_all(),
        }
    }
}
