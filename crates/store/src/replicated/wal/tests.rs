//! Truncated and damaged logs.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{
    super::record::{Body, Payload, VoteState},
    *,
};

fn at(index: u64) -> Position {
    Position { term: 1, leader: 1, index }
}

fn entry(index: u64) -> Record {
    let bytes = vec![u8::try_from(index % 251).unwrap(); 40];
    Record::Entry(EntryRecord { at: at(index), body: Body::Batch(Payload(bytes.into())) })
}

/// A log of these entries, one write each, and its only segment.
fn log(last: u64) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
    for index in 0..=last {
        wal.write(&[entry(index)]).unwrap();
    }
    wal.sync().unwrap();
    let path = wal.active_path().to_owned();
    (dir, path)
}

/// A copy of a log whose only segment holds these bytes instead, with or without its synced watermark.
fn altered(dir: &TempDir, segment: &Path, bytes: &[u8], watermark: Watermark) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::write(copy.path().join(segment.file_name().unwrap()), bytes).unwrap();
    if watermark == Watermark::Kept {
        fs::copy(dir.path().join("synced"), copy.path().join("synced")).unwrap();
    }
    copy
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watermark {
    Kept,
    Lost,
}

fn indexes(recovered: &Recovered) -> Vec<u64> {
    recovered.entries.iter().map(|entry| entry.at.index).collect()
}

#[test]
fn records_are_read_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let vote = VoteRecord { term: 3, candidate: 2, state: VoteState::Granted };
    {
        let (mut wal, _) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
        wal.write(&[Record::Vote(vote), entry(0), entry(1), entry(2), entry(3)]).unwrap();
        wal.write(&[Record::Truncate { from: 2 }, entry(2), Record::Committed(at(2)), Record::Purge(at(0))]).unwrap();
        wal.sync().unwrap();
    }
    let (_, recovered) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
    assert_eq!(indexes(&recovered), [1, 2]);
    assert_eq!((recovered.vote, recovered.committed, recovered.purged), (Some(vote), Some(at(2)), Some(at(0))));
}

#[test]
fn a_log_truncated_at_any_byte_opens_with_every_complete_record_before_it() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let record = (bytes.len() - HEADER.len()) / 6;
    for cut in HEADER.len()..bytes.len() {
        let copy = altered(&dir, &path, &bytes[..cut], Watermark::Lost);
        let (mut wal, recovered) = Wal::open(copy.path(), RecoveryMode::Strict).unwrap();
        let whole = ((cut - HEADER.len()) / record) as u64;
        assert_eq!(indexes(&recovered), (0..whole).collect::<Vec<_>>(), "cut at byte {cut}");

        wal.write(&[entry(whole)]).unwrap();
        wal.sync().unwrap();
        let (_, again) = Wal::open(copy.path(), RecoveryMode::Strict).unwrap();
        assert_eq!(again.entries.len() as u64, whole + 1, "writing continues after the last complete record");
    }
}

#[test]
fn a_bit_flipped_before_the_last_record_is_refused_with_its_position() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let record = (bytes.len() - HEADER.len()) / 6;
    for byte in 0..bytes.len() - record {
        for bit in [0x01, 0x10, 0x80] {
            let mut flipped = bytes.clone();
            flipped[byte] ^= bit;
            let copy = altered(&dir, &path, &flipped, Watermark::Lost);
            let file = copy.path().join(path.file_name().unwrap());
            let error = Wal::open(copy.path(), RecoveryMode::Strict)
                .err()
                .unwrap_or_else(|| panic!("byte {byte} bit {bit} was not detected"));
            let WalError::Damaged { path, after_entry, .. } = error else { panic!("byte {byte}: {error}") };
            assert_eq!(path, file);
            assert_eq!(after_entry, (byte.saturating_sub(HEADER.len()) / record).saturating_sub(1) as u64);
        }
    }
}

#[test]
fn a_log_that_ends_before_its_commit_index_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
    wal.write(&[entry(0), entry(1), Record::Committed(at(1))]).unwrap();
    wal.write(&[Record::Truncate { from: 1 }]).unwrap();
    wal.sync().unwrap();
    let error = Wal::open(dir.path(), RecoveryMode::Strict).err().unwrap();
    assert!(matches!(error, WalError::EndLost { last: 0, committed: 1, .. }), "{error}");
}

