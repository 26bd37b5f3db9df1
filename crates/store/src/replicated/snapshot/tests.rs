//! Damaged, truncated and newer snapshots.

use longshore_model::{Command, Time, command::Quota};
use tempfile::TempDir;

use super::{
    super::{
        Proposal,
        record::Payload,
        state_machine::{Batch, Item},
    },
    *,
};

fn machine() -> StateMachine {
    let mut machine = StateMachine::default();
    for (namespace, replicas) in [("red", 1), ("green", 2), ("blue", 3)] {
        let quota = Quota { replicas: Some(replicas), ..Quota::default() };
        let command = Command::SetQuota { namespace: namespace.into(), quota };
        let item = Item { proposal: Proposal::by_system(command, Time(7)), part: None };
        let items = vec![Payload(encoding::encode(&item).unwrap().into())];
        machine.apply(&Batch { items }, &mut Vec::new()).unwrap();
    }
    machine
}

fn header(index: u64) -> SnapshotHeader {
    let at = Some(Position { term: 2, leader: 1, index });
    SnapshotHeader { at, members_at: at, ..SnapshotHeader::default() }
}

/// A directory with one snapshot, and its bytes.
fn kept() -> (TempDir, PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &header(40), &machine()).unwrap();
    let bytes = fs::read(&path).unwrap();
    (dir, path, bytes)
}

#[test]
fn a_snapshot_is_read_back() {
    let (dir, path, _) = kept();
    let (found, read_header, read_machine) = newest(dir.path()).unwrap().unwrap();
    assert_eq!((found, read_header), (path, header(40)));
    assert_eq!(read_machine.state, machine().state);
    assert_eq!(read_machine.audit_after(0, 9), machine().audit_after(0, 9));
}

#[test]
fn a_bit_flipped_anywhere_is_refused_with_the_path() {
    let (dir, path, bytes) = kept();
    for byte in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[byte] ^= 1 << bit;
            fs::write(&path, flipped).unwrap();
            let error = newest(dir.path()).err().unwrap_or_else(|| panic!("byte {byte} bit {bit} was not detected"));
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    }
}

#[test]
fn a_snapshot_truncated_at_any_byte_or_extended_by_one_is_refused() {
    let (dir, path, bytes) = kept();
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        assert!(matches!(newest(dir.path()), Err(SnapshotError::Damaged { .. })), "cut at byte {cut}");
    }
    fs::write(&path, [&bytes[..], &[0]].concat()).unwrap();
    assert!(matches!(newest(dir.path()), Err(SnapshotError::Damaged { .. })));
}

#[test]
fn partial_files_of_a_crash_are_removed_and_never_read() {
    let (dir, path, bytes) = kept();
    let unfinished = dir.path().join("00000000000000000099-3-1.tmp");
    fs::write(&unfinished, &bytes[..bytes.len() / 2]).unwrap();
    clear_unfinished(dir.path()).unwrap();
    assert!(!unfinished.exists());
    assert_eq!(newest(dir.path()).unwrap().unwrap().0, path);
}

#[test]
fn a_damaged_snapshot_from_another_member_never_gets_its_final_name() {
    let (_elsewhere, _, mut bytes) = kept();
    let dir = tempfile::tempdir().unwrap();
    let received = dir.path().join("received-1.tmp");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&received, &bytes).unwrap();
    assert!(matches!(adopt(dir.path(), &received), Err(SnapshotError::Damaged { .. })));
    assert!(newest(dir.path()).unwrap().is_none());

    bytes[middle] ^= 1;
    fs::write(&received, &bytes).unwrap();
    let path = adopt(dir.path(), &received).unwrap();
    assert_eq!(newest(dir.path()).unwrap().unwrap().0, path);
    assert!(!received.exists());
}
