//! The log on disk: records appended to segment files, each with its length, checksum and number.
//!
//! ```text
//! log/00000000000000000001.seg   header │ record │ record │ …      entries 1..=870
//! log/00000000000000000872.seg   header │ restated vote, commit, purge │ record │ …
//!
//! record:  length u32 │ crc32 u32 │ number u64 │ body            all little-endian; the crc covers number and body
//! ```
//!
//! Owns: the bytes, their order, their way to the disk, and the end of segments nobody needs.
//! Must not touch: what the records mean to the cluster; one serial stream holds votes and entries alike, so their order
//! on disk is the order they were asked for.
//! Invariant: a record is whole or it is not there. What was synced is found again, or opening fails and says where.

mod recovery;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

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

/// The log, open for writing.
pub(crate) struct Wal {
    dir: PathBuf,
    segments: Vec<Segment>,
    active: File,
    active_len: u64,
    next_number: u64,
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
    pub(crate) fn open(dir: &Path) -> Result<(Self, Recovered), WalError> {
        fs::create_dir_all(dir).map_err(io("create", dir))?;
        let found = recovery::read(dir)?;
        let (active, active_len) = match found.segments.last() {
            Some(last) => {
                let file = OpenOptions::new().append(true).open(&last.path).map_err(io("open", &last.path))?;
                let len = file.metadata().map_err(io("read the size of", &last.path))?.len();
                (file, len)
            }
            None => (new_segment(dir, found.next_number)?, HEADER.len() as u64),
        };
        let mut segments = found.segments;
        if segments.is_empty() {
            segments.push(Segment { path: segment_path(dir, found.next_number), last_entry: 0 });
        }
        let wal = Self {
            dir: dir.to_owned(),
            segments,
            active,
            active_len,
            next_number: found.next_number,
            vote: found.recovered.vote,
            committed: found.recovered.committed,
            purged: found.recovered.purged,
            buffer: Vec::new(),
        };
        Ok((wal, found.recovered))
    }

    /// Writes records in order. They are safe only after [`sync`](Self::sync). When it fails nothing was written.
    pub(crate) fn write(&mut self, records: &[Record]) -> Result<(), WalError> {
        if self.active_len >= SEGMENT_BYTES {
            self.roll()?;
        }
        let mut number = self.next_number;
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        for record in records {
            frame(&mut bytes, number, record)?;
            number += 1;
        }
        let written = self.write_bytes(&bytes);
        self.buffer = bytes;
        written?;
        self.next_number = number;
        for record in records {
            self.note(record);
        }
        Ok(())
    }

    /// Waits until everything written is on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), WalError> {
        self.active.sync_data().map_err(io("sync", self.active_path()))
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
                Err(WalError::Io { action: "write to", path, source })
            }
        }
    }

    fn roll(&mut self) -> Result<(), WalError> {
        self.sync()?;
        let file = new_segment(&self.dir, self.next_number)?;
        self.segments.push(Segment { path: segment_path(&self.dir, self.next_number), last_entry: 0 });
        self.active = file;
        self.active_len = HEADER.len() as u64;
        let restated: Vec<Record> =
            [self.vote.map(Record::Vote), self.committed.map(Record::Committed), self.purged.map(Record::Purge)]
                .into_iter()
                .flatten()
                .collect();
        self.write(&restated)?;
        // The vote must not be lost with the segment that held it first.
        self.sync()
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

fn new_segment(dir: &Path, number: u64) -> Result<File, WalError> {
    let path = segment_path(dir, number);
    let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(io("create", &path))?;
    // A file of that name can only be what a crash left of creating it: its number was never used for a record.
    file.set_len(0).map_err(io("empty", &path))?;
    file.write_all(HEADER).map_err(io("write to", &path))?;
    file.sync_all().map_err(io("sync", &path))?;
    sync_dir(dir)?;
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
