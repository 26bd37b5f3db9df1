//! The log on disk: records appended to segment files, each with its length, checksum and number.
//!
//! ```text
//! log/00000000000000000001.seg   header │ record │ record │ …      entries 1..=870
//! log/00000000000000000872.seg   header │ restated vote, commit, purge │ record │ …
//! log/synced                     number of the last record synced, twice
//!
//! record:  length u32 │ crc32 u32 │ number u64 │ body            all little-endian; the crc covers number and body
//! ```
//!
//! Owns: the bytes, their order, their way to the disk, and the end of segments nobody needs.
//! Must not touch: what the records mean to the cluster; one serial stream holds votes and entries alike, so their order
//! on disk is the order they were asked for.
//! Invariant: a record is whole or it is not there. What was synced is found again, or opening fails and says where. A
//! write that failed for want of space has left nothing behind and may be tried again.

mod mark;
mod recovery;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use self::mark::Mark;
use super::{
    encoding::{self, EncodingError},
    record::{EntryRecord, Position, Record, VoteRecord},
};

/// What a segment begins with; the last byte is the version of the framing.
const HEADER: &[u8; 8] = b"LSHRLOG\x01";
const FRAME: usize = 16;
/// No record is larger, so a length beyond it is damage and not a reason to reserve memory.
const LARGEST_RECORD: usize = 64 * 1024 * 1024;
/// Small enough that a snapshot frees space soon, large enough that files stay few.
const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// Space is set aside in steps of this, so that few writes have to ask for it.
const STEP_BYTES: u64 = 1024 * 1024;
/// Set aside beyond what was asked for: votes and notes are written unannounced, and must find room on a full disk.
const SPARE_BYTES: u64 = 64 * 1024;

/// Why the log could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
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
    /// A damaged record with whole ones behind it: not a write that was cut short.
    #[error("the log is damaged: `{}` at byte {offset}, after entry {after_entry}, and whole records follow", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The last entry before it; 0 where there is none.
        after_entry: u64,
    },
    /// The log ends before what is known to be decided.
    #[error("the log in `{}` ends at entry {last}, but entry {committed} was decided: its end was lost", .path.display())]
    EndLost {
        /// The directory.
        path: PathBuf,
        /// The last entry.
        last: u64,
        /// The last one known to be decided.
        committed: u64,
    },
    /// Less is there than had been synced.
    #[error("the log is damaged: `{}` ends at byte {offset}, after entry {after_entry}, and more than that was synced", .path.display())]
    SyncedLost {
        /// The file.
        path: PathBuf,
        /// Where what is left ends.
        offset: u64,
        /// The last entry before it; 0 where there is none.
        after_entry: u64,
    },
    /// The operating system did not say that what was written is safe. It may be, or not: the log must be read anew.
    #[error("could not sync `{}`", .path.display())]
    NotSynced {
        /// The file.
        path: PathBuf,
        /// Why not.
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
    /// A whole record that does not decode.
    #[error("a record of `{}` at byte {offset} cannot be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// Why.
        source: EncodingError,
    },
    /// A record that has no encoding.
    #[error("a record could not be written")]
    Unwritable(#[source] EncodingError),
}

/// What a log holds when it is opened.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) entries: Vec<EntryRecord>,
    pub(crate) vote: Option<VoteRecord>,
    pub(crate) committed: Option<Position>,
    pub(crate) purged: Option<Position>,
}

impl WalError {
    /// Whether space is all that is missing: the same write may succeed once there is some.
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

/// Whether the operating system refused for want of space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What a log must still hold to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Everything that was synced.
    Everything,
    /// What is left of it, whole from its beginning: somebody has decided to go on with that.
    WhatIsLeft,
}

/// The log, open for writing.
pub(crate) struct Wal {
    dir: PathBuf,
    segments: Vec<Segment>,
    active: File,
    active_len: u64,
    /// The disk has set space aside for the active segment up to here.
    set_aside: u64,
    next_number: u64,
    mark: Mark,
    /// Restated at the head of each segment, so that the ones before it can go.
    vote: Option<VoteRecord>,
    committed: Option<Position>,
    purged: Option<Position>,
    buffer: Vec<u8>,
}

struct Segment {
    path: PathBuf,
    /// The largest index in it; 0 where it holds no entry.
    last_entry: u64,
}

impl Wal {
    /// Opens the log, reading all of it. What a crash cut short at its end is removed; other damage is an error.
    pub(crate) fn open(dir: &Path, demand: Demand) -> Result<(Self, Recovered), WalError> {
        fs::create_dir_all(dir).map_err(io("create", dir))?;
        let (mut mark, mut synced) = Mark::open(dir)?;
        if demand == Demand::WhatIsLeft {
            mark.clear()?;
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
            set_aside: active_len,
            next_number: found.next_number,
            mark,
            vote: found.recovered.vote,
            committed: found.recovered.committed,
            purged: found.recovered.purged,
            buffer: Vec::new(),
        };
        Ok((wal, found.recovered))
    }

