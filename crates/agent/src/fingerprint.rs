//! The fingerprint of this machine, which the node reports when it joins.
//!
//! Owns: asking the kernel and the drivers.
//! Must not touch: what operators decide: labels, role, pool, reserved resources.
//! Invariant: what could not be determined is left out, never guessed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use longshore_model::{
    Capacity, Driver, NodeAttributes, Platform,
    node::{DeviceGroup, NodeFingerprint},
    units::MILLIS_PER_CORE,
};

use crate::{devices, disk, pressure::meminfo_kib, replica::AgentContext, runtime::DriverFingerprint};

/// What the fingerprint takes from the agent's settings.
#[derive(Clone, Debug)]
pub(crate) struct FingerprintConfig {
    pub(crate) data_dir: PathBuf,
    pub(crate) disk_bytes: Option<u64>,
    pub(crate) flags: NodeAttributes,
    /// Where to look for devices; `None` if another node of this machine has them.
    pub(crate) sysfs: Option<PathBuf>,
}

/// Waits for drivers that may only be restarting, then leaves out those that do not answer.
pub(crate) async fn collect(ctx: &AgentContext, config: &FingerprintConfig) -> NodeFingerprint {
    ctx.drivers.wait_until_settled().await;
    let devices = match &config.sysfs {
        Some(sysfs) => devices::find(sysfs).await,
        None => Vec::new(),
    };
    let mut node = NodeFingerprint {
        platform: Platform::new(std::env::consts::OS, std::env::consts::ARCH),
        capacity: capacity(devices),
        drivers: BTreeSet::new(),
        engine_labels: BTreeMap::new(),
        plugins: BTreeSet::new(),
        network: None,
        flags: config.flags.clone(),
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
    let whole_disk = || disk::space(&config.data_dir).filter(|_| needs_disk).map(|disk| disk.total_bytes);
    node.capacity.disk_bytes = config.disk_bytes.or_else(whole_disk);
    node
}

fn capacity(device_groups: Vec<DeviceGroup>) -> Capacity {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Capacity {
        cpu_millis: cores * MILLIS_PER_CORE,
        memory_bytes: total_memory(&meminfo).unwrap_or_default(),
        devices: counts(&device_groups),
        device_groups,
        ..Capacity::default()
    }
}

/// The number of devices of each kind, which plain requests such as `gpus` are counted against.
fn counts(groups: &[DeviceGroup]) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for group in groups {
        *counts.entry(group.kind.clone()).or_default() += group.count;
    }
    counts
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
        let capacity = capacity(Vec::new());
        assert!(capacity.cpu_millis >= 1000 && capacity.memory_bytes > 0, "{capacity:?}");
    }
}
