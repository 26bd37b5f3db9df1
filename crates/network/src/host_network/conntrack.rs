//! Forgets UDP flows through a VIP to a replica that no longer serves.
//!
//! A flow keeps the replica it was sent to first. A TCP connection ends with its replica; a UDP flow would go on to a
//! replica that is gone for as long as its client sends.
//!
//! Owns: listing and deleting entries of the kernel's connection tracking, by netlink.
//! Must not touch: flows of other protocols, and flows that do not go through a VIP of ours.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// Messages of connection tracking: the subsystem in the upper byte.
const GET: u16 = 0x0101;
const DELETE: u16 = 0x0102;
const REQUEST: u16 = 0x01;
const ACK: u16 = 0x04;
const DUMP: u16 = 0x0300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER: usize = 16;
/// Family, version and resource id after the header.
const FAMILY_HEADER: usize = 4;
const NESTED: u16 = 0x8000;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const PROTOCOL_NUMBER: u16 = 1;
const UDP: u8 = 17;

/// A VIP and a replica that left it, of one family.
pub(super) type Left = (IpAddr, IpAddr);

/// Deletes the UDP flows of these pairs. Returns how many there were.
pub(super) fn forget(pairs: &BTreeSet<Left>) -> io::Result<usize> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut count = 0;
    for family in [2_u8, 10] {
        let is_family = |(vip, _): &&Left| vip.is_ipv4() == (family == 2);
        if !pairs.iter().any(|pair| is_family(&pair)) {
            continue;
        }
        for original in dump(&socket, family, pairs)? {
            socket.send(&message(DELETE, REQUEST | ACK, family, &attribute(TUPLE_ORIGINAL | NESTED, &original)), 0)?;
            // The answer is an acknowledgement, or that the flow has ended by itself.
            socket.recv_from_full()?;
            count += 1;
        }
    }
    Ok(count)
}

/// The original direction of every UDP flow of one of the pairs, as the kernel wrote it.
fn dump(socket: &Socket, family: u8, pairs: &BTreeSet<Left>) -> io::Result<Vec<Vec<u8>>> {
    socket.send(&message(GET, REQUEST | DUMP, family, &[]), 0)?;
    let mut found = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = &bytes[..];
        while let Some((kind, payload, next)) = split_message(rest) {
            match kind {
                DONE => return Ok(found),
                ERROR => return Err(io::Error::other("the kernel refused to list its flows")),
                _ => found.extend(matching(payload.get(FAMILY_HEADER..).unwrap_or_default(), pairs)),
            }
            rest = next;
        }
    }
}

fn matching(attributes: &[u8], pairs: &BTreeSet<Left>) -> Option<Vec<u8>> {
    let original = find(attributes, TUPLE_ORIGINAL)?;
    let reply = find(attributes, TUPLE_REPLY)?;
    let protocol = find(find(original, TUPLE_PROTOCOL)?, PROTOCOL_NUMBER)?;
    let pair = (address(original, Side::Destination)?, address(reply, Side::Source)?);
    (protocol.first() == Some(&UDP) && pairs.contains(&pair)).then(|| original.to_vec())
}

#[derive(Clone, Copy)]
enum Side {
    Source,
    Destination,
}

fn address(tuple: &[u8], side: Side) -> Option<IpAddr> {
    let ip = find(tuple, TUPLE_IP)?;
    let (v4, v6) = match side {
        Side::Source => (1, 3),
        Side::Destination => (2, 4),
    };
    let v4 = find(ip, v4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).map(|bytes| Ipv4Addr::from(bytes).into());
    let v6 = find(ip, v6).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    v4.or_else(|| v6.map(|bytes| Ipv6Addr::from(bytes).into()))
}

/// The contents of an attribute.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let found = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?) & !NESTED;
        let contents = attributes.get(4..length)?;
        if found == kind {
            return Some(contents);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn attribute(kind: u16, contents: &[u8]) -> Vec<u8> {
    let length = u16::try_from(contents.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(contents);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, flags: u16, family: u8, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + FAMILY_HEADER + attributes.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
    // Sequence number and port, of which one request at a time needs neither.
    bytes.extend([0; 8]);
    bytes.extend([family, 0, 0, 0]);
    bytes.extend_from_slice(attributes);
    bytes
}

/// The kind and the payload of the first message, and what follows it.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let payload = bytes.get(HEADER..length)?;
    Some((kind, payload, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(source: [u8; 4], destination: [u8; 4], protocol: u8) -> Vec<u8> {
        let ip = [attribute(1, &source), attribute(2, &destination)].concat();
        [
            attribute(TUPLE_IP | NESTED, &ip),
            attribute(TUPLE_PROTOCOL | NESTED, &attribute(PROTOCOL_NUMBER, &[protocol])),
        ]
        .concat()
    }

    #[test]
    fn a_udp_flow_is_recognised_by_its_vip_and_its_replica() {
        let flow = |protocol| {
            let original = tuple([10, 0, 0, 1], [10, 188, 0, 1], protocol);
            let reply = tuple([10, 128, 4, 2], [10, 0, 0, 1], protocol);
            [attribute(TUPLE_ORIGINAL | NESTED, &original), attribute(TUPLE_REPLY | NESTED, &reply)].concat()
        };
        let pair = |replica: [u8; 4]| BTreeSet::from([([10, 188, 0, 1].into(), replica.into())]);
        assert!(matching(&flow(UDP), &pair([10, 128, 4, 2])).is_some());
        assert!(matching(&flow(UDP), &pair([10, 128, 4, 3])).is_none());
        assert!(matching(&flow(6), &pair([10, 128, 4, 2])).is_none(), "TCP");
    }
}
