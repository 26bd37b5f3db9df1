//! The PROXY protocol: a connection's first bytes say whose it really is.
//!
//! Owns: reading both versions, and writing the second. Must not touch: who is believed.
//! Invariant: no bytes make it panic, and what is longer than a header may be is refused before it is read.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// First bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header of version 1, with its end of line.
const LONGEST_TEXT: usize = 107;
/// The longest rest of a header of version 2 that is read; what is more than the addresses is ignored.
const LONGEST_REST: usize = 1024;
const VERSION_2_LOCAL: u8 = 0x20;
const VERSION_2_PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxiedConnection {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
}

impl ProxiedConnection {
    /// With both addresses of one family, as the protocol wants it: IPv4 addresses are mapped where they differ.
    fn in_one_family(self) -> (SocketAddr, SocketAddr) {
        let (source, destination) = (canonical(self.source), canonical(self.destination));
        if source.is_ipv4() == destination.is_ipv4() {
            return (source, destination);
        }
        (mapped(source), mapped(destination))
    }

    /// The header, in version 2.
    pub(crate) fn header(self) -> Vec<u8> {
        let (source, destination) = self.in_one_family();
        let (family, length) = if source.is_ipv4() { (TCP_OVER_IPV4, 12) } else { (TCP_OVER_IPV6, 36) };
        let mut header = SIGNATURE.to_vec();
        header.extend([VERSION_2_PROXY, family, 0, length]);
        for ip in [source.ip(), destination.ip()] {
            match ip {
                IpAddr::V4(ip) => header.extend(ip.octets()),
                IpAddr::V6(ip) => header.extend(ip.octets()),
            }
        }
        header.extend(source.port().to_be_bytes());
        header.extend(destination.port().to_be_bytes());
        header
    }
}

pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Reads a header of either version and nothing behind it. `None` if the sender speaks for itself.
pub(crate) async fn read_header(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<ProxiedConnection>> {
    let mut first = [0; SIGNATURE.len()];
    stream.read_exact(&mut first).await?;
    if first == SIGNATURE {
        return read_binary(stream).await;
    }
    let mut text = first.to_vec();
    while !text.ends_with(b"\r\n") {
        if text.len() >= LONGEST_TEXT {
            return Err(no_header());
        }
        text.push(stream.read_u8().await?);
    }
    parse_text(&text)
}

fn no_header() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no PROXY header")
}

fn parse_text(text: &[u8]) -> io::Result<Option<ProxiedConnection>> {
    let text = std::str::from_utf8(text).map_err(|_| no_header())?;
    let words: Vec<&str> = text.trim_end_matches("\r\n").split(' ').collect();
    match words.as_slice() {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", "TCP4" | "TCP6", source, destination, source_port, destination_port] => {
            let address = |ip: &str, port: &str| Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port.parse().ok()?));
            let source = address(source, source_port).ok_or_else(no_header)?;
            let destination = address(destination, destination_port).ok_or_else(no_header)?;
            Ok(Some(ProxiedConnection { source: canonical(source), destination: canonical(destination) }))
        }
        _ => Err(no_header()),
    }
}

async fn read_binary(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<ProxiedConnection>> {
    let (command, family) = (stream.read_u8().await?, stream.read_u8().await?);
    let length = usize::from(stream.read_u16().await?);
    if length > LONGEST_REST {
        return Err(no_header());
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    match (command, family) {
        (VERSION_2_PROXY, TCP_OVER_IPV4) => parse_addresses::<4>(&rest, |ip| Ipv4Addr::from(ip).into()).map(Some),
        (VERSION_2_PROXY, TCP_OVER_IPV6) => parse_addresses::<16>(&rest, |ip| Ipv6Addr::from(ip).into()).map(Some),
        (VERSION_2_LOCAL | VERSION_2_PROXY, _) => Ok(None),
        _ => Err(no_header()),
    }
}

fn parse_addresses<const BYTES: usize>(
    rest: &[u8],
    ip: impl Fn([u8; BYTES]) -> IpAddr,
) -> io::Result<ProxiedConnection> {
    let parse = || {
        let (source, rest) = rest.split_first_chunk::<BYTES>()?;
        let (destination, rest) = rest.split_first_chunk::<BYTES>()?;
        let (source_port, rest) = rest.split_first_chunk::<2>()?;
        let destination_port = rest.first_chunk::<2>()?;
        let address =
            |octets: &[u8; BYTES], port: &[u8; 2]| canonical(SocketAddr::new(ip(*octets), u16::from_be_bytes(*port)));
        Some(ProxiedConnection {
            source: address(source, source_port),
            destination: address(destination, destination_port),
        })
    };
    parse().ok_or_else(no_header)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Option<ProxiedConnection>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { read_header(&mut &*bytes).await })
    }

    fn connection(source: &str, destination: &str) -> ProxiedConnection {
        ProxiedConnection { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    #[test]
    fn what_is_written_is_read_back_and_text_is_read_too() {
        for (source, destination) in [
            ("192.0.2.7:4000", "10.128.4.3:80"),
            ("[2001:db8::7]:4000", "[fd4c::3]:80"),
            ("[2001:db8::7]:4000", "10.128.4.3:80"),
        ] {
            let header = connection(source, destination).header();
            assert_eq!(read(&header).unwrap(), Some(connection(source, destination)));
        }
        let text = b"PROXY TCP4 192.0.2.7 10.128.4.3 4000 80\r\n";
        assert_eq!(read(text).unwrap(), Some(connection("192.0.2.7:4000", "10.128.4.3:80")));
    }

    #[test]
    fn a_sender_that_speaks_for_itself_and_one_without_a_header() {
        assert_eq!(read(b"PROXY UNKNOWN\r\n").unwrap(), None);
        assert_eq!(read(&[&SIGNATURE[..], &[0x20, 0, 0, 0]].concat()).unwrap(), None);
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"PROXY TCP4 1.2.3.4\r\n", b"PROXY", &[b'x'; 200]] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
        assert!(read(&[&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat()).is_err(), "longer than any header");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), signed in any::<bool>()) {
            let head = if signed { &SIGNATURE[..] } else { b"PROXY " };
            let _ = read(&[head, &bytes].concat());
        }
    }
}
