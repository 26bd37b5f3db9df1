//! The `config` block: the cluster settings of a scenario.
//!
//! Owns: the locations of errors. Must not touch: names, values and ranges of settings, which `model::settings` declares.

use longshore_compose::{Diagnostics, Location, yaml::Node as Yaml};
use longshore_model::{
    ClusterConfig,
    settings::{self, SETTINGS, Setting, SettingError},
};

/// The settings of a `config` block; those it does not name have their defaults.
pub(super) fn read(node: &Yaml, problems: &mut Diagnostics) -> ClusterConfig {
    let mut config = ClusterConfig::default();
    let Some(mapping) = problems.mapping(node, "`config`") else { return config };
    for (key, value) in mapping.iter() {
        let Ok(setting) = Setting::find(&key.name) else {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            problems.unknown_key(key, "`config`", &names);
            continue;
        };
        let Some(text) = problems.text(value, format_args!("`{}`", key.name)) else { continue };
        if let Err(error) = setting.set(&mut config, text) {
            report(&value.location, &error, problems);
        }
    }
    if let Some(error) = settings::check(&config) {
        let location = node.get(&error.name).map_or(&node.location, |value| &value.location);
        report(location, &error, problems);
    }
    config
}

fn report(location: &Location, error: &SettingError, problems: &mut Diagnostics) {
    let problem = problems.error(location, error.message());
    if let Some(hint) = error.hint() {
        problem.hint(hint);
    }
}
