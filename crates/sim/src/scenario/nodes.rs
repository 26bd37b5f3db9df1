//! Nodes of a scenario: the `nodes` list and the `join` verb.
//!
//! Owns: the keys of a node, their defaults, and the names made from `count`.
//! Invariant: no two nodes of the list have the same name.

mod devices;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use longshore_compose::{Diagnostics, Extensions, Location, reader::shorten, yaml::Node as Yaml};
use longshore_model::{Capacity, ConstraintRole, Driver, Node, Platform, PoolName, node::Overlay};

const KEYS: &[&str] = &[
    "name",
    "count",
    "cpu",
    "memory",
    "disk",
    "labels",
    "engine_labels",
    "role",
    "pool",
    "datacenter",
    "os",
    "arch",
    "drivers",
    "plugins",
    "devices",
    "reserved",
    "addresses",
    "ip",
    "overlay",
];

/// Each node has a /64 of the cluster's /48, and subnet 0 is reserved.
const MOST_NODES: usize = 65_535;
/// As in a host name.
const LONGEST_NAME: usize = 63;

pub(super) fn read_all(list: &Yaml, problems: &mut Diagnostics) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut names = BTreeSet::new();
    for entry in problems.sequence(list, "`nodes`").unwrap_or_default() {
        let Some((node, count)) = read(entry, problems) else { continue };
        if nodes.len() + count > MOST_NODES {
            problems.error(&entry.location, format!("a cluster has at most {MOST_NODES} nodes"));
            break;
        }
        let location = entry.get("name").map_or(&entry.location, |name| &name.location);
        for node in numbered(node, count) {
            if names.insert(node.name.clone()) {
                nodes.push(node);
            } else {
                duplicate(node.name.as_str(), location, problems);
                break;
            }
        }
    }
    nodes
}

pub(super) fn duplicate(name: &str, location: &Location, problems: &mut Diagnostics) {
    problems
        .error(location, format!("there are two nodes named `{name}`"))
        .hint("give each node a name of its own; `count: 3` makes `a-1`, `a-2` and `a-3` of `name: a`");
}

/// Expands `count`: a single node keeps its name, several become `a-1`, `a-2`, ….
pub(super) fn numbered(node: Node, count: usize) -> Vec<Node> {
    if count == 1 {
        return vec![node];
    }
    (1..=count).map(|number| Node { name: format!("{}-{number}", node.name).as_str().into(), ..node.clone() }).collect()
}

/// Reads a node and its `count`.
pub(super) fn read(entry: &Yaml, problems: &mut Diagnostics) -> Option<(Node, usize)> {
    let mapping = problems.mapping(entry, "a node")?;
    problems.known_keys(mapping, "a node", KEYS, Extensions::Refused);
    let errors = problems.error_count();
    let name = problems.required(entry, "name", "a node").and_then(|node| read_name(node, problems));
    let capacity = read_capacity(entry, problems);
    let part = |key: &str| mapping.get(key).filter(|node| !node.is_null());
    let reserved = part("reserved").map_or_else(Capacity::default, |node| read_reserved(node, problems));
    check_reserved(&capacity, &reserved, entry, problems);
    let os = part("os").and_then(|node| problems.text(node, "`os`")).unwrap_or("linux");
    let arch = part("arch").and_then(|node| problems.text(node, "`arch`")).unwrap_or("amd64");
    let pool = part("pool").and_then(|node| problems.text(node, "`pool`")).unwrap_or("default");
    let datacenter = part("datacenter").and_then(|node| problems.text(node, "`datacenter`")).unwrap_or_default();
    let count = part("count").map_or(Some(1), |node| read_count(node, problems));
    let node = Node {
        ip: part("ip").and_then(|node| read_ip(node, problems)),
        labels: part("labels").map_or_else(BTreeMap::new, |node| texts_by_name(node, "`labels`", problems)),
        engine_labels: part("engine_labels")
            .map_or_else(BTreeMap::new, |node| texts_by_name(node, "`engine_labels`", problems)),
        role: part("role").and_then(|node| read_role(node, problems)).unwrap_or_default(),
        pool: PoolName::from(pool),
        datacenter: datacenter.to_owned(),
        platform: Platform::new(os, arch),
        drivers: part("drivers").map_or_else(|| BTreeSet::from([Driver::Docker]), |node| read_drivers(node, problems)),
        plugins: part("plugins").map_or_else(BTreeSet::new, |node| read_plugins(node, problems)),
        capacity,
        reserved,
        overlay: part("overlay").and_then(|node| read_overlay(node, problems)).unwrap_or_default(),
        ..Node::new(name.unwrap_or_default())
    };
    (problems.error_count() == errors).then_some((node, count?))
}

fn read_name<'n>(node: &'n Yaml, problems: &mut Diagnostics) -> Option<&'n str> {
    let name = problems.text(node, "a node's `name`")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(fits) || name.len() > LONGEST_NAME {
        problems
            .error(&node.location, format!("`{}` cannot be a node's name", shorten(name)))
            .hint("use at most 63 letters, digits, `-`, `_` and `.`, a letter or digit first");
        return None;
    }
    Some(name)
}

