//! `devices` of a node: a count per kind, or a list of groups with vendor, type, name and attributes.
//!
//! Owns: the keys of a group. Invariant: no two groups of a node have the same id, and no part of an id is empty.

use std::collections::{BTreeMap, BTreeSet};

use longshore_compose::{Diagnostics, Extensions, reader::shorten, yaml::Node as Yaml};
use longshore_model::node::DeviceGroup;

use super::texts_by_name;

pub(super) fn read_counts(node: &Yaml, problems: &mut Diagnostics) -> BTreeMap<String, u64> {
    let Some(mapping) = problems.mapping(node, "`devices`") else { return BTreeMap::new() };
    mapping
        .iter()
        .filter_map(|(key, value)| {
            let count = problems.unsigned(value, format_args!("the number of `{}`", key.name))?;
            Some((key.name.to_string(), count))
        })
        .collect()
}

pub(super) fn read_groups(list: &Yaml, problems: &mut Diagnostics) -> Vec<DeviceGroup> {
    let mut groups = Vec::new();
    let mut ids = BTreeSet::new();
    for entry in problems.sequence(list, "`devices`").unwrap_or_default() {
        let Some(group) = read_group(entry, problems) else { continue };
        if ids.insert(group.id()) {
            groups.push(group);
        } else {
            problems
                .error(&entry.location, format!("there are two groups of devices `{}`", shorten(&group.id())))
                .hint("make one group of equal devices and give unlike ones a `name` of their own");
        }
    }
    groups
}

fn read_group(entry: &Yaml, problems: &mut Diagnostics) -> Option<DeviceGroup> {
    const WHAT: &str = "a group of devices";
    let mapping = problems.mapping(entry, WHAT)?;
    problems.known_keys(mapping, WHAT, &["vendor", "type", "name", "count", "attributes"], Extensions::Refused);
    let vendor = read_part(entry, "vendor", problems);
    let kind = read_part(entry, "type", problems);
    let name = read_part(entry, "name", problems);
    let part = |key: &str| mapping.get(key).filter(|node| !node.is_null());
    let count = part("count").map_or(Some(1), |node| problems.unsigned(node, "`count`"));
    let attributes =
        part("attributes").map_or_else(BTreeMap::new, |node| texts_by_name(node, "`attributes`", problems));
    Some(DeviceGroup { vendor: vendor?, kind: kind?, name: name?, count: count?, attributes })
}

/// Reads one part of the id. Slashes are refused, as `vendor/type/name` would be ambiguous.
fn read_part(entry: &Yaml, key: &str, problems: &mut Diagnostics) -> Option<String> {
    let node = problems.required(entry, key, "a group of devices")?;
    let text = problems.text(node, format_args!("`{key}`"))?;
    if text.is_empty() || text.contains('/') {
        problems
            .error(&node.location, format!("`{}` cannot be the `{key}` of a device", shorten(text)))
            .hint("a device is `vendor/type/name`, as `nvidia/gpu/a100`, each part without slashes");
        return None;
    }
    Some(text.to_owned())
}
