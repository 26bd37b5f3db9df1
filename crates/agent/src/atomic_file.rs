//! Replacing a file as a whole.
//!
//! Owns: write beside, then rename. Invariant: a reader sees the old contents or the new, never part of either; only
//! the agent's user can read them, because work and process specs hold environments and those hold passwords.

use std::{
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// Whether the new contents must survive a crash of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// File and directory are synced before the call returns.
    Synced,
    /// The kernel writes them when it likes. Enough for what is worthless after a reboot.
    Unsynced,
}

/// Replaces `folder/name`, through `folder/name.new`.
pub(crate) fn replace(folder: &Path, name: &str, contents: &[u8], durability: Durability) -> io::Result<()> {
    let path = folder.join(name);
    let beside = folder.join(format!("{name}.new"));
    let mut file = File::create(&beside)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(contents)?;
    if durability == Durability::Synced {
        file.sync_all()?;
    }
    fs::rename(&beside, &path)?;
    if durability == Durability::Synced { sync_folder_of(&path) } else { Ok(()) }
}

/// Syncs the directory entry of a file that was created or renamed.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_readable_by_its_owner_only_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        for (contents, durability) in [("old", Durability::Unsynced), ("new", Durability::Synced)] {
            replace(folder.path(), "file", contents.as_bytes(), durability).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), contents);
        }
        assert_eq!(fs::metadata(folder.path().join("file")).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
