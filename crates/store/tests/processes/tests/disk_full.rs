//! A full disk, on a small tmpfs mount.

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

use crate::{Weight, load::Load, process_cluster::ProcessCluster};

const SIZE: &CStr = c"size=24m";

/// A small tmpfs that is unmounted when dropped.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), SIZE)
            .expect("this test mounts a tmpfs and needs root");
        Self { dir }
    }

    fn ballast(&self) -> PathBuf {
        self.dir.path().join("ballast")
    }

    /// Fills the disk.
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
        // Detached, so that files still open do not block it.
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

pub(super) fn run(weight: Weight) {
    let disk = SmallDisk::new();
    let mut cluster = ProcessCluster::at(disk.path(), 40);
    for round in 0..weight.rounds(2, 20) {
        let load = Load::begin(&cluster, &format!("r{round}"), 4, 1);
        load.wait_for(20);
        disk.fill();
        let refused = refusal(&cluster, round);
        assert_eq!(refused, "refused disk_full not_appended");
        assert!(cluster.ask(1, "get insisted").unwrap().starts_with("value"), "reads still work");
        // Long enough for a snapshot to become due: a full disk must not stop the member.
        thread::sleep(Duration::from_millis(500));
        let status = cluster.ask(1, "status").unwrap();
        assert!(status.starts_with("leading"), "{status}");

        if round % 2 == 1 {
            cluster.kill(1);
            cluster.start(1);
        }
        disk.free();
        let waited = cluster.insist(1, &format!("space-{round}"));
        println!("  writes again {waited:.2?} after there was space");
        cluster.kill(1);
        cluster.start(1);
        load.check(&cluster, 1);
    }
}

/// Writes until the disk is full.
fn refusal(cluster: &ProcessCluster, round: u32) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    for count in 0.. {
        let answer = cluster.ask(1, &format!("fill {} 500", u64::from(round) * 100_000 + count * 500)).unwrap();
        if answer != "done" {
            return answer;
        }
        assert!(Instant::now() < deadline, "the disk does not become full");
    }
    unreachable!("the counter does not end")
}
