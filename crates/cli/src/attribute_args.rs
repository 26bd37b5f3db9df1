//! Options that declare attributes of a node, for `server` and `node set`.
//!
//! Owns: their syntax. Must not touch: what a declaration changes; the daemon decides that.
//! Invariant: `node set` and the flags of `server` mean the same by the same words.

use std::collections::BTreeMap;

use clap::Args;
use longshore_api::{DeviceGroup, NodeAttributesRequest};
use longshore_model::{
    NodeAttributes,
    units::{parse_bytes, parse_cpus},
};

use crate::input::pair;

/// Attributes of a node.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AttributeArgs {
    /// Pool the node belongs to.
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Data centre the node stands in, for `node.datacenter` in constraints and spread.
    #[arg(long, value_name = "NAME")]
    datacenter: Option<String>,
    /// What is kept for the machine itself, such as `memory=1GiB,cpu=500m,disk=10GiB`.
    #[arg(long, value_name = "AMOUNTS", value_parser = reserve)]
    reserve: Option<Reserve>,
    /// Devices of a kind, such as `gpu=4` or `gpu=2,vendor=nvidia,model=a100`. Replaces what was found of that kind; may
    /// be repeated.
    #[arg(long = "device", value_name = "KIND=COUNT", value_parser = device)]
    devices: Vec<DeviceGroup>,
    /// Most overlay addresses the node may hold.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    addresses: Option<u64>,
}

impl AttributeArgs {
    /// The request that declares them.
    pub(crate) fn request(self) -> NodeAttributesRequest {
        let Reserve { memory_bytes, cpu_millis, disk_bytes } = self.reserve.unwrap_or_default();
        NodeAttributesRequest {
            pool: self.pool,
            datacenter: self.datacenter,
            reserved_cpu_millis: cpu_millis,
            reserved_memory_bytes: memory_bytes,
            reserved_disk_bytes: disk_bytes,
            devices: self.devices,
            addresses: self.addresses,
        }
    }

    /// What a daemon declares about its own node, with its labels.
    pub(crate) fn declared(self, labels: Vec<(String, String)>) -> NodeAttributes {
        NodeAttributes { labels: labels.into_iter().collect(), ..self.request().into() }
    }
}

/// Amounts that are kept for the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reserve {
    memory_bytes: Option<u64>,
    cpu_millis: Option<u64>,
    disk_bytes: Option<u64>,
}

/// Parses `memory=1GiB,cpu=500m`.
fn reserve(text: &str) -> Result<Reserve, String> {
    let mut reserve = Reserve::default();
    for part in text.split(',') {
        let (name, amount) = pair(part)?;
        match name.as_str() {
            "memory" => reserve.memory_bytes = Some(parse_bytes(&amount).map_err(|error| error.to_string())?),
            "disk" => reserve.disk_bytes = Some(parse_bytes(&amount).map_err(|error| error.to_string())?),
            "cpu" | "cpus" => reserve.cpu_millis = Some(cpu(&amount)?),
            other => return Err(format!("`{other}` cannot be reserved; memory, cpu and disk can")),
        }
    }
    Ok(reserve)
}

/// Parses `500m`, thousandths of a core, or `1.5` cores.
fn cpu(text: &str) -> Result<u64, String> {
    let millis = text.strip_suffix('m').and_then(|millis| millis.parse().ok());
    millis.map_or_else(|| parse_cpus(text).map_err(|error| error.to_string()), Ok)
}

/// Parses `gpu=2,vendor=nvidia,model=a100,memory=40GiB`.
fn device(text: &str) -> Result<DeviceGroup, String> {
    let mut parts = text.split(',').map(pair);
    let (kind, count) = parts.next().ok_or("a device is written KIND=COUNT")??;
    let count = count.parse().map_err(|_| format!("`{count}` is no number of devices"))?;
    let mut attributes = parts.collect::<Result<BTreeMap<String, String>, String>>()?;
    let vendor = attributes.remove("vendor").unwrap_or_default();
    let model = attributes.remove("model").unwrap_or_default();
    if model.is_empty() && !(vendor.is_empty() && attributes.is_empty()) {
        return Err(
            "a device with a vendor or attributes needs a model, such as `gpu=2,vendor=nvidia,model=a100`".into()
        );
    }
    Ok(DeviceGroup { kind, vendor, model, count, attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_by_name() {
        let expected = Reserve { memory_bytes: Some(1 << 30), cpu_millis: Some(500), disk_bytes: None };
        assert_eq!(reserve("memory=1GiB,cpu=500m"), Ok(expected));
        assert_eq!(reserve("cpu=1.5").map(|reserve| reserve.cpu_millis), Ok(Some(1500)));
        assert!(reserve("pids=5").is_err_and(|error| error.contains("memory, cpu and disk")));
        assert!(reserve("memory").is_err());
    }

    #[test]
    fn a_device_is_a_count_or_a_model() {
        let plain = device("gpu=4").unwrap();
        assert_eq!((plain.kind.as_str(), plain.count, plain.model.as_str()), ("gpu", 4, ""));
        let named = device("gpu=2,vendor=nvidia,model=a100,memory=40GiB").unwrap();
        assert_eq!((named.vendor.as_str(), named.model.as_str()), ("nvidia", "a100"));
        assert_eq!(named.attributes["memory"], "40GiB");
        assert!(device("gpu=many").is_err());
        assert!(device("gpu=2,vendor=nvidia").is_err_and(|error| error.contains("needs a model")));
    }
}
