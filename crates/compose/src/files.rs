//! Reading of manifest files.
//!
//! Owns: the boundary to the file system, and errors of reading. Everything else in this crate works on texts.
//! Invariant: a file above the size limit is refused before it is in memory.

use std::{collections::BTreeMap, fs::File, io, io::Read};

use crate::yaml::MAX_BYTES;

/// A source of files.
pub trait Files {
    /// Reads the text of a file.
    fn read(&self, path: &str) -> Result<String, ReadError>;
}

/// Why a file cannot be read. The message follows the file's name.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It does not exist.
    #[error("does not exist")]
    Missing,
    /// It is a directory.
    #[error("is a directory")]
    Directory,
    /// It exceeds the size limit.
    #[error("is larger than {} MiB", MAX_BYTES >> 20)]
    Large,
    /// It is not valid UTF-8.
    #[error("is not text in UTF-8")]
    NotText {
        /// Line of the first invalid byte, counted from 1.
        line: u32,
        /// Column of that byte, counted from 1, in characters.
        column: u32,
    },
    /// The operating system refused.
    #[error("cannot be read: {0}")]
    System(io::Error),
}

impl ReadError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing => "check the path",
            Self::Directory => "name a file in it",
            Self::Large => "a manifest is smaller; check that this is the right file",
            Self::NotText { .. } => "save the file as UTF-8",
            Self::System(_) => "check who may read the file",
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::IsADirectory => Self::Directory,
            _ => Self::System(error),
        }
    }
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> Result<String, ReadError> {
        text_of(File::open(path)?)
    }
}

/// The text of a source, if it is UTF-8 and within the size limit.
pub fn text_of(source: impl Read) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    // Reading one byte more than allowed detects a text that is too large without its metadata: a pipe has no size, a
    // growing file the wrong one, and a device never ends.
    source.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        return Err(ReadError::Large);
    }
    String::from_utf8(bytes).map_err(|error| not_text(&error))
}

fn not_text(error: &std::string::FromUtf8Error) -> ReadError {
    let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line_start = good.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let line = small(good.split(|byte| *byte == b'\n').count());
    ReadError::NotText { line, column: small(String::from_utf8_lossy(&good[line_start..]).chars().count() + 1) }
}

/// Files in memory, for tests and for manifests received through the API.
#[derive(Clone, Debug, Default)]
pub struct Memory(pub BTreeMap<String, String>);

impl Files for Memory {
    fn read(&self, path: &str) -> Result<String, ReadError> {
        self.0.get(path).cloned().ok_or(ReadError::Missing)
    }
}
