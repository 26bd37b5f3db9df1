//! Where manifests come from.
//!
//! Owns: the boundary to the disk. Everything else in this room sees texts.
//! Invariant: a file larger than a manifest can be is refused before it is in memory.

use std::{collections::BTreeMap, io, io::Read as _};

use crate::yaml::MAX_BYTES;

/// Gives the text of a file.
pub trait Files {
    /// The text, or why there is none. A missing file must be [`io::ErrorKind::NotFound`].
    fn read(&self, path: &str) -> io::Result<String>;
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
        // A named pipe or a device would never end; only so much is asked of it.
        std::fs::File::open(path)?.take(most).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Files that exist only here, for tests and for manifests that came over the wire.
#[derive(Clone, Debug, Default)]
pub struct Memory(pub BTreeMap<String, String>);

impl Files for Memory {
    fn read(&self, path: &str) -> io::Result<String> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
