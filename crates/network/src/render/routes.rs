//! Routes of this machine: other machines' blocks over the mesh, VIPs to a bridge, and nowhere for the rest.
//!
//! Owns: which routes there are. Must not touch: the mesh device itself; where it does not exist yet, its routes wait.
//! Invariant: an address of the overlay never follows the machine's default route.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Bridge, DeviceNames, Machine};
use crate::{MeshMode, NetworkNode, NetworkSettings, NetworkState};

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Where it leads.
    pub destination: IpNet,
    /// How.
    pub kind: RouteKind,
}

/// How a route leads to its destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// Through a device.
    Device {
        /// The device's name.
        device: String,
        /// The next hop, where the device needs one.
        via: Option<IpAddr>,
        /// The source address of the machine's own packets.
        source: Option<IpAddr>,
    },
    /// Packets are refused.
    Unreachable,
}

pub(super) fn routes(
    state: &NetworkState,
    settings: &NetworkSettings,
    machine: &Machine,
    names: &DeviceNames,
    bridges: &[Bridge],
) -> Vec<Route> {
    let plan = &settings.addresses;
    let nowhere = [IpNet::V4(plan.pool), IpNet::V6(plan.ipv6_network())];
    let nowhere = nowhere.map(|destination| Route { destination, kind: RouteKind::Unreachable });
    let vips = [IpNet::V4(plan.vip_ipv4_range()), IpNet::V6(plan.vip_ipv6_range())];
    let vips = vips.into_iter().filter_map(|destination| {
        let device = bridges.first()?.name.clone();
        Some(Route { destination, kind: RouteKind::Device { device, via: None, source: None } })
    });
    let peers = state.nodes().filter(|node| !machine.local_nodes.contains(&node.name) && node.mesh.is_some());
    let peers = peers.filter(|_| settings.mesh != MeshMode::Off);
    let peers = peers.flat_map(|node| peer_routes(node, settings, names, bridges));
    let mut routes: Vec<Route> = nowhere.into_iter().chain(vips).chain(peers).collect();
    routes.sort();
    routes
}

/// The blocks of another machine's node, and its own address.
fn peer_routes(node: &NetworkNode, settings: &NetworkSettings, names: &DeviceNames, bridges: &[Bridge]) -> Vec<Route> {
    let (plan, Some(block)) = (&settings.addresses, node.block) else { return Vec::new() };
    let destinations = plan.blocks(block).into_iter().chain([IpNet::from(IpAddr::V6(plan.node_ipv6(block)))]);
    let route = |destination: IpNet| {
        let (gateway, source) = match destination {
            IpNet::V4(_) => (plan.ipv4_gateway(block).map(IpAddr::V4), own_ipv4(bridges)),
            IpNet::V6(_) => (Some(plan.ipv6_gateway(block).into()), own_ipv6(bridges)),
        };
        let via = gateway.filter(|_| settings.mesh == MeshMode::Vxlan);
        Route { destination, kind: RouteKind::Device { device: names.mesh.clone(), via, source } }
    };
    destinations.map(route).collect()
}

fn own_ipv4(bridges: &[Bridge]) -> Option<IpAddr> {
    bridges.iter().find_map(|bridge| bridge.ipv4_gateway).map(IpAddr::V4)
}

fn own_ipv6(bridges: &[Bridge]) -> Option<IpAddr> {
    bridges.first().map(|bridge| bridge.ipv6_gateway.into())
}
