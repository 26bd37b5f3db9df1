//! The write-ahead log: records in segment files, each with its length, checksum and number.
//!
//! ```text
//! log/00000000000000000001.seg   header │ record │ record │ …      entries 1..=870
//! log/00000000000000000872.seg   header │ restated vote, commit, purge │ record │ …
//! log/synced                     number of the last record synced, twice
//!
//! record:  length u32 │ crc32 u32 │ number u64 │ body            all little-endian; the crc covers number and body
//! ```
//!
//! Owns: the bytes on disk, their order, syncing, and the removal of purged segments.
//! Must not touch: the meaning of the records. Votes and entries share one stream, so their order on disk is the order
//! in which they were requested.
//! Invariant: a record is complete or absent. Everything synced is found again, or opening fails with the position. A
//! write that failed on a full disk left nothing behind and may be retried.

mod recovery;
mod synced_watermark;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use self::synced_watermark::SyncedWatermark;
use super::{
    encoding::{self, EncodingError},
    record::{EntryRecord, Position, Record, VoteRecord},
};

/// The header of a segment; its last byte is the version of the framing.
const HEADER: &[u8; 8] = b"LSHRLOG\x01";
const FRAME: usize = 16;
/// No record is larger, so a greater length is damage and must not be allocated.
const LARGEST_RECORD: usize = 64 * 1024 * 1024;
/// Small enough that a snapshot frees space soon, large enough to keep the number of files low.
const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// Disk space is reserved in steps of this size, so that few writes have to reserve.
const STEP_BYTES: u64 = 1024 * 1024;
/// Reserved beyond each request: votes and commit indexes are written without a reservation and must fit on a full
/// disk.
const SPARE_BYTES: u64 = 64 * 1024;

/// Why the log could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
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
    /// A damaged record followed by complete ones, so it is not an interrupted write.
    #[error("the log is damaged: `{}` at byte {offset}, after entry {after_entry}, and whole records follow", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset in bytes.
        offset: u64,
        /// The last entry before it; 0 if there is none.
        after_entry: u64,
    },
    /// The log ends before its commit index.
    #[error("the log in `{}` ends at entry {last}, but entry {committed} was committed: its end was lost", .path.display())]
    EndLost {
        /// The directory.
        path: PathBuf,
        /// The last entry.
        last: u64,
        /// The committed entry.
        committed: u64,
    },
    /// The log ends before its synced watermark.
    #[error("the log is damaged: `{}` ends at byte {offset}, after entry {after_entry}, and more than that was synced", .path.display())]
    SyncedLost {
        /// The file.
        path: PathBuf,
        /// Where the log ends.
        offset: u64,
        /// The last entry before it; 0 if there is none.
        after_entry: u64,
    },
    /// The sync failed. The data may or may not be on disk, so the log must be read again.
    #[error("could not sync `{}`", .path.display())]
    NotSynced {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Entries are not consecutive.
    #[error("the log is damaged: `{}` holds entry {found} where entry {expected} belongs", .path.display())]
    Gap {
        /// The file.
        path: PathBuf,
        /// The entry found.
        found: u64,
        /// The entry expected.
        expected: u64,
    },
    /// A complete record that does not decode.
    #[error("a record of `{}` at byte {offset} cannot be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The offset in bytes.
        offset: u64,
        /// The cause.
        source: EncodingError,
    },
    /// A record that cannot be encoded.
    #[error("a record could not be written")]
    Unwritable(#[source] EncodingError),
}

/// The contents of a log when it is opened.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) entries: Vec<EntryRecord>,
    pub(crate) vote: Option<VoteRecord>,
    pub(crate) committed: Option<Position>,
    pub(crate) purged: Option<Position>,
}

impl WalError {
    /// Whether the disk is full, so that a retry may succeed later.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Damaged { .. }
            | Self::EndLost { .. }
            | Self::SyncedLost { .. }
            | Self::NotSynced { .. }
            | Self::Gap { .. }
            | Self::Unreadable { .. }
            | Self::Unwritable(_) => false,
        }
    }
}

/// Whether the error is a full disk or an exceeded disk quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// How much of the log must be intact to open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryMode {
    /// Everything that was synced.
    Strict,
    /// Only its beginning: the operator chose to continue with what is left.
    Salvage,
}

