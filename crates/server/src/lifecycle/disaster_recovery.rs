//! Disaster recovery: restores a cluster from a backup, or from the disk of one remaining member.
//!
//! Owns: making it a cluster of one server that others can join. The folder's lock makes sure that no daemon runs
//! meanwhile.
//! Invariant: a backup never overwrites a folder that belongs to a cluster; nothing that a member has on disk is lost;
//! the new incarnation makes everything that agents received before older than what they receive next.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use longshore_model::{
    Command, NodeName,
    access::{AccessCommand, NodeRole},
};
use longshore_store::{
    State,
    replicated::{
        LeadershipRole, Member, NoTransport, OpenError, Outcome, Proposal, ProposeError, RecoveryError, Replicated,
        ReplicatedConfig, read_backup, recover_as_single_voter, restore as restore_store,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    lifecycle::{
        data_folder::{DataFolder, FolderError},
        node_record::{NodeRecord, RaftMembership},
    },
    node_rpc::{pack, service::AUTHORITY_PURPOSE, unpack},
    security::{
        identity::{Identity, IdentityError, NodeKey, SigningAuthority},
        keyring::{Keyring, digest_of},
    },
};

/// First bytes of a backup file.
const MAGIC: &[u8] = b"longshore backup 1\n";
/// Time the only server has to elect itself.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a cluster could not be recovered.
#[derive(Debug, thiserror::Error)]
pub enum DisasterRecoveryError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A backup can only be restored to an empty folder.
    #[error("the folder belongs to node `{node}` of cluster {cluster} already; restore to an empty one")]
    Taken {
        /// The node.
        node: NodeName,
        /// The cluster.
        cluster: String,
    },
    /// The folder holds no member of a control plane.
    #[error("the folder holds no server of a cluster")]
    NoServer,
    /// The file is not a backup, or is damaged.
    #[error("this is not a backup, or a damaged one: {0}")]
    NotABackup(String),
    /// The backup has no authority, or its keyring does not open it.
    #[error("the backup holds no authority that its keys can open")]
    NoAuthority,
    /// The store could not be recovered.
    #[error("the store could not be recovered")]
    Recovery(#[from] RecoveryError),
    /// The store could not be opened.
    #[error("the store could not be opened")]
    Open(#[from] OpenError),
    /// A certificate could not be created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The store refused the recovery command.
    #[error("the recovery could not be committed: {0}")]
    NotRecorded(String),
}

impl From<ProposeError> for DisasterRecoveryError {
    fn from(error: ProposeError) -> Self {
        Self::NotRecorded(error.to_string())
    }
}

/// A recovered cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredCluster {
    /// The cluster.
    pub cluster: String,
    /// Its only server.
    pub node: NodeName,
    /// Index of the recovered state.
    pub index: u64,
}

/// Contents of a backup. They include the cluster's keys: whoever has the file controls the cluster.
#[derive(Serialize, Deserialize)]
struct BackupContents {
    cluster: String,
    #[serde(rename = "vault")]
    keyring: Keyring,
    state: Vec<u8>,
}

/// The bytes of a backup file.
pub(crate) fn pack_backup(cluster: String, keyring: Keyring, state: Vec<u8>) -> Result<Vec<u8>, String> {
    let contents = pack(&BackupContents { cluster, keyring, state })?;
    let digest = digest_of(&contents);
    Ok([MAGIC, digest.as_str().as_bytes(), &contents].concat())
}

fn unpack_backup(bytes: &[u8]) -> Result<BackupContents, DisasterRecoveryError> {
    let damaged = |what: &str| DisasterRecoveryError::NotABackup(what.to_owned());
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("its header is wrong"))?;
    let (digest, contents) = rest.split_at_checked(64).ok_or_else(|| damaged("it is truncated"))?;
    if digest_of(contents).as_str().as_bytes() != digest {
        return Err(damaged("its checksum is wrong"));
    }
    unpack(contents).map_err(DisasterRecoveryError::NotABackup)
}

