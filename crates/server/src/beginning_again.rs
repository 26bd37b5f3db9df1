//! A cluster goes on from a backup, or from the disk of one member that is left.
//!
//! Owns: making one server of it that others can join. The daemon must not run meanwhile; the folder's lock sees to that.
//! Invariant: a folder that belongs to a cluster is never overwritten by a backup; what a member has on disk is not lost;
//! what agents heard before counts as older than what they hear from now on.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use longshore_model::{
    Command, NodeName,
    access::{AccessCommand, SeatPart},
};
use longshore_store::{
    State,
    replicated::{
        Alone, Member, OpenError, Outcome, Part, Proposal, ProposeError, RecoveryError, Replicated, ReplicatedConfig,
        peek, recover_as_single_voter, restore as restore_store,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    folder::{Folder, FolderError},
    identity::{Identity, IdentityError, NodeKey, SigningAuthority},
    peer::{pack, unpack},
    place::{Place, Serving},
    reception::AUTHORITY_PURPOSE,
    vault::{Vault, digest_of},
};

/// First bytes of a backup.
const MAGIC: &[u8] = b"longshore backup 1\n";
/// Time the only server has to elect itself.
const ELECTION: Duration = Duration::from_secs(15);

/// Why a cluster did not begin again.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A backup goes to an empty folder.
    #[error("the folder belongs to node `{node}` of cluster {cluster} already; restore to an empty one")]
    Taken {
        /// The node.
        node: NodeName,
        /// The cluster.
        cluster: String,
    },
    /// There is no member here.
    #[error("the folder holds no server of a cluster")]
    NoServer,
    /// The file is no backup, or a damaged one.
    #[error("this is not a backup, or a damaged one: {0}")]
    NotABackup(String),
    /// The backup is of a cluster that was never founded, or its key does not fit.
    #[error("the backup holds no authority that its key opens")]
    NoAuthority,
    /// The store could not go on.
    #[error("the store could not go on")]
    Recovery(#[from] RecoveryError),
    /// The store could not be opened.
    #[error("the store could not be opened")]
    Open(#[from] OpenError),
    /// A certificate could not be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The store did not take the change.
    #[error("the change could not be put on record: {0}")]
    NotRecorded(String),
}

impl From<ProposeError> for BeginError {
    fn from(error: ProposeError) -> Self {
        Self::NotRecorded(error.to_string())
    }
}

/// A cluster that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunAgain {
    /// The cluster.
    pub cluster: String,
    /// Its only server.
    pub node: NodeName,
    /// The state it goes on with.
    pub index: u64,
}

/// Everything that a cluster goes on with. The cluster's keys are in it: whoever has it, has the cluster.
#[derive(Serialize, Deserialize)]
struct Contents {
    cluster: String,
    vault: Vault,
    state: Vec<u8>,
}

/// Puts a backup together.
pub(crate) fn pack_backup(cluster: String, vault: Vault, state: Vec<u8>) -> Result<Vec<u8>, String> {
    let contents = pack(&Contents { cluster, vault, state })?;
    let digest = digest_of(&contents);
    Ok([MAGIC, digest.as_str().as_bytes(), &contents].concat())
}

fn unpack_backup(bytes: &[u8]) -> Result<Contents, BeginError> {
    let damaged = |what: &str| BeginError::NotABackup(what.to_owned());
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("it begins differently"))?;
    let (digest, contents) = rest.split_at_checked(64).ok_or_else(|| damaged("it is cut short"))?;
    if digest_of(contents).as_str().as_bytes() != digest {
        return Err(damaged("its digest is another"));
    }
    unpack(contents).map_err(BeginError::NotABackup)
}