/// The log, open for writing.
pub(crate) struct Wal {
    dir: PathBuf,
    segments: Vec<Segment>,
    active: File,
    active_len: u64,
    /// Disk space is allocated for the active segment up to this offset.
    allocated: u64,
    next_number: u64,
    watermark: SyncedWatermark,
    /// Repeated at the start of each segment, so that earlier segments can be removed.
    vote: Option<VoteRecord>,
    committed: Option<Position>,
    purged: Option<Position>,
    buffer: Vec<u8>,
}

struct Segment {
    path: PathBuf,
    /// The largest entry index in it; 0 if it holds no entry.
    last_entry: u64,
}

impl Wal {
    /// Opens the log and reads all of it. An interrupted write at its end is removed; other damage is an error.
    pub(crate) fn open(dir: &Path, mode: RecoveryMode) -> Result<(Self, Recovered), WalError> {
        fs::create_dir_all(dir).map_err(io("create", dir))?;
        let (mut watermark, mut synced) = SyncedWatermark::open(dir)?;
        if mode == RecoveryMode::Salvage {
            watermark.clear()?;
            synced = 0;
        }
        let found = recovery::read(dir, synced)?;
        let mut segments = found.segments;
        let (active, active_len) = if let Some(last) = segments.last() {
            let file = OpenOptions::new().append(true).open(&last.path).map_err(io("open", &last.path))?;
            let len = file.metadata().map_err(io("read the size of", &last.path))?.len();
            (file, len)
        } else {
            segments.push(Segment { path: segment_path(dir, found.next_number), last_entry: 0 });
            (new_segment(dir, found.next_number, &[])?, HEADER.len() as u64)
        };
        let wal = Self {
            dir: dir.to_owned(),
            segments,
            active,
            active_len,
            allocated: active_len,
            next_number: found.next_number,
            watermark,
            vote: found.recovered.vote,
            committed: found.recovered.committed,
            purged: found.recovered.purged,
            buffer: Vec::new(),
        };
        Ok((wal, found.recovered))
    }

    /// Writes records in order. They are durable only after [`sync`](Self::sync). If it fails, nothing was written.
    pub(crate) fn write(&mut self, records: &[Record]) -> Result<(), WalError> {
        // Slightly above the limit, so that a write with reserved space does not move to a segment without it.
        if self.active_len >= SEGMENT_BYTES + SPARE_BYTES {
            self.roll()?;
        }
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        let written = frame_all(&mut bytes, self.next_number, records).and_then(|()| self.write_bytes(&bytes));
        self.buffer = bytes;
        written?;
        self.next_number += records.len() as u64;
        for record in records {
            self.track(record);
        }
        Ok(())
    }

