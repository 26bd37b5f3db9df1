//! Logs that were cut short, and logs that were damaged.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{
    super::record::{Body, Payload, Standing},
    *,
};

fn at(index: u64) -> Position {
    Position { term: 1, leader: 1, index }
}

fn entry(index: u64) -> Record {
    let bytes = vec![u8::try_from(index % 251).unwrap(); 40];
    Record::Entry(EntryRecord { at: at(index), body: Body::Batch(Payload(bytes.into())) })
}

/// A log of these entries, one write each, and its only file.
fn log(last: u64) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = Wal::open(dir.path(), Demand::Everything).unwrap();
    for index in 0..=last {
        wal.write(&[entry(index)]).unwrap();
    }
    wal.sync().unwrap();
    let path = wal.active_path().to_owned();
    (dir, path)
}

/// A copy of a log whose only segment holds these bytes instead, with or without word of how far it was synced.
fn altered(dir: &TempDir, segment: &Path, bytes: &[u8], mark: Mark) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::write(copy.path().join(segment.file_name().unwrap()), bytes).unwrap();
    if mark == Mark::Kept {
        fs::copy(dir.path().join("synced"), copy.path().join("synced")).unwrap();
    }
    copy
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Kept,
    Lost,
}

fn indexes(recovered: &Recovered) -> Vec<u64> {
    recovered.entries.iter().map(|entry| entry.at.index).collect()
}

#[test]
fn what_was_written_is_read_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let vote = VoteRecord { term: 3, candidate: 2, standing: Standing::Granted };
    {
        let (mut wal, _) = Wal::open(dir.path(), Demand::Everything).unwrap();
        wal.write(&[Record::Vote(vote), entry(0), entry(1), entry(2), entry(3)]).unwrap();
        wal.write(&[Record::Truncate { from: 2 }, entry(2), Record::Committed(at(2)), Record::Purge(at(0))]).unwrap();
        wal.sync().unwrap();
    }
    let (_, recovered) = Wal::open(dir.path(), Demand::Everything).unwrap();
    assert_eq!(indexes(&recovered), [1, 2]);
    assert_eq!((recovered.vote, recovered.committed, recovered.purged), (Some(vote), Some(at(2)), Some(at(0))));
}

#[test]
fn a_log_cut_at_any_byte_opens_with_every_whole_record_before_the_cut() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let record = (bytes.len() - HEADER.len()) / 6;
    for cut in HEADER.len()..bytes.len() {
        let copy = altered(&dir, &path, &bytes[..cut], Mark::Lost);
        let (mut wal, recovered) = Wal::open(copy.path(), Demand::Everything).unwrap();
        let whole = ((cut - HEADER.len()) / record) as u64;
        assert_eq!(indexes(&recovered), (0..whole).collect::<Vec<_>>(), "cut at byte {cut}");

        wal.write(&[entry(whole)]).unwrap();
        wal.sync().unwrap();
        let (_, again) = Wal::open(copy.path(), Demand::Everything).unwrap();
        assert_eq!(again.entries.len() as u64, whole + 1, "and goes on from there");
    }
}

#[test]
fn a_bit_flipped_before_the_last_record_is_refused_and_named() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let record = (bytes.len() - HEADER.len()) / 6;
    for byte in 0..bytes.len() - record {
        for bit in [0x01, 0x10, 0x80] {
            let mut flipped = bytes.clone();
            flipped[byte] ^= bit;
            let copy = altered(&dir, &path, &flipped, Mark::Lost);
            let file = copy.path().join(path.file_name().unwrap());
            let error = Wal::open(copy.path(), Demand::Everything)
                .err()
                .unwrap_or_else(|| panic!("byte {byte} bit {bit} went unseen"));
            let WalError::Damaged { path, after_entry, .. } = error else { panic!("byte {byte}: {error}") };
            assert_eq!(path, file);
            assert_eq!(after_entry, (byte.saturating_sub(HEADER.len()) / record).saturating_sub(1) as u64);
        }
    }
}

#[test]
fn a_damaged_end_is_refused_when_it_was_known_to_be_decided() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = Wal::open(dir.path(), Demand::Everything).unwrap();
    wal.write(&[entry(0), entry(1), Record::Committed(at(1))]).unwrap();
    wal.write(&[Record::Truncate { from: 1 }]).unwrap();
    wal.sync().unwrap();
    let error = Wal::open(dir.path(), Demand::Everything).err().unwrap();
    assert!(matches!(error, WalError::EndLost { last: 0, committed: 1, .. }), "{error}");
}

