//! What a machine must have for the overlay.
//!
//! Owns: the checks and their words. Invariant: an answer names what is missing and what can be done.

use std::{collections::BTreeSet, path::Path};

use super::{ApplyError, apply::networks, kernel::Kernel, nft};
use crate::{NetworkSettings, render::DesiredNetwork};

/// What this machine lacks, whatever the cluster's settings are; `None` if it lacks nothing.
pub(super) async fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("the daemon does not run as root".to_owned());
    }
    if !Path::new("/proc/sys/net/ipv6/conf/all").exists() {
        return Some("the kernel has no IPv6".to_owned());
    }
    nft::missing().await
}

/// The route of this machine that overlaps the cluster's addresses, in words.
pub(super) async fn clash(
    kernel: &Kernel,
    settings: &NetworkSettings,
    desired: &DesiredNetwork,
) -> Result<Option<String>, ApplyError> {
    let own: BTreeSet<&str> =
        desired.bridges.iter().map(|bridge| bridge.name.as_str()).chain([desired.names.mesh.as_str()]).collect();
    let links = kernel.links().await?;
    let own = links.values().filter(|link| own.contains(link.name.as_str())).map(|link| link.index).collect();
    let route = kernel.overlapping_route(&networks(settings), &own).await?;
    let [pool, prefix] = networks(settings);
    Ok(route.map(|route| {
        format!(
            "its route to {route} overlaps the cluster's addresses {pool} and {prefix}; choose another pool with \
             `longshore settings set ipv4_pool`"
        )
    }))
}
