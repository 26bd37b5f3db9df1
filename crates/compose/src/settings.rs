//! Cluster settings by their names, in a scenario's `config` block and for a cluster that runs.
//!
//! Owns: the names of settings, how their values are written, and which values make no sense.
//! Invariant: every field of [`ClusterConfig`] can be read here, and what is printed is read as the same.

use std::{collections::BTreeMap, net::Ipv6Addr, ops::RangeInclusive, time::Duration};

use longshore_model::{
    ClusterConfig,
    config::Preemption,
    units::{GIB, MIB},
};

use crate::{
    Diagnostics, Place,
    units::print_duration,
    yaml::{Key, Mapping, Node as Yaml, Value},
};

const KEYS: &[&str] = &[
    "cpu_overcommit_ratio",
    "default_memory",
    "default_ephemeral_disk",
    "microvm_overhead",
    "container_overhead",
    "suspect_after_missed",
    "down_after_missed",
    "heartbeat_interval",
    "cluster_prefix",
    "address_cooldown",
    "faulty_after_failures",
    "faulty_window",
    "gc_finished",
    "gc_nodes",
    "preemption",
    "drain_timeout",
    "node_status_interval",
];

/// Shortest beat: below it a cluster does nothing else.
const SHORTEST_BEAT: Duration = Duration::from_millis(10);

/// Below it the samples are noise, above it a node is hot for long before anybody knows.
const STATUS_INTERVALS: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_mins(5);

/// What the settings are once those that are written are changed.
pub fn changed(now: &ClusterConfig, written: &BTreeMap<String, String>) -> Result<ClusterConfig, Diagnostics> {
    let (place, mut problems) = (Place::start_of("settings"), Diagnostics::default());
    let entries = written
        .iter()
        .map(|(name, value)| (Key { name: name.as_str().into(), place: place.clone() }, Yaml::text_at(&place, value)));
    let value = Value::Mapping(Mapping { entries: entries.collect() });
    let node = Yaml { value, ..Yaml::mapping_at(&place) };
    let config = change(now.clone(), &node, "the settings", &mut problems);
    if config.cluster_prefix != now.cluster_prefix {
        problems.error(&place, "`cluster_prefix` cannot be changed: replicas have addresses of it");
    }
    if problems.has_errors() { Err(problems) } else { Ok(config) }
}

