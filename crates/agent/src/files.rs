//! Secrets and configs as files that replicas read.
//!
//! Owns: a folder in memory, one subfolder per attempt.
//! Must not touch: disk. A secret that reached a disk once can be read from it for years.
//! Invariant: contents are fetched for work of this node only, and gone with the attempt they were fetched for.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use longshore_model::{
    Work,
    container::{FileKind, FileMount},
    work::FileWanted,
};
use rustix::{
    fs::statfs,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

use crate::{
    link::{ControlLink, FileContents, LinkError},
    runtime::PlacedFile,
};

/// `tmpfs` and `ramfs`, as the kernel numbers them.
const MEMORY_FILE_SYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Why a replica's files are not ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceFilesError {
    #[error("`{name}` could not be had")]
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

/// The folder in memory.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Fetches and writes all files of an attempt.
    pub(crate) async fn place(&self, work: &Work, link: &dyn ControlLink) -> Result<Vec<PlacedFile>, PlaceFilesError> {
        let mounts = &work.spec.container.files;
        if mounts.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.ready()?.join(work.container_name());
        let mut placed = Vec::new();
        for (number, file) in mounts.iter().enumerate() {
            let name = file.name.to_string();
            let contents = link.file(wanted(work, file)).await;
            let contents = contents.map_err(|cause| PlaceFilesError::Contents { name: name.clone(), cause })?;
            let path = folder.join(number.to_string()).join(file_name(&file.target));
            write(&path, file, &contents).map_err(|cause| PlaceFilesError::Write { name, cause })?;
            placed.push(PlacedFile { path, target: file.target.clone() });
        }
        Ok(placed)
    }

    /// Forgets what an attempt was given.
    pub(crate) fn clear(&self, container: &str) {
        let _ = fs::remove_dir_all(self.folder.join(container));
    }

    /// Unmounts the folder once nothing is in it. What still runs may read its files for as long as it does, whoever
    /// ends before it; the next agent goes on with the folder it finds.
    pub(crate) fn let_go(&self) {
        let is_empty = fs::read_dir(&self.folder).is_ok_and(|mut inside| inside.next().is_none());
        if is_empty {
            // It may be no mount of its own, or somebody may look into it; neither is ours to mend.
            let _ = unmount(&self.folder, UnmountFlags::empty());
        }
    }

    /// The attempts that were given something, by their container's name.
    pub(crate) fn given(&self) -> Vec<String> {
        names_in(&self.folder)
    }

    fn ready(&self) -> Result<&Path, PlaceFilesError> {
        let refused = || PlaceFilesError::NotInMemory(self.folder.clone());
        fs::create_dir_all(&self.folder).map_err(|_| refused())?;
        if !in_memory(&self.folder) {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("tmpfs", &self.folder, "tmpfs", flags, Some(c"mode=0711")).map_err(|_| refused())?;
        }
        Ok(&self.folder)
    }
}

/// What a folder holds; one that does not exist holds nothing.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn in_memory(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|stat| u64::try_from(stat.f_type).is_ok_and(|kind| MEMORY_FILE_SYSTEMS.contains(&kind)))
}

fn wanted(work: &Work, file: &FileMount) -> FileWanted {
    let version = match file.kind {
        FileKind::Secret | FileKind::Config => work.assignment.terms.secret_versions.get(&file.name).copied(),
    };
    FileWanted { key: work.key.clone(), name: file.name.clone(), kind: file.kind, version }
}

/// A secret's target may be anywhere; only its last part matters for a file that is mounted by itself.
fn file_name(target: &str) -> &str {
    target.rsplit('/').next().filter(|name| !name.is_empty() && *name != "..").unwrap_or("file")
}

fn write(path: &Path, file: &FileMount, contents: &FileContents) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        // For nobody else's eyes: a container sees the file where it is mounted, not through this path.
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Whoever ends the agent may have let go of the memory meanwhile. Asked of the folder just made, which goes with
        // the memory it was made in: what is written below it is in memory, or nowhere.
        if !in_memory(folder) {
            fs::remove_dir(folder)?;
            return Err(io::Error::other("the folder is no longer in memory"));
        }
    }
    fs::write(path, &contents.0)?;
    // Compose's own default is readable for everybody inside the container.
    fs::set_permissions(path, Permissions::from_mode(file.mode.unwrap_or(0o444)))?;
    let id = |given: &Option<String>| given.as_ref().and_then(|id| id.parse::<u32>().ok());
    let (uid, gid) = (id(&file.uid), id(&file.gid));
    if uid.is_some() || gid.is_some() { chown(path, uid, gid) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_reach_a_disk_is_not_written() {
        // Folders for passing things may well be in memory; the one that tests are built in is on a disk.
        let built = std::env::current_exe().unwrap();
        let disk = tempfile::tempdir_in(built.parent().unwrap()).unwrap();
        assert!(!in_memory(disk.path()), "this test needs a disk");
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
        assert!(!path.parent().unwrap().exists(), "a trace of it is left");
    }
}
