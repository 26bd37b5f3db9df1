//! Snapshots: the whole state machine in one file.
//!
//! ```text
//! magic and version │ header length u32 │ header │ zstd(state machine) │ crc32 of the above │ length of the above u64
//! ```
//!
//! Owns: the file layout, reading and writing it, and which file is the newest.
//! Invariant: a file under its final name is complete. A damaged one is refused with its path, never partly read.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    encoding::{self, EncodingError},
    record::{MembersRecord, Position},
    state_machine::StateMachine,
    wal::is_full,
};

const MAGIC: &[u8; 8] = b"LSHRSNP\x01";
const TRAILER: usize = 12;
/// The fastest level still compresses to a tenth.
const ZSTD_LEVEL: i32 = 1;
/// The one before the newest is kept: it may be in transfer to another member.
const KEPT: usize = 2;

/// The header of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotHeader {
    /// The last entry included.
    pub(crate) at: Option<Position>,
    /// The entry that set its members.
    pub(crate) members_at: Option<Position>,
    pub(crate) members: MembersRecord,
}

/// Why a snapshot could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// An operation of the operating system failed.
    #[error("could not {action} `{}`", .path.display())]
    Io {
        /// The failed operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is truncated, or its checksum does not match.
    #[error("the snapshot `{}` is damaged: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The file is complete, but its contents do not decode.
    #[error("the snapshot `{}` cannot be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: EncodingError,
    },
    /// The state machine cannot be encoded.
    #[error("the snapshot could not be encoded")]
    Unwritable(#[source] EncodingError),
}

impl SnapshotError {
    /// Whether the disk is full, so that a retry may succeed later.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Damaged { .. } | Self::Unreadable { .. } | Self::Unwritable(_) => false,
        }
    }
}

/// Writes a snapshot under its final name and returns the path.
pub(crate) fn write(dir: &Path, header: &SnapshotHeader, machine: &StateMachine) -> Result<PathBuf, SnapshotError> {
    fs::create_dir_all(dir).map_err(io("create", dir))?;
    let path = final_path(dir, header);
    let partial = path.with_extension("tmp");
    let written = File::create(&partial).map_err(io("create", &partial)).and_then(|file| {
        let mut out = ChecksumWriter { inner: io::BufWriter::new(file), hasher: crc32fast::Hasher::new(), length: 0 };
        write_to(&mut out, header, machine, &partial)?;
        let file = out.inner.into_inner().map_err(|error| io("write to", &partial)(error.into_error()))?;
        file.sync_all().map_err(io("sync", &partial))
    });
    if let Err(error) = written {
        // The disk is often full here, and a partial snapshot is useless.
        let _ = fs::remove_file(&partial);
        return Err(error);
    }
    longshore_durable_file::rename(&partial, &path).map_err(io("rename", &partial))?;
    Ok(path)
}

/// A snapshot as bytes.
pub(crate) fn to_bytes(header: &SnapshotHeader, machine: &StateMachine) -> Result<Vec<u8>, SnapshotError> {
    let mut out = ChecksumWriter { inner: Vec::new(), hasher: crc32fast::Hasher::new(), length: 0 };
    write_to(&mut out, header, machine, Path::new("backup"))?;
    Ok(out.inner)
}

/// Moves a received file to its final name, after checking that it is a complete snapshot.
pub(crate) fn adopt(dir: &Path, received: &Path) -> Result<PathBuf, SnapshotError> {
    let (header, _) = read(received)?;
    File::open(received).and_then(|file| file.sync_all()).map_err(io("sync", received))?;
    let path = final_path(dir, &header);
    longshore_durable_file::rename(received, &path).map_err(io("rename", received))?;
    Ok(path)
}

/// Reads the header and the state machine from a file.
pub(crate) fn read(path: &Path) -> Result<(SnapshotHeader, StateMachine), SnapshotError> {
    let bytes = fs::read(path).map_err(io("read", path))?;
    parse(&bytes, path)
}

/// Reads the newest snapshot of a directory.
pub(crate) fn newest(dir: &Path) -> Result<Option<(PathBuf, SnapshotHeader, StateMachine)>, SnapshotError> {
    let Some(path) = finished(dir)?.pop() else {
        return Ok(None);
    };
    let (header, machine) = read(&path)?;
    Ok(Some((path, header, machine)))
}

/// Removes all but the newest snapshots.
pub(crate) fn clear_old(dir: &Path) -> Result<(), SnapshotError> {
    let snapshots = finished(dir)?;
    for path in &snapshots[..snapshots.len().saturating_sub(KEPT)] {
        fs::remove_file(path).map_err(io("remove", path))?;
    }
    Ok(())
}

