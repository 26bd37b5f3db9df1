//! The fingerprint of this machine, which the node reports when it joins.
//!
//! Owns: asking the kernel and the drivers.
//! Must not touch: what operators decide: labels, role, pool, reserved resources.
//! Invariant: what could not be determined is left out, never guessed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use longshore_model::{Capacity, Driver, Platform, node::NodeFingerprint, units::MILLIS_PER_CORE};

use crate::{disk, pressure::meminfo_kib, replica::AgentContext, runtime::DriverFingerprint};

/// Waits for drivers that may only be restarting, then leaves out those that do not answer.
pub(crate) async fn collect(ctx: &AgentContext, data_dir: &Path, given_disk: Option<u64>) -> NodeFingerprint {
    ctx.drivers.wait_until_settled().await;
    let mut node = NodeFingerprint {
        platform: Platform::new(std::env::consts::OS, std::env::consts::ARCH),
        capacity: capacity(),
        drivers: BTreeSet::new(),
        engine_labels: BTreeMap::new(),
        plugins: BTreeSet::new(),
        network: None,
    };
    let available = ctx.runtimes.values().filter(|runtime| !ctx.drivers.is_unavailable(runtime.driver()));
    for runtime in available {
        if let Ok(DriverFingerprint { platform, labels, plugins }) = runtime.fingerprint().await {
            node.drivers.insert(runtime.driver());
            node.platform = platform.unwrap_or(node.platform);
            node.engine_labels.extend(labels);
            node.plugins.extend(plugins);
        }
    }
    // Containers and processes share their disk with everything else on the machine, so a share per replica of its size
    // says nothing. A microVM has a disk of its own.
    let needs_disk = node.drivers.contains(&Driver::Microvm);
    let whole_disk = || disk::space(data_dir).filter(|_| needs_disk).map(|disk| disk.total_bytes);
    node.capacity.disk_bytes = given_disk.or_else(whole_disk);
    node
}

fn capacity() -> Capacity {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Capacity {
        cpu_millis: cores * MILLIS_PER_CORE,
        memory_bytes: total_memory(&meminfo).unwrap_or_default(),
        ..Capacity::default()
    }
}

fn total_memory(meminfo: &str) -> Option<u64> {
    meminfo_kib(meminfo, "MemTotal")?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_memory_is_read_in_bytes() {
        assert_eq!(total_memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(total_memory(""), None);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let capacity = capacity();
        assert!(capacity.cpu_millis >= 1000 && capacity.memory_bytes > 0, "{capacity:?}");
    }
}
