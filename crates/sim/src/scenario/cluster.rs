//! The `config` block: any cluster setting by its name.
//!
//! Owns: the names of settings in files, and which values make no sense.
//! Invariant: every field of [`ClusterConfig`] can be set here.

use std::{net::Ipv6Addr, ops::RangeInclusive, time::Duration};

use longshore_compose::{Diagnostics, yaml::Node as Yaml};
use longshore_model::{ClusterConfig, config::Preemption};

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

/// Shortest beat simulated: below it a run is nothing but beats.
const SHORTEST_BEAT: Duration = Duration::from_millis(10);

/// Below it the samples are noise, above it a node is hot for long before anybody knows.
const STATUS_INTERVALS: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_mins(5);

pub(super) fn read(node: &Yaml, problems: &mut Diagnostics) -> ClusterConfig {
    let mut config = ClusterConfig::default();
    let Some(mapping) = problems.mapping(node, "`config`") else { return config };
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
            Known::No => problems.unknown_key(key, "`config`", KEYS),
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
