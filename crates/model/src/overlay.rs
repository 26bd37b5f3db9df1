//! The overlay as the control plane knows it: what joins machines, and what a node reports about its part in it.
//!
//! Owns: the data. Must not touch: addresses, which are computed in [`crate::address_plan`].
//! Invariant: a node that reports nothing takes no part in the overlay, and its replicas are reached as if there were none.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::node::Overlay;

/// What joins the machines of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeshMode {
    /// WireGuard of the kernel where it has it, otherwise in user space.
    #[default]
    Auto,
    /// WireGuard of the kernel, or none.
    Wireguard,
    /// VXLAN, not encrypted.
    Vxlan,
    /// None: replicas reach replicas of their own machine only.
    Off,
}

impl MeshMode {
    /// Every mode, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Wireguard, Self::Vxlan, Self::Off];

    /// The spelling in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Wireguard => "wireguard",
            Self::Vxlan => "vxlan",
            Self::Off => "off",
        }
    }
}

/// What carries the traffic between a machine and its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeshKind {
    /// WireGuard of the kernel.
    KernelWireguard,
    /// WireGuard in user space.
    UserWireguard,
    /// VXLAN, not encrypted.
    Vxlan,
}

impl fmt::Display for MeshKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KernelWireguard => "WireGuard of the kernel",
            Self::UserWireguard => "WireGuard in user space",
            Self::Vxlan => "VXLAN, not encrypted",
        })
    }
}

/// A machine's identity in the mesh. Nodes of one process share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MeshIdentity {
    /// Its public key, in base64 as WireGuard writes it.
    pub public_key: String,
    /// The UDP port it listens on.
    pub port: u16,
}

/// A node's part in the overlay, as it reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeNetwork {
    /// Its machine's identity in the mesh; `None` if it takes no part in it.
    #[serde(default)]
    pub mesh: Option<MeshIdentity>,
    /// What carries its traffic to other machines.
    #[serde(default)]
    pub mesh_kind: Option<MeshKind>,
    /// The largest packet that a replica sends, in bytes.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Whether its new replicas have their overlay addresses on an interface of their own.
    #[serde(default)]
    pub gives_addresses: bool,
    /// Whether it reaches its peers, as it measured last.
    #[serde(default)]
    pub reach: Overlay,
}
