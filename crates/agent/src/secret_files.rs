//! Secrets and configs as files for replicas to read.
//!
//! Owns: a folder on a tmpfs, with one subfolder per attempt, and a second one for plain processes of other users, which
//! cannot pass through the folder of the daemon.
//! Must not touch: disk. A secret once written to a disk can be recovered from it years later.
//! Invariant: contents are fetched for work of this node only, and removed with the attempt they were fetched for.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use longshore_model::{
    Driver, Work,
    agent_protocol::FileRequest,
    container::{FileKind, FileMount},
};
use rustix::{
    fs::statfs,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

use crate::{
    control_link::{ControlLink, FileContents, LinkError},
    runtime::PreparedFile,
};

/// The kernel's magic numbers of `tmpfs` and `ramfs`.
const MEMORY_FILE_SYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Why a replica's files could not be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareFilesError {
    #[error("`{name}` could not be fetched")]
    Contents {
        name: String,
        #[source]
        cause: LinkError,
    },
    #[error("`{}` is not in memory, and nothing could be mounted there: secrets are never written to disk", .0.display())]
    NotInMemory(PathBuf),
    #[error("`{name}` could not be written")]
    Write {
        name: String,
        #[source]
        cause: io::Error,
    },
}

/// The folders on a tmpfs.
#[derive(Clone, Debug)]
pub(crate) struct SecretFiles {
    folder: PathBuf,
    /// For plain processes with a user of their own.
    for_users: Option<PathBuf>,
}

impl SecretFiles {
    pub(crate) fn in_folders(folder: PathBuf, for_users: Option<PathBuf>) -> Self {
        Self { folder, for_users }
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.folder].into_iter().chain(&self.for_users)
    }

    fn folder_of(&self, work: &Work) -> &Path {
        let is_for_user = work.spec.driver == Driver::Exec && work.spec.container.user.is_some();
        self.for_users.as_deref().filter(|_| is_for_user).unwrap_or(&self.folder)
    }

    /// Fetches and writes all files of an attempt.
    pub(crate) async fn prepare(
        &self,
        work: &Work,
        link: &dyn ControlLink,
    ) -> Result<Vec<PreparedFile>, PrepareFilesError> {
        let mounts = &work.spec.container.files;
        if mounts.is_empty() {
            return Ok(Vec::new());
        }
        let folder = ensure_in_memory(self.folder_of(work))?.join(work.container_name());
        let mut prepared = Vec::new();
        for (number, file) in mounts.iter().enumerate() {
            let name = file.name.to_string();
            let contents = link.file(request(work, file)).await;
            let contents = contents.map_err(|cause| PrepareFilesError::Contents { name: name.clone(), cause })?;
            let path = folder.join(number.to_string()).join(file_name(&file.target));
            write(&path, file, &contents).map_err(|cause| PrepareFilesError::Write { name, cause })?;
            prepared.push(PreparedFile { path, target: file.target.clone() });
        }
        Ok(prepared)
    }

    /// Removes the files of an attempt.
    pub(crate) fn clear(&self, container: &str) {
        for folder in self.folders() {
            let _ = fs::remove_dir_all(folder.join(container));
        }
    }

    /// Unmounts the folders that are empty. Replicas that still run keep their files after the agent has ended, and the
    /// next agent continues with the folder it finds.
    pub(crate) fn unmount_if_empty(&self) {
        let is_empty = |folder: &Path| fs::read_dir(folder).is_ok_and(|mut inside| inside.next().is_none());
        for folder in self.folders().filter(|folder| is_empty(folder)) {
            // Fails if the folder is not a mount point or is in use, and then it stays.
            let _ = unmount(folder, UnmountFlags::empty());
        }
    }

    /// The container names of all attempts with files.
    pub(crate) fn containers(&self) -> Vec<String> {
        self.folders().flat_map(|folder| names_in(folder)).collect()
    }
}

fn ensure_in_memory(folder: &Path) -> Result<&Path, PrepareFilesError> {
    let failed = || PrepareFilesError::NotInMemory(folder.to_owned());
    // Everybody may pass through, to the files that are theirs; nobody may list.
    DirBuilder::new().recursive(true).mode(0o711).create(folder).map_err(|_| failed())?;
    if !is_in_memory(folder) {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", folder, "tmpfs", flags, Some(c"mode=0711")).map_err(|_| failed())?;
    }
    Ok(folder)
}

/// The names in a folder; none if it does not exist.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn is_in_memory(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|stat| u64::try_from(stat.f_type).is_ok_and(|kind| MEMORY_FILE_SYSTEMS.contains(&kind)))
}

fn request(work: &Work, file: &FileMount) -> FileRequest {
    let version = match file.kind {
        FileKind::Secret | FileKind::Config => work.assignment.reservation.secret_versions.get(&file.name).copied(),
    };
    FileRequest { key: work.key.clone(), name: file.name.clone(), kind: file.kind, version }
}

/// The last part of the target. The rest does not matter for a file that is mounted by itself.
fn file_name(target: &str) -> &str {
    target.rsplit('/').next().filter(|name| !name.is_empty() && *name != "..").unwrap_or("file")
}

fn write(path: &Path, file: &FileMount, contents: &FileContents) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        // Only for the agent: a container reads the file where it is mounted, not through this path.
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // An agent that shuts down may have unmounted the tmpfs meanwhile. Checked on the folder just created, which is
        // unmounted with it: what is written below it is in memory, or nowhere.
        if !is_in_memory(folder) {
            fs::remove_dir(folder)?;
            return Err(io::Error::other("the folder is no longer in memory"));
        }
    }
    fs::write(path, &contents.0)?;
    // Compose's default: everybody in the container can read it.
    fs::set_permissions(path, Permissions::from_mode(file.mode.unwrap_or(0o444)))?;
    let id = |given: &Option<String>| given.as_ref().and_then(|id| id.parse::<u32>().ok());
    let (uid, gid) = (id(&file.uid), id(&file.gid));
    if uid.is_some() || gid.is_some() { chown(path, uid, gid) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_written_to_a_disk() {
        // The folder for temporary files may be in memory; the build folder is on a disk.
        let built = std::env::current_exe().unwrap();
        let disk = tempfile::tempdir_in(built.parent().unwrap()).unwrap();
        assert!(!is_in_memory(disk.path()), "this test needs a disk");
        let path = disk.path().join("web/0/db_pass");
        let file = FileMount {
            target: "/run/secrets/db_pass".to_owned(),
            name: "db_pass".into(),
            kind: FileKind::Secret,
            uid: None,
            gid: None,
            mode: None,
        };
        let error = write(&path, &file, &FileContents(b"hunter2".to_vec())).unwrap_err();
        assert_eq!(error.to_string(), "the folder is no longer in memory");
        assert!(!path.parent().unwrap().exists(), "its folder is left behind");
    }
}
