//! Puts a rendered network into effect, step by step.
//!
//! Owns: the order: forwarding, bridges, isolated ports, the table, neighbours, routes, the engine's chain; and the
//! reverse when it is removed. Must not touch: what is desired. Invariant: a bridge has its rules before it has a route,
//! and applying twice changes nothing the second time.

use std::{collections::BTreeSet, fs, net::IpAddr, path::Path};

use ipnet::IpNet;

use super::{
    ApplyError, bridge_filtering, conntrack, docker_user,
    kernel::{Kernel, Link},
    nft,
};
use crate::{
    NetworkSettings,
    render::{DesiredNetwork, Parameter, Ruleset, Vip},
};

/// Whether the table is compared with what was loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// It is as it was left.
    Trusted,
    /// It is listed, and loaded again if it differs.
    Listed,
}

/// The alias that marks a device as ours.
pub(super) fn alias(desired: &DesiredNetwork) -> String {
    format!("longshore {}", desired.names.table)
}

/// Applies the network. `loaded` is the table as it was loaded before. Returns what was not as desired.
pub(super) async fn apply(
    kernel: &Kernel,
    settings: &NetworkSettings,
    desired: &DesiredNetwork,
    loaded: Option<&Ruleset>,
    check: Check,
) -> Result<Vec<String>, ApplyError> {
    let mut repairs = Vec::new();
    let (global, own): (Vec<&Parameter>, Vec<&Parameter>) =
        desired.parameters.iter().partition(|parameter| !parameter.path.contains("/lsb"));
    accept_router_advertisements(Path::new("/proc/sys/net"));
    repairs.extend(ensure_parameters(&global)?);
    let before = kernel.links().await?;
    for bridge in &desired.bridges {
        repairs.extend(kernel.ensure_bridge(bridge, &alias(desired), &before).await?);
    }
    repairs.extend(ensure_parameters(&own)?);
    let links = kernel.links().await?;
    for bridge in &desired.bridges {
        let Some(link) = links.get(&bridge.name) else { continue };
        repairs.extend(kernel.ensure_up(link).await?);
        repairs.extend(kernel.ensure_carrier(link, &alias(desired), &links).await?);
        for address in &bridge.addresses {
            repairs.extend(kernel.ensure_address(link.index, *address).await?);
        }
    }
    let links = kernel.links().await?;
    let is_ours = |link: &Link| desired.bridges.iter().any(|bridge| bridge.name == link.name);
    repairs.extend(bridge_filtering::ensure_off(kernel, &links, is_ours).await?);
    repairs.extend(isolate_ports(kernel, desired, links.values()).await?);
    repairs.extend(load_table(&desired.ruleset, loaded, check).await?);
    for bridge in &desired.bridges {
        if let Some(link) = links.get(&bridge.name) {
            repairs.extend(kernel.ensure_proxies(bridge, link.index).await?);
        }
    }
    let links = kernel.links().await?;
    repairs.extend(kernel.ensure_routes(&desired.routes, &networks(settings), &links).await?);
    if loaded.is_none_or(|loaded| loaded.base() != desired.ruleset.base()) || check == Check::Listed {
        repairs.extend(docker_user::ensure(desired).await);
    }
    remove_surplus_bridges(kernel, desired, links.values()).await;
    Ok(repairs)
}

/// The networks of the overlay.
pub(super) fn networks(settings: &NetworkSettings) -> [IpNet; 2] {
    [IpNet::V4(settings.addresses.pool), IpNet::V6(settings.addresses.ipv6_network())]
}

/// Isolates every port of our bridges that is not.
async fn isolate_ports(
    kernel: &Kernel,
    desired: &DesiredNetwork,
    links: impl Iterator<Item = &Link> + Clone,
) -> Result<Vec<String>, ApplyError> {
    let names: BTreeSet<&str> = desired.bridges.iter().map(|bridge| bridge.name.as_str()).collect();
    let bridges: BTreeSet<u32> =
        links.clone().filter(|link| names.contains(link.name.as_str())).map(|link| link.index).collect();
    let mut repairs = Vec::new();
    for port in links {
        if port.controller.is_some_and(|index| bridges.contains(&index)) && !port.is_isolated {
            kernel.isolate(port.index).await?;
            repairs.push(format!("the port {} was not isolated", port.name));
        }
    }
    Ok(repairs)
}

