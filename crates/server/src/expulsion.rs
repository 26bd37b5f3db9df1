//! A node notices that the others go on without it.
//!
//! Owns: what it was told, saying so once, and asking where nobody tells.
//! Must not touch: what runs here; that nothing is wanted any more is for the agent to hear, from a feed like any other.
//! Invariant: only a server that has proven to be one is believed; silence means nothing.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use longshore_api::Envelope;
use longshore_model::{Cursor, RequestCode, StateIndex};
use longshore_store::replicated::Replicated;

use crate::{
    hub::{Hub, server},
    peer::{CallError, Server, Welcome, unpack},
};

/// What an operator does about it.
pub(crate) const WAY_BACK: &str =
    "to join again: end the daemon, move its folder away, and use a new token with `longshore cluster join`";
/// Time between two looks of a member that hears of no leader.
const LOOK: Duration = Duration::from_secs(5);
/// Time another server has to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What this node was told of its place.
#[derive(Debug, Default)]
pub(crate) struct Expulsion(Mutex<Option<RequestCode>>);

impl Expulsion {
    /// Why it is no longer part of the cluster, if it was told.
    pub(crate) fn code(&self) -> Option<RequestCode> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a refusal. Where it says that the node was removed, it also says up to when its work was decided.
    pub(crate) fn hear(&self, refusal: &Envelope) -> Option<Cursor> {
        let told = [RequestCode::NodeRemoved, RequestCode::CertificateVoid];
        let code = told.into_iter().find(|code| code.code() == refusal.code)?;
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(code) != Some(code) {
            tracing::warn!(code = code.code(), hint = WAY_BACK, "this node is no longer part of its cluster");
        }
        let number = |name: &str| refusal.details.get(name).and_then(serde_json::Value::as_u64);
        let cursor = || Some(Cursor { incarnation: number("incarnation")?, index: StateIndex(number("index")?) });
        // A node that only has to join again goes on with what it runs: it may well be its own when it has.
        if code == RequestCode::NodeRemoved { cursor() } else { None }
    }
}

/// Asks the others, while this node keeps the log and nobody leads it: it may have been away when it was dismissed.
pub(crate) async fn watch(hub: Arc<Hub>) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut leaderless = 0;
    loop {
        look.tick().await;
        let Some(store) = hub.store() else { continue };
        leaderless = if store.leadership().borrow().leader.is_none() { leaderless + 1 } else { 0 };
        // An election takes less than one look.
        if leaderless >= 2 && is_left_behind(&hub, &store).await {
            tracing::warn!("the others go on without this node; it keeps the log no longer");
            if let Err(error) = hub.cease().await {
                tracing::warn!(%error, "the log could not be given up");
            }
        }
    }
}

async fn is_left_behind(hub: &Hub, store: &Replicated) -> bool {
    let me = hub.node();
    let others: Vec<Server> = store.members().members.values().map(server).filter(|it| it.name != me).collect();
    for other in others {
        let asked = hub.calls.post(&other, "/peer/servers", Vec::new());
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => {
                let Ok(Welcome { servers }) = unpack(&answer) else { continue };
                return !servers.iter().any(|server| server.name == me);
            }
            Ok(Err(CallError::Refused(envelope))) => {
                hub.expulsion.hear(&envelope);
                if hub.expulsion.code().is_some() {
                    return true;
                }
            }
            Ok(Err(CallError::Silent { .. })) | Err(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_removed_ends_its_work_and_who_has_to_join_again_does_not() {
        let expulsion = Expulsion::default();
        assert_eq!(expulsion.hear(&Envelope::new("forbidden", "no")), None);
        assert_eq!(expulsion.code(), None, "a refusal is no farewell");
        let void = Envelope::new("certificate_void", "no").with("incarnation", 1).with("index", 7);
        assert_eq!(expulsion.hear(&void), None);
        assert_eq!(expulsion.code(), Some(RequestCode::CertificateVoid));
        let removed = Envelope::new("node_removed", "no").with("incarnation", 1).with("index", 7);
        assert_eq!(expulsion.hear(&removed), Some(Cursor { incarnation: 1, index: StateIndex(7) }));
        assert_eq!(expulsion.code(), Some(RequestCode::NodeRemoved));
    }
}
