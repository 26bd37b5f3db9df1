//! Links, addresses and neighbours of the kernel, by netlink.
//!
//! Owns: the connection to the kernel, and making one object be as desired.
//! Must not touch: objects that were not named to it. Invariant: what is as desired already is not touched, so a call
//! that changed nothing returns no repair.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags},
    link::{
        BridgePortState, InfoBridge, InfoBridgePort, InfoData, InfoPortData, LinkAttribute, LinkFlags, LinkInfo,
        LinkMessage,
    },
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
};
use rtnetlink::{Handle, LinkBridge, LinkBridgePort, LinkUnspec, LinkVeth};

use super::ApplyError;
use crate::render::Bridge;

/// How often a new link is looked at until it is ready, and the time between.
const READY_POLLS: u32 = 200;
const READY_POLL: Duration = Duration::from_millis(10);

/// A link as the kernel describes it.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the kernel, each independent of the others")]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) alias: Option<String>,
    pub(super) mtu: u32,
    pub(super) is_up: bool,
    /// Whether it sends.
    pub(super) is_running: bool,
    /// The bridge it is a port of.
    pub(super) controller: Option<u32>,
    pub(super) is_isolated: bool,
    /// Of a port of a bridge: whether frames pass it.
    pub(super) is_forwarding: bool,
    /// Of a bridge: whether it has bridged frames filtered whatever the namespace says.
    pub(super) filters_bridged: Option<bool>,
}

/// A connection to the kernel.
#[derive(Clone)]
pub(super) struct Kernel {
    pub(super) handle: Handle,
}

impl Kernel {
    /// Opens a connection, which ends with the last clone of the value.
    pub(super) fn connect() -> std::io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    pub(super) async fn links(&self) -> Result<BTreeMap<String, Link>, ApplyError> {
        let messages: Vec<LinkMessage> =
            self.handle.link().get().execute().try_collect().await.map_err(failed("listing the links"))?;
        Ok(messages.iter().map(link_of).map(|link| (link.name.clone(), link)).collect())
    }

    /// Creates a bridge or corrects it, without its addresses. One that is created is down until its parameters are
    /// set: its own link-local address would be tentative for seconds otherwise, and neighbours could not be asked for.
    /// Returns what was wrong.
    pub(super) async fn ensure_bridge(
        &self,
        bridge: &Bridge,
        alias: &str,
        links: &BTreeMap<String, Link>,
    ) -> Result<Option<String>, ApplyError> {
        let name = &bridge.name;
        let create = LinkBridge::new(name).address(hardware_address(name)).mtu(bridge.mtu).mcast_snooping(false);
        let Some(link) = links.get(name) else {
            let created = self.handle.link().add(create.build()).execute().await;
            created.map_err(failed(&format!("creating the bridge {name}")))?;
            self.set_alias(name, alias).await?;
            return Ok(Some(format!("the bridge {name} did not exist")));
        };
        let wrong = if link.mtu != bridge.mtu {
            format!("the bridge {name} had an MTU of {}", link.mtu)
        } else if link.alias.as_deref() != Some(alias) {
            format!("the bridge {name} was not marked as ours")
        } else {
            return Ok(None);
        };
        let change = LinkUnspec::new_with_index(link.index)
            .mtu(bridge.mtu)
            .append_extra_attribute(LinkAttribute::IfAlias(alias.to_owned()));
        let changed = self.handle.link().change(change.build()).execute().await;
        changed.map_err(failed(&format!("changing the bridge {name}")))?;
        Ok(Some(wrong))
    }

    /// Marks a link as ours. The kernel takes no alias when a link is created.
    async fn set_alias(&self, name: &str, alias: &str) -> Result<(), ApplyError> {
        let marked = LinkUnspec::new_with_name(name).append_extra_attribute(LinkAttribute::IfAlias(alias.to_owned()));
        self.handle.link().change(marked.build()).execute().await.map_err(failed(&format!("marking {name}")))
    }

