//! What an engine says of itself.
//!
//! Owns: its labels, its plugins and the machine it sees.

use std::collections::{BTreeMap, BTreeSet};

use bollard::models::{PluginsInfo, SystemInfo};
use longshore_model::Platform;

use super::{Docker, SHORT};
use crate::runtime::RuntimeError;

/// What is worth knowing of an engine before anything is placed on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineFacts {
    pub(crate) platform: Option<Platform>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) plugins: BTreeSet<String>,
}

impl Docker {
    pub(crate) async fn facts(&self) -> Result<EngineFacts, RuntimeError> {
        self.call(SHORT, async |client| client.info().await).await.map(of)
    }
}

fn of(info: SystemInfo) -> EngineFacts {
    let platform = info.os_type.zip(info.architecture).map(|(os, arch)| Platform::new(&os, &arch));
    let label = |text: String| {
        let (name, value) = text.split_once('=').unwrap_or((&text, ""));
        (name.to_owned(), value.to_owned())
    };
    EngineFacts {
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
    use super::*;

    #[test]
    fn labels_and_plugins_are_in_our_words() {
        let info = SystemInfo {
            os_type: Some("linux".to_owned()),
            architecture: Some("x86_64".to_owned()),
            labels: Some(vec!["disk=ssd".to_owned(), "bare".to_owned()]),
            plugins: Some(PluginsInfo { volume: Some(vec!["local".to_owned()]), ..PluginsInfo::default() }),
            ..SystemInfo::default()
        };
        let facts = of(info);
        assert_eq!(facts.platform, Some(Platform::new("linux", "amd64")));
        assert_eq!(facts.labels, BTreeMap::from([("disk".into(), "ssd".into()), ("bare".into(), String::new())]));
        assert_eq!(facts.plugins, BTreeSet::from(["volume/local".to_owned()]));
    }
}
