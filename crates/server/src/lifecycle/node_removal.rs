//! A node notices that it was removed from the cluster.
//!
//! Owns: remembering the refusal, logging it once, and asking other servers where none refuses.
//! Must not touch: what runs here; the agent stops it when an empty work feed arrives.
//! Invariant: only an authenticated server is believed; no answer means nothing.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use longshore_api::Envelope;
use longshore_model::{ApiErrorCode, Cursor, NodeName, StateIndex};
use longshore_store::replicated::Replicated;

use crate::{
    lifecycle::node_context::{NodeContext, server},
    node_rpc::{CallError, HelloAnswer, ServerAddress, unpack},
};

/// What an operator can do about it.
pub(crate) const REJOIN_HINT: &str =
    "to join again: stop the daemon, move its data folder away, and use a new token with `longshore cluster join`";
/// Time between two checks of a member without a leader.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time another server has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether and why this node was removed.
#[derive(Debug, Default)]
pub(crate) struct RemovalNotice(Mutex<Option<ApiErrorCode>>);

impl RemovalNotice {
    /// Why it is no longer part of the cluster, if it was told so.
    pub(crate) fn code(&self) -> Option<ApiErrorCode> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a refusal. If it says that `me` was removed, returns up to which state its work was decided.
    pub(crate) fn record_refusal(&self, me: &NodeName, refusal: &Envelope) -> Option<Cursor> {
        let code = removal_of(me, refusal)?;
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(code) != Some(code) {
            tracing::warn!(code = code.code(), hint = REJOIN_HINT, "this node is no longer part of its cluster");
        }
        let number = |name: &str| refusal.details.get(name).and_then(serde_json::Value::as_u64);
        let cursor = || Some(Cursor { incarnation: number("incarnation")?, index: StateIndex(number("index")?) });
        // A node that only has to join again keeps its replicas: they may still be its own afterwards.
        if code == ApiErrorCode::NodeRemoved { cursor() } else { None }
    }
}

/// The code of a refusal that says that `node` was removed or its certificate revoked. A removed server answers everybody
/// with its own removal, so a refusal counts only for the node it names.
pub(crate) fn removal_of(node: &NodeName, refusal: &Envelope) -> Option<ApiErrorCode> {
    let named = refusal.details.get("node").and_then(serde_json::Value::as_str);
    let codes = [ApiErrorCode::NodeRemoved, ApiErrorCode::CertificateRevoked];
    codes.into_iter().find(|code| code.code() == refusal.code).filter(|_| named == Some(node.as_str()))
}

/// Asks the other servers while this member has no leader: it may have been unreachable when it was removed.
pub(crate) async fn watch(ctx: Arc<NodeContext>) {
    let mut look = tokio::time::interval(CHECK_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut leaderless = 0;
    loop {
        look.tick().await;
        let Some(store) = ctx.store() else { continue };
        leaderless = if store.leadership().borrow().leader.is_none() { leaderless + 1 } else { 0 };
        // An election takes less than one check interval.
        if leaderless >= 2 && is_left_behind(&ctx, &store).await {
            tracing::warn!("this node was removed from the Raft group and closes its store");
            if let Err(error) = ctx.stop_serving().await {
                tracing::warn!(%error, "the store could not be closed");
            }
        }
    }
}

async fn is_left_behind(ctx: &NodeContext, store: &Replicated) -> bool {
    let me = ctx.node();
    let others: Vec<ServerAddress> = store.members().members.values().map(server).filter(|it| it.name != me).collect();
    for other in others {
        let asked = ctx.peers.post(&other, "/peer/servers", Vec::new());
        match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
            Ok(Ok(answer)) => {
                let Ok(HelloAnswer { servers }) = unpack(&answer) else { continue };
                return !servers.iter().any(|server| server.name == me);
            }
            Ok(Err(CallError::Refused(envelope))) => {
                ctx.removal.record_refusal(&me, &envelope);
                if ctx.removal.code().is_some() {
                    return true;
                }
            }
            Ok(Err(CallError::NoAnswer { .. })) | Err(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_node_stops_its_work_and_one_that_has_to_join_again_does_not() {
        let (me, removal) = (NodeName::from("n4"), RemovalNotice::default());
        assert_eq!(removal.record_refusal(&me, &Envelope::new("forbidden", "no").with("node", "n4")), None);
        assert_eq!(removal.code(), None, "another refusal is no removal");
        let told = |code: &str, node: &str| Envelope::new(code, "no").with("node", node).with("incarnation", 1);
        assert_eq!(removal.record_refusal(&me, &told("certificate_revoked", "n4").with("index", 7)), None);
        assert_eq!(removal.code(), Some(ApiErrorCode::CertificateRevoked));
        let cursor = Cursor { incarnation: 1, index: StateIndex(7) };
        assert_eq!(removal.record_refusal(&me, &told("node_removed", "n4").with("index", 7)), Some(cursor));
        assert_eq!(removal.code(), Some(ApiErrorCode::NodeRemoved));
    }

    #[test]
    fn the_removal_of_the_server_that_answers_is_not_the_removal_of_the_node_that_asked() {
        let (me, removal) = (NodeName::from("n4"), RemovalNotice::default());
        let of_the_server =
            Envelope::new("node_removed", "this node is no longer part of its cluster").with("node", "n1");
        assert_eq!(removal.record_refusal(&me, &of_the_server), None);
        let of_nobody = Envelope::new("node_removed", "no").with("incarnation", 1).with("index", 7);
        assert_eq!(removal.record_refusal(&me, &of_nobody), None);
        assert_eq!(removal.code(), None);
    }
}
