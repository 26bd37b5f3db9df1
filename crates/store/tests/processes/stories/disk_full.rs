//! A disk without space, small and mounted for the occasion.

use std::{
    ffi::CStr,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::{Weight, fleet::Fleet, load::Load};

const SIZE: &CStr = c"size=24m";

/// A small file system in memory that is gone in the end.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), SIZE).expect("this story mounts a tmpfs, as root may");
        Self { dir }
    }

    fn ballast(&self) -> PathBuf {
        self.dir.path().join("ballast")
    }

    /// Takes all the space there is.
    fn fill(&self) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        for portion in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![7; portion]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whatever still holds a file in it goes first, or with it.
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

pub(super) fn tell(weight: Weight) {
    let disk = SmallDisk::new();
    let mut fleet = Fleet::at(disk.path(), 40);
    for round in 0..weight.rounds(2, 20) {
        let load = Load::begin(&fleet, &format!("r{round}"), 4, 1);
        load.wait_for(20);
        disk.fill();
        let refused = refusal(&fleet, round);
        assert_eq!(refused, "refused disk_full not_appended");
        assert!(fleet.ask(1, "get insisted").unwrap().starts_with("value"), "it still reads");
        // Longer than it takes for a snapshot to be due: to want of space that must not be the end of the member.
        thread::sleep(Duration::from_millis(500));
        let standing = fleet.ask(1, "standing").unwrap();
        assert!(standing.starts_with("leading"), "{standing}");

        if round % 2 == 1 {
            fleet.kill(1);
            fleet.start(1);
        }
        disk.free();
        let waited = fleet.insist(1, &format!("space-{round}"));
        println!("  writes again {waited:.2?} after there was space");
        fleet.kill(1);
        fleet.start(1);
        load.check(&fleet, 1);
    }
}

/// Writes until there is no space left for more.
fn refusal(fleet: &Fleet, round: u32) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    for count in 0.. {
        let answer = fleet.ask(1, &format!("fill {} 500", u64::from(round) * 100_000 + count * 500)).unwrap();
        if answer != "done" {
            return answer;
        }
        assert!(Instant::now() < deadline, "the disk does not become full");
    }
    unreachable!("the counter does not end")
}
