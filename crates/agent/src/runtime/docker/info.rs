//! What an engine adds to the node's fingerprint.
//!
//! Owns: reading platform, labels and plugins from the engine's info.

use std::collections::BTreeSet;

use bollard::models::{PluginsInfo, SystemInfo};
use longshore_model::Platform;

use crate::runtime::DriverFingerprint;

pub(super) fn fingerprint(info: SystemInfo) -> DriverFingerprint {
    let platform = info.os_type.zip(info.architecture).map(|(os, arch)| Platform::new(&os, &arch));
    let label = |text: String| {
        let (name, value) = text.split_once('=').unwrap_or((&text, ""));
        (name.to_owned(), value.to_owned())
    };
    DriverFingerprint {
        platform,
        labels: info.labels.into_iter().flatten().map(label).collect(),
        plugins: info.plugins.map(plugins).unwrap_or_default(),
    }
}

fn plugins(info: PluginsInfo) -> BTreeSet<String> {
    [("volume", info.volume), ("network", info.network), ("log", info.log)]
        .into_iter()
        .flat_map(|(kind, names)| names.into_iter().flatten().map(move |name| format!("{kind}/{name}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn platform_labels_and_plugins_are_read_from_the_info() {
        let info = SystemInfo {
            os_type: Some("linux".to_owned()),
            architecture: Some("x86_64".to_owned()),
            labels: Some(vec!["disk=ssd".to_owned(), "bare".to_owned()]),
            plugins: Some(PluginsInfo { volume: Some(vec!["local".to_owned()]), ..PluginsInfo::default() }),
            ..SystemInfo::default()
        };
        let fingerprint = fingerprint(info);
        assert_eq!(fingerprint.platform, Some(Platform::new("linux", "amd64")));
        assert_eq!(fingerprint.labels, BTreeMap::from([("disk".into(), "ssd".into()), ("bare".into(), String::new())]));
        assert_eq!(fingerprint.plugins, BTreeSet::from(["volume/local".to_owned()]));
    }
}
