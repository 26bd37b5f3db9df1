//! Changes as a stream of server-sent events.
//!
//! Invariant: a watcher hears every change after its index, or an event `resync` and the end of the stream; and nothing
//! from the moment on at which its token opens nothing any more.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::sse::{Event as Sent, KeepAlive, Sse},
};
use futures_util::stream::{self, Stream, StreamExt as _};
use longshore_api::{Change, Event};
use longshore_model::{RequestCode, StateIndex};
use longshore_store::replicated::{Filter, Replicated, Watched, Watcher};
use serde::Deserialize;

use super::{
    Desk, Refusal,
    caller::{Caller, Proof},
    extract::Asked,
};
use crate::limit::Inside;

/// Where to begin; now, unless given.
#[derive(Debug, Deserialize)]
pub(super) struct From {
    after: Option<u64>,
}

/// Time between two looks at whether the listener still may.
const LOOK: Duration = Duration::from_millis(250);

/// Somebody who listens.
struct Listener {
    store: Replicated,
    watcher: Watcher,
    proof: Proof,
    _inside: Inside,
}

pub(super) async fn follow(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Asked(from): Asked<From>,
) -> Result<Sse<impl Stream<Item = Result<Sent, Infallible>>>, Refusal> {
    let inside = desk.followers.enter(&caller.proof.name()).ok_or_else(|| {
        let message = "too many follow the changes at once; end one of the streams first";
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, RequestCode::TooManyRequests, message)
    })?;
    let store = desk.store()?;
    let now = store.read().await?.state.index();
    let watcher = store.watch(from.after.map_or(now, StateIndex), Filter::All);
    let listener = Listener { store, watcher, proof: caller.proof, _inside: inside };
    let messages = stream::unfold(Some(listener), next).flat_map(stream::iter).map(Ok);
    Ok(Sse::new(messages).keep_alive(KeepAlive::default()))
}

/// The next messages, and the listener where there will be more.
async fn next(listener: Option<Listener>) -> Option<(Vec<Sent>, Option<Listener>)> {
    let mut listener = listener?;
    let watched = loop {
        let watched = tokio::time::timeout(LOOK, listener.watcher.next()).await;
        if !listener.proof.still_counts(&listener.store.read_local().state) {
            return None;
        }
        if let Ok(watched) = watched {
            break watched;
        }
    };
    match watched {
        Watched::Changes { changes, .. } => {
            let messages = changes.iter().map(|change| {
                let told = Change { index: change.index.0, events: change.events.iter().map(Event::from).collect() };
                let data = serde_json::to_string(&told).unwrap_or_default();
                Sent::default().event("change").id(told.index.to_string()).data(data)
            });
            Some((messages.collect(), Some(listener)))
        }
        Watched::Resync => Some((vec![Sent::default().event("resync").data("{}")], None)),
        Watched::Closed => None,
    }
}
