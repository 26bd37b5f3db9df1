//! The daemon's folder: who holds it, and the small files that are not the store's.
//!
//! ```text
//! DATA/lock     held while a daemon runs        DATA/store/   log and snapshots
//! DATA/cluster  the cluster's id                DATA/agent/   what the agent must not forget
//! DATA/token    for callers over TCP            DATA/longshore.sock
//! ```
//!
//! Invariant: two daemons never use one folder; a file is whole or not there.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

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

    /// The cluster's id, made on the first start.
    pub(crate) fn cluster_id(&self) -> Result<String, FolderError> {
        self.kept_or_made("cluster", 8)
    }

    /// What callers over TCP must know, made on the first start.
    pub(crate) fn token(&self) -> Result<String, FolderError> {
        self.kept_or_made("token", 32)
    }

    fn kept_or_made(&self, name: &str, bytes: usize) -> Result<String, FolderError> {
        let path = self.part(name);
        let failed = |cause| FolderError::Io { path: path.clone(), cause };
        match fs::read_to_string(&path) {
            Ok(kept) if !kept.trim().is_empty() => Ok(kept.trim().to_owned()),
            Ok(_) => Err(failed(io::Error::other("it is empty"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = random_hex(bytes).map_err(failed)?;
                write_whole(&path, &made).map_err(failed)?;
                Ok(made)
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn random_hex(bytes: usize) -> io::Result<String> {
    use std::fmt::Write as _;
    let mut random = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}

fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let partial = path.with_extension("tmp");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_daemon_and_its_id_stays() {
        let dir = tempfile::tempdir().unwrap();
        let first = Folder::take(dir.path()).unwrap();
        let id = first.cluster_id().unwrap();
        assert_eq!(id.len(), 16);
        assert!(matches!(Folder::take(dir.path()), Err(FolderError::InUse(_))));
        drop(first);
        let again = Folder::take(dir.path()).unwrap();
        assert_eq!(again.cluster_id().unwrap(), id);
        assert_ne!(again.token().unwrap(), id);
    }

    #[test]
    fn nobody_else_reads_the_token() {
        let dir = tempfile::tempdir().unwrap();
        Folder::take(dir.path()).unwrap().token().unwrap();
        let mode = fs::metadata(dir.path().join("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
