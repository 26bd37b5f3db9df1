//! Routes of the kernel, by netlink.
//!
//! Owns: the routes with our protocol number. Must not touch: others' routes, except for reading whether they overlap
//! the overlay's pools. Invariant: a route that is no longer desired is removed only if it is ours and leads into the
//! overlay of this cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteType},
};
use rtnetlink::RouteMessageBuilder;

use super::{
    ApplyError,
    kernel::{Kernel, Link, failed},
};
use crate::render::{Route, RouteKind};

/// Marks routes as ours; a number that no routing daemon has.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(76);
/// The main table.
const MAIN: u32 = 254;
/// Metric of our routes: any route of the machine itself is preferred.
const METRIC: u32 = 4096;

/// A route as the kernel describes it.
struct KernelRoute {
    destination: IpNet,
    device: Option<u32>,
    via: Option<IpAddr>,
    is_ours: bool,
    is_unreachable: bool,
    message: RouteMessage,
}

impl Kernel {
    /// Makes our routes be exactly these. Routes through a device that does not exist are left for later.
    pub(super) async fn ensure_routes(
        &self,
        routes: &[Route],
        within: &[IpNet],
        links: &BTreeMap<String, Link>,
    ) -> Result<Vec<String>, ApplyError> {
        let mut existing = self.routes().await?;
        existing.retain(|route| route.is_ours && within.iter().any(|net| net.contains(&route.destination)));
        let mut repairs = Vec::new();
        let mut wanted = BTreeSet::new();
        for route in routes {
            let (device, via) = match &route.kind {
                RouteKind::Unreachable => (None, None),
                RouteKind::Device { device, via, .. } => match links.get(device) {
                    Some(link) if link.is_up => (Some(link.index), *via),
                    Some(_) | None => continue,
                },
            };
            wanted.insert(route.destination);
            let is_it = |existing: &KernelRoute| {
                existing.destination == route.destination
                    && existing.via == via
                    // The kernel binds an unreachable IPv6 route to the loopback device.
                    && (existing.is_unreachable == device.is_none())
                    && (device.is_none() || existing.device == device)
            };
            if existing.iter().any(is_it) {
                continue;
            }
            self.add_route(route, device).await?;
            repairs.push(format!("the route to {} was missing", route.destination));
        }
        for route in existing.into_iter().filter(|route| !wanted.contains(&route.destination)) {
            let _ = self.handle.route().del(route.message).execute().await;
        }
        Ok(repairs)
    }

    async fn add_route(&self, route: &Route, device: Option<u32>) -> Result<(), ApplyError> {
        let invalid = |error: rtnetlink::Error| failed(&format!("adding the route to {}", route.destination))(error);
        let builder = RouteMessageBuilder::<IpAddr>::new()
            .protocol(PROTOCOL)
            .priority(METRIC)
            .destination_prefix(route.destination.network(), route.destination.prefix_len())
            .map_err(|error| ApplyError::Route(error.to_string()))?;
        let builder = match (&route.kind, device) {
            (RouteKind::Device { via, source, .. }, Some(index)) => {
                let mut builder = builder.output_interface(index);
                if let Some(via) = via {
                    builder = builder.gateway(*via).map_err(|error| ApplyError::Route(error.to_string()))?.onlink();
                }
                match source {
                    Some(source) => {
                        builder.pref_source(*source).map_err(|error| ApplyError::Route(error.to_string()))?
                    }
                    None => builder,
                }
            }
            (RouteKind::Device { .. }, None) | (RouteKind::Unreachable, _) => builder.kind(RouteType::Unreachable),
        };
        self.handle.route().add(builder.build()).replace().execute().await.map_err(invalid)
    }

    /// The first route of somebody else that overlaps one of the networks, printed. Default routes do not count.
    pub(super) async fn overlapping_route(
        &self,
        networks: &[IpNet],
        own_devices: &BTreeSet<u32>,
    ) -> Result<Option<String>, ApplyError> {
        let overlaps = |route: &KernelRoute| {
            let is_default = route.destination.prefix_len() == 0;
            let is_own = route.is_ours || route.device.is_some_and(|device| own_devices.contains(&device));
            let overlaps = |net: &IpNet| net.contains(&route.destination) || route.destination.contains(net);
            !is_default && !is_own && networks.iter().any(overlaps)
        };
        Ok(self.routes().await?.into_iter().find(overlaps).map(|route| route.destination.to_string()))
    }

    async fn routes(&self) -> Result<Vec<KernelRoute>, ApplyError> {
        let mut all = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut query = RouteMessage::default();
            query.header.address_family = family;
            let listed: Vec<RouteMessage> =
                self.handle.route().get(query).execute().try_collect().await.map_err(failed("listing the routes"))?;
            all.extend(listed.into_iter().filter(is_in_main_table).filter_map(route_of));
        }
        Ok(all)
    }
}

fn is_in_main_table(message: &RouteMessage) -> bool {
    let named = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    named.unwrap_or(u32::from(message.header.table)) == MAIN
}

fn route_of(message: RouteMessage) -> Option<KernelRoute> {
    let unspecified: IpAddr = match message.header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let (mut destination, mut device, mut via) = (unspecified, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip_of(address)?,
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Gateway(address) => via = ip_of(address),
            _ => {}
        }
    }
    Some(KernelRoute {
        destination: IpNet::new(destination, message.header.destination_prefix_length).ok()?,
        device,
        via,
        is_ours: message.header.protocol == PROTOCOL,
        is_unreachable: message.header.kind == RouteType::Unreachable,
        message,
    })
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