async fn load_table(ruleset: &Ruleset, loaded: Option<&Ruleset>, check: Check) -> Result<Vec<String>, ApplyError> {
    let mut repairs = Vec::new();
    let changed = match (loaded, check) {
        (Some(loaded), Check::Trusted) => ruleset.delta(loaded),
        (Some(loaded), Check::Listed) => {
            let difference = nft::difference(loaded).await?;
            let delta = ruleset.delta(loaded).filter(|_| difference.is_none());
            repairs.extend(difference);
            delta
        }
        (None, _) => None,
    };
    let loading = match &changed {
        // A difference that does not fit the kernel's table any more is replaced by the whole.
        Some(delta) => match nft::load(delta).await {
            Err(error) => {
                tracing::debug!(%error, "a change of the table does not fit; loading all of it");
                nft::load(&ruleset.whole()).await
            }
            Ok(()) => Ok(()),
        },
        None => nft::load(&ruleset.whole()).await,
    };
    loading?;
    forget_left_replicas(ruleset, loaded).await;
    Ok(repairs)
}

/// Ends UDP flows to replicas that no longer serve their VIP.
async fn forget_left_replicas(ruleset: &Ruleset, loaded: Option<&Ruleset>) {
    let Some(loaded) = loaded else { return };
    let mut left: BTreeSet<(IpAddr, IpAddr)> = BTreeSet::new();
    for (number, before) in &loaded.vips {
        let now = ruleset.vips.get(number).map(Vip::families).unwrap_or_default();
        let serves: BTreeSet<IpAddr> = now.into_iter().flat_map(|(_, replicas)| replicas).collect();
        for (vip, replicas) in before.families() {
            left.extend(replicas.into_iter().filter(|replica| !serves.contains(replica)).map(|replica| (vip, replica)));
        }
    }
    if left.is_empty() {
        return;
    }
    let forgotten = tokio::task::spawn_blocking(move || conntrack::forget(&left)).await;
    if let Ok(Err(error)) = forgotten {
        tracing::warn!(%error, "flows to replicas that left could not be ended");
    }
}

/// Removes bridges of nodes that this machine no longer has.
async fn remove_surplus_bridges(kernel: &Kernel, desired: &DesiredNetwork, links: impl Iterator<Item = &Link>) {
    let alias = alias(desired);
    // The port that gives a bridge its carrier has the bridge's digits.
    let digits = |name: &str| name.get(3..).unwrap_or_default().to_owned();
    let is_desired = |link: &Link| desired.bridges.iter().any(|bridge| digits(&bridge.name) == digits(&link.name));
    for link in links.filter(|link| link.alias.as_ref() == Some(&alias) && !is_desired(link)) {
        let _ = kernel.remove_link(link.index).await;
    }
}

/// Removes everything: rules of the engine's chain, routes, bridges, and the table last.
pub(super) async fn remove(
    kernel: &Kernel,
    settings: &NetworkSettings,
    desired: &DesiredNetwork,
) -> Result<(), ApplyError> {
    docker_user::remove(&desired.names.table).await;
    let links = kernel.links().await?;
    kernel.ensure_routes(&[], &networks(settings), &links).await?;
    let alias = alias(desired);
    for link in links.values().filter(|link| link.alias.as_ref() == Some(&alias)) {
        let _ = kernel.remove_link(link.index).await;
    }
    bridge_filtering::restore(&links);
    nft::delete(&desired.names.table).await
}

fn ensure_parameters(parameters: &[&Parameter]) -> Result<Vec<String>, ApplyError> {
    let mut repairs = Vec::new();
    for Parameter { path, value } in parameters {
        let file = Path::new("/proc/sys/net").join(path);
        let found = fs::read_to_string(&file).unwrap_or_default();
        if found.trim() == *value {
            continue;
        }
        fs::write(&file, value).map_err(|cause| ApplyError::Parameter { path: path.clone(), cause })?;
        repairs.push(format!("{path} was {}", found.trim()));
    }
    Ok(repairs)
}

/// A machine that forwards IPv6 ignores router advertisements, and would lose its own default route, unless it is told
/// to accept them all the same.
fn accept_router_advertisements(root: &Path) {
    let forwards = fs::read_to_string(root.join("ipv6/conf/all/forwarding")).unwrap_or_default();
    if forwards.trim() != "0" {
        return;
    }
    for device in fs::read_dir(root.join("ipv6/conf")).into_iter().flatten().flatten() {
        let file = device.path().join("accept_ra");
        if fs::read_to_string(&file).is_ok_and(|value| value.trim() == "1") {
            let _ = fs::write(file, "2");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_begins_to_forward_keeps_its_own_route() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("ipv6/conf");
        for (device, accepts) in [("all", "1"), ("eth0", "1"), ("eth1", "0")] {
            fs::create_dir_all(conf.join(device)).unwrap();
            fs::write(conf.join(device).join("accept_ra"), accepts).unwrap();
        }
        fs::write(conf.join("all/forwarding"), "0\n").unwrap();
        accept_router_advertisements(folder.path());
        let value = |device: &str| fs::read_to_string(conf.join(device).join("accept_ra")).unwrap();
        assert_eq!([value("eth0"), value("eth1")], ["2", "0"]);
    }
}