    /// Writes records in order. They are safe only after [`sync`](Self::sync). When it fails nothing was written.
    pub(crate) fn write(&mut self, records: &[Record]) -> Result<(), WalError> {
        // A little late, so that what space was set aside for is not followed into a segment that has none.
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
            self.note(record);
        }
        Ok(())
    }

    /// Waits until everything written is on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), WalError> {
        let synced = self.active.sync_data();
        synced.map_err(|source| WalError::NotSynced { path: self.active_path().to_owned(), source })?;
        if let Err(error) = self.mark.set(self.next_number - 1) {
            // What was written is safe. Only less of a later loss would be noticed.
            tracing::debug!(%error, "how far the log was synced could not be noted");
        }
        Ok(())
    }

    /// Sets space aside: the next writes of so many bytes together will find room, with a vote and some notes among them.
    pub(crate) fn make_room(&mut self, bytes: u64) -> Result<(), WalError> {
        if self.active_len >= SEGMENT_BYTES {
            self.roll()?;
        }
        let needed = self.active_len + bytes + SPARE_BYTES;
        if self.set_aside >= needed {
            return Ok(());
        }
        let upto = needed.next_multiple_of(STEP_BYTES);
        match fallocate(&self.active, FallocateFlags::KEEP_SIZE, 0, upto) {
            // A file system that cannot set space aside says so; a write may then fail where it stands, and waits.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.set_aside = upto,
            Err(error) => return Err(io("set space aside for", self.active_path())(error.into())),
        }
        Ok(())
    }

    /// Bytes for which space is set aside.
    pub(crate) fn room(&self) -> u64 {
        self.set_aside.saturating_sub(self.active_len).saturating_sub(SPARE_BYTES)
    }

    /// Removes segments whose every entry is in a snapshot.
    pub(crate) fn drop_purged(&mut self) -> Result<(), WalError> {
        let purged = self.purged.map_or(0, |purged| purged.index);
        let mut removed = 0;
        // Oldest first, and never past one that is needed: a later segment may void entries of an earlier one.
        while self.segments.len() > removed + 1 && self.segments[removed].last_entry <= purged {
            let path = &self.segments[removed].path;
            fs::remove_file(path).map_err(io("remove", path))?;
            removed += 1;
        }
        if removed > 0 {
            self.segments.drain(..removed);
            sync_dir(&self.dir)?;
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
                // Half a record in front of the next one would look like damage.
                let path = self.active_path().to_owned();
                self.active.set_len(self.active_len).map_err(io("shorten", &path))?;
                // What was set aside behind the end went with it.
                self.set_aside = self.active_len;
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
        // The vote must not be lost with the segment that held it first: it is safe here before anything changes.
        let file = new_segment(&self.dir, self.next_number, &bytes)?;
        // What was set aside and not used goes back; it is only space, so that nothing is lost if it stays.
        let _ = self.active.set_len(self.active_len);
        self.segments.push(Segment { path: segment_path(&self.dir, self.next_number), last_entry: 0 });
        self.active = file;
        self.active_len = (HEADER.len() + bytes.len()) as u64;
        self.set_aside = self.active_len;
        self.next_number += restated.len() as u64;
        Ok(())
    }

    fn note(&mut self, record: &Record) {
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

/// A segment that begins with these records, safe on the disk.
fn new_segment(dir: &Path, number: u64, first: &[u8]) -> Result<File, WalError> {
    let path = segment_path(dir, number);
    let made = fill_segment(&path, first).and_then(|file| sync_dir(dir).map(|()| file));
    if made.is_err() {
        // Half a segment would be in the way of the next attempt; what cannot be removed is emptied by it.
        let _ = fs::remove_file(&path);
    }
    made
}

fn fill_segment(path: &Path, first: &[u8]) -> Result<File, WalError> {
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(io("create", path))?;
    // A file of that name can only be what a crash left of creating it: its number was never used for a record.
    file.set_len(0).map_err(io("empty", path))?;
    file.write_all(HEADER).and_then(|()| file.write_all(first)).map_err(io("write to", path))?;
    // A new file's first sync may find out that there is no space; nothing is in it that was not elsewhere before.
    file.sync_all().map_err(io("sync", path))?;
    Ok(file)
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:020}.seg"))
}

/// A new or removed name is safe only once its directory is.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), WalError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io("sync", dir))
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WalError {
    let path = path.to_owned();
    move |source| WalError::Io { action, path, source }
}

#[cfg(test)]
mod tests;
