//! What this machine is and has, for the node to report when it joins.
//!
//! Owns: asking the kernel and the engine.
//! Must not touch: what operators decide: labels, role, pool, what is reserved.
//! Invariant: what could not be found out is left out, never guessed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use longshore_model::{Capacity, Driver, Platform, node::Survey, units::MILLIS_PER_CORE};
use rustix::fs::statvfs;

use crate::{
    replica::Shared,
    runtime::{Runtime, docker::EngineFacts},
};

/// A driver that is away is not offered; one that may only be restarting is waited for.
pub(crate) async fn survey(shared: &Shared, data_dir: &Path) -> Survey {
    shared.drivers.settled().await;
    let mut survey = Survey {
        platform: Platform::new(std::env::consts::OS, std::env::consts::ARCH),
        capacity: capacity(data_dir),
        drivers: BTreeSet::new(),
        engine_labels: BTreeMap::new(),
        plugins: BTreeSet::new(),
    };
    let here = shared.runtimes.values().filter(|runtime| !shared.drivers.is_away(runtime.driver()));
    for runtime in here {
        match &**runtime {
            Runtime::Exec(_) => survey.drivers.extend([Driver::Exec]),
            Runtime::Docker(docker) => {
                if let Ok(EngineFacts { platform, labels, plugins }) = docker.facts().await {
                    survey.drivers.insert(Driver::Docker);
                    survey.platform = platform.unwrap_or(survey.platform);
                    survey.engine_labels = labels;
                    survey.plugins = plugins;
                }
            }
        }
    }
    survey
}

fn capacity(data_dir: &Path) -> Capacity {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let disk = statvfs(data_dir).ok().map(|disk| disk.f_blocks.saturating_mul(disk.f_frsize));
    Capacity {
        cpu_millis: cores * MILLIS_PER_CORE,
        memory_bytes: total_memory(&meminfo).unwrap_or_default(),
        disk_bytes: disk,
        ..Capacity::default()
    }
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(total_memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(total_memory(""), None);
    }

    #[test]
    fn this_machine_has_cores_memory_and_a_disk() {
        let capacity = capacity(Path::new("/"));
        assert!(
            capacity.cpu_millis >= 1000 && capacity.memory_bytes > 0 && capacity.disk_bytes > Some(0),
            "{capacity:?}"
        );
    }
}