    /// Waits until everything written is on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), WalError> {
        let synced = self.active.sync_data();
        synced.map_err(|source| WalError::NotSynced { path: self.active_path().to_owned(), source })?;
        if let Err(error) = self.watermark.set(self.next_number - 1) {
            // The data is safe. Only the detection of a later loss is weaker.
            tracing::debug!(%error, "the synced watermark could not be written");
        }
        Ok(())
    }

    /// Reserves disk space for the next `bytes` bytes of records, plus a vote and some commit indexes.
    pub(crate) fn reserve_space(&mut self, bytes: u64) -> Result<(), WalError> {
        if self.active_len >= SEGMENT_BYTES {
            self.roll()?;
        }
        let needed = self.active_len + bytes + SPARE_BYTES;
        if self.allocated >= needed {
            return Ok(());
        }
        let upto = needed.next_multiple_of(STEP_BYTES);
        match fallocate(&self.active, FallocateFlags::KEEP_SIZE, 0, upto) {
            // File systems without `fallocate` return an error; a write may then fail later, and waits for space.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.allocated = upto,
            Err(error) => return Err(io("set space aside for", self.active_path())(error.into())),
        }
        Ok(())
    }

    /// Bytes of reserved disk space.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.allocated.saturating_sub(self.active_len).saturating_sub(SPARE_BYTES)
    }

    /// Removes segments whose entries are all in a snapshot.
    pub(crate) fn drop_purged(&mut self) -> Result<(), WalError> {
        let purged = self.purged.map_or(0, |purged| purged.index);
        let mut removed = 0;
        // Oldest first, and never past a segment that is needed: a later segment may truncate entries of an earlier
        // one.
        while self.segments.len() > removed + 1 && self.segments[removed].last_entry <= purged {
            let path = &self.segments[removed].path;
            fs::remove_file(path).map_err(io("remove", path))?;
            removed += 1;
        }
        if removed > 0 {
            self.segments.drain(..removed);
            longshore_durable_file::sync_dir(&self.dir).map_err(io("sync", &self.dir))?;
        }
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        match self.active.write_all(bytes) {
            Ok(()) => {
                self.active_len += bytes.len() as u64;
                Ok(())
            }
            Err(source) => {
                // A partial record in front of the next one would look like damage.
                let path = self.active_path().to_owned();
                self.active.set_len(self.active_len).map_err(io("shorten", &path))?;
                // Truncating released the space allocated behind the end.
                self.allocated = self.active_len;
                Err(WalError::Io { action: "write to", path, source })
            }
        }
    }

    fn roll(&mut self) -> Result<(), WalError> {
        self.sync()?;
        let restated: Vec<Record> =
            [self.vote.map(Record::Vote), self.committed.map(Record::Committed), self.purged.map(Record::Purge)]
                .into_iter()
                .flatten()
                .collect();
        let mut bytes = Vec::new();
        frame_all(&mut bytes, self.next_number, &restated)?;
        // The vote must not be lost with the old segment, so the new segment is synced before anything changes.
        let file = new_segment(&self.dir, self.next_number, &bytes)?;
        // Releases allocated space that was not used. It does no harm if this fails.
        let _ = self.active.set_len(self.active_len);
        self.segments.push(Segment { path: segment_path(&self.dir, self.next_number), last_entry: 0 });
        self.active = file;
        self.active_len = (HEADER.len() + bytes.len()) as u64;
        self.allocated = self.active_len;
        self.next_number += restated.len() as u64;
        Ok(())
    }

    fn track(&mut self, record: &Record) {
        match record {
            Record::Entry(entry) => {
                if let Some(segment) = self.segments.last_mut() {
                    segment.last_entry = segment.last_entry.max(entry.at.index);
                }
            }
            Record::Vote(vote) => self.vote = Some(*vote),
            Record::Committed(at) => self.committed = Some(*at),
            Record::Purge(at) => self.purged = Some(*at),
            Record::Truncate { .. } => {}
        }
    }

    fn active_path(&self) -> &Path {
        self.segments.last().map_or(&self.dir, |segment| &segment.path)
    }
}

fn frame(bytes: &mut Vec<u8>, number: u64, record: &Record) -> Result<(), WalError> {
    let body = encoding::encode(record).map_err(WalError::Unwritable)?;
    let length = u32::try_from(body.len()).expect("a record is far smaller than 4 GiB");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&checksum(number, &body).to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(())
}

fn checksum(number: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

fn frame_all(bytes: &mut Vec<u8>, first: u64, records: &[Record]) -> Result<(), WalError> {
    records.iter().zip(first..).try_for_each(|(record, number)| frame(bytes, number, record))
}

/// Creates a segment that starts with these records, and syncs it.
fn new_segment(dir: &Path, number: u64, first: &[u8]) -> Result<File, WalError> {
    let path = segment_path(dir, number);
    let made = fill_segment(&path, first)
        .and_then(|file| longshore_durable_file::sync_dir(dir).map_err(io("sync", dir)).map(|()| file));
    if made.is_err() {
        // A partial segment would block the next attempt; if it cannot be removed, that attempt truncates it.
        let _ = fs::remove_file(&path);
    }
    made
}

fn fill_segment(path: &Path, first: &[u8]) -> Result<File, WalError> {
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(io("create", path))?;
    // A file with this name can only be left from a crash during creation: its number was never used for a record.
    file.set_len(0).map_err(io("empty", path))?;
    file.write_all(HEADER).and_then(|()| file.write_all(first)).map_err(io("write to", path))?;
    // The first sync of a new file may find the disk full; all of its records also exist in the previous segment.
    file.sync_all().map_err(io("sync", path))?;
    Ok(file)
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:020}.seg"))
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WalError {
    let path = path.to_owned();
    move |source| WalError::Io { action, path, source }
}

#[cfg(test)]
mod tests;
