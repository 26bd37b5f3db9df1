//! The addresses of a new cluster, and whether they clash with routes of this machine.
//!
//! Owns: drawing the IPv6 prefix, choosing the IPv4 pool, and reading the kernel's routes.
//! Must not touch: the addresses of a cluster that exists.
//! Invariant: a pool that somebody named is used or refused, never replaced by another one.

use std::{
    fmt, fs,
    net::{Ipv4Addr, Ipv6Addr},
};

use ipnet::Ipv4Net;
use longshore_model::{AddressPlan, address_plan::DEFAULT_IPV4_POOL, hex};

use crate::security::keyring::{KeyringError, random_hex};

/// Pools that are tried in this order if none was named: the default, other quarters of the largest private network,
/// then the shared address space of carriers.
const CANDIDATES: [Ipv4Net; 4] = [
    DEFAULT_IPV4_POOL,
    Ipv4Net::new_assert(Ipv4Addr::new(10, 192, 0, 0), 10),
    Ipv4Net::new_assert(Ipv4Addr::new(10, 64, 0, 0), 10),
    Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10),
];
/// Devices of overlays start with these.
const OVERLAY_DEVICES: [&str; 2] = ["lsb", "lsm"];

/// An IPv4 route of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoute {
    /// Where it leads.
    pub destination: Ipv4Net,
    /// The device it goes over.
    pub device: String,
}

impl fmt::Display for HostRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over `{}`", self.destination, self.device)
    }
}

/// A pool that this machine already has a route to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the IPv4 pool {pool} of the cluster clashes with a route of this machine: {route}")]
pub struct PoolClash {
    /// The pool.
    pub pool: Ipv4Net,
    /// The route.
    pub route: HostRoute,
}

/// The addresses of a new cluster: a random prefix, and the named pool or the first one that is free here.
pub(crate) fn choose(named: Option<Ipv4Net>) -> Result<AddressPlan, ChoiceError> {
    let routes = host_routes();
    let pool = match named {
        Some(pool) => clash(pool, &routes).map_or(Ok(pool), Err)?,
        None => first_free(&routes),
    };
    Ok(AddressPlan { prefix: random_prefix()?, pool })
}

/// Why a cluster has no addresses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChoiceError {
    #[error(transparent)]
    Clash(#[from] PoolClash),
    #[error(transparent)]
    Random(#[from] KeyringError),
}

/// Whether the pool of a cluster clashes with a route of this machine, which is about to join it. Devices of an overlay
/// may be this cluster's own, of another node on this machine.
pub(crate) fn check_join(pool: Ipv4Net) -> Result<(), PoolClash> {
    let is_foreign = |route: &HostRoute| !OVERLAY_DEVICES.iter().any(|name| route.device.starts_with(name));
    let routes: Vec<HostRoute> = host_routes().into_iter().filter(is_foreign).collect();
    clash(pool, &routes).map_or(Ok(()), Err)
}

fn first_free(routes: &[HostRoute]) -> Ipv4Net {
    let free = CANDIDATES.into_iter().find(|pool| clash(*pool, routes).is_none());
    // Where all of them clash, the nodes say so, and run without an overlay.
    free.unwrap_or(DEFAULT_IPV4_POOL)
}

fn clash(pool: Ipv4Net, routes: &[HostRoute]) -> Option<PoolClash> {
    let overlaps = |route: &&HostRoute| {
        // A default route, whole or in two halves, leads everywhere and claims nothing.
        let is_default = route.destination.prefix_len() <= 1;
        let overlap = route.destination.contains(&pool.network()) || pool.contains(&route.destination.network());
        !is_default && overlap
    };
    routes.iter().find(overlaps).map(|route| PoolClash { pool, route: route.clone() })
}

/// `fd` and 40 random bits.
fn random_prefix() -> Result<Ipv6Addr, KeyringError> {
    let bytes = hex::decode(&random_hex(5)?).unwrap_or_default();
    let random = bytes.into_iter().fold(0xfd_u128, |prefix, byte| prefix << 8 | u128::from(byte));
    Ok(Ipv6Addr::from(random << 80))
}

fn host_routes() -> Vec<HostRoute> {
    let table = fs::read_to_string("/proc/net/route").unwrap_or_default();
    table.lines().skip(1).filter_map(route_of).collect()
}

/// A line of the kernel's table: device, destination, gateway, flags, three counters, mask; addresses as hexadecimal
/// numbers of this machine's byte order.
fn route_of(line: &str) -> Option<HostRoute> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let address =
        |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok().map(|raw| Ipv4Addr::from(raw.to_ne_bytes()));
    let destination = Ipv4Net::with_netmask(address(1)?, address(7)?).ok()?;
    Some(HostRoute { destination, device: (*fields.first()?).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str) -> HostRoute {
        HostRoute { destination: destination.parse().unwrap(), device: "eth1".to_owned() }
    }

    #[test]
    fn a_route_is_read_as_the_kernel_prints_it() {
        let raw = |ip: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(ip));
        let (to, mask) = (raw([10, 130, 0, 0]), raw([255, 255, 0, 0]));
        let line = format!("eth1\t{to}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0");
        assert_eq!(route_of(&line), Some(route("10.130.0.0/16")));
        assert_eq!(route_of("nonsense"), None);
    }

    #[test]
    fn a_pool_clashes_with_a_route_inside_or_around_it_but_not_with_the_default_route() {
        let pool = DEFAULT_IPV4_POOL;
        assert!(clash(pool, &[route("0.0.0.0/0"), route("0.0.0.0/1"), route("192.168.0.0/16")]).is_none());
        assert!(clash(pool, &[route("10.0.0.0/8")]).is_some());
        let found = clash(pool, &[route("192.168.0.0/16"), route("10.130.0.0/16")]).unwrap();
        assert_eq!(
            found.to_string(),
            "the IPv4 pool 10.128.0.0/10 of the cluster clashes with a route of this machine: 10.130.0.0/16 over `eth1`"
        );
    }

    #[test]
    fn the_first_pool_that_is_free_is_chosen() {
        assert_eq!(first_free(&[]), DEFAULT_IPV4_POOL);
        assert_eq!(first_free(&[route("10.130.0.0/16")]).to_string(), "10.192.0.0/10");
        assert_eq!(first_free(&[route("10.0.0.0/8")]).to_string(), "100.64.0.0/10");
        assert_eq!(first_free(&[route("10.0.0.0/8"), route("100.100.0.0/16")]), DEFAULT_IPV4_POOL);
    }

    #[test]
    fn a_prefix_is_unique_local_and_another_one_each_time() {
        let prefix = random_prefix().unwrap();
        assert_eq!(prefix.octets()[0], 0xfd);
        assert_eq!(u128::from(prefix) << 48, 0);
        assert_ne!(prefix, random_prefix().unwrap());
    }
}
