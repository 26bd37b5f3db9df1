//! Requests to the kernel about links and addresses, and to its WireGuard.
//!
//! Owns: the exchange of messages. Must not touch: what they mean.
//! Invariant: a request either succeeded or is an error; an answer is read to its end.

use std::{io, net::IpAddr};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// A link of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mtu: u32,
    pub(super) kind: Option<InfoKind>,
}

/// What an answer consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing but success.
    Ack,
    /// One message.
    One,
    /// A list of messages.
    Dump,
}

/// Sends a request and returns the messages of its answer.
pub(super) fn request<T>(protocol: isize, message: T, flags: u16, answer: Answer) -> io::Result<Vec<T>>
where
    T: NetlinkSerializable + NetlinkDeserializable,
    NetlinkPayload<T>: From<T>,
{
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = NetlinkMessage::new(netlink_packet_core::NetlinkHeader::default(), NetlinkPayload::from(message));
    let kind = match answer {
        Answer::Ack => NLM_F_ACK,
        Answer::One => 0,
        Answer::Dump => NLM_F_DUMP,
    };
    request.header.flags = NLM_F_REQUEST | kind | flags;
    request.finalize();
    let mut buffer = vec![0; request.buffer_len()];
    request.serialize(&mut buffer);
    socket.send(&buffer, 0)?;
    let mut answers = Vec::new();
    while !receive(&socket, answer, &mut answers)? {}
    Ok(answers)
}

/// Reads one datagram of an answer. Returns whether the answer is complete.
fn receive<T: NetlinkDeserializable>(socket: &Socket, answer: Answer, answers: &mut Vec<T>) -> io::Result<bool> {
    let (bytes, _) = socket.recv_from_full()?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let message = NetlinkMessage::<T>::deserialize(rest).map_err(io::Error::other)?;
        match message.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::InnerMessage(inner) => answers.push(inner),
            _ => {}
        }
        // Lengths are rounded up to four bytes.
        let length = usize::try_from(message.header.length).unwrap_or(0).next_multiple_of(4);
        rest = rest.get(length.max(4)..).unwrap_or_default();
    }
    Ok(answer == Answer::One && !answers.is_empty())
}

fn route_request(message: RouteNetlinkMessage, flags: u16, answer: Answer) -> io::Result<Vec<RouteNetlinkMessage>> {
    request(NETLINK_ROUTE, message, flags, answer)
}

/// All links.
pub(super) fn links() -> io::Result<Vec<Link>> {
    let answers = route_request(RouteNetlinkMessage::GetLink(LinkMessage::default()), 0, Answer::Dump)?;
    let links = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(link) => Some(link_of(&link)),
        _ => None,
    });
    Ok(links.collect())
}

/// The link of a name.
pub(super) fn link(name: &str) -> io::Result<Option<Link>> {
    Ok(links()?.into_iter().find(|link| link.name == name))
}

fn link_of(message: &LinkMessage) -> Link {
    let mut link = Link { index: message.header.index, name: String::new(), mtu: 0, kind: None };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.clone()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    link
}

/// The MTUs of the interfaces that have one of these addresses.
pub(super) fn interface_mtus(addresses: &[IpAddr]) -> io::Result<Vec<u32>> {
    let answers = route_request(RouteNetlinkMessage::GetAddress(AddressMessage::default()), 0, Answer::Dump)?;
    let indices: Vec<u32> = answers
        .into_iter()
        .filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => Some(message),
            _ => None,
        })
        .filter(|message| message.attributes.iter().any(|attribute| has_address(attribute, addresses)))
        .map(|message| message.header.index)
        .collect();
    Ok(links()?.into_iter().filter(|link| indices.contains(&link.index)).map(|link| link.mtu).collect())
}

fn has_address(attribute: &AddressAttribute, addresses: &[IpAddr]) -> bool {
    match attribute {
        AddressAttribute::Address(ip) | AddressAttribute::Local(ip) => addresses.contains(ip),
        _ => false,
    }
}

/// Creates a link with these attributes. An error of kind `AlreadyExists` if there is one of this name.
pub(super) fn create_link(name: &str, info: Vec<LinkInfo>, further: Vec<LinkAttribute>) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message.attributes.extend(further);
    message.attributes.push(LinkAttribute::LinkInfo(info));
    route_request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, Answer::Ack).map(drop)
}

/// Sets a link up with an MTU.
pub(super) fn set_up(index: u32, mtu: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes.push(LinkAttribute::Mtu(mtu));
    route_request(RouteNetlinkMessage::SetLink(message), 0, Answer::Ack).map(drop)
}

/// Deletes a link, if there is one of this name.
pub(super) fn delete_link(name: &str) -> io::Result<()> {
    let Some(link) = link(name)? else { return Ok(()) };
    let mut message = LinkMessage::default();
    message.header.index = link.index;
    route_request(RouteNetlinkMessage::DelLink(message), 0, Answer::Ack).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_by_name_and_by_address() {
        let loopback = link("lo").unwrap().unwrap();
        assert!(loopback.mtu > 0);
        assert_eq!(interface_mtus(&[[127, 0, 0, 1].into()]).unwrap(), [loopback.mtu]);
        assert_eq!(interface_mtus(&[[203, 0, 113, 1].into()]).unwrap(), Vec::<u32>::new());
        assert_eq!(link("no-such-link").unwrap(), None);
    }
}