fn read_count(node: &Yaml, problems: &mut Diagnostics) -> Option<usize> {
    let count = problems.unsigned(node, "`count`")?;
    match usize::try_from(count) {
        Ok(0) => {
            problems.error(&node.location, "`count` must be at least 1").hint("remove the node if there is none");
            None
        }
        Ok(count) if count <= MOST_NODES => Some(count),
        Ok(_) | Err(_) => {
            problems.error(&node.location, format!("a cluster has at most {MOST_NODES} nodes"));
            None
        }
    }
}

fn read_capacity(entry: &Yaml, problems: &mut Diagnostics) -> Capacity {
    let part = |key: &str| entry.get(key).filter(|node| !node.is_null());
    let (devices, device_groups) = match part("devices") {
        Some(node) if node.as_sequence().is_some() => (BTreeMap::new(), devices::read_groups(node, problems)),
        Some(node) => (devices::read_counts(node, problems), Vec::new()),
        None => (BTreeMap::new(), Vec::new()),
    };
    Capacity {
        cpu_millis: problems
            .required(entry, "cpu", "a node")
            .and_then(|node| problems.cpus(node, "`cpu`"))
            .unwrap_or_default(),
        memory_bytes: problems
            .required(entry, "memory", "a node")
            .and_then(|node| problems.bytes(node, "`memory`"))
            .unwrap_or_default(),
        disk_bytes: part("disk").and_then(|node| problems.bytes(node, "`disk`")),
        devices,
        device_groups,
        addresses: part("addresses").and_then(|node| problems.unsigned(node, "`addresses`")),
    }
}

fn read_reserved(node: &Yaml, problems: &mut Diagnostics) -> Capacity {
    let Some(mapping) = problems.mapping(node, "`reserved`") else { return Capacity::default() };
    problems.known_keys(mapping, "`reserved`", &["cpu", "memory", "disk"], Extensions::Refused);
    let part = |key: &str| mapping.get(key).filter(|node| !node.is_null());
    Capacity {
        cpu_millis: part("cpu").and_then(|node| problems.cpus(node, "`reserved.cpu`")).unwrap_or_default(),
        memory_bytes: part("memory").and_then(|node| problems.bytes(node, "`reserved.memory`")).unwrap_or_default(),
        disk_bytes: part("disk").and_then(|node| problems.bytes(node, "`reserved.disk`")),
        ..Capacity::default()
    }
}

fn check_reserved(capacity: &Capacity, reserved: &Capacity, entry: &Yaml, problems: &mut Diagnostics) {
    let Some(block) = entry.get("reserved") else { return };
    let disk_fits = capacity.disk_bytes.is_none_or(|disk| reserved.disk_bytes.unwrap_or(0) <= disk);
    let pairs = [
        ("cpu", reserved.cpu_millis <= capacity.cpu_millis),
        ("memory", reserved.memory_bytes <= capacity.memory_bytes),
        ("disk", disk_fits),
    ];
    for (key, fits) in pairs {
        if let Some(value) = block.get(key).filter(|_| !fits) {
            problems.error(&value.location, format!("`reserved.{key}` is more than the node has"));
        }
    }
}

pub(super) fn texts_by_name(node: &Yaml, what: &str, problems: &mut Diagnostics) -> BTreeMap<String, String> {
    let Some(mapping) = problems.mapping(node, what) else { return BTreeMap::new() };
    mapping
        .iter()
        .filter_map(|(key, value)| {
            let text = if value.is_null() { "" } else { problems.text(value, format_args!("`{}`", key.name))? };
            Some((key.name.to_string(), text.to_owned()))
        })
        .collect()
}

fn read_role(node: &Yaml, problems: &mut Diagnostics) -> Option<ConstraintRole> {
    problems.choice(node, "`role`", &[("worker", ConstraintRole::Worker), ("manager", ConstraintRole::Manager)])
}

fn read_overlay(node: &Yaml, problems: &mut Diagnostics) -> Option<Overlay> {
    problems.choice(node, "`overlay`", &[("reachable", Overlay::Reachable), ("cut", Overlay::Unreachable)])
}

fn read_ip(node: &Yaml, problems: &mut Diagnostics) -> Option<IpAddr> {
    let text = problems.text(node, "`ip`")?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        problems.error(&node.location, format!("`{}` is not an IP address", shorten(text)));
    }
    parsed
}

fn read_drivers(node: &Yaml, problems: &mut Diagnostics) -> BTreeSet<Driver> {
    let words = [Driver::Docker, Driver::Exec, Driver::Microvm].map(|driver| (driver.as_str(), driver));
    let items = problems.sequence(node, "`drivers`").unwrap_or_default();
    items.iter().filter_map(|item| problems.choice(item, "a driver", &words)).collect()
}

fn read_plugins(node: &Yaml, problems: &mut Diagnostics) -> BTreeSet<String> {
    let items = problems.sequence(node, "`plugins`").unwrap_or_default();
    let mut plugins = BTreeSet::new();
    for item in items {
        let Some(text) = problems.text(item, "a plugin") else { continue };
        if matches!(text.split_once('/'), Some(("volume" | "network" | "log", name)) if !name.is_empty()) {
            plugins.insert(text.to_owned());
        } else {
            problems
                .error(&item.location, format!("`{}` is not a plugin", shorten(text)))
                .hint("write it like `volume/nfs`, `network/macvlan` or `log/gelf`");
        }
    }
    plugins
}
