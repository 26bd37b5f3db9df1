//! A port that a replica's runtime has bound on its node, as the detail `ports` of a replica writes it.
//!
//! Owns: the text `80/tcp=0.0.0.0:32768`, written by agents and read by the control plane and the CLI.
//! Must not touch: which ports a service asks for.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

/// A port of a replica, and where its node listens for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPort {
    /// The port inside the replica with its protocol: `80/tcp`.
    pub target: String,
    /// Where the node listens.
    pub at: SocketAddr,
}

impl BoundPort {
    /// Reads one entry of the detail; `None` if it is not one. An engine writes IPv6 addresses without brackets, and no
    /// address at all for every address.
    pub fn parse(text: &str) -> Option<Self> {
        let (target, at) = text.split_once('=')?;
        let (ip, port) = at.rsplit_once(':')?;
        let ip = ip.trim_start_matches('[').trim_end_matches(']');
        let ip: IpAddr = if ip.is_empty() { Ipv4Addr::UNSPECIFIED.into() } else { ip.parse().ok()? };
        Some(Self { target: target.to_owned(), at: SocketAddr::new(ip.to_canonical(), port.parse().ok()?) })
    }

    /// Whether it is bound for that port and protocol of the replica.
    pub fn is_for(&self, port: u16, protocol: &str) -> bool {
        self.target.split_once('/') == Some((port.to_string().as_str(), protocol))
    }
}

impl fmt::Display for BoundPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.target, self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_engines_write_is_read() {
        let at = |text: &str| BoundPort::parse(text).map(|port| port.at.to_string());
        assert_eq!(at("80/tcp=0.0.0.0:32768").as_deref(), Some("0.0.0.0:32768"));
        assert_eq!(at("80/tcp=:32768").as_deref(), Some("0.0.0.0:32768"));
        assert_eq!(at("80/tcp=:::32768").as_deref(), Some("[::]:32768"));
        assert_eq!(at("80/tcp=[::1]:32768").as_deref(), Some("[::1]:32768"));
        assert_eq!(at("80/tcp=::ffff:10.0.0.7:53").as_deref(), Some("10.0.0.7:53"));
        assert_eq!(at("80/tcp"), None);
        assert_eq!(at("80/tcp=somewhere"), None);
        let port = BoundPort::parse("80/tcp=0.0.0.0:32768").unwrap();
        assert!(port.is_for(80, "tcp") && !port.is_for(8080, "tcp") && !port.is_for(80, "udp"));
        assert_eq!(port.to_string(), "80/tcp=0.0.0.0:32768");
    }
}
