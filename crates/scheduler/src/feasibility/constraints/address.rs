//! Matches a node's IP address against an address or a CIDR range.

use std::net::IpAddr;

/// A CIDR range; a plain address is a range of one.
#[derive(Debug)]
pub(super) struct Network {
    first: IpAddr,
    /// Prefix length in bits.
    length: u32,
}

impl Network {
    /// Parses `10.0.0.0/8` or a plain address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (first, length) = match text.split_once('/') {
            Some((first, length)) => (first.parse::<IpAddr>().ok()?, Some(length.parse::<u32>().ok()?)),
            None => (text.parse::<IpAddr>().ok()?, None),
        };
        let width = if first.is_ipv4() { 32 } else { 128 };
        let length = length.unwrap_or(width);
        (length <= width).then_some(Self { first, length })
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        let (ip, first, width) = match (ip, self.first) {
            (IpAddr::V4(ip), IpAddr::V4(first)) => (u128::from(ip.to_bits()), u128::from(first.to_bits()), 32),
            (IpAddr::V6(ip), IpAddr::V6(first)) => (ip.to_bits(), first.to_bits(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        // `checked_shr` returns `None` for a shift by the whole width: prefix length 0 contains every address.
        (ip ^ first).checked_shr(width - self.length).unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_its_first_and_last_address_and_no_other() {
        let inside = |range: &str, ip: &str| Network::parse(range).unwrap().contains(ip.parse().unwrap());
        assert!(inside("10.1.0.0/16", "10.1.0.0") && inside("10.1.0.0/16", "10.1.255.255"));
        assert!(!inside("10.1.0.0/16", "10.2.0.0"));
        assert!(inside("0.0.0.0/0", "255.1.2.3") && inside("::/0", "fd00::1"));
        assert!(inside("fd00::1", "fd00:0:0::1"));
        assert!(!inside("::/0", "10.0.0.1"), "IPv4 and IPv6 do not mix");
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/x"] {
            assert!(Network::parse(text).is_none(), "{text}");
        }
    }
}