#[test]
fn segments_are_removed_once_a_snapshot_covers_them_and_the_vote_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let vote = VoteRecord { term: 9, candidate: 1, state: VoteState::Requested };
    let is_segment = |file: &fs::DirEntry| file.path().extension().is_some_and(|extension| extension == "seg");
    let files = || fs::read_dir(dir.path()).unwrap().filter(|file| is_segment(file.as_ref().unwrap())).count();
    let (mut wal, _) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
    wal.write(&[Record::Vote(vote)]).unwrap();
    let large = |index| {
        let payload = Payload(vec![7; 3 * 1024 * 1024].into());
        Record::Entry(EntryRecord { at: at(index), body: Body::Batch(payload) })
    };
    for index in 0..12 {
        wal.write(&[large(index)]).unwrap();
    }
    let before = files();
    assert!(before >= 4, "{before} segments");
    wal.write(&[Record::Purge(at(10))]).unwrap();
    wal.sync().unwrap();
    wal.drop_purged().unwrap();
    assert_eq!(files(), 2, "the one with entry 11, and the one that is written to");
    drop(wal);
    let (_, recovered) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
    assert_eq!((recovered.vote, indexes(&recovered)), (Some(vote), vec![11]));
}

#[test]
fn a_missing_segment_between_two_others_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
    for index in 0..9 {
        let payload = Payload(vec![7; 3 * 1024 * 1024].into());
        wal.write(&[Record::Entry(EntryRecord { at: at(index), body: Body::Batch(payload) })]).unwrap();
    }
    wal.sync().unwrap();
    assert_eq!(wal.segments.len(), 3);
    fs::remove_file(&wal.segments[1].path).unwrap();
    let error = Wal::open(dir.path(), RecoveryMode::Strict).err().unwrap();
    assert!(matches!(error, WalError::Damaged { .. }), "{error}");
}

#[test]
fn a_log_that_lost_synced_records_is_refused_with_the_position() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let record = (bytes.len() - HEADER.len()) / 6;
    for cut in HEADER.len()..bytes.len() {
        let copy = altered(&dir, &path, &bytes[..cut], Watermark::Kept);
        let error = Wal::open(copy.path(), RecoveryMode::Strict).err().unwrap_or_else(|| panic!("cut at byte {cut}"));
        let WalError::SyncedLost { path: named, after_entry, .. } = error else { panic!("cut at byte {cut}: {error}") };
        assert_eq!(named.file_name(), path.file_name());
        assert_eq!(after_entry, (((cut - HEADER.len()) / record) as u64).saturating_sub(1));
    }
    for byte in bytes.len() - record..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 0x10;
        let copy = altered(&dir, &path, &flipped, Watermark::Kept);
        let error = Wal::open(copy.path(), RecoveryMode::Strict).err().unwrap_or_else(|| panic!("flip at byte {byte}"));
        assert!(matches!(error, WalError::SyncedLost { after_entry: 4, .. }), "{error}");
    }
    fs::remove_file(path).unwrap();
    assert!(matches!(Wal::open(dir.path(), RecoveryMode::Strict), Err(WalError::SyncedLost { after_entry: 0, .. })));
}

#[test]
fn salvage_mode_opens_a_log_that_lost_its_end() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let (mut wal, recovered) = Wal::open(dir.path(), RecoveryMode::Salvage).unwrap();
    assert_eq!(indexes(&recovered), [0, 1, 2, 3, 4]);
    wal.write(&[entry(5)]).unwrap();
    wal.sync().unwrap();
    let (_, again) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
    assert_eq!(again.entries.len(), 6);
}

#[test]
fn records_that_were_never_synced_may_be_lost() {
    let (dir, path) = log(5);
    let synced = fs::read(&path).unwrap();
    let (mut wal, _) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
    wal.write(&[Record::Committed(at(5))]).unwrap();
    drop(wal);
    fs::write(&path, synced).unwrap();
    assert_eq!(Wal::open(dir.path(), RecoveryMode::Strict).unwrap().1.entries.len(), 6);
}

#[test]
fn a_damaged_watermark_hides_at_most_the_newest_sync() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let watermark = fs::read(dir.path().join("synced")).unwrap();
    for byte in 0..watermark.len() {
        let mut flipped = watermark.clone();
        flipped[byte] ^= 1;
        fs::write(dir.path().join("synced"), flipped).unwrap();
        assert_eq!(Wal::open(dir.path(), RecoveryMode::Strict).unwrap().1.entries.len(), 6, "byte {byte}");
    }
    fs::write(dir.path().join("synced"), &watermark[..7]).unwrap();
    fs::write(&path, bytes).unwrap();
    assert_eq!(Wal::open(dir.path(), RecoveryMode::Strict).unwrap().1.entries.len(), 6);
}

#[test]
fn reserved_space_is_not_part_of_the_log() {
    let (dir, path) = log(2);
    let length = fs::metadata(&path).unwrap().len();
    let (mut wal, _) = Wal::open(dir.path(), RecoveryMode::Strict).unwrap();
    wal.reserve_space(100_000).unwrap();
    assert!(wal.reserved_bytes() >= 100_000, "{} bytes", wal.reserved_bytes());
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    wal.write(&[entry(3)]).unwrap();
    wal.sync().unwrap();
    assert_eq!(indexes(&Wal::open(dir.path(), RecoveryMode::Strict).unwrap().1), [0, 1, 2, 3]);
}
