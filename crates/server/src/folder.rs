//! The daemon's folder: who holds it, and the small files that are not the store's.
//!
//! ```text
//! DATA/lock           held while a daemon runs      DATA/store/   log and snapshots
//! DATA/place.json     which node of which cluster   DATA/agent/   what the agent must not forget
//! DATA/authority.der  whom to trust                 DATA/vault.json  the cluster's keys, on a node that serves
//! DATA/node.{der,key} who this is                   DATA/longshore.sock
//! ```
//!
//! Invariant: two daemons never use one folder; a file is whole or not there.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use longshore_model::NodeName;
use rustix::fs::{FlockOperation, flock};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    identity::{Identity, NodeKey},
    place::Place,
    vault::Vault,
};

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another daemon has it.
    #[error("`{}` is in use by another daemon", .0.display())]
    InUse(PathBuf),
    /// It cannot be written or read.
    #[error("`{}` cannot be used", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// A folder that is ours until this is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder, making it if there is none.
    pub(crate) fn take(path: &Path) -> Result<Self, FolderError> {
        let failed = |cause| FolderError::Io { path: path.to_owned(), cause };
        fs::create_dir_all(path).map_err(failed)?;
        // Tokens and secrets' keys are in it.
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => Err(FolderError::InUse(path.to_owned())),
            Err(error) => Err(failed(error.into())),
        }
    }

    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The node's place, once it has one.
    pub(crate) fn place(&self) -> Result<Option<Place>, FolderError> {
        self.kept("place.json")
    }

    pub(crate) fn keep_place(&self, place: &Place) -> Result<(), FolderError> {
        self.keep("place.json", place)
    }

    /// The cluster's keys, on a node that serves.
    pub(crate) fn vault(&self) -> Result<Option<Vault>, FolderError> {
        self.kept("vault.json")
    }

    pub(crate) fn keep_vault(&self, vault: &Vault) -> Result<(), FolderError> {
        self.keep("vault.json", vault)
    }

    /// The node's key with its certificate.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, FolderError> {
        let Some(key) = self.bytes("node.key")? else { return Ok(None) };
        let damaged = |what: &str| self.damaged(what, "it is damaged or missing");
        let key = NodeKey::open(&key).map_err(|_| damaged("node.key"))?;
        let authority = self.bytes("authority.der")?.ok_or_else(|| damaged("authority.der"))?;
        let certificate = self.bytes("node.der")?.ok_or_else(|| damaged("node.der"))?;
        Ok(Some(Identity::new(authority, certificate, &key)))
    }

    /// The key last: a certificate without one is made anew, a key without one could not be.
    pub(crate) fn keep_identity(&self, authority: &[u8], node: &[u8], key: &NodeKey) -> Result<(), FolderError> {
        for (name, bytes) in [("authority.der", authority), ("node.der", node), ("node.key", key.bytes())] {
            self.keep_bytes(name, bytes)?;
        }
        Ok(())
    }

    /// The authority's key, between founding a cluster and its store keeping it.
    pub(crate) fn founding_key(&self) -> Result<Option<Vec<u8>>, FolderError> {
        self.bytes("authority.key")
    }

    pub(crate) fn keep_founding_key(&self, key: &[u8]) -> Result<(), FolderError> {
        self.keep_bytes("authority.key", key)
    }

    pub(crate) fn forget_founding_key(&self) -> Result<(), FolderError> {
        self.forget("authority.key")
    }

    /// The key of a node that has asked to join and has no answer yet.
    pub(crate) fn coming_key(&self) -> Result<Option<Vec<u8>>, FolderError> {
        self.bytes("coming.key")
    }

    pub(crate) fn keep_coming_key(&self, key: &[u8]) -> Result<(), FolderError> {
        self.keep_bytes("coming.key", key)
    }

    pub(crate) fn forget_coming_key(&self) -> Result<(), FolderError> {
        self.forget("coming.key")
    }

    fn keep_bytes(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        write_whole(&self.part(name), bytes).map_err(|cause| self.failed(name, cause))
    }

    fn forget(&self, name: &str) -> Result<(), FolderError> {
        match fs::remove_file(self.part(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(name, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn kept<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, FolderError> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| self.damaged(name, &error.to_string()))
    }

    fn keep(&self, name: &str, value: &impl Serialize) -> Result<(), FolderError> {
        let text = serde_json::to_vec_pretty(value).map_err(|error| self.damaged(name, &error.to_string()))?;
        self.keep_bytes(name, &text)
    }

    fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, FolderError> {
        match fs::read(self.part(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    fn failed(&self, name: &str, cause: io::Error) -> FolderError {
        FolderError::Io { path: self.part(name), cause }
    }

    fn damaged(&self, name: &str, how: &str) -> FolderError {
        self.failed(name, io::Error::other(how.to_owned()))
    }
}

/// The node a folder belongs to, if any; it may be in use.
pub fn resident(data_dir: &Path) -> Result<Option<NodeName>, FolderError> {
    let path = data_dir.join("place.json");
    let failed = |cause| FolderError::Io { path: path.clone(), cause };
    match fs::read(&path) {
        Ok(bytes) => {
            let place: Place = serde_json::from_slice(&bytes).map_err(|error| failed(io::Error::other(error)))?;
            Ok(Some(place.node))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("tmp");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use longshore_model::{MemberId, access::SeatPart};

    use super::*;
    use crate::place::Serving;

    #[test]
    fn a_folder_has_one_daemon_and_its_place_stays() {
        let dir = tempfile::tempdir().unwrap();
        let first = Folder::take(dir.path()).unwrap();
        assert_eq!(first.place().unwrap(), None);
        let place = Place {
            cluster: "c1".to_owned(),
            node: "n1".into(),
            member: MemberId(1),
            part: SeatPart::Server,
            address: None,
            serving: Serving::Yes,
            servers: Vec::new(),
        };
        assert_eq!(resident(dir.path()).unwrap(), None);
        first.keep_place(&place).unwrap();
        assert_eq!(resident(dir.path()).unwrap(), Some("n1".into()));
        assert!(matches!(Folder::take(dir.path()), Err(FolderError::InUse(_))));
        drop(first);
        assert_eq!(Folder::take(dir.path()).unwrap().place().unwrap(), Some(place));
    }

    #[test]
    fn nobody_else_reads_the_keys() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        folder.keep_vault(&Vault::new().unwrap()).unwrap();
        let mode = fs::metadata(dir.path().join("vault.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_named_and_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        fs::write(dir.path().join("place.json"), "{").unwrap();
        assert!(folder.place().unwrap_err().to_string().contains("place.json"));
    }
}
