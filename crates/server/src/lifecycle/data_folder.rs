//! The data folder: its lock, and the small files that are not the store's.
//!
//! ```text
//! DATA/lock           held while a daemon runs      DATA/store/      log and snapshots
//! DATA/place.json     node record                   DATA/agent/      state of the agent
//! DATA/authority.der  the cluster's authority       DATA/vault.json  keyring, on a server
//! DATA/node.{der,key} certificate and key           DATA/longshore.sock
//! DATA/network.json   last network state            DATA/dataplane.{sock,log}
//! ```
//!
//! Owns: these files and how they are written. Invariant: two daemons never use one folder; a file is written
//! atomically.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use longshore_durable_file::{self as durable_file, Durability};
use longshore_model::NodeName;
use rustix::fs::{FlockOperation, flock};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    lifecycle::node_record::NodeRecord,
    security::{
        identity::{Identity, NodeKey},
        keyring::Keyring,
        socket_group,
    },
};

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another daemon uses it.
    #[error("`{}` is in use by another daemon", .0.display())]
    InUse(PathBuf),
    /// A file in it cannot be read or written.
    #[error("`{}` cannot be used", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        cause: io::Error,
    },
}

/// A data folder, locked until this is dropped.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Locks the folder, creating it if needed.
    pub(crate) fn take(path: &Path) -> Result<Self, FolderError> {
        let failed = |cause| FolderError::Io { path: path.to_owned(), cause };
        fs::create_dir_all(path).map_err(failed)?;
        // It holds tokens and keys.
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)?;
        // The group may pass through to the socket, and list nothing.
        if let Some(gid) = socket_group::gid().filter(|_| rustix::process::geteuid().is_root()) {
            std::os::unix::fs::chown(path, None, Some(gid)).map_err(failed)?;
            fs::set_permissions(path, Permissions::from_mode(0o710)).map_err(failed)?;
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => Err(FolderError::InUse(path.to_owned())),
            Err(error) => Err(failed(error.into())),
        }
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The node record; `None` in a new folder.
    pub(crate) fn record(&self) -> Result<Option<NodeRecord>, FolderError> {
        self.read_json("place.json")
    }

    pub(crate) fn save_record(&self, record: &NodeRecord) -> Result<(), FolderError> {
        self.write_json("place.json", record)
    }

    /// The cluster's keys, on a server.
    pub(crate) fn keyring(&self) -> Result<Option<Keyring>, FolderError> {
        self.read_json("vault.json")
    }

    pub(crate) fn save_keyring(&self, keyring: &Keyring) -> Result<(), FolderError> {
        self.write_json("vault.json", keyring)
    }

    /// Key and certificate of the node.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, FolderError> {
        let Some(key) = self.read_bytes("node.key")? else { return Ok(None) };
        let damaged = |what: &str| self.damaged(what, "it is damaged or missing");
        let key = NodeKey::open(&key).map_err(|_| damaged("node.key"))?;
        let authority = self.read_bytes("authority.der")?.ok_or_else(|| damaged("authority.der"))?;
        let certificate = self.read_bytes("node.der")?.ok_or_else(|| damaged("node.der"))?;
        Ok(Some(Identity::new(authority, certificate, &key)))
    }

    /// The key is written last: a certificate without a key is replaced, a key without a certificate could not be used.
    pub(crate) fn save_identity(&self, authority: &[u8], node: &[u8], key: &NodeKey) -> Result<(), FolderError> {
        for (name, bytes) in [("authority.der", authority), ("node.der", node), ("node.key", key.bytes())] {
            self.write_bytes(name, bytes)?;
        }
        Ok(())
    }

    /// The authority's key, between bootstrap and its commit to the store.
    pub(crate) fn bootstrap_key(&self) -> Result<Option<Vec<u8>>, FolderError> {
        self.read_bytes("authority.key")
    }

    pub(crate) fn save_bootstrap_key(&self, key: &[u8]) -> Result<(), FolderError> {
        self.write_bytes("authority.key", key)
    }

    pub(crate) fn delete_bootstrap_key(&self) -> Result<(), FolderError> {
        self.delete("authority.key")
    }

    /// The key of a node that has sent a join request and has no answer yet.
    pub(crate) fn join_key(&self) -> Result<Option<Vec<u8>>, FolderError> {
        self.read_bytes("coming.key")
    }

    pub(crate) fn save_join_key(&self, key: &[u8]) -> Result<(), FolderError> {
        self.write_bytes("coming.key", key)
    }

    pub(crate) fn delete_join_key(&self) -> Result<(), FolderError> {
        self.delete("coming.key")
    }

    fn write_bytes(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        durable_file::replace(&self.path_of(name), bytes, Durability::Synced)
            .map_err(|cause| self.io_error(name, cause))
    }

    fn delete(&self, name: &str) -> Result<(), FolderError> {
        match fs::remove_file(self.path_of(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io_error(name, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, FolderError> {
        let Some(bytes) = self.read_bytes(name)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| self.damaged(name, &error.to_string()))
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), FolderError> {
        let text = serde_json::to_vec_pretty(value).map_err(|error| self.damaged(name, &error.to_string()))?;
        self.write_bytes(name, &text)
    }

    fn read_bytes(&self, name: &str) -> Result<Option<Vec<u8>>, FolderError> {
        match fs::read(self.path_of(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io_error(name, error)),
        }
    }

    fn io_error(&self, name: &str, cause: io::Error) -> FolderError {
        FolderError::Io { path: self.path_of(name), cause }
    }

    fn damaged(&self, name: &str, how: &str) -> FolderError {
        self.io_error(name, io::Error::other(how.to_owned()))
    }
}

/// The node that a folder belongs to, if any. Does not take the lock.
pub fn folder_owner(data_dir: &Path) -> Result<Option<NodeName>, FolderError> {
    let path = data_dir.join("place.json");
    let failed = |cause| FolderError::Io { path: path.clone(), cause };
    match fs::read(&path) {
        Ok(bytes) => {
            let record: NodeRecord = serde_json::from_slice(&bytes).map_err(|error| failed(io::Error::other(error)))?;
            Ok(Some(record.node))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::{MemberId, access::NodeRole};

    use super::*;
    use crate::lifecycle::node_record::RaftMembership;

    #[test]
    fn a_folder_is_locked_by_one_daemon_and_keeps_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataFolder::take(dir.path()).unwrap();
        assert_eq!(first.record().unwrap(), None);
        let record = NodeRecord {
            cluster: "c1".to_owned(),
            node: "n1".into(),
            member: MemberId(1),
            role: NodeRole::Server,
            address: None,
            raft: RaftMembership::Member,
            servers: Vec::new(),
            has_store: false,
            new_addresses: None,
        };
        assert_eq!(folder_owner(dir.path()).unwrap(), None);
        first.save_record(&record).unwrap();
        assert_eq!(folder_owner(dir.path()).unwrap(), Some("n1".into()));
        assert!(matches!(DataFolder::take(dir.path()), Err(FolderError::InUse(_))));
        drop(first);
        assert_eq!(DataFolder::take(dir.path()).unwrap().record().unwrap(), Some(record));
    }

    #[test]
    fn nobody_else_reads_the_keys() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DataFolder::take(dir.path()).unwrap();
        folder.save_keyring(&Keyring::new().unwrap()).unwrap();
        let mode = fs::metadata(dir.path().join("vault.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DataFolder::take(dir.path()).unwrap();
        fs::write(dir.path().join("place.json"), "{").unwrap();
        assert!(folder.record().unwrap_err().to_string().contains("place.json"));
    }
}