/// Fills an empty folder from a backup: the node is the only server of the cluster from then on.
pub async fn restore(
    data_dir: PathBuf,
    node: NodeName,
    address: Option<String>,
    backup: &[u8],
) -> Result<BegunAgain, BeginError> {
    let folder = Folder::take(&data_dir)?;
    if let Some(Place { node, cluster, .. }) = folder.place()? {
        return Err(BeginError::Taken { node, cluster });
    }
    let Contents { cluster, vault, state: bytes } = unpack_backup(backup)?;
    let state = peek(&bytes)?;
    let (key, authority) = (NodeKey::new()?, open_authority(&cluster, &vault, &state)?);
    let certificate = authority.sign(&node, SeatPart::Server, key.public())?;
    let member = state.access().next_member();
    let me = Member { id: member, name: node.clone(), address: address.clone().unwrap_or_default() };
    restore_store(&folder.part("store"), &me, &bytes)?;
    folder.keep_vault(&vault)?;
    folder.keep_identity(authority.certificate(), &certificate, &key)?;
    let place = Place {
        cluster: cluster.clone(),
        node: node.clone(),
        member,
        part: SeatPart::Server,
        address,
        serving: Serving::Yes,
        servers: Vec::new(),
    };
    let identity = Identity::new(authority.certificate().to_vec(), certificate, &key);
    let index = put_on_record(&folder.part("store"), &place, &identity).await?;
    // Last: from now on the folder is a server's. Whatever came before can be thrown away and done again.
    folder.keep_place(&place)?;
    Ok(BegunAgain { cluster, node, index })
}

fn open_authority(cluster: &str, vault: &Vault, state: &State) -> Result<SigningAuthority, BeginError> {
    let authority = state.access().authority().ok_or(BeginError::NoAuthority)?;
    let key = vault.open(AUTHORITY_PURPOSE, &authority.key).map_err(|_| BeginError::NoAuthority)?;
    Ok(SigningAuthority::open(cluster, &authority.certificate, &key)?)
}

/// Makes the member in a folder the only server, with everything it has, when too many others are gone for good.
///
/// The other servers must never be started again: they would go on as if nothing had happened.
pub async fn recover(data_dir: PathBuf) -> Result<BegunAgain, BeginError> {
    let folder = Folder::take(&data_dir)?;
    let place = folder.place()?.filter(|place| place.serving == Serving::Yes).ok_or(BeginError::NoServer)?;
    let identity = folder.identity()?.ok_or(BeginError::NoServer)?;
    let address = place.address.clone().unwrap_or_default();
    let me = Member { id: place.member, name: place.node.clone(), address };
    recover_as_single_voter(&folder.part("store"), &me)?;
    let index = put_on_record(&folder.part("store"), &place, &identity).await?;
    Ok(BegunAgain { cluster: place.cluster, node: place.node, index })
}

/// Opens the store alone, says that the cluster began again, and closes it.
async fn put_on_record(dir: &Path, place: &Place, identity: &Identity) -> Result<u64, BeginError> {
    let store = Replicated::open(ReplicatedConfig::new(dir, place.member), Arc::new(Alone)).await?;
    let recorded = record(&store, place, identity).await;
    store.close().await;
    recorded
}

async fn record(store: &Replicated, place: &Place, identity: &Identity) -> Result<u64, BeginError> {
    let mut leadership = store.leadership();
    let elected = leadership.wait_for(|leadership| leadership.part == Part::Leading);
    if !tokio::time::timeout(ELECTION, elected).await.is_ok_and(|led| led.is_ok()) {
        return Err(BeginError::NotRecorded("no leader was elected".to_owned()));
    }
    let seat = place.seat(place.address.clone().unwrap_or_default(), identity)?;
    let command = Command::Access(Box::new(AccessCommand::BeginAgain { node: place.node.clone(), seat }));
    let applied = store.propose(Proposal::by_system(command, clock::now())).await?;
    match applied.outcome {
        Outcome::Changed | Outcome::Unchanged | Outcome::KeyReused => Ok(applied.index.0),
        Outcome::Refused(error) => Err(BeginError::NotRecorded(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_was_cut_or_changed_is_refused() {
        let backup = pack_backup("c1".to_owned(), Vault::new().unwrap(), vec![1, 2, 3]).unwrap();
        assert_eq!(unpack_backup(&backup).unwrap().state, [1, 2, 3]);
        for at in 0..backup.len() {
            let mut changed = backup.clone();
            changed[at] ^= 1;
            assert!(unpack_backup(&changed).is_err(), "a flipped bit at {at} went unnoticed");
            assert!(unpack_backup(&backup[..at]).is_err(), "a cut at {at} went unnoticed");
        }
    }
}