    pub(super) async fn ensure_up(&self, link: &Link) -> Result<Option<String>, ApplyError> {
        if link.is_up {
            return Ok(None);
        }
        let up = LinkUnspec::new_with_index(link.index).up();
        let changed = self.handle.link().change(up.build()).execute().await;
        changed.map_err(failed(&format!("setting {} up", link.name)))?;
        Ok(Some(format!("the bridge {} was down", link.name)))
    }

    /// Gives a bridge a port that is always up. Without any, the bridge would lose its carrier with its last replica, and
    /// with it the proxied neighbours; the next replica would wait for both, up to a second.
    pub(super) async fn ensure_carrier(
        &self,
        bridge: &Link,
        alias: &str,
        links: &BTreeMap<String, Link>,
    ) -> Result<Option<String>, ApplyError> {
        let digits = bridge.name.trim_start_matches("lsb");
        let (port, peer) = (format!("lsk{digits}"), format!("lsq{digits}"));
        if links.get(&port).is_some_and(|link| link.controller == Some(bridge.index)) {
            return Ok(None);
        }
        if let Some(stale) = links.get(&port) {
            self.remove_link(stale.index).await?;
        }
        let doing = format!("giving the bridge {} a carrier", bridge.name);
        let pair = LinkVeth::new(&port, &peer).controller(bridge.index);
        self.handle.link().add(pair.build()).execute().await.map_err(failed(&doing))?;
        self.set_alias(&port, alias).await?;
        for name in [&peer, &port] {
            // Nothing is behind it, so it needs no address, and sends nothing.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
            let up = LinkUnspec::new_with_name(name).up();
            self.handle.link().change(up.build()).execute().await.map_err(failed(&doing))?;
        }
        self.wait_until(&bridge.name, |link| link.is_running).await?;
        Ok(Some(format!("the bridge {} had no carrier", bridge.name)))
    }

    /// Isolates a port from the other ports of its bridge.
    pub(super) async fn isolate(&self, port: u32) -> Result<(), ApplyError> {
        let isolate = LinkBridgePort::new(port).isolated(true).build();
        self.handle.link().change(isolate).execute().await.map_err(failed("isolating a port of a bridge"))
    }

    pub(super) async fn remove_link(&self, index: u32) -> Result<(), ApplyError> {
        self.handle.link().del(index).execute().await.map_err(failed("removing a link"))
    }

    /// Creates a pair of connected devices.
    pub(super) async fn add_veth(&self, port: &str, peer: &str, mtu: u32) -> Result<(), ApplyError> {
        let veth = LinkVeth::new(port, peer).mtu(mtu).up().build();
        self.handle.link().add(veth).execute().await.map_err(failed(&format!("creating the port {port}")))
    }

    /// Makes a device an isolated port of a bridge, and waits until frames pass it.
    pub(super) async fn add_port(&self, port: &Link, bridge: u32) -> Result<(), ApplyError> {
        let attach = LinkUnspec::new_with_index(port.index).controller(bridge);
        let attached = self.handle.link().change(attach.build()).execute().await;
        attached.map_err(failed(&format!("attaching {}", port.name)))?;
        self.isolate(port.index).await?;
        self.wait_until(&port.name, |link| link.is_forwarding && link.is_running).await
    }

    /// Waits until a link is ready, two seconds at most: the kernel tells of a carrier up to a second later.
    pub(super) async fn wait_until(&self, name: &str, is_ready: impl Fn(&Link) -> bool) -> Result<(), ApplyError> {
        for _ in 0..READY_POLLS {
            if self.links().await?.get(name).is_some_and(&is_ready) {
                break;
            }
            tokio::time::sleep(READY_POLL).await;
        }
        Ok(())
    }

    /// Gives a link an address. Without duplicate detection: nobody else can have one of these addresses, and a bridge
    /// without ports would wait for it for ever.
    pub(super) async fn ensure_address(&self, link: u32, address: IpNet) -> Result<Option<String>, ApplyError> {
        let existing: Vec<_> = self
            .handle
            .address()
            .get()
            .set_link_index_filter(link)
            .set_address_filter(address.addr())
            .set_prefix_length_filter(address.prefix_len())
            .execute()
            .try_collect()
            .await
            .map_err(failed("listing the addresses"))?;
        if !existing.is_empty() {
            return Ok(None);
        }
        let mut request = self.handle.address().add(link, address.addr(), address.prefix_len()).replace();
        request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        request.execute().await.map_err(failed(&format!("adding the address {address}")))?;
        Ok(Some(format!("the address {address} was missing")))
    }

