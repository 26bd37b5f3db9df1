//! The addresses of the overlay network, all computed from a block number per node, a host number per replica and a
//! number per service.
//!
//! ```text
//! IPv6  <cluster /48> : block : replica        the node's /64; gateway <…>:ffff:ffff:ffff:fffe
//!       a block above 65,534 is a /80: its upper half stands between its lower half and the replica
//! IPv4  <pool> cut into /22 blocks, same host   the node's /22; gateway is its last usable address
//! VIPs  <cluster /48> : ffff : number           and the last sixteenth of the pool
//! nodes <cluster /48> : 0 : block               and the gateway of the node's /22
//! ```
//!
//! Owns: the arithmetic. Must not touch: which numbers are taken; the state machine and the scheduler give them out.
//! Invariant: different numbers never give equal addresses, and no address of one kind is one of another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Bits of a node's IPv4 block: 1,024 addresses.
const BLOCK_BITS: u32 = 10;
/// Prefix length of that block.
const BLOCK_PREFIX: u8 = 22;
/// Largest host number of a replica that has an IPv4 address: the block without network, gateway and broadcast.
pub const LARGEST_IPV4_HOST: u64 = (1 << BLOCK_BITS) - 3;
/// The IPv6 subnet of VIPs.
const VIP_SUBNET: u32 = 0xffff;
/// Largest block number that is a /64; those above it are /80s.
pub const LARGEST_BLOCK: u32 = VIP_SUBNET - 1;
/// The pool if no other is named.
pub const DEFAULT_IPV4_POOL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 128, 0, 0), 10);
/// The smallest pool, as a prefix length: one block for nodes' own addresses, one for VIPs, two for nodes.
pub const SMALLEST_POOL: u8 = 20;
/// The largest pool, as a prefix length: the largest private network.
pub const LARGEST_POOL: u8 = 8;
/// Bits of a replica's host number in a /80.
const SMALL_HOST_BITS: u32 = 48;

/// Whether a number can be a block: its lower half is a subnet of its own, neither that of nodes nor that of VIPs.
pub const fn is_block(number: u32) -> bool {
    let subnet = number & 0xffff;
    subnet != 0 && subnet != VIP_SUBNET
}

/// Everything that addresses of the overlay are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressPlan {
    /// First 48 bits of every IPv6 address.
    pub prefix: Ipv6Addr,
    /// Where every IPv4 address comes from.
    pub pool: Ipv4Net,
}

impl AddressPlan {
    /// The whole IPv6 network.
    pub fn ipv6_network(&self) -> Ipv6Net {
        Ipv6Net::new_assert(self.prefix, 48).trunc()
    }

    /// Largest block number that has an IPv4 block.
    pub fn largest_ipv4_block(&self) -> u32 {
        self.first_vip_block() - 1
    }

    /// The /64 of a node; the /80 of a node with a block above [`LARGEST_BLOCK`].
    pub fn ipv6_block(&self, block: u32) -> Ipv6Net {
        let length = if block <= LARGEST_BLOCK { 64 } else { 80 };
        Ipv6Net::new_assert(self.ipv6(block, 0), length)
    }

    /// The /22 of a node; `None` if the pool has none for this number.
    pub fn ipv4_block(&self, block: u32) -> Option<Ipv4Net> {
        let has_block = (1..=self.largest_ipv4_block()).contains(&block);
        has_block.then(|| Ipv4Net::new_assert(self.ipv4(block << BLOCK_BITS), BLOCK_PREFIX))
    }

    /// The blocks of a node, IPv4 first.
    pub fn blocks(&self, block: u32) -> Vec<IpNet> {
        let v4 = self.ipv4_block(block).map(IpNet::V4);
        v4.into_iter().chain([IpNet::V6(self.ipv6_block(block))]).collect()
    }

    /// The address of a replica.
    pub fn replica_ipv6(&self, block: u32, host: u64) -> Ipv6Addr {
        self.ipv6(block, host)
    }

