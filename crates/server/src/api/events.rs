//! State changes as a stream of server-sent events.
//!
//! Invariant: a stream delivers every change after its index, or an event `resync` and the end of the stream; it ends
//! as soon as the caller's token is no longer valid.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::sse::{Event as SseEvent, KeepAlive, Sse},
};
use futures_util::stream::{self, Stream, StreamExt as _};
use longshore_api::{Change, Event};
use longshore_model::{ApiErrorCode, StateIndex};
use longshore_store::replicated::{Filter, Replicated, WatchEvent, Watcher};
use serde::Deserialize;

use crate::{
    api::{ApiError, ApiState, extract::QueryParams},
    security::{
        auth::{Caller, Credential},
        rate_limit::ConcurrencyPermit,
    },
};

/// Starts after this index; without it, at the current state.
#[derive(Debug, Deserialize)]
pub(crate) struct EventsQuery {
    after: Option<u64>,
}

/// Time between two checks that the caller's token is still valid.
const VALIDITY_CHECK: Duration = Duration::from_millis(250);

/// One open event stream.
struct EventStream {
    store: Replicated,
    watcher: Watcher,
    credential: Credential,
    _permit: ConcurrencyPermit,
}

pub(crate) async fn follow(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    QueryParams(from): QueryParams<EventsQuery>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, ApiError> {
    let permit = api.streams.acquire(&caller.credential.name()).ok_or_else(|| {
        let message = "too many event streams are open; close one of them first";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, ApiErrorCode::TooManyRequests, message)
    })?;
    let store = api.store()?;
    let now = store.read().await?.state.index();
    let watcher = store.watch(from.after.map_or(now, StateIndex), Filter::All);
    let stream_state = EventStream { store, watcher, credential: caller.credential, _permit: permit };
    let messages = stream::unfold(Some(stream_state), next).flat_map(stream::iter).map(Ok);
    Ok(Sse::new(messages).keep_alive(KeepAlive::default()))
}

/// The next events, and the stream's state unless it has ended.
async fn next(stream_state: Option<EventStream>) -> Option<(Vec<SseEvent>, Option<EventStream>)> {
    let mut stream_state = stream_state?;
    let watched = loop {
        let watched = tokio::time::timeout(VALIDITY_CHECK, stream_state.watcher.next()).await;
        if !stream_state.credential.is_still_valid(&stream_state.store.read_local().state) {
            return None;
        }
        if let Ok(watched) = watched {
            break watched;
        }
    };
    match watched {
        WatchEvent::Changes { changes, .. } => {
            let messages = changes.iter().map(|change| {
                let change_row =
                    Change { index: change.index.0, events: change.events.iter().map(Event::from).collect() };
                let data = serde_json::to_string(&change_row).unwrap_or_default();
                SseEvent::default().event("change").id(change_row.index.to_string()).data(data)
            });
            Some((messages.collect(), Some(stream_state)))
        }
        WatchEvent::Resync => Some((vec![SseEvent::default().event("resync").data("{}")], None)),
        WatchEvent::Closed => None,
    }
}