    /// Makes the host answer neighbour solicitations on a bridge for exactly these addresses.
    pub(super) async fn ensure_proxies(&self, bridge: &Bridge, index: u32) -> Result<Vec<String>, ApplyError> {
        let get = self.handle.neighbours().get().proxies().set_address_family(AddressFamily::Inet6);
        let listed: Vec<NeighbourMessage> =
            get.execute().try_collect().await.map_err(failed("listing the proxied neighbours"))?;
        let here = listed.into_iter().filter(|message| message.header.ifindex == index);
        let mut existing: BTreeMap<Ipv6Addr, NeighbourMessage> =
            here.filter_map(|message| Some((ipv6_of(&message)?, message))).collect();
        let mut repairs = Vec::new();
        for address in bridge.replicas.iter().map(|replica| replica.ipv6) {
            if existing.remove(&address).is_none() {
                let add = self.handle.neighbours().add(index, address.into()).flags(NeighbourFlags::Proxy);
                let added = add.state(NeighbourState::None).replace().execute().await;
                added.map_err(failed(&format!("proxying the neighbour {address}")))?;
                repairs.push(format!("the neighbour {address} was not proxied"));
            }
        }
        for message in existing.into_values() {
            // One that is gone already is as desired.
            let _ = self.handle.neighbours().del(message).execute().await;
        }
        Ok(repairs)
    }
}

pub(super) fn failed(doing: &str) -> impl FnOnce(rtnetlink::Error) -> ApplyError + use<> {
    let doing = doing.to_owned();
    move |cause| ApplyError::Netlink { doing, cause }
}

pub(super) fn link_of(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        is_up: flags.contains(LinkFlags::Up),
        is_running: flags.contains(LinkFlags::Running | LinkFlags::LowerUp),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            LinkAttribute::LinkInfo(infos) => {
                let has = |flag: InfoBridgePort| infos.iter().any(|info| port_has(info, &flag));
                link.is_isolated |= has(InfoBridgePort::Isolated(true));
                link.is_forwarding |= has(InfoBridgePort::State(BridgePortState::Forwarding));
                link.filters_bridged = infos.iter().find_map(filters_bridged).or(link.filters_bridged);
            }
            _ => {}
        }
    }
    link
}

fn port_has(info: &LinkInfo, flag: &InfoBridgePort) -> bool {
    let LinkInfo::PortData(InfoPortData::BridgePort(port)) = info else { return false };
    port.contains(flag)
}

fn filters_bridged(info: &LinkInfo) -> Option<bool> {
    let LinkInfo::Data(InfoData::Bridge(bridge)) = info else { return None };
    Some(bridge.contains(&InfoBridge::NfCallIpTables(true)))
}

fn ipv6_of(message: &NeighbourMessage) -> Option<Ipv6Addr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(*ip),
        _ => None,
    })
}

/// A hardware address for a bridge, which otherwise would change with its ports. Taken from the digits of its name.
fn hardware_address(name: &str) -> Vec<u8> {
    let digits = longshore_model::hex::decode(name.trim_start_matches("lsb")).unwrap_or_default();
    [0x02, 0x4c].into_iter().chain(digits.into_iter().chain([0; 4]).take(4)).collect()
}

/// The interface that has an address of this machine.
pub(super) async fn mtu_of(kernel: &Kernel, ip: IpAddr) -> Option<u32> {
    let found: Vec<_> = kernel.handle.address().get().set_address_filter(ip).execute().try_collect().await.ok()?;
    let index = found.first()?.header.index;
    kernel.links().await.ok()?.into_values().find(|link| link.index == index).map(|link| link.mtu)
}
