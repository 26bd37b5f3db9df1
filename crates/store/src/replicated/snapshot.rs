//! Snapshots: the whole machine in one file.
//!
//! ```text
//! magic and version │ head length u32 │ head │ zstd(machine) │ crc32 of all before │ length of all before u64
//! ```
//!
//! Owns: the file's layout, its way to the disk and back, and which file is the newest.
//! Invariant: a file under its final name is whole. One that is not is refused by name, never half read.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    encoding::{self, EncodingError},
    machine::Machine,
    record::{MembersRecord, Position},
    wal::{is_full, sync_dir},
};

const MAGIC: &[u8; 8] = b"LSHRSNP\x01";
const TRAILER: usize = 12;
/// Fast, and still ten times smaller than what it packs.
const ZSTD_LEVEL: i32 = 1;
/// The one before the newest stays: it may be on its way to another member.
const KEPT: usize = 2;

/// What a snapshot says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The last entry in it.
    pub(crate) at: Option<Position>,
    /// The entry its members are from.
    pub(crate) members_at: Option<Position>,
    pub(crate) members: MembersRecord,
}

/// Why a snapshot could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The operating system said no.
    #[error("could not {action} `{}`", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Too short, or its checksum disagrees.
    #[error("the snapshot `{}` is damaged: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Whole, and not readable.
    #[error("the snapshot `{}` cannot be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: EncodingError,
    },
    /// Has no encoding.
    #[error("the snapshot could not be encoded")]
    Unwritable(#[source] EncodingError),
}

impl SnapshotError {
    /// Whether space is all that is missing: the same may succeed once there is some.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Damaged { .. } | Self::Unreadable { .. } | Self::Unwritable(_) => false,
        }
    }
}

/// Writes a snapshot under its final name and returns it.
pub(crate) fn write(dir: &Path, head: &Head, machine: &Machine) -> Result<PathBuf, SnapshotError> {
    fs::create_dir_all(dir).map_err(io("create", dir))?;
    let path = final_path(dir, head);
    let partial = path.with_extension("tmp");
    let written = File::create(&partial).map_err(io("create", &partial)).and_then(|file| {
        let mut out = Summing { inner: io::BufWriter::new(file), hasher: crc32fast::Hasher::new(), length: 0 };
        write_to(&mut out, head, machine, &partial)?;
        let file = out.inner.into_inner().map_err(|error| io("write to", &partial)(error.into_error()))?;
        file.sync_all().map_err(io("sync", &partial))
    });
    if let Err(error) = written {
        // Space is often what was missing, and half a snapshot is of no use to anybody.
        let _ = fs::remove_file(&partial);
        return Err(error);
    }
    put_in_place(&partial, &path)?;
    Ok(path)
}

/// A snapshot as bytes.
pub(crate) fn to_bytes(head: &Head, machine: &Machine) -> Result<Vec<u8>, SnapshotError> {
    let mut out = Summing { inner: Vec::new(), hasher: crc32fast::Hasher::new(), length: 0 };
    write_to(&mut out, head, machine, Path::new("backup"))?;
    Ok(out.inner)
}

/// Puts a file received from elsewhere under its final name, once it proves to be a whole snapshot.
pub(crate) fn adopt(dir: &Path, received: &Path) -> Result<PathBuf, SnapshotError> {
    let (head, _) = read(received)?;
    File::open(received).and_then(|file| file.sync_all()).map_err(io("sync", received))?;
    let path = final_path(dir, &head);
    put_in_place(received, &path)?;
    Ok(path)
}

/// The head and the machine in a file.
pub(crate) fn read(path: &Path) -> Result<(Head, Machine), SnapshotError> {
    let bytes = fs::read(path).map_err(io("read", path))?;
    parse(&bytes, path)
}

/// The newest snapshot of a directory, proven whole.
pub(crate) fn newest(dir: &Path) -> Result<Option<(PathBuf, Head, Machine)>, SnapshotError> {
    let Some(path) = all(dir)?.pop() else {
        return Ok(None);
    };
    let (head, machine) = read(&path)?;
    Ok(Some((path, head, machine)))
}