/// Restores a backup to an empty folder. The node becomes the only server of the cluster.
pub async fn restore(
    data_dir: PathBuf,
    node: NodeName,
    address: Option<String>,
    backup: &[u8],
) -> Result<RecoveredCluster, DisasterRecoveryError> {
    let folder = DataFolder::take(&data_dir)?;
    if let Some(NodeRecord { node, cluster, .. }) = folder.record()? {
        return Err(DisasterRecoveryError::Taken { node, cluster });
    }
    let BackupContents { cluster, keyring, state: bytes } = unpack_backup(backup)?;
    let state = read_backup(&bytes)?;
    let (key, authority) = (NodeKey::new()?, open_authority(&cluster, &keyring, &state)?);
    let certificate = authority.sign(&node, NodeRole::Server, key.public())?;
    let member = state.access().next_member();
    let me = Member { id: member, name: node.clone(), address: address.clone().unwrap_or_default() };
    restore_store(&folder.path_of("store"), &me, &bytes)?;
    folder.save_keyring(&keyring)?;
    folder.save_identity(authority.certificate(), &certificate, &key)?;
    let record = NodeRecord {
        cluster: cluster.clone(),
        node: node.clone(),
        member,
        role: NodeRole::Server,
        address,
        raft: RaftMembership::Member,
        servers: Vec::new(),
        has_store: false,
        new_addresses: None,
    };
    let identity = Identity::new(authority.certificate().to_vec(), certificate, &key);
    let index = commit_recovery(&folder.path_of("store"), &record, &identity).await?;
    // Written last: from now on the folder is a server's. Everything before can be discarded and repeated.
    folder.save_record(&record)?;
    Ok(RecoveredCluster { cluster, node, index })
}

fn open_authority(cluster: &str, keyring: &Keyring, state: &State) -> Result<SigningAuthority, DisasterRecoveryError> {
    let authority = state.access().authority().ok_or(DisasterRecoveryError::NoAuthority)?;
    let key = keyring.open(AUTHORITY_PURPOSE, &authority.key).map_err(|_| DisasterRecoveryError::NoAuthority)?;
    Ok(SigningAuthority::open(cluster, &authority.certificate, &key)?)
}

/// Makes the member in a folder the only voter, with all its data, after too many others were lost for good.
///
/// The other servers must never be started again: they would continue as if nothing had happened.
pub async fn recover(data_dir: PathBuf) -> Result<RecoveredCluster, DisasterRecoveryError> {
    let folder = DataFolder::take(&data_dir)?;
    let record = folder
        .record()?
        .filter(|record| record.raft == RaftMembership::Member)
        .ok_or(DisasterRecoveryError::NoServer)?;
    let identity = folder.identity()?.ok_or(DisasterRecoveryError::NoServer)?;
    let address = record.address.clone().unwrap_or_default();
    let me = Member { id: record.member, name: record.node.clone(), address };
    recover_as_single_voter(&folder.path_of("store"), &me)?;
    let index = commit_recovery(&folder.path_of("store"), &record, &identity).await?;
    Ok(RecoveredCluster { cluster: record.cluster, node: record.node, index })
}

/// Opens the store alone, commits the recovery, and closes it.
async fn commit_recovery(dir: &Path, record: &NodeRecord, identity: &Identity) -> Result<u64, DisasterRecoveryError> {
    let store = Replicated::open(ReplicatedConfig::new(dir, record.member), Arc::new(NoTransport)).await?;
    let recorded = propose_recovery(&store, record, identity).await;
    store.close().await;
    recorded
}

async fn propose_recovery(
    store: &Replicated,
    record: &NodeRecord,
    identity: &Identity,
) -> Result<u64, DisasterRecoveryError> {
    let mut leadership = store.leadership();
    let elected = leadership.wait_for(|leadership| leadership.role == LeadershipRole::Leading);
    if !tokio::time::timeout(ELECTION_TIMEOUT, elected).await.is_ok_and(|led| led.is_ok()) {
        return Err(DisasterRecoveryError::NotRecorded("no leader was elected".to_owned()));
    }
    let membership = record.membership(record.address.clone().unwrap_or_default(), identity)?;
    let command = Command::Access(Box::new(AccessCommand::Recover { node: record.node.clone(), membership }));
    let applied = store.propose(Proposal::by_system(command, clock::now())).await?;
    match applied.outcome {
        Outcome::Changed | Outcome::Unchanged | Outcome::KeyReused => Ok(applied.index.0),
        Outcome::Refused(error) => Err(DisasterRecoveryError::NotRecorded(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_or_changed_backup_is_refused() {
        let backup = pack_backup("c1".to_owned(), Keyring::new().unwrap(), vec![1, 2, 3]).unwrap();
        assert_eq!(unpack_backup(&backup).unwrap().state, [1, 2, 3]);
        for at in 0..backup.len() {
            let mut changed = backup.clone();
            changed[at] ^= 1;
            assert!(unpack_backup(&changed).is_err(), "a flipped bit at {at} went unnoticed");
            assert!(unpack_backup(&backup[..at]).is_err(), "a cut at {at} went unnoticed");
        }
    }
}
