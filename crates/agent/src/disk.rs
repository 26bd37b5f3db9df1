//! Free space of the disks that replicas fill: the agent's own, and the engine's.
//!
//! Owns: measuring it, and logging once that it is short and once that it is not any more.
//! Must not touch: what the scheduler counts; that is the operator's setting.

use std::path::{Path, PathBuf};

use longshore_model::agent_protocol::DiskSpace;
use rustix::fs::statvfs;

/// The folder of each disk that is measured.
#[derive(Debug)]
pub(crate) struct DiskMonitor {
    data_dir: PathBuf,
    was_short: bool,
}

impl DiskMonitor {
    pub(crate) const fn new(data_dir: PathBuf) -> Self {
        Self { data_dir, was_short: false }
    }

    /// The disk with the least free space; `None` if none can be measured.
    pub(crate) fn sample(&mut self, engine_roots: &[PathBuf]) -> Option<DiskSpace> {
        let folders = std::iter::once(&self.data_dir).chain(engine_roots);
        let disk = folders.filter_map(|folder| space(folder)).min_by_key(|disk| disk.free_bytes)?;
        let is_short = disk.is_short();
        let (free_mib, total_mib) = (disk.free_bytes >> 20, disk.total_bytes >> 20);
        match (self.was_short, is_short) {
            (false, true) => tracing::warn!(free_mib, total_mib, "disk space is short; images and logs may fill it"),
            (true, false) => tracing::info!(free_mib, total_mib, "disk space is no longer short"),
            (true, true) | (false, false) => {}
        }
        self.was_short = is_short;
        Some(disk)
    }
}

/// The space of the disk that holds a folder, as an ordinary user may fill it.
pub(crate) fn space(folder: &Path) -> Option<DiskSpace> {
    let disk = statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Some(DiskSpace { total_bytes: bytes(disk.f_blocks), free_bytes: bytes(disk.f_bavail) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_disk_is_the_one_that_counts() {
        let mut monitor = DiskMonitor::new(PathBuf::from("/"));
        let disk = monitor.sample(&[PathBuf::from("/proc"), PathBuf::from("/no/such/folder")]).unwrap();
        assert_eq!(disk.free_bytes, 0, "/proc has no space at all");
        assert!(monitor.sample(&[]).unwrap().total_bytes > 0);
    }
}