/// Removes what is older than the newest few, and what was never finished.
pub(crate) fn clear_old(dir: &Path) -> Result<(), SnapshotError> {
    let snapshots = all(dir)?;
    for path in &snapshots[..snapshots.len().saturating_sub(KEPT)] {
        fs::remove_file(path).map_err(io("remove", path))?;
    }
    Ok(())
}

/// Removes what a crash left unfinished.
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

/// The head and the machine in a snapshot's bytes.
pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<(Head, Machine), SnapshotError> {
    let damaged = |what| SnapshotError::Damaged { path: path.to_owned(), what };
    let unreadable = |source| SnapshotError::Unreadable { path: path.to_owned(), source };
    let rest = checked(bytes).map_err(damaged)?;
    let (length, rest) = rest.split_at_checked(4).ok_or_else(|| damaged("it has no head"))?;
    let length = u32::from_le_bytes(length.try_into().map_err(|_| damaged("it has no head"))?) as usize;
    let (head, body) = rest.split_at_checked(length).ok_or_else(|| damaged("its head is cut short"))?;
    let head = encoding::decode(head).map_err(unreadable)?;
    let mut plain = Vec::new();
    zstd::Decoder::new(body).and_then(|mut decoder| decoder.read_to_end(&mut plain)).map_err(io("unpack", path))?;
    let machine: Machine = encoding::decode(&plain).map_err(unreadable)?;
    Ok((head, machine))
}

/// What lies between magic and trailer, once both and the checksum agree.
fn checked(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let (contents, trailer) = bytes.split_at_checked(bytes.len().saturating_sub(TRAILER)).ok_or("it is cut short")?;
    let (sum, length) = trailer.split_at_checked(4).ok_or("it is cut short")?;
    let length = u64::from_le_bytes(length.try_into().map_err(|_| "it is cut short")?);
    let sum = u32::from_le_bytes(sum.try_into().map_err(|_| "it is cut short")?);
    let rest = contents.strip_prefix(&MAGIC[..7]).ok_or("it does not begin like one")?;
    if length != contents.len() as u64 {
        return Err("its length is not the one written at its end");
    }
    if crc32fast::hash(contents) != sum {
        return Err("its checksum disagrees");
    }
    rest.strip_prefix(&MAGIC[7..]).ok_or("it is in a later format than this version reads")
}

fn write_to<W: Write>(out: &mut Summing<W>, head: &Head, machine: &Machine, path: &Path) -> Result<(), SnapshotError> {
    let head = encoding::encode(head).map_err(SnapshotError::Unwritable)?;
    let length = u32::try_from(head.len()).expect("a list of members is far smaller than 4 GiB");
    for part in [&MAGIC[..], &length.to_le_bytes(), &head] {
        out.write_all(part).map_err(io("write to", path))?;
    }
    let mut packer = zstd::Encoder::new(&mut *out, ZSTD_LEVEL).map_err(io("write to", path))?;
    encoding::encode_into(&mut packer, machine).map_err(|error| match error {
        encoding::IntoError::Io(source) => io("write to", path)(source),
        encoding::IntoError::Encoding(source) => SnapshotError::Unwritable(source),
    })?;
    packer.finish().map_err(io("write to", path))?;
    let mut trailer = out.hasher.clone().finalize().to_le_bytes().to_vec();
    trailer.extend_from_slice(&out.length.to_le_bytes());
    out.inner.write_all(&trailer).map_err(io("write to", path))
}

fn put_in_place(partial: &Path, path: &Path) -> Result<(), SnapshotError> {
    fs::rename(partial, path).map_err(io("rename", partial))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    sync_dir(dir).map_err(|error| io("sync", dir)(io::Error::other(error)))
}

fn final_path(dir: &Path, head: &Head) -> PathBuf {
    let at = head.at.unwrap_or_default();
    dir.join(format!("{:020}-{}-{}.snapshot", at.index, at.term, at.leader))
}

/// Finished snapshots, oldest first: the index leads the name.
fn all(dir: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
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

/// Counts and sums what passes through.
struct Summing<W> {
    inner: W,
    hasher: crc32fast::Hasher,
    length: u64,
}

impl<W: Write> Write for Summing<W> {
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
