//! The spec hash: a hash of everything that is fixed when a container is created.
//!
//! Owns: which parts of a service are hashed, and their canonical form.
//! Invariant: two manifests that create the same container have the same hash, whatever their syntax; any difference in
//! the container changes the hash. Scale, placement, update policy and routes are not part of it.

use std::fmt::Write as _;

use longshore_model::{
    ServiceSpec,
    container::{ContainerSpec, PullPolicy},
    hex,
    service::{Mount, MountSource, SpecHash},
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The spec hash of a resolved service.
pub fn spec_hash(spec: &ServiceSpec) -> SpecHash {
    let mut text = String::new();
    write_canonical(&creation(spec), &mut text);
    SpecHash(hex::encode(&Sha256::digest(text.as_bytes())).into())
}

/// The hashed parts; empty parts are left out so that a new field does not change existing hashes.
fn creation(spec: &ServiceSpec) -> Value {
    let mut ports = spec.ports.clone();
    ports.sort();
    ports.dedup();
    let mut mounts: Vec<Value> = spec.mounts.iter().map(mount).collect();
    mounts.sort_by_key(|mount| mount["target"].as_str().map(str::to_owned));
    let mut value = json!({
        "container": container(&spec.container),
        "driver": spec.driver,
        "resources": resources(spec),
        "ports": ports,
        "mounts": mounts,
        "networks": spec.networks,
        "secrets_required": spec.secrets_required,
    });
    drop_empty(&mut value);
    value
}

/// `missing` and `build` are when the engine pulls anyway; saying so is no change.
fn container(container: &ContainerSpec) -> Value {
    let is_default = matches!(container.pull_policy, None | Some(PullPolicy::Missing | PullPolicy::Build));
    let mut value = json!(container);
    if let (true, Value::Object(container)) = (is_default, &mut value) {
        container.remove("pull_policy");
    }
    value
}

/// Device affinities only affect placement, not the container.
fn resources(spec: &ServiceSpec) -> Value {
    let mut resources = json!(spec.resources);
    for request in resources["device_requests"].as_array_mut().into_iter().flatten() {
        if let Value::Object(request) = request {
            request.remove("affinities");
        }
    }
    resources
}

/// Sharing of a volume only affects placement, not the container.
fn mount(mount: &Mount) -> Value {
    let source = match &mount.source {
        MountSource::Volume { key, driver, .. } => json!({ "volume": key, "driver": driver }),
        MountSource::Bind(path) => json!({ "bind": path }),
        MountSource::Tmpfs => json!("tmpfs"),
        MountSource::Anonymous => json!("anonymous"),
    };
    json!({ "source": source, "target": mount.target, "access": mount.access, "options": mount.options })
}

fn drop_empty(value: &mut Value) {
    if let Value::Object(map) = value {
        for (key, child) in map.iter_mut() {
            // In the environment an absent and an empty value differ; labels and the like have no absent values.
            if key != "environment" {
                drop_empty(child);
            }
        }
        map.retain(|key, child| !is_empty(key, child));
    }
}

fn is_empty(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        // An empty command clears the image's; no command keeps it.
        Value::Array(items) => items.is_empty() && key != "command" && key != "entrypoint",
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// JSON with sorted keys and no blanks. Implemented here because `serde_json`'s key order depends on its features.
pub fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => write_object(map, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

fn write_object(map: &Map<String, Value>, out: &mut String) {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    out.push('{');
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        let _ = write!(out, "{}:", Value::String(key.clone()));
        write_canonical(value, out);
    }
    out.push('}');
}
