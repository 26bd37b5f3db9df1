//! What a node may say of itself.
//!
//! Owns: the largest fingerprint that is taken. Every server keeps it, and a scheduler reads it in every pass.
//! Invariant: a fingerprint that no machine can have is refused, and changes nothing.

use longshore_model::{device::DeviceGroup, node::NodeFingerprint};

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
    let labels = engine_labels.iter().chain(&flags.labels).map(|(name, value)| name.len() + value.len());
    let groups = capacity.device_groups.iter().chain(flags.devices.values().flatten()).map(text_of_group);
    let names = plugins.iter().chain(capacity.devices.keys()).chain(flags.devices.keys()).map(String::len);
    let places = [platform.os.len(), platform.arch.len(), flags.datacenter.as_ref().map_or(0, String::len)];
    let (mut entries, mut text) = (0, 0);
    for length in labels.chain(groups).chain(names).chain(places) {
        (entries, text) = (entries + 1, text + length);
    }
    if entries > MAX_ENTRIES {
        return Err("it lists more than a thousand labels, plugins and devices");
    }
    if text > MAX_TEXT {
        return Err("its labels, plugins and devices are longer than 64 KiB");
    }
    Ok(())
}

fn text_of_group(group: &DeviceGroup) -> usize {
    let attributes = group.attributes.iter().map(|(name, value)| name.len() + value.len());
    group.vendor.len() + group.kind.len() + group.name.len() + attributes.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use longshore_model::{Capacity, NodeAttributes, Platform};

    use super::*;

    #[test]
    fn what_no_machine_has_is_refused() {
        let ordinary = NodeFingerprint {
            platform: Platform::new("linux", "x86_64"),
            capacity: Capacity::default(),
            drivers: [].into(),
            engine_labels: [].into(),
            plugins: [].into(),
            network: None,
            flags: NodeAttributes::default(),
        };
        assert_eq!(check(&ordinary), Ok(()));
        let mut huge = ordinary.clone();
        huge.capacity.cpu_millis = u64::MAX;
        assert!(check(&huge).is_err());
        let mut huge = ordinary.clone();
        huge.capacity.memory_bytes = u64::MAX;
        assert!(check(&huge).is_err());
        let mut many = ordinary.clone();
        many.engine_labels = (0..2000).map(|number| (format!("l{number}"), String::new())).collect();
        assert!(check(&many).is_err());
        let mut long = ordinary;
        long.engine_labels.insert("l".to_owned(), "x".repeat(100_000));
        assert!(check(&long).is_err());
    }
}
