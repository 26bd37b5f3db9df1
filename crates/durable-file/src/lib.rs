//! Replacing a file as a whole: write a temporary file, sync it, rename it, sync the directory.
//!
//! Owns: the one atomic file write of the store, the agent and the daemon. Must not touch: what the files hold.
//! Invariant: a reader, also one after a crash, finds the old contents or the new, never part of either; only the
//! owner can read them, because specs hold environments and those hold passwords.

#![forbid(unsafe_code)]

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Whether the new contents must survive a crash of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// File and directory are synced before the call returns.
    Synced,
    /// The kernel writes them when it likes. Enough for what is worthless after a reboot.
    Unsynced,
}

/// Replaces the contents of `path`, through `path` with `.tmp` appended, which a crash may leave behind.
///
/// # Errors
/// The file system's. The old contents are still there, unless only the sync of the directory failed.
pub fn replace(path: &Path, contents: &[u8], durability: Durability) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".tmp");
    let partial = Path::new(&partial);
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(partial)?;
    // A file that a crash left behind keeps its mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(contents)?;
    match durability {
        Durability::Unsynced => fs::rename(partial, path),
        Durability::Synced => {
            file.sync_all()?;
            rename(partial, path)
        }
    }
}

/// Renames a file that is synced already, within its directory, and syncs the directory.
///
/// # Errors
/// The file system's.
pub fn rename(partial: &Path, path: &Path) -> io::Result<()> {
    fs::rename(partial, path)?;
    sync_parent(path)
}

/// Syncs the directory of a file: a created, renamed or removed name is durable only after this.
///
/// # Errors
/// The file system's.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_dir)
}

/// Syncs a directory.
///
/// # Errors
/// The file system's.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    // The parent of a relative name is the empty path.
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_readable_by_its_owner_only_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.json");
        for (contents, durability) in [("old", Durability::Unsynced), ("new", Durability::Synced)] {
            replace(&path, contents.as_bytes(), durability).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_temporary_file_that_a_crash_left_does_not_decide_who_may_read_the_next_contents() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("key.tmp");
        fs::write(&left, "much longer than what follows").unwrap();
        fs::set_permissions(&left, Permissions::from_mode(0o644)).unwrap();
        let path = folder.path().join("key");
        replace(&path, b"secret", Durability::Synced).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
