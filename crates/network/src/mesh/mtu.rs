//! The MTU of the mesh.
//!
//! Owns: how the MTU follows from the interfaces below.
//! Must not touch: the interfaces. Invariant: an encrypted packet of full size fits the smallest interface below, unless
//! that one is too small for IPv6 inside, which needs 1,280 bytes; then packets are fragmented below.

/// What WireGuard adds to a packet: 40 bytes of IPv6, 8 of UDP, 16 of header, 16 of authentication.
const OVERHEAD: u32 = 80;
/// The smallest MTU that IPv6 allows.
const SMALLEST: u32 = 1280;
/// The largest MTU of the mesh: jumbo frames. A loopback interface would allow more, and every buffer has this size.
const LARGEST: u32 = 9000 - OVERHEAD;
/// The MTU of an interface that nothing is known about.
const ETHERNET: u32 = 1500;

/// The MTU of the mesh over interfaces with these MTUs.
pub fn mesh_mtu(underlay: impl IntoIterator<Item = u32>) -> u32 {
    let smallest = underlay.into_iter().min().unwrap_or(ETHERNET);
    smallest.saturating_sub(OVERHEAD).clamp(SMALLEST, LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_interface_decides_and_ipv6_always_fits() {
        assert_eq!(mesh_mtu([1500]), 1420);
        assert_eq!(mesh_mtu([9000, 1400]), 1320);
        assert_eq!(mesh_mtu([1300]), 1280);
        assert_eq!(mesh_mtu([65_536]), 8920);
        assert_eq!(mesh_mtu([]), 1420);
    }
}
