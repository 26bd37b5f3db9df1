//! Which attempts were made here, so that a container somebody took away is not mistaken for one never made, nor one that
//! somebody copied for the one that was.
//!
//! Owns: one file per attempt whose container or process was made, with what its driver knows it by.
//! Invariant: the mark is on disk after the container exists and goes before the container does, so an attempt without a
//! mark is either unknown or can be found at its driver.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{files::names_in, ledger::sync_folder_of, runtime::Handle};

#[derive(Clone, Debug)]
pub(crate) struct Marks {
    folder: PathBuf,
}

impl Marks {
    pub(crate) fn in_folder(folder: &Path) -> io::Result<Self> {
        let folder = folder.join("made");
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn set(&self, container: &str, handle: &Handle) -> io::Result<()> {
        let path = self.folder.join(container);
        if path.exists() {
            return Ok(());
        }
        let mut file = File::create(&path)?;
        file.write_all(handle.0.as_bytes())?;
        file.sync_all()?;
        sync_folder_of(&path)
    }

    /// Whether it is what an attempt was made as. A mark that does not say was left by an agent that wrote none down, or
    /// by a disk that had no room for it.
    pub(crate) fn is_of(&self, container: &str, handle: &Handle) -> bool {
        fs::read_to_string(self.folder.join(container)).is_ok_and(|id| id.is_empty() || id == handle.0)
    }

    pub(crate) fn is_set(&self, container: &str) -> bool {
        self.folder.join(container).exists()
    }

    /// The attempts that are marked, by their container's name.
    pub(crate) fn all(&self) -> Vec<String> {
        names_in(&self.folder)
    }

    pub(crate) fn clear(&self, container: &str) {
        // Left behind it would only lie about an attempt that never comes again.
        let _ = fs::remove_file(self.folder.join(container));
    }
}
