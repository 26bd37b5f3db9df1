//! The bridges of local nodes, their addresses, the replicas on them, and kernel parameters.
//!
//! ```text
//! replica ─ port (isolated) ─ bridge ─ port (isolated) ─ replica      ports never exchange a frame;
//!                               │                                     the host answers ARP and ND for neighbours
//!                          host: routes, filters                      and routes between its own replicas
//! ```
//!
//! Owns: a bridge's addresses and MTU, the hardware address of each replica, and which parameters make the host route
//! between ports. Invariant: a replica's hardware address follows from its IPv4 address, so a table can bind the two.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use longshore_model::{AddressPlan, NodeName};

use super::{Machine, bridge_name};
use crate::{NetworkSettings, NetworkState};

/// The address that neighbours are asked from, which engines give their bridges, too. The one that the kernel makes by
/// itself comes seconds after the first port.
const LINK_LOCAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 64);

/// The bridge of one local node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// The node.
    pub node: NodeName,
    /// The device's name.
    pub name: String,
    /// Addresses with the length of their network: both gateways, the node's own in the mesh, and a
    /// link-local one.
    pub addresses: Vec<IpNet>,
    /// The node's IPv4 block, if the pool has one for it.
    pub ipv4_block: Option<Ipv4Net>,
    /// The node's IPv6 block.
    pub ipv6_block: Ipv6Net,
    /// Its IPv4 gateway and name server.
    pub ipv4_gateway: Option<Ipv4Addr>,
    /// Its IPv6 gateway and name server.
    pub ipv6_gateway: Ipv6Addr,
    /// The MTU of the bridge and of every replica on it.
    pub mtu: u32,
    /// The replicas on it, by IPv6 address.
    pub replicas: Vec<PortBinding>,
}

/// The addresses of a replica on a bridge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortBinding {
    /// Its IPv6 address.
    pub ipv6: Ipv6Addr,
    /// Its IPv4 address.
    pub ipv4: Ipv4Addr,
    /// Its hardware address.
    pub mac: [u8; 6],
}

impl PortBinding {
    /// The binding of a replica; `None` if its address is not one of the plan.
    pub fn of(plan: &AddressPlan, ipv6: Ipv6Addr) -> Option<Self> {
        let ipv4 = plan.ipv4_of(ipv6)?;
        Some(Self { ipv6, ipv4, mac: mac_of(ipv4) })
    }

    /// Both addresses, IPv4 first.
    pub fn addresses(&self) -> [IpAddr; 2] {
        [self.ipv4.into(), self.ipv6.into()]
    }
}

/// The hardware address of a replica. Engines before 28 choose the same one by themselves.
pub fn mac_of(ipv4: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = ipv4.octets();
    [0x02, 0x42, a, b, c, d]
}

/// The bridges of all local nodes that have a block.
pub(super) fn bridges(state: &NetworkState, settings: &NetworkSettings, machine: &Machine, mtu: u32) -> Vec<Bridge> {
    let local = state.nodes().filter(|node| machine.local_nodes.contains(&node.name));
    local.filter_map(|node| Some(bridge(state, settings, &node.name, node.block?, mtu))).collect()
}

fn bridge(state: &NetworkState, settings: &NetworkSettings, node: &NodeName, block: u32, mtu: u32) -> Bridge {
    let plan = &settings.addresses;
    let ipv6_block = plan.ipv6_block(block);
    let here = state.services().flat_map(|service| &service.replicas).filter(|replica| replica.node == *node);
    // A replica that was placed before its node got this block has an address of another one.
    let here = here.filter(|replica| ipv6_block.contains(&replica.address));
    let mut replicas: Vec<PortBinding> = here.filter_map(|replica| PortBinding::of(plan, replica.address)).collect();
    replicas.sort();
    replicas.dedup();
    let host_route = |ip: IpAddr| IpNet::from(ip);
    let gateways = plan.gateways(block).into_iter().zip(plan.blocks(block));
    let gateways = gateways.filter_map(|(gateway, block)| IpNet::new(gateway, block.prefix_len()).ok());
    Bridge {
        node: node.clone(),
        name: bridge_name(&settings.cluster, node),
        addresses: gateways.chain([host_route(plan.node_ipv6(block).into()), IpNet::V6(LINK_LOCAL)]).collect(),
        ipv4_block: plan.ipv4_block(block),
        ipv6_block,
        ipv4_gateway: plan.ipv4_gateway(block),
        ipv6_gateway: plan.ipv6_gateway(block),
        mtu,
        replicas,
    }
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The path below `/proc/sys/net`.
    pub path: String,
    /// Its value.
    pub value: &'static str,
}

/// The parameters of forwarding and of all bridges.
pub(super) fn parameters(bridges: &[Bridge]) -> Vec<Parameter> {
    let parameter = |path: String, value: &'static str| Parameter { path, value };
    let global = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"].map(|path| parameter(path.to_owned(), "1"));
    let each = bridges.iter().flat_map(|Bridge { name, .. }| {
        [
            // The host answers ARP and ND requests of one port for the addresses behind the others, without delay.
            parameter(format!("ipv4/conf/{name}/proxy_arp_pvlan"), "1"),
            parameter(format!("ipv4/neigh/{name}/proxy_delay"), "0"),
            parameter(format!("ipv6/conf/{name}/disable_ipv6"), "0"),
            parameter(format!("ipv6/conf/{name}/proxy_ndp"), "1"),
            parameter(format!("ipv6/neigh/{name}/proxy_delay"), "0"),
            // A redirect would send a replica to a neighbour that its isolated port cannot reach.
            parameter(format!("ipv4/conf/{name}/send_redirects"), "0"),
            parameter(format!("ipv6/conf/{name}/accept_ra"), "0"),
            // An address on a bridge without ports would stay tentative, and the name server could not listen on it.
            parameter(format!("ipv6/conf/{name}/accept_dad"), "0"),
        ]
    });
    global.into_iter().chain(each).collect()
}
