//! The names of devices and of the table, which several clusters and several nodes of one machine can have side by side.
//!
//! Owns: how a name is made. Invariant: a name has at most 15 characters, which is what the kernel allows, and depends on
//! the cluster and the node alone.

use longshore_model::{NodeName, hex};
use sha2::{Digest as _, Sha256};

/// The names of what a machine has once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNames {
    /// The mesh device.
    pub mesh: String,
    /// The nftables table of the family `inet`.
    pub table: String,
}

/// The names of a machine, which is known by the name of its first node.
pub fn device_names(cluster: &str, machine: &NodeName) -> DeviceNames {
    let digits = digits(cluster, machine);
    DeviceNames { mesh: format!("lsm{digits}"), table: format!("longshore-{digits}") }
}

/// The bridge of a node.
pub fn bridge_name(cluster: &str, node: &NodeName) -> String {
    format!("lsb{}", digits(cluster, node))
}

/// Eight hexadecimal digits of a text, the same on every machine and in every version.
pub(crate) fn short_hash(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..4])
}

fn digits(cluster: &str, node: &NodeName) -> String {
    short_hash(&format!("{cluster}/{node}"))
}
