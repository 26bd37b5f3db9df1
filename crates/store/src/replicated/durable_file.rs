//! Durable file changes.
//!
//! Owns: the one way this crate replaces a file: write a temporary file, sync it, rename it, sync the directory.
//! Invariant: after a crash a file has its old or its new contents, never a part of them.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Replaces the contents of `path`. A temporary file with the extension `tmp` in the same directory is left by a crash.
pub(super) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("tmp");
    let mut file = File::create(&partial)?;
    file.write_all(contents)?;
    file.sync_all()?;
    rename(&partial, path)
}

/// Renames a file that is synced already, within its directory, and syncs the directory.
pub(super) fn rename(partial: &Path, path: &Path) -> io::Result<()> {
    fs::rename(partial, path)?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// Syncs a directory: a created, renamed or removed file name is durable only after this.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_a_file_changes_its_contents_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("member");
        for contents in ["1", "22"] {
            replace(&path, contents.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