/// Removes partial files that a crash left behind.
pub(crate) fn clear_unfinished(dir: &Path) -> Result<(), SnapshotError> {
    if !dir.exists() {
        return Ok(());
    }
    for path in files(dir)? {
        if path.extension().is_some_and(|extension| extension == "tmp") {
            fs::remove_file(&path).map_err(io("remove", &path))?;
        }
    }
    Ok(())
}

/// Decodes a snapshot's bytes; `path` is for the error message.
pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<(SnapshotHeader, StateMachine), SnapshotError> {
    let damaged = |what| SnapshotError::Damaged { path: path.to_owned(), what };
    let unreadable = |source| SnapshotError::Unreadable { path: path.to_owned(), source };
    let rest = checked(bytes).map_err(damaged)?;
    let (length, rest) = rest.split_at_checked(4).ok_or_else(|| damaged("it has no header"))?;
    let length = u32::from_le_bytes(length.try_into().map_err(|_| damaged("it has no header"))?) as usize;
    let (header, body) = rest.split_at_checked(length).ok_or_else(|| damaged("its header is truncated"))?;
    let header = encoding::decode(header).map_err(unreadable)?;
    let mut plain = Vec::new();
    zstd::Decoder::new(body).and_then(|mut decoder| decoder.read_to_end(&mut plain)).map_err(io("unpack", path))?;
    let mut machine: StateMachine = encoding::decode(&plain).map_err(unreadable)?;
    machine.state.count_older_ends();
    Ok((header, machine))
}

/// The bytes between magic and trailer, if the magic, the length and the checksum match.
fn checked(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let (contents, trailer) = bytes.split_at_checked(bytes.len().saturating_sub(TRAILER)).ok_or("it is truncated")?;
    let (sum, length) = trailer.split_at_checked(4).ok_or("it is truncated")?;
    let length = u64::from_le_bytes(length.try_into().map_err(|_| "it is truncated")?);
    let sum = u32::from_le_bytes(sum.try_into().map_err(|_| "it is truncated")?);
    let rest = contents.strip_prefix(&MAGIC[..7]).ok_or("its magic bytes are wrong")?;
    if length != contents.len() as u64 {
        return Err("its length does not match its trailer");
    }
    if crc32fast::hash(contents) != sum {
        return Err("its checksum does not match");
    }
    rest.strip_prefix(&MAGIC[7..]).ok_or("it is in a later format than this version reads")
}

fn write_to<W: Write>(
    out: &mut ChecksumWriter<W>,
    header: &SnapshotHeader,
    machine: &StateMachine,
    path: &Path,
) -> Result<(), SnapshotError> {
    let header = encoding::encode(header).map_err(SnapshotError::Unwritable)?;
    let length = u32::try_from(header.len()).expect("a list of members is far smaller than 4 GiB");
    for part in [&MAGIC[..], &length.to_le_bytes(), &header] {
        out.write_all(part).map_err(io("write to", path))?;
    }
    let mut packer = zstd::Encoder::new(&mut *out, ZSTD_LEVEL).map_err(io("write to", path))?;
    encoding::encode_into(&mut packer, machine).map_err(|error| match error {
        encoding::EncodeIntoError::Io(source) => io("write to", path)(source),
        encoding::EncodeIntoError::Encoding(source) => SnapshotError::Unwritable(source),
    })?;
    packer.finish().map_err(io("write to", path))?;
    let mut trailer = out.hasher.clone().finalize().to_le_bytes().to_vec();
    trailer.extend_from_slice(&out.length.to_le_bytes());
    out.inner.write_all(&trailer).map_err(io("write to", path))
}

fn final_path(dir: &Path, header: &SnapshotHeader) -> PathBuf {
    let at = header.at.unwrap_or_default();
    dir.join(format!("{:020}-{}-{}.snapshot", at.index, at.term, at.leader))
}

/// Complete snapshots, oldest first: the name starts with the entry index.
fn finished(dir: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut paths = files(dir)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "snapshot"));
    paths.sort();
    Ok(paths)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
    fs::read_dir(dir)
        .and_then(|files| files.map(|file| file.map(|file| file.path())).collect())
        .map_err(io("list", dir))
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
    let path = path.to_owned();
    move |source| SnapshotError::Io { action, path, source }
}

/// A writer that counts and checksums the bytes it passes on.
struct ChecksumWriter<W> {
    inner: W,
    hasher: crc32fast::Hasher,
    length: u64,
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests;
