//! Reads the log after a restart or a crash.
//!
//! Owns: distinguishing an interrupted write from damage.
//! Must not touch: anything but the end of the last segment, and only if no complete record follows and nothing synced
//! is missing.
//! Invariant: the result is a prefix of what was written and includes everything synced; otherwise an error is
//! returned.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use super::{
    super::{encoding, record::Record},
    FRAME, HEADER, LARGEST_RECORD, Recovered, Segment, WalError, checksum, io,
};

pub(super) struct LogScan {
    pub(super) segments: Vec<Segment>,
    pub(super) next_number: u64,
    synced: u64,
    pub(super) recovered: Recovered,
}

/// Reads all segments. Fails if the log ends before record number `synced`.
pub(super) fn read(dir: &Path, synced: u64) -> Result<LogScan, WalError> {
    let mut found = LogScan { segments: Vec::new(), next_number: 1, synced, recovered: Recovered::default() };
    let paths = segment_paths(dir)?;
    // The oldest segment is named after its first record; everything before it is in a snapshot.
    if let Some(first) = paths.first().and_then(|path| path.file_stem()?.to_str()?.parse().ok()) {
        found.next_number = first;
    }
    for (place, path) in paths.iter().enumerate() {
        let rest = &paths[place + 1..];
        read_segment(path, rest, &mut found)?;
    }
    if found.next_number <= synced {
        let path = paths.last().map_or(dir, PathBuf::as_path);
        let offset = fs::metadata(path).map_or(0, |file| file.len());
        return Err(WalError::SyncedLost { path: path.to_owned(), offset, after_entry: last_entry(&found) });
    }
    check_end(dir, &found.recovered)?;
    Ok(found)
}

