//! Rotation of the cluster's key.
//!
//! ```text
//! request ─▶ every server has the new key ─▶ commit: it is the sealing key ─▶ the leader reseals everything, item by item
//!                                                          └─▶ each server drops keys that nothing is sealed with
//! ```
//!
//! Owns: that order. Must not touch: what is sealed, beyond resealing it.
//! Invariant: nothing is sealed with a key that a server lacks, and no key is dropped while anything is sealed with it.
//! An interrupted rotation leaves a working cluster, and the next leader continues it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longshore_model::{
    Command, NodeName,
    access::{AccessCommand, Sealed, SealedItem},
};
use longshore_store::{
    State,
    replicated::{LeadershipRole, Proposal, Replicated},
};

use crate::{
    clock,
    lifecycle::{
        data_folder::FolderError,
        node_context::{NodeContext, server},
    },
    node_rpc::{
        ServerAddress, pack,
        service::{AUTHORITY_PURPOSE, NodeRequestError, secret_purpose},
        unpack,
    },
    security::keyring::{Keyring, KeyringError},
};

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time a server has to store a key.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the key was not rotated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyRotationError {
    #[error("`{node}` could not be given the new key, and every server needs it: {why}")]
    NotEverywhere { node: NodeName, why: String },
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Reception(#[from] NodeRequestError),
}

/// Gives every server a new key and returns its number. It seals nothing until a command makes it the sealing key.
pub(crate) async fn prepare(ctx: &NodeContext, store: &Replicated, sealing: u32) -> Result<u32, KeyRotationError> {
    let others: Vec<ServerAddress> = others(ctx, store);
    // A key that was distributed and never used keeps its number.
    let mut taken = ctx.keyring().map(|keyring| keyring.numbers()).unwrap_or_default();
    for other in &others {
        taken.extend(offer(ctx, other, &Keyring::empty()).await?);
    }
    let number = taken.last().copied().unwrap_or(0).max(sealing) + 1;
    let new = Keyring::with_key(number)?;
    for other in &others {
        offer(ctx, other, &new).await?;
    }
    add_keys(ctx, &new)?;
    Ok(number)
}

/// Stores keys of another server and returns the numbers of all keys here.
pub(crate) fn add_keys(ctx: &NodeContext, offered: &Keyring) -> Result<BTreeSet<u32>, KeyRotationError> {
    Ok(ctx.update_keyring(|keyring| keyring.with(offered).map_err(KeyRotationError::from))?.numbers())
}

async fn offer(ctx: &NodeContext, to: &ServerAddress, keys: &Keyring) -> Result<BTreeSet<u32>, KeyRotationError> {
    let failed = |why: String| KeyRotationError::NotEverywhere { node: to.name.clone(), why };
    let message = pack(keys).map_err(failed)?;
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, ctx.peers.post(to, "/peer/keys", message)).await;
    let answer = answer.map_err(|_| failed("it timed out".to_owned()))?;
    unpack(&answer.map_err(|error| failed(error.to_string()))?).map_err(failed)
}

fn others(ctx: &NodeContext, store: &Replicated) -> Vec<ServerAddress> {
    let me = ctx.record().member;
    store.members().members.values().filter(|member| member.id != me).map(server).collect()
}

/// Fetches missing keys, drops unused ones, and reseals items with an older key while this node leads.
pub(crate) async fn maintain(ctx: Arc<NodeContext>) {
    let mut look = tokio::time::interval(CHECK_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let Some(store) = ctx.store() else { continue };
        if let Err(error) = reconcile(&ctx, &store).await {
            tracing::debug!(%error, "the cluster's keys are not reconciled yet");
        }
    }
}

async fn reconcile(ctx: &NodeContext, store: &Replicated) -> Result<(), KeyRotationError> {
    let state = store.read_local().state;
    let sealing = state.access().sealing_key();
    let needed: BTreeSet<u32> = state.access().sealed().map(|(_, sealed)| sealed.key).chain([sealing]).collect();
    let here = ctx.keyring().map(|keyring| keyring.numbers()).unwrap_or_default();
    if !needed.is_subset(&here) {
        // It became a server while the key was being distributed.
        fetch(ctx, store, &needed).await?;
    }
    if store.leadership().borrow().role == LeadershipRole::Leading {
        reseal_all(ctx, store, &state).await?;
    }
    let dropped: BTreeSet<u32> = here.into_iter().filter(|key| *key < sealing && !needed.contains(key)).collect();
    if !dropped.is_empty() {
        ctx.update_keyring::<KeyRotationError>(|keyring| Ok(keyring.without(&dropped)))?;
        tracing::info!(?dropped, "keys dropped");
    }
    Ok(())
}

async fn fetch(ctx: &NodeContext, store: &Replicated, needed: &BTreeSet<u32>) -> Result<(), KeyRotationError> {
    for other in others(ctx, store) {
        let failed = |why: String| KeyRotationError::NotEverywhere { node: ctx.node(), why };
        let asked = ctx.peers.post(&other, "/peer/keys/fetch", pack(needed).map_err(failed)?);
        let Ok(Ok(answer)) = tokio::time::timeout(ANSWER_TIMEOUT, asked).await else { continue };
        let Ok(keys) = unpack::<Keyring>(&answer) else { continue };
        if needed.is_subset(&add_keys(ctx, &keys)?) {
            break;
        }
    }
    Ok(())
}

/// The keys with these numbers, for another server.
pub(crate) fn select(ctx: &NodeContext, wanted: &BTreeSet<u32>) -> Keyring {
    let keyring = ctx.keyring().unwrap_or_else(Keyring::empty);
    let others = keyring.numbers().into_iter().filter(|number| !wanted.contains(number)).collect();
    keyring.without(&others)
}

/// One command per item: an interruption loses nothing that was done.
async fn reseal_all(ctx: &NodeContext, store: &Replicated, state: &State) -> Result<(), KeyRotationError> {
    let sealing = state.access().sealing_key();
    let keyring = ctx.keyring().unwrap_or_else(Keyring::empty);
    for (what, sealed) in state.access().sealed().filter(|(_, sealed)| sealed.key < sealing) {
        let sealed = reseal(&keyring, sealing, &what, sealed)?;
        let command = Command::Access(Box::new(AccessCommand::Reseal { what, sealed }));
        let proposed = store.propose(Proposal::by_system(command, clock::now())).await;
        proposed.map_err(NodeRequestError::from)?;
    }
    Ok(())
}

fn reseal(keyring: &Keyring, key: u32, what: &SealedItem, sealed: &Sealed) -> Result<Sealed, KeyringError> {
    let purpose = match what {
        SealedItem::Authority => AUTHORITY_PURPOSE.to_owned(),
        SealedItem::Secret { namespace, name, version } => secret_purpose(namespace.as_str(), name.as_str(), *version),
    };
    keyring.seal(key, &purpose, &keyring.open(&purpose, sealed)?)
}
