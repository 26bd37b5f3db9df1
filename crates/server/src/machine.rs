//! What this machine is and has.
//!
//! Owns: reading it off the system. Must not touch: what is made of it.
//! Invariant: what cannot be read counts as nothing, never as plenty.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    thread,
};

use longshore_model::{
    Capacity, Driver, Health, Intent, Node, NodeName, NodeNumber, Platform, PoolName, Role, Time,
    node::{Overlay, UseDegraded},
};

/// The node this machine is.
pub(crate) fn node(name: NodeName, drivers: BTreeSet<Driver>, data_dir: &Path, now: Time) -> Node {
    Node {
        name,
        number: NodeNumber(0),
        ip: None,
        labels: BTreeMap::new(),
        engine_labels: BTreeMap::new(),
        role: Role::Manager,
        pool: PoolName::default_pool(),
        platform: Platform::new(std::env::consts::OS, std::env::consts::ARCH),
        drivers,
        plugins: BTreeSet::new(),
        capacity: capacity(data_dir),
        reserved: Capacity::default(),
        intent: Intent::Active,
        health: Health::Ready,
        use_degraded: UseDegraded::No,
        overlay: Overlay::Reachable,
        health_since: now,
        confirmed_lost: None,
        drain: None,
        removed_at: None,
    }
}

fn capacity(data_dir: &Path) -> Capacity {
    let cores = thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    let disk = rustix::fs::statvfs(data_dir).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    Capacity {
        cpu_millis: cores as u64 * 1000,
        memory_bytes: fs::read_to_string("/proc/meminfo").map_or(0, |text| memory(&text)),
        disk_bytes: disk,
        ..Capacity::default()
    }
}

/// `MemTotal` of `/proc/meminfo`, which is in KiB.
fn memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes_and_nonsense_is_nothing() {
        assert_eq!(memory("MemTotal:       24622120 kB\nMemFree: 1 kB\n"), 24_622_120 * 1024);
        assert_eq!(memory("MemFree: 1 kB\n"), 0);
    }
}