/// Every setting by its name, as it is read.
pub fn print(config: &ClusterConfig) -> BTreeMap<String, String> {
    let preemption = match config.preemption {
        Preemption::On => "on",
        Preemption::Off => "off",
    };
    let settings = [
        ("cpu_overcommit_ratio", print_ratio(config.cpu_overcommit_millionths)),
        ("default_memory", print_bytes(config.default_memory_bytes)),
        ("default_ephemeral_disk", print_bytes(config.default_ephemeral_disk_bytes)),
        ("microvm_overhead", print_bytes(config.microvm_overhead_bytes)),
        ("container_overhead", print_bytes(config.container_overhead_bytes)),
        ("suspect_after_missed", config.suspect_after_missed.to_string()),
        ("down_after_missed", config.down_after_missed.to_string()),
        ("heartbeat_interval", print_duration(config.heartbeat_interval)),
        ("cluster_prefix", format!("{}/48", config.cluster_prefix)),
        ("address_cooldown", print_duration(config.address_cooldown)),
        ("faulty_after_failures", config.faulty_after_failures.to_string()),
        ("faulty_window", print_duration(config.faulty_window)),
        ("gc_finished", print_duration(config.gc_finished)),
        ("gc_nodes", print_duration(config.gc_nodes)),
        ("preemption", preemption.to_owned()),
        ("drain_timeout", print_duration(config.drain_timeout)),
        ("node_status_interval", print_duration(config.node_status_interval)),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// With as many digits as it takes, and one at least.
fn print_ratio(millionths: u64) -> String {
    let part = format!("{:06}", millionths % 1_000_000);
    let part = part.trim_end_matches('0');
    format!("{}.{}", millionths / 1_000_000, if part.is_empty() { "0" } else { part })
}

/// In the largest unit that leaves nothing over.
fn print_bytes(bytes: u64) -> String {
    let units = [("GiB", GIB), ("MiB", MIB)];
    let fits = units.into_iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    fits.map_or_else(|| bytes.to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
}

/// The settings of a `config` block; those it does not name are the usual ones.
pub fn read(node: &Yaml, problems: &mut Diagnostics) -> ClusterConfig {
    change(ClusterConfig::default(), node, "`config`", problems)
}

fn change(mut config: ClusterConfig, node: &Yaml, place: &str, problems: &mut Diagnostics) -> ClusterConfig {
    let Some(mapping) = problems.mapping(node, place) else { return config };
    for (key, value) in mapping.iter() {
        let what = format!("`{}`", key.name);
        let known = match &*key.name {
            "cpu_overcommit_ratio" => set(&mut config.cpu_overcommit_millionths, problems.millionths(value, what)),
            "default_memory" => set(&mut config.default_memory_bytes, problems.bytes(value, what)),
            "default_ephemeral_disk" => set(&mut config.default_ephemeral_disk_bytes, problems.bytes(value, what)),
            "microvm_overhead" => set(&mut config.microvm_overhead_bytes, problems.bytes(value, what)),
            "container_overhead" => set(&mut config.container_overhead_bytes, problems.bytes(value, what)),
            "suspect_after_missed" => set(&mut config.suspect_after_missed, problems.count(value, what)),
            "down_after_missed" => set(&mut config.down_after_missed, problems.count(value, what)),
            "heartbeat_interval" => set(&mut config.heartbeat_interval, problems.duration(value, what)),
            "cluster_prefix" => set(&mut config.cluster_prefix, prefix(value, problems)),
            "address_cooldown" => set(&mut config.address_cooldown, problems.duration(value, what)),
            "faulty_after_failures" => set(&mut config.faulty_after_failures, problems.count(value, what)),
            "faulty_window" => set(&mut config.faulty_window, problems.duration(value, what)),
            "gc_finished" => set(&mut config.gc_finished, problems.duration(value, what)),
            "gc_nodes" => set(&mut config.gc_nodes, problems.duration(value, what)),
            "drain_timeout" => set(&mut config.drain_timeout, problems.duration(value, what)),
            "preemption" => {
                let words = [("on", Preemption::On), ("off", Preemption::Off)];
                set(&mut config.preemption, problems.choice(value, what, &words))
            }
            "node_status_interval" => set(&mut config.node_status_interval, problems.duration(value, what)),
            _ => Known::No,
        };
        match known {
            Known::Yes => {}
            Known::No => problems.unknown_key(key, place, KEYS),
        }
    }
    check(&config, node, problems);
    config
}

enum Known {
    Yes,
    No,
}

fn set<T>(field: &mut T, value: Option<T>) -> Known {
    if let Some(value) = value {
        *field = value;
    }
    Known::Yes
}

fn prefix(node: &Yaml, problems: &mut Diagnostics) -> Option<Ipv6Addr> {
    let text = problems.text(node, "`cluster_prefix`")?;
    let parsed = text.strip_suffix("/48").unwrap_or(text).parse::<Ipv6Addr>().ok();
    let fits = parsed.filter(|address| u128::from(*address) << 48 == 0);
    if fits.is_none() {
        problems
            .error(&node.place, "`cluster_prefix` must be an IPv6 prefix of 48 bits")
            .hint("write it like `fd4c:6f6e:6773::/48`");
    }
    fits
}

fn check(config: &ClusterConfig, node: &Yaml, problems: &mut Diagnostics) {
    let place = |key: &str| node.get(key).map_or(&node.place, |value| &value.place);
    if config.cpu_overcommit_millionths == 0 {
        problems.error(place("cpu_overcommit_ratio"), "`cpu_overcommit_ratio` must be more than 0");
    }
    if config.suspect_after_missed == 0 {
        problems.error(place("suspect_after_missed"), "`suspect_after_missed` must be at least 1");
    }
    if config.down_after_missed <= config.suspect_after_missed {
        problems
            .error(place("down_after_missed"), "`down_after_missed` must be more than `suspect_after_missed`")
            .hint("a node is suspect first and down later; the defaults are 3 and 10");
    }
    if config.heartbeat_interval < SHORTEST_BEAT {
        problems.error(place("heartbeat_interval"), "`heartbeat_interval` must be at least 10ms");
    }
    if !STATUS_INTERVALS.contains(&config.node_status_interval) {
        problems.error(place("node_status_interval"), "`node_status_interval` must be from 5s to 5m");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> Result<ClusterConfig, Diagnostics> {
        changed(&ClusterConfig::default(), &[(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn what_is_printed_is_read_as_the_same_and_nothing_is_left_out() {
        let mut printed = print(&ClusterConfig::default());
        assert_eq!(printed.keys().map(String::as_str).collect::<Vec<_>>(), {
            let mut keys = KEYS.to_vec();
            keys.sort_unstable();
            keys
        });
        assert_eq!(changed(&ClusterConfig::default(), &printed).unwrap(), ClusterConfig::default());
        let others = [("drain_timeout", "1m30s"), ("default_memory", "64MiB"), ("cpu_overcommit_ratio", "1.5")];
        printed.extend(others.map(|(name, value)| (name.to_owned(), value.to_owned())));
        printed.insert("preemption".to_owned(), "on".to_owned());
        let other = changed(&ClusterConfig::default(), &printed).unwrap();
        assert_eq!(print(&other), printed);
        assert_eq!((other.drain_timeout, other.preemption), (Duration::from_secs(90), Preemption::On));
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_says_why() {
        let said = |name, value| set(name, value).unwrap_err().to_string();
        assert!(said("drain_timeout", "soon").contains("`drain_timeout`"));
        assert!(said("drain_time", "1m").contains("did you mean `drain_timeout`?"));
        assert!(said("down_after_missed", "2").contains("must be more than `suspect_after_missed`"));
        assert!(said("node_status_interval", "1s").contains("from 5s to 5m"));
        assert!(said("cluster_prefix", "fd00::/48").contains("cannot be changed"));
        assert_eq!(set("gc_nodes", "1h").unwrap().gc_nodes, Duration::from_hours(1));
    }
}
