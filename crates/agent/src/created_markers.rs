//! Markers of the attempts whose container or process was created here, and of those that ended by themselves.
//!
//! Owns: one file per attempt in the folder `made`, which holds the driver's handle. It distinguishes a container that
//! was removed externally from one never created, and a container copied from ours from the original. A file of the
//! same name in `ended` says that the attempt ended by itself, so that a later restart of the engine or the machine is
//! not taken for its cause.
//! Invariant: the marker is written after the container exists and cleared before the container is removed, so an
//! attempt without a marker was never created or can be found at its driver.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use longshore_durable_file::sync_parent;

use crate::{runtime::Handle, secret_files::names_in};

#[derive(Clone, Debug)]
pub(crate) struct CreatedMarkers {
    folder: PathBuf,
    ended: PathBuf,
}

impl CreatedMarkers {
    pub(crate) fn in_folder(folder: &Path) -> io::Result<Self> {
        let (folder, ended) = (folder.join("made"), folder.join("ended"));
        fs::create_dir_all(&folder)?;
        fs::create_dir_all(&ended)?;
        Ok(Self { folder, ended })
    }

    pub(crate) fn set(&self, container: &str, handle: &Handle) -> io::Result<()> {
        let path = self.folder.join(container);
        if path.exists() {
            return Ok(());
        }
        // Not replaced as a whole: on a full disk an empty marker is better than none.
        let mut file = File::create(&path)?;
        file.write_all(handle.0.as_bytes())?;
        file.sync_all()?;
        sync_parent(&path)
    }

    /// Whether the marker of that attempt names this handle. An empty marker, written by an older agent or on a full
    /// disk, names every handle.
    pub(crate) fn names(&self, container: &str, handle: &Handle) -> bool {
        fs::read_to_string(self.folder.join(container)).is_ok_and(|id| id.is_empty() || id == handle.0)
    }

    pub(crate) fn exists(&self, container: &str) -> bool {
        self.folder.join(container).exists()
    }

    /// The container names of all attempts with a marker.
    pub(crate) fn containers(&self) -> Vec<String> {
        let mut names = names_in(&self.folder);
        names.extend(names_in(&self.ended));
        names
    }

    /// Records that an attempt ended by itself.
    pub(crate) fn set_ended(&self, container: &str) {
        let path = self.ended.join(container);
        if !path.exists()
            && let Err(error) = File::create(&path).and_then(|_| sync_parent(&path))
        {
            tracing::warn!(%error, container, "the end of a replica could not be recorded");
        }
    }

    pub(crate) fn has_ended(&self, container: &str) -> bool {
        self.ended.join(container).exists()
    }

    pub(crate) fn clear(&self, container: &str) {
        // A marker that stays is harmless: no attempt is ever created twice.
        let _ = fs::remove_file(self.folder.join(container));
        let _ = fs::remove_file(self.ended.join(container));
    }
}