    /// The IPv4 address that belongs to a replica's IPv6 address; `None` for an address outside this plan, and where the
    /// block or the host number has no IPv4 address.
    pub fn ipv4_of(&self, replica: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.ipv6_network().contains(&replica) {
            return None;
        }
        let [_, _, _, block, ..] = replica.segments();
        let host = u64::from_be_bytes(replica.octets()[8..].try_into().ok()?);
        let block = self.ipv4_block(u32::from(block))?;
        let host = u32::try_from(host).ok().filter(|host| (1..=LARGEST_IPV4_HOST).contains(&u64::from(*host)))?;
        Some(Ipv4Addr::from(u32::from(block.network()) + host))
    }

    /// The IPv6 address that belongs to a replica's IPv4 address; `None` for an address that is no replica's.
    pub fn ipv6_of(&self, replica: Ipv4Addr) -> Option<Ipv6Addr> {
        let offset = u32::from(replica).checked_sub(u32::from(self.pool.network()))?;
        let (block, host) = (offset >> BLOCK_BITS, u64::from(offset & ((1 << BLOCK_BITS) - 1)));
        let address = self.replica_ipv6(block, host);
        (self.ipv4_of(address) == Some(replica)).then_some(address)
    }

    /// The addresses of a node on its own bridge, which its replicas use as gateway and name server; IPv4 first.
    pub fn gateways(&self, block: u32) -> Vec<IpAddr> {
        let v4 = self.ipv4_gateway(block).map(IpAddr::V4);
        v4.into_iter().chain([IpAddr::V6(self.ipv6_gateway(block))]).collect()
    }

    /// The last usable address of the node's /22.
    pub fn ipv4_gateway(&self, block: u32) -> Option<Ipv4Addr> {
        self.ipv4_block(block).map(|block| Ipv4Addr::from(u32::from(block.broadcast()) - 1))
    }

    /// The last usable address of the node's block, counted as in IPv4.
    pub fn ipv6_gateway(&self, block: u32) -> Ipv6Addr {
        let last = u128::from(self.ipv6_block(block).broadcast());
        Ipv6Addr::from(last - 1)
    }

    /// A node's own address in the mesh.
    pub fn node_ipv6(&self, block: u32) -> Ipv6Addr {
        self.ipv6(0, u64::from(block))
    }

    /// The IPv4 VIP of a service number, counted from 1; `None` if the pool has none.
    pub fn vip_ipv4(&self, number: u32) -> Option<Ipv4Addr> {
        let range = self.vip_ipv4_range();
        let address = Ipv4Addr::from(u32::from(range.network()).checked_add(number)?);
        (number > 0 && range.contains(&address) && address != range.broadcast()).then_some(address)
    }

    /// The IPv6 VIP of a service number, counted from 1.
    pub fn vip_ipv6(&self, number: u32) -> Ipv6Addr {
        self.ipv6(VIP_SUBNET, u64::from(number))
    }

    /// The IPv4 addresses of VIPs.
    pub fn vip_ipv4_range(&self) -> Ipv4Net {
        let bits = self.block_count().trailing_zeros() - self.vip_blocks().trailing_zeros();
        let length = self.pool.prefix_len() + u8::try_from(bits).unwrap_or(0);
        Ipv4Net::new_assert(self.ipv4(self.first_vip_block() << BLOCK_BITS), length)
    }

    /// The IPv6 addresses of VIPs.
    pub fn vip_ipv6_range(&self) -> Ipv6Net {
        self.ipv6_block(VIP_SUBNET)
    }

    /// Number of /22 blocks in the pool, a power of two.
    fn block_count(&self) -> u32 {
        1 << (32 - u32::from(self.pool.prefix_len().clamp(1, SMALLEST_POOL)) - BLOCK_BITS)
    }

    /// A sixteenth of the pool, at least one block.
    fn vip_blocks(&self) -> u32 {
        (self.block_count() / 16).max(1)
    }

    fn first_vip_block(&self) -> u32 {
        self.block_count() - self.vip_blocks()
    }

