//! A port of a bridge for a network namespace: a plain process of the Exec driver, or one of the self-test.
//!
//! Owns: the pair of devices, and the interface inside with its addresses and routes.
//! Must not touch: the namespace's owner. Invariant: the port is isolated as soon as it is one, and its process
//! starts after that.

use std::{
    fs,
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use ipnet::IpNet;
use netlink_packet_route::link::LinkAttribute;
use rtnetlink::{LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{
    ApplyError, LocalOverlay,
    kernel::{Kernel, failed},
};
use crate::render::short_hash;

/// The name of the interface inside.
const INSIDE: &str = "eth0";

/// Connects a network namespace to the bridge of a node with the addresses of a replica. What an earlier call for the
/// same replica left is replaced.
pub async fn attach_namespace(
    namespace: OwnedFd,
    overlay: &LocalOverlay,
    replica: Ipv6Addr,
) -> Result<(), AttachError> {
    attach(namespace, overlay, replica).await.map_err(|error| AttachError(error.to_string()))
}

/// Why a namespace could not be connected.
#[derive(Debug, thiserror::Error)]
#[error("it could not be connected to the overlay: {0}")]
pub struct AttachError(String);

async fn attach(namespace: OwnedFd, overlay: &LocalOverlay, replica: Ipv6Addr) -> Result<(), ApplyError> {
    let kernel = Kernel::connect()?;
    let (port, peer) = port_names(overlay, replica);
    let links = kernel.links().await?;
    let bridge = links.get(&overlay.bridge).map(|link| link.index);
    let bridge = bridge.ok_or_else(|| ApplyError::Route("the bridge is gone".to_owned()))?;
    if let Some(stale) = links.get(&port) {
        kernel.remove_link(stale.index).await?;
    }
    kernel.add_veth(&port, &peer, overlay.mtu).await?;
    let links = kernel.links().await?;
    let index = |name: &str| links.get(name).map(|link| link.index).unwrap_or_default();
    let moved = LinkUnspec::new_with_index(index(&peer)).setns_by_fd(namespace.as_raw_fd());
    kernel.handle.link().change(moved.build()).execute().await.map_err(failed("moving an interface"))?;
    let overlay = overlay.clone();
    // A thread of its own, because a thread that has entered another namespace is not given back.
    let inside = std::thread::spawn(move || configure_inside(&namespace, &peer, &overlay, replica));
    let joined = tokio::task::spawn_blocking(move || inside.join()).await;
    match joined {
        Ok(Ok(outcome)) => outcome?,
        Ok(Err(_)) | Err(_) => return Err(ApplyError::Route("configuring the namespace ended early".to_owned())),
    }
    // Attached last, with its carrier: a bridge learns of a later carrier with a delay.
    match links.get(&port) {
        Some(port) => kernel.add_port(port, bridge).await,
        None => Err(ApplyError::Route(format!("the port {port} is gone"))),
    }
}

/// Removes the port of a replica, and with it the interface in its namespace.
pub async fn detach_namespace(overlay: &LocalOverlay, replica: Ipv6Addr) {
    let Ok(kernel) = Kernel::connect() else { return };
    let (port, _) = port_names(overlay, replica);
    if let Ok(links) = kernel.links().await
        && let Some(link) = links.get(&port)
    {
        let _ = kernel.remove_link(link.index).await;
    }
}

fn port_names(overlay: &LocalOverlay, replica: Ipv6Addr) -> (String, String) {
    let digits = short_hash(&format!("{}/{replica}", overlay.bridge));
    (format!("lsv{digits}"), format!("lsp{digits}"))
}

fn configure_inside(
    namespace: &OwnedFd,
    peer: &str,
    overlay: &LocalOverlay,
    replica: Ipv6Addr,
) -> Result<(), ApplyError> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).map_err(std::io::Error::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(configure(peer, overlay, replica))
}

async fn configure(peer: &str, overlay: &LocalOverlay, replica: Ipv6Addr) -> Result<(), ApplyError> {
    let kernel = Kernel::connect()?;
    let (ipv4, mac) =
        overlay.port_of(replica).ok_or_else(|| ApplyError::Route(format!("{replica} is not of this node")))?;
    let links = kernel.links().await?;
    let index = |name: &str| links.get(name).map(|link| link.index).unwrap_or_default();
    let change = async |link: LinkMessageBuilder<LinkUnspec>| {
        kernel.handle.link().change(link.build()).execute().await.map_err(failed("changing an interface"))
    };
    let link = || LinkUnspec::new_with_index(index(peer));
    change(link().name(INSIDE).append_extra_attribute(LinkAttribute::Address(mac.to_vec()))).await?;
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{INSIDE}/accept_ra"), "0");
    change(LinkUnspec::new_with_index(index("lo")).up()).await?;
    change(link().up()).await?;
    for address in [
        IpNet::new(ipv4.into(), overlay.ipv4_block.prefix_len()),
        IpNet::new(replica.into(), overlay.ipv6_block.prefix_len()),
    ] {
        let address = address.map_err(|error| ApplyError::Route(error.to_string()))?;
        kernel.ensure_address(index(peer), address).await?;
    }
    for gateway in [IpAddr::V4(overlay.ipv4_gateway), IpAddr::V6(overlay.ipv6_gateway)] {
        let everywhere: IpAddr = match gateway {
            IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let route = RouteMessageBuilder::<IpAddr>::new().destination_prefix(everywhere, 0);
        let route = route.and_then(|route| route.output_interface(index(peer)).gateway(gateway));
        let route = route.map_err(|error| ApplyError::Route(error.to_string()))?;
        let added = kernel.handle.route().add(route.build()).replace().execute().await;
        added.map_err(failed("adding the default route"))?;
    }
    kernel.wait_until(INSIDE, |link| link.is_running).await
}
