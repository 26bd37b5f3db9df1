//! Another key for the cluster.
//!
//! ```text
//! asked ─▶ every server has the new key ─▶ the state says that it seals ─▶ the leader seals everything anew, piece by piece
//!                                                          └─▶ each server forgets what nothing is sealed with any more
//! ```
//!
//! Owns: that order. Must not touch: what is sealed, beyond sealing it anew.
//! Invariant: nothing is sealed with a key that a server lacks, and no key is forgotten that anything is sealed with. Whoever
//! is interrupted leaves a cluster that works, and the next leader finishes what can be finished.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longshore_model::{
    Command, NodeName,
    access::{AccessCommand, Sealed, SealedThing},
};
use longshore_store::{
    State,
    replicated::{Part, Proposal, Replicated},
};

use crate::{
    clock,
    folder::FolderError,
    hub::{Hub, server},
    peer::{Server, pack, unpack},
    reception::{AUTHORITY_PURPOSE, ReceptionError, secret_purpose},
    vault::{Vault, VaultError},
};

/// Time between two looks at what is sealed with which key.
const LOOK: Duration = Duration::from_millis(500);
/// Time a server has to take a key.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no new key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("`{node}` could not be given the new key, and every server needs it: {why}")]
    NotEverywhere { node: NodeName, why: String },
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Reception(#[from] ReceptionError),
}

/// Gives every server a new key, newer than the one that seals, and says which. It seals nothing until the state says so.
pub(crate) async fn prepare(hub: &Hub, store: &Replicated, sealing: u32) -> Result<u32, KeyError> {
    let others: Vec<Server> = others(hub, store);
    // A key that was handed out and never used keeps its number.
    let mut taken = hub.vault().map(|vault| vault.numbers()).unwrap_or_default();
    for other in &others {
        taken.extend(offer(hub, other, &Vault::empty()).await?);
    }
    let number = taken.last().copied().unwrap_or(0).max(sealing) + 1;
    let new = Vault::with_key(number)?;
    for other in &others {
        offer(hub, other, &new).await?;
    }
    take(hub, &new)?;
    Ok(number)
}

/// Takes keys of another server, and says which are here now.
pub(crate) fn take(hub: &Hub, offered: &Vault) -> Result<BTreeSet<u32>, KeyError> {
    Ok(hub.change_vault(|vault| vault.with(offered).map_err(KeyError::from))?.numbers())
}

async fn offer(hub: &Hub, to: &Server, keys: &Vault) -> Result<BTreeSet<u32>, KeyError> {
    let failed = |why: String| KeyError::NotEverywhere { node: to.name.clone(), why };
    let message = pack(keys).map_err(failed)?;
    let answer = tokio::time::timeout(PATIENCE, hub.calls.post(to, "/peer/keys", message)).await;
    let answer = answer.map_err(|_| failed("it takes too long".to_owned()))?;
    unpack(&answer.map_err(|error| failed(error.to_string()))?).map_err(failed)
}

fn others(hub: &Hub, store: &Replicated) -> Vec<Server> {
    let me = hub.place().member;
    store.members().members.values().filter(|member| member.id != me).map(server).collect()
}

/// Has the keys that are needed and no others, and seals anew what is sealed with an older one, while this node leads.
pub(crate) async fn keep(hub: Arc<Hub>) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let Some(store) = hub.store() else { continue };
        if let Err(error) = settle(&hub, &store).await {
            tracing::debug!(%error, "the cluster's keys are not settled yet");
        }
    }
}

async fn settle(hub: &Hub, store: &Replicated) -> Result<(), KeyError> {
    let state = store.read_local().state;
    let sealing = state.access().sealing_key();
    let needed: BTreeSet<u32> = state.access().sealed().map(|(_, sealed)| sealed.key).chain([sealing]).collect();
    let here = hub.vault().map(|vault| vault.numbers()).unwrap_or_default();
    if !needed.is_subset(&here) {
        // Made a server while the key was on its way to the others.
        fetch(hub, store, &needed).await?;
    }
    if store.leadership().borrow().part == Part::Leading {
        seal_anew(hub, store, &state).await?;
    }
    let dropped: BTreeSet<u32> = here.into_iter().filter(|key| *key < sealing && !needed.contains(key)).collect();
    if !dropped.is_empty() {
        hub.change_vault::<KeyError>(|vault| Ok(vault.without(&dropped)))?;
        tracing::info!(?dropped, "keys forgotten");
    }
    Ok(())
}

async fn fetch(hub: &Hub, store: &Replicated, needed: &BTreeSet<u32>) -> Result<(), KeyError> {
    for other in others(hub, store) {
        let failed = |why: String| KeyError::NotEverywhere { node: hub.node(), why };
        let asked = hub.calls.post(&other, "/peer/keys/fetch", pack(needed).map_err(failed)?);
        let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, asked).await else { continue };
        let Ok(keys) = unpack::<Vault>(&answer) else { continue };
        if needed.is_subset(&take(hub, &keys)?) {
            break;
        }
    }
    Ok(())
}

/// The keys of some numbers, for another server.
pub(crate) fn some(hub: &Hub, wanted: &BTreeSet<u32>) -> Vault {
    let vault = hub.vault().unwrap_or_else(Vault::empty);
    let others = vault.numbers().into_iter().filter(|number| !wanted.contains(number)).collect();
    vault.without(&others)
}

/// One command each: whatever stops it, what is done is done.
async fn seal_anew(hub: &Hub, store: &Replicated, state: &State) -> Result<(), KeyError> {
    let sealing = state.access().sealing_key();
    let vault = hub.vault().unwrap_or_else(Vault::empty);
    for (what, sealed) in state.access().sealed().filter(|(_, sealed)| sealed.key < sealing) {
        let sealed = again(&vault, sealing, &what, sealed)?;
        let command = Command::Access(Box::new(AccessCommand::Reseal { what, sealed }));
        let proposed = store.propose(Proposal::by_system(command, clock::now())).await;
        proposed.map_err(ReceptionError::from)?;
    }
    Ok(())
}

fn again(vault: &Vault, key: u32, what: &SealedThing, sealed: &Sealed) -> Result<Sealed, VaultError> {
    let purpose = match what {
        SealedThing::Authority => AUTHORITY_PURPOSE.to_owned(),
        SealedThing::Secret { namespace, name, version } => secret_purpose(namespace.as_str(), name.as_str(), *version),
    };
    vault.seal(key, &purpose, &vault.open(&purpose, sealed)?)
}