fn segment_paths(dir: &Path) -> Result<Vec<PathBuf>, WalError> {
    let mut paths = Vec::new();
    for file in fs::read_dir(dir).map_err(io("list", dir))? {
        let path = file.map_err(io("list", dir))?.path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_segment(path: &Path, later: &[PathBuf], found: &mut LogScan) -> Result<(), WalError> {
    let bytes = fs::read(path).map_err(io("read", path))?;
    if !bytes.starts_with(HEADER) {
        return missing_header(path, &bytes, later, found);
    }
    found.segments.push(Segment { path: path.to_owned(), last_entry: 0 });
    let mut offset = HEADER.len();
    while offset < bytes.len() {
        let Some(body) = whole_record(&bytes, offset, found.next_number) else {
            return truncate_tail(path, &bytes, offset, later, found);
        };
        let record: Record = encoding::decode(body).map_err(|source| WalError::Unreadable {
            path: path.to_owned(),
            offset: offset as u64,
            source,
        })?;
        replay(path, record, found)?;
        found.next_number += 1;
        offset += FRAME + body.len();
    }
    Ok(())
}

/// A segment without its header was being created during a crash, if it is the last one and holds no record.
fn missing_header(path: &Path, bytes: &[u8], later: &[PathBuf], found: &mut LogScan) -> Result<(), WalError> {
    let unfinished = bytes.len() <= HEADER.len() || bytes.iter().all(|byte| *byte == 0);
    if later.is_empty() && found.next_number > found.synced && unfinished {
        fs::remove_file(path).map_err(io("remove", path))?;
        return path.parent().map_or(Ok(()), |dir| longshore_durable_file::sync_dir(dir).map_err(io("sync", dir)));
    }
    Err(damaged(path, 0, found))
}

/// Truncates an incomplete record at the end of the log. It is damage if a complete record follows.
fn truncate_tail(path: &Path, bytes: &[u8], offset: usize, later: &[PathBuf], found: &LogScan) -> Result<(), WalError> {
    let continued = later.iter().any(|path| fs::metadata(path).map_or(true, |file| file.len() > HEADER.len() as u64));
    if continued || record_follows(bytes, offset + 1, found.next_number) {
        return Err(damaged(path, offset, found));
    }
    if found.next_number <= found.synced {
        let (path, offset) = (path.to_owned(), offset as u64);
        return Err(WalError::SyncedLost { path, offset, after_entry: last_entry(found) });
    }
    tracing::warn!(
        file = %path.display(),
        offset,
        bytes = bytes.len() - offset,
        after_entry = last_entry(found),
        "the last write was interrupted and never acknowledged; it is removed"
    );
    let file = OpenOptions::new().write(true).open(path).map_err(io("open", path))?;
    file.set_len(offset as u64).map_err(io("shorten", path))?;
    file.sync_all().map_err(io("sync", path))
}

fn damaged(path: &Path, offset: usize, found: &LogScan) -> WalError {
    WalError::Damaged { path: path.to_owned(), offset: offset as u64, after_entry: last_entry(found) }
}

fn last_entry(found: &LogScan) -> u64 {
    let recovered = &found.recovered;
    recovered.entries.last().map(|entry| entry.at).or(recovered.purged).map_or(0, |at| at.index)
}

/// The body of the record at `offset`, if it is complete, its checksum matches and it has this number.
fn whole_record(bytes: &[u8], offset: usize, number: u64) -> Option<&[u8]> {
    let (found, body) = checked_record(bytes, offset)?;
    (found == number).then_some(body)
}

fn checked_record(bytes: &[u8], offset: usize) -> Option<(u64, &[u8])> {
    let frame = bytes.get(offset..offset + FRAME)?;
    let length = u32::from_le_bytes(frame[0..4].try_into().ok()?) as usize;
    let expected = u32::from_le_bytes(frame[4..8].try_into().ok()?);
    let number = u64::from_le_bytes(frame[8..16].try_into().ok()?);
    if length == 0 || length > LARGEST_RECORD {
        return None;
    }
    let body = bytes.get(offset + FRAME..offset + FRAME + length)?;
    (checksum(number, body) == expected).then_some((number, body))
}

/// Whether a complete record with a later number starts anywhere after `from`. Only used on a damaged log. The number
/// is compared before the checksum, so checking every byte is cheap enough.
fn record_follows(bytes: &[u8], from: usize, number: u64) -> bool {
    (from..bytes.len()).any(|offset| {
        let plausible = bytes
            .get(offset + 8..offset + FRAME)
            .and_then(|field| field.try_into().ok())
            .map(u64::from_le_bytes)
            .is_some_and(|found| (number..number.saturating_add(LARGEST_RECORD as u64)).contains(&found));
        plausible && checked_record(bytes, offset).is_some()
    })
}

fn replay(path: &Path, record: Record, found: &mut LogScan) -> Result<(), WalError> {
    let recovered = &mut found.recovered;
    match record {
        Record::Entry(entry) => {
            let index = entry.at.index;
            // After a purge beyond the end of the log, as by an installed snapshot, the next entry may have any index.
            if let Some(last) = recovered.entries.last()
                && index != last.at.index + 1
            {
                return Err(WalError::Gap { path: path.to_owned(), found: index, expected: last.at.index + 1 });
            }
            if let Some(segment) = found.segments.last_mut() {
                segment.last_entry = segment.last_entry.max(index);
            }
            recovered.entries.push(entry);
        }
        Record::Vote(vote) => recovered.vote = Some(vote),
        Record::Committed(at) => recovered.committed = Some(at),
        Record::Truncate { from } => recovered.entries.retain(|entry| entry.at.index < from),
        Record::Purge(at) => {
            recovered.purged = Some(at);
            recovered.entries.retain(|entry| entry.at.index > at.index);
        }
    }
    Ok(())
}

fn check_end(dir: &Path, recovered: &Recovered) -> Result<(), WalError> {
    if let (Some(first), Some(purged)) = (recovered.entries.first(), recovered.purged)
        && first.at.index != purged.index + 1
    {
        let (path, found, expected) = (dir.to_owned(), first.at.index, purged.index + 1);
        return Err(WalError::Gap { path, found, expected });
    }
    let last = recovered.entries.last().map(|entry| entry.at).max(recovered.purged).unwrap_or_default();
    let committed = recovered.committed.unwrap_or_default();
    if committed.index > last.index {
        return Err(WalError::EndLost { path: dir.to_owned(), last: last.index, committed: committed.index });
    }
    Ok(())
}
