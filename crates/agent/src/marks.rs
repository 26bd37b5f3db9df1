//! Which attempts were made here, so that a container somebody took away is not mistaken for one never made.
//!
//! Owns: one empty file per attempt whose container or process was made.
//! Invariant: the mark is on disk after the container exists and goes before the container does, so an attempt without a
//! mark is either unknown or can be found at its driver.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{files::names_in, ledger::sync_folder_of};

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

    pub(crate) fn set(&self, container: &str) -> io::Result<()> {
        let path = self.folder.join(container);
        if path.exists() {
            return Ok(());
        }
        File::create(&path)?;
        sync_folder_of(&path)
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
