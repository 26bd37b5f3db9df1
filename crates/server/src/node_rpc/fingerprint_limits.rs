//! What a node may say of itself.
//!
//! Owns: the largest fingerprint that is taken. Every server keeps it, and a scheduler reads it in every pass.
//! Invariant: a fingerprint that no machine can have is refused, and changes nothing.

use longshore_model::node::NodeFingerprint;

/// A thousand times what the largest machines have.
const MAX_CPU_MILLIS: u64 = 1_000_000 * 1000;
const MAX_BYTES: u64 = 1 << 60;
/// Labels and plugins of an engine, and kinds of devices.
const MAX_ENTRIES: usize = 1000;
/// All of their texts together.
const MAX_TEXT: usize = 64 * 1024;

/// Says what cannot be.
pub(crate) fn check(fingerprint: &NodeFingerprint) -> Result<(), &'static str> {
    let NodeFingerprint { platform, capacity, drivers: _, engine_labels, plugins, network: _, flags } = fingerprint;
    if capacity.cpu_millis > MAX_CPU_MILLIS {
        return Err("it has more cores than any machine");
    }
    if capacity.memory_bytes > MAX_BYTES || capacity.disk_bytes.is_some_and(|bytes| bytes > MAX_BYTES) {
        return Err("it has more memory or disk than any machine");
    }
    let declared = flags.labels.len() + flags.devices.values().map(Vec::len).sum::<usize>();
    let found = capacity.devices.len() + capacity.device_groups.len();
    let entries = engine_labels.len() + plugins.len() + found + declared;
    if entries > MAX_ENTRIES {
        return Err("it lists more than a thousand labels, plugins and devices");
    }
    let labels = engine_labels.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let groups = capacity.device_groups.iter().map(|group| {
        let attributes = group.attributes.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        group.vendor.len() + group.kind.len() + group.name.len() + attributes
    });
    let names = plugins.iter().chain(capacity.devices.keys()).map(String::len).sum::<usize>();
    let text = labels + names + groups.sum::<usize>() + platform.os.len() + platform.arch.len();
    if text > MAX_TEXT {
        return Err("its labels, plugins and devices are longer than 64 KiB");
    }
    Ok(())
}
