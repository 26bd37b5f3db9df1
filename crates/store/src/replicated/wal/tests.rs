//! Logs that were cut short, and logs that were damaged.

use std::fs;

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
    let (mut wal, _) = Wal::open(dir.path()).unwrap();
    for index in 0..=last {
        wal.write(&[entry(index)]).unwrap();
    }
    wal.sync().unwrap();
    let path = wal.active_path().to_owned();
    (dir, path)
}

fn indexes(recovered: &Recovered) -> Vec<u64> {
    recovered.entries.iter().map(|entry| entry.at.index).collect()
}

#[test]
fn what_was_written_is_read_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let vote = VoteRecord { term: 3, candidate: 2, standing: Standing::Granted };
    {
        let (mut wal, _) = Wal::open(dir.path()).unwrap();
        wal.write(&[Record::Vote(vote), entry(0), entry(1), entry(2), entry(3)]).unwrap();
        wal.write(&[Record::Truncate { from: 2 }, entry(2), Record::Committed(at(2)), Record::Purge(at(0))]).unwrap();
        wal.sync().unwrap();
    }
    let (_, recovered) = Wal::open(dir.path()).unwrap();
    assert_eq!(indexes(&recovered), [1, 2]);
    assert_eq!((recovered.vote, recovered.committed, recovered.purged), (Some(vote), Some(at(2)), Some(at(0))));
}

#[test]
fn a_log_cut_at_any_byte_opens_with_every_whole_record_before_the_cut() {
    let (_dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let record = (bytes.len() - HEADER.len()) / 6;
    for cut in HEADER.len()..bytes.len() {
        let copy = tempfile::tempdir().unwrap();
        fs::write(copy.path().join(path.file_name().unwrap()), &bytes[..cut]).unwrap();
        let (mut wal, recovered) = Wal::open(copy.path()).unwrap();
        let whole = ((cut - HEADER.len()) / record) as u64;
        assert_eq!(indexes(&recovered), (0..whole).collect::<Vec<_>>(), "cut at byte {cut}");

        wal.write(&[entry(whole)]).unwrap();
        wal.sync().unwrap();
        let (_, again) = Wal::open(copy.path()).unwrap();
        assert_eq!(again.entries.len() as u64, whole + 1, "and goes on from there");
    }
}

#[test]
fn a_bit_flipped_before_the_last_record_is_refused_and_named() {
    let (_dir, path) = log(5);
    let bytes = fs::read(&path).unwrap();
    let record = (bytes.len() - HEADER.len()) / 6;
    for byte in 0..bytes.len() - record {
        for bit in [0x01, 0x10, 0x80] {
            let copy = tempfile::tempdir().unwrap();
            let file = copy.path().join(path.file_name().unwrap());
            let mut flipped = bytes.clone();
            flipped[byte] ^= bit;
            fs::write(&file, flipped).unwrap();
            let error = Wal::open(copy.path()).err().unwrap_or_else(|| panic!("byte {byte} bit {bit} went unseen"));
            let WalError::Damaged { path, after_entry, .. } = error else { panic!("byte {byte}: {error}") };
            assert_eq!(path, file);
            assert_eq!(after_entry, (byte.saturating_sub(HEADER.len()) / record).saturating_sub(1) as u64);
        }
    }
}

#[test]
fn a_damaged_end_is_refused_when_it_was_known_to_be_decided() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = Wal::open(dir.path()).unwrap();
    wal.write(&[entry(0), entry(1), Record::Committed(at(1))]).unwrap();
    wal.write(&[Record::Truncate { from: 1 }]).unwrap();
    wal.sync().unwrap();
    let error = Wal::open(dir.path()).err().unwrap();
    assert!(matches!(error, WalError::EndLost { last: 0, committed: 1, .. }), "{error}");
}

#[test]
fn segments_go_once_a_snapshot_holds_them_and_the_vote_stays() {
    let dir = tempfile::tempdir().unwrap();
    let vote = VoteRecord { term: 9, candidate: 1, standing: Standing::Asked };
    let files = || fs::read_dir(dir.path()).unwrap().count();
    let (mut wal, _) = Wal::open(dir.path()).unwrap();
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
    let (_, recovered) = Wal::open(dir.path()).unwrap();
    assert_eq!((recovered.vote, indexes(&recovered)), (Some(vote), vec![11]));
}

#[test]
fn a_segment_lost_between_two_others_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wal, _) = Wal::open(dir.path()).unwrap();
    for index in 0..9 {
        let payload = Payload(vec![7; 3 * 1024 * 1024].into());
        wal.write(&[Record::Entry(EntryRecord { at: at(index), body: Body::Batch(payload) })]).unwrap();
    }
    wal.sync().unwrap();
    assert_eq!(wal.segments.len(), 3);
    fs::remove_file(&wal.segments[1].path).unwrap();
    let error = Wal::open(dir.path()).err().unwrap();
    assert!(matches!(error, WalError::Damaged { .. }), "{error}");
}
