//! Renders what the kernel of this machine shall have from the network state: bridges, routes, kernel parameters, proxied
//! neighbours, and the nftables table.
//!
//! ```text
//! NetworkState + Machine ──render──▶ DesiredNetwork { bridges, routes, parameters, ruleset }
//! ruleset ──whole──▶ nft text of the table          (old, new) ──delta──▶ nft text of the difference
//! ```
//!
//! Owns: which devices, addresses, routes and rules there are, and their names.
//! Must not touch: the kernel, the disk, the clock. Invariant: equal inputs give equal text, byte for byte, and a table
//! contains only scopes that have a member on this machine.

mod bridges;
mod device_names;
mod nft_text;
mod routes;
mod ruleset;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use longshore_model::NodeName;

pub(crate) use self::device_names::short_hash;
pub use self::{
    bridges::{Bridge, Parameter, PortBinding, mac_of},
    device_names::{DeviceNames, bridge_name, device_names},
    routes::{Route, RouteKind},
    ruleset::{Class, Ruleset, Vip},
};
use crate::{MeshMode, NetworkState};

/// Mark of packets that belong to a connection which this machine made from a client's address, and the number of the
/// routing table that delivers them here.
pub const TRANSPARENT_MARK: u32 = 0x4c53;
/// Bytes that the mesh adds to a packet, at most: WireGuard over IPv6.
const MESH_OVERHEAD: u32 = 80;
/// The smallest MTU that IPv6 works with.
const SMALLEST_MTU: u32 = 1280;

/// What rendering has to know of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The name of its first node, which names its table and its mesh device.
    pub name: NodeName,
    /// Its nodes.
    pub local_nodes: BTreeSet<NodeName>,
    /// The MTU of the interface that other machines are reached through.
    pub underlay_mtu: u32,
}

/// What the kernel of this machine shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredNetwork {
    /// The names of what this machine has once.
    pub names: DeviceNames,
    /// A bridge for each local node that has a block.
    pub bridges: Vec<Bridge>,
    /// Routes to other machines' blocks and to the VIPs.
    pub routes: Vec<Route>,
    /// Kernel parameters below `/proc/sys/net`.
    pub parameters: Vec<Parameter>,
    /// The table.
    pub ruleset: Ruleset,
}

/// Renders the state; `None` if this machine takes no part in an overlay: the settings are not known, or none of its
/// nodes has a block.
pub fn render(state: &NetworkState, machine: &Machine) -> Option<DesiredNetwork> {
    let settings = state.settings()?;
    let names = device_names(&settings.cluster, &machine.name);
    let mtu = mtu(settings.mesh, machine.underlay_mtu);
    let bridges = bridges::bridges(state, settings, machine, mtu);
    if bridges.is_empty() {
        return None;
    }
    Some(DesiredNetwork {
        routes: routes::routes(state, settings, machine, &names, &bridges),
        parameters: bridges::parameters(&bridges),
        ruleset: ruleset::ruleset(state, settings, machine, &names, &bridges),
        names,
        bridges,
    })
}

/// The MTU of bridges and replicas.
pub fn mtu(mesh: MeshMode, underlay: u32) -> u32 {
    match mesh {
        MeshMode::Off => underlay,
        MeshMode::Auto | MeshMode::Wireguard | MeshMode::Vxlan => underlay.saturating_sub(MESH_OVERHEAD),
    }
    .max(SMALLEST_MTU)
}