#[test]
fn segments_go_once_a_snapshot_holds_them_and_the_vote_stays() {
    let dir = tempfile::tempdir().unwrap();
    let vote = VoteRecord { term: 9, candidate: 1, standing: Standing::Asked };
    let is_segment = |file: &fs::DirEntry| file.path().extension().is_some_and(|extension| extension == "seg");
    let files = || fs::read_dir(dir.path()).unwrap().filter(|file| is_segment(file.as_ref().unwrap())).count();
    let (mut wal, _) = Wal::open(dir.path(), Demand::Everything).unwrap();
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
    let (_, recovered) = Wal::open(dir.path(), Demand::Everything).unwrap();
    assert_eq!((recovered.vote, indexes(&recovered)), (Some(vote), vec![11]));
}

#[test]
fn a_segment_lost_between_two_others_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = Wal::open(dir.path(), Demand::Everything).unwrap();
    for index in 0..9 {
        let payload = Payload(vec![7; 3 * 1024 * 1024].into());
        wal.write(&[Record::Entry(EntryRecord { at: at(index), body: Body::Batch(payload) })]).unwrap();
    }
    wal.sync().unwrap();
    assert_eq!(wal.segments.len(), 3);
    fs::remove_file(&wal.segments[1].path).unwrap();
    let error = Wal::open(dir.path(), Demand::Everything).err().unwrap();
    assert!(matches!(error, WalError::Damaged { .. }), "{error}");
}

#[test]
fn a_log_that_lost_anything_it_had_synced_is_refused_and_named() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let record = (bytes.len() - HEADER.len()) / 6;
    for cut in HEADER.len()..bytes.len() {
        let copy = altered(&dir, &path, &bytes[..cut], Mark::Kept);
        let error = Wal::open(copy.path(), Demand::Everything).err().unwrap_or_else(|| panic!("cut at byte {cut}"));
        let WalError::SyncedLost { path: named, after_entry, .. } = error else { panic!("cut at byte {cut}: {error}") };
        assert_eq!(named.file_name(), path.file_name());
        assert_eq!(after_entry, (((cut - HEADER.len()) / record) as u64).saturating_sub(1));
    }
    for byte in bytes.len() - record..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 0x10;
        let copy = altered(&dir, &path, &flipped, Mark::Kept);
        let error = Wal::open(copy.path(), Demand::Everything).err().unwrap_or_else(|| panic!("flip at byte {byte}"));
        assert!(matches!(error, WalError::SyncedLost { after_entry: 4, .. }), "{error}");
    }
    fs::remove_file(path).unwrap();
    assert!(matches!(Wal::open(dir.path(), Demand::Everything), Err(WalError::SyncedLost { after_entry: 0, .. })));
}

#[test]
fn whoever_decides_to_go_on_with_what_is_left_can() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let (mut wal, recovered) = Wal::open(dir.path(), Demand::WhatIsLeft).unwrap();
    assert_eq!(indexes(&recovered), [0, 1, 2, 3, 4]);
    wal.write(&[entry(5)]).unwrap();
    wal.sync().unwrap();
    let (_, again) = Wal::open(dir.path(), Demand::Everything).unwrap();
    assert_eq!(again.entries.len(), 6);
}

#[test]
fn what_was_written_and_never_synced_may_be_lost() {
    let (dir, path) = log(5);
    let synced = fs::read(&path).unwrap();
    let (mut wal, _) = Wal::open(dir.path(), Demand::Everything).unwrap();
    wal.write(&[Record::Committed(at(5))]).unwrap();
    drop(wal);
    fs::write(&path, synced).unwrap();
    assert_eq!(Wal::open(dir.path(), Demand::Everything).unwrap().1.entries.len(), 6);
}

#[test]
fn a_damaged_word_of_how_far_was_synced_hides_the_newest_sync_at_most() {
    let (dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let mark = fs::read(dir.path().join("synced")).unwrap();
    for byte in 0..mark.len() {
        let mut flipped = mark.clone();
        flipped[byte] ^= 1;
        fs::write(dir.path().join("synced"), flipped).unwrap();
        assert_eq!(Wal::open(dir.path(), Demand::Everything).unwrap().1.entries.len(), 6, "byte {byte}");
    }
    fs::write(dir.path().join("synced"), &mark[..7]).unwrap();
    fs::write(&path, bytes).unwrap();
    assert_eq!(Wal::open(dir.path(), Demand::Everything).unwrap().1.entries.len(), 6);
}

#[test]
fn space_that_was_set_aside_is_no_part_of_the_log() {
    let (dir, path) = log(2);
    let length = fs::metadata(&path).unwrap().len();
    let (mut wal, _) = Wal::open(dir.path(), Demand::Everything).unwrap();
    wal.make_room(100_000).unwrap();
    assert!(wal.room() >= 100_000, "{} bytes", wal.room());
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    wal.write(&[entry(3)]).unwrap();
    wal.sync().unwrap();
    assert_eq!(indexes(&Wal::open(dir.path(), Demand::Everything).unwrap().1), [0, 1, 2, 3]);
}