    fn ipv6(&self, subnet: u32, host: u64) -> Ipv6Addr {
        let (low, high) = (u128::from(subnet & 0xffff), u128::from(subnet >> 16));
        let host = high << SMALL_HOST_BITS | u128::from(host);
        Ipv6Addr::from(u128::from(self.prefix) >> 80 << 80 | low << 64 | host)
    }

    fn ipv4(&self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.pool.network()) + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(pool: &str) -> AddressPlan {
        AddressPlan { prefix: Ipv6Addr::new(0xfd4c, 0x6f6e, 0x6773, 0, 0, 0, 0, 0), pool: pool.parse().unwrap() }
    }

    #[test]
    fn both_addresses_of_a_replica_have_its_host_number() {
        let plan = plan("10.128.0.0/10");
        let replica = plan.replica_ipv6(1, 3);
        assert_eq!(replica.to_string(), "fd4c:6f6e:6773:1::3");
        assert_eq!(plan.ipv4_of(replica).unwrap().to_string(), "10.128.4.3");
        assert_eq!(plan.ipv4_of(plan.replica_ipv6(1, LARGEST_IPV4_HOST)).unwrap().to_string(), "10.128.7.253");
        assert_eq!(plan.ipv4_of(plan.replica_ipv6(1, LARGEST_IPV4_HOST + 1)), None);
        assert_eq!(plan.ipv4_of("fd00::3".parse().unwrap()), None);
        assert_eq!(plan.ipv6_of("10.128.4.3".parse().unwrap()), Some(replica));
        for other in ["10.128.7.254", "10.128.4.0", "10.188.0.1", "10.128.0.1", "192.0.2.1"] {
            assert_eq!(plan.ipv6_of(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn the_gateway_is_the_last_usable_address() {
        let plan = plan("10.128.0.0/10");
        let gateways: Vec<String> = plan.gateways(1).iter().map(ToString::to_string).collect();
        assert_eq!(gateways, ["10.128.7.254", "fd4c:6f6e:6773:1:ffff:ffff:ffff:fffe"]);
        assert_eq!(plan.node_ipv6(7).to_string(), "fd4c:6f6e:6773::7");
    }

    #[test]
    fn a_block_beyond_the_last_subnet_is_a_part_of_one() {
        let plan = plan("10.128.0.0/10");
        assert!(!is_block(0) && is_block(1) && is_block(LARGEST_BLOCK));
        assert!(!is_block(LARGEST_BLOCK + 1) && !is_block(65_536) && is_block(65_537));
        assert_eq!(plan.replica_ipv6(65_537, 3).to_string(), "fd4c:6f6e:6773:1:1::3");
        assert_eq!(plan.ipv6_block(65_537).to_string(), "fd4c:6f6e:6773:1:1::/80");
        assert_eq!(plan.ipv6_gateway(65_537).to_string(), "fd4c:6f6e:6773:1:1:ffff:ffff:fffe");
        assert_eq!(plan.ipv4_of(plan.replica_ipv6(65_537, 3)), None);
    }

    #[test]
    fn vips_are_the_last_sixteenth_of_the_pool_and_no_nodes() {
        let wide = plan("10.128.0.0/10");
        assert_eq!(wide.vip_ipv4_range().to_string(), "10.188.0.0/14");
        assert_eq!(wide.vip_ipv4(1).unwrap().to_string(), "10.188.0.1");
        assert_eq!(wide.vip_ipv6(1).to_string(), "fd4c:6f6e:6773:ffff::1");
        assert_eq!(wide.largest_ipv4_block(), 3839);
        assert_eq!(wide.ipv4_block(3840), None);
        assert_eq!(wide.ipv4_block(0), None);
        let small = plan("10.9.0.0/20");
        assert_eq!(small.vip_ipv4_range().to_string(), "10.9.12.0/22");
        assert_eq!(small.largest_ipv4_block(), 2);
        assert_eq!(small.vip_ipv4(1023), None);
    }
}
