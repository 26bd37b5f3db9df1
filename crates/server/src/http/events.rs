//! Changes as a stream of server-sent events.
//!
//! Invariant: a watcher hears every change after its index, or an event `resync` and the end of the stream.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::State,
    response::sse::{Event as Sent, KeepAlive, Sse},
};
use futures_util::stream::{self, Stream, StreamExt as _};
use longshore_api::{Change, Event};
use longshore_model::StateIndex;
use longshore_store::replicated::{Filter, Watched, Watcher};
use serde::Deserialize;

use super::{Desk, Refusal, extract::Asked};

/// Where to begin; now, unless given.
#[derive(Debug, Deserialize)]
pub(super) struct From {
    after: Option<u64>,
}

pub(super) async fn follow(
    State(desk): State<Arc<Desk>>,
    Asked(from): Asked<From>,
) -> Result<Sse<impl Stream<Item = Result<Sent, Infallible>>>, Refusal> {
    let now = desk.store()?.read().await?.state.index();
    let watcher = desk.store()?.watch(from.after.map_or(now, StateIndex), Filter::All);
    let messages = stream::unfold(Some(watcher), next).flat_map(stream::iter).map(Ok);
    Ok(Sse::new(messages).keep_alive(KeepAlive::default()))
}

/// The next messages, and the watcher where there will be more.
async fn next(watcher: Option<Watcher>) -> Option<(Vec<Sent>, Option<Watcher>)> {
    let mut watcher = watcher?;
    match watcher.next().await {
        Watched::Changes { changes, .. } => {
            let messages = changes.iter().map(|change| {
                let told = Change { index: change.index.0, events: change.events.iter().map(Event::from).collect() };
                let data = serde_json::to_string(&told).unwrap_or_default();
                Sent::default().event("change").id(told.index.to_string()).data(data)
            });
            Some((messages.collect(), Some(watcher)))
        }
        Watched::Resync => Some((vec![Sent::default().event("resync").data("{}")], None)),
        Watched::Closed => None,
    }
}
